"""Owner limits: how many jobs, runs, starts and bytes an owner may have, and how due runs of several owners take turns.

By default there are no limits, and `local` never has any. A limit set by ALTER USER takes precedence over one set by
ALTER SYSTEM, and that over one from the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from horae.core.program.size import parse_size
from horae.core.time.instant import EPOCH, rfc3339
from horae.errors import InvalidPolicy, shown

UNLIMITED = -1
"""The value of a user's own limit that lifts the system's."""
MINUTE_MS = 60_000
PREFIX = "scheduler.owner_"
KEPT, LEAST_PLACES = 10, 4
KINDS = ("max_jobs", "max_running", "max_starts", "max_storage")


class OwnerLimits(NamedTuple):
    """The limits of one owner; None: no limit. `max_starts` is per minute, `max_storage` in bytes."""

    max_jobs: int | None = None
    max_running: int | None = None
    max_starts: int | None = None
    max_storage: int | None = None

    @property
    def hold_starts_back(self) -> bool:
        """Whether a run may have to wait because of a limit."""
        return self[1:] != (None, None, None)


OwnLimits = OwnerLimits
"""The same four as set for one user: None: the system's limit applies; UNLIMITED: no limit applies."""


class OwnerUsage(NamedTuple):
    """What one owner uses now. Starts are counted in the minute that began at `window_ms`; `stored` is in bytes."""

    running: int = 0
    window_ms: int = 0
    window_starts: int = 0
    stored: int | None = None

    def starts_at(self, now_ms: int) -> int:
        return 0 if self.is_over(now_ms) else self.window_starts

    def is_over(self, now_ms: int) -> bool:
        """Whether the minute of `window_ms` is over. One in the future is, too: the clock was set back."""
        return not self.window_ms <= now_ms < self.window_ms + MINUTE_MS


def parse_limits(given: Mapping[str, object]) -> dict[str, int | None]:
    """Parses a user's own limits: a number, "none" to lift the system's limit, None or "default" to remove the own one.

    `max_storage` may also be a size such as "1GiB". Raises InvalidPolicy, or InvalidConfiguration for an invalid size.
    """
    found: dict[str, int | None] = {}
    for name, value in given.items():
        kind = name.lower()
        if kind not in KINDS:
            raise InvalidPolicy(f"Unknown limit {shown(name)}", hint=f"Known limits: {', '.join(KINDS)}.")
        word = value.strip().lower() if isinstance(value, str) else value
        if word is None or word == "default":
            found[kind] = None
        elif word in ("none", UNLIMITED):
            # The limits of a parsed statement are parsed here again.
            found[kind] = UNLIMITED
        else:
            found[kind] = _number(kind, value)
    return found


def _number(kind: str, value: object) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if kind == "max_storage" and isinstance(value, str):
        return parse_size(value, name=kind)
    if type(value) is not int or value < 1:
        raise InvalidPolicy(
            f"Invalid {kind} {shown(value)}: must be a whole number from 1", hint="Or none, or default."
        )
    return value


def effective(own: OwnLimits, system: Mapping[str, object], configured: OwnerLimits) -> OwnerLimits:
    """The limits that apply to one owner. `system` has the settings of ALTER SYSTEM by their full names."""
    found: list[int | None] = []
    for kind, mine, default in zip(KINDS, own, configured, strict=True):
        said = system.get(PREFIX + kind)
        others = said if type(said) is int and said >= 1 else default
        chosen = others if mine is None else mine
        found.append(None if chosen == UNLIMITED else chosen)
    return OwnerLimits(*found)


def room(limits: OwnerLimits, use: OwnerUsage, now_ms: int) -> int | None:
    """How many more runs of an owner may start now; None: no limit."""
    rooms = []
    if limits.max_running is not None:
        rooms.append(limits.max_running - use.running)
    if limits.max_starts is not None:
        rooms.append(limits.max_starts - use.starts_at(now_ms))
    if _is_full(limits, use):
        rooms.append(0)
    return max(0, min(rooms)) if rooms else None


def reached_limit(owner: str, limits: OwnerLimits, use: OwnerUsage, now: datetime) -> str | None:
    """The limit that keeps an owner's runs from starting, as the end of a sentence; None where none does."""
    now_ms = round((now - EPOCH).total_seconds() * 1000)
    if limits.max_running is not None and use.running >= limits.max_running:
        return f"{shown(owner)} runs {use.running} of {limits.max_running} at once (max_running)"
    if limits.max_starts is not None and use.starts_at(now_ms) >= limits.max_starts:
        again = EPOCH + timedelta(milliseconds=use.window_ms + MINUTE_MS)
        started = f"{shown(owner)} started {use.window_starts} of {limits.max_starts} runs in this minute"
        return f"{started} (max_starts), the next at {rfc3339(again)}"
    if _is_full(limits, use):
        return f"{shown(owner)} keeps {use.stored} of {limits.max_storage} bytes of output and results (max_storage)"
    return None


def _is_full(limits: OwnerLimits, use: OwnerUsage) -> bool:
    return limits.max_storage is not None and use.stored is not None and use.stored >= limits.max_storage


@dataclass(slots=True)
class Claimant:
    """An owner with due runs, while free capacity is given out.

    `running` counts its active runs. `served_ms` is when one of its runs was last claimed. `room` is how many more of
    its runs may start; None: no limit.
    """

    owner: str
    running: int
    served_ms: int
    room: int | None = None

    def take(self) -> None:
        self.running += 1
        if self.room is not None:
            self.room -= 1


def reserved_capacity(places: int) -> int:
    """The part of a node's capacity that is kept for owners with fewer active runs than that: a tenth, rounded up.

    A node with a capacity below LEAST_PLACES keeps none.
    """
    return 0 if places < LEAST_PLACES else -(-places // KEPT)


def share_capacity(claimants: Iterable[Claimant], slots: int, kept: int = 0) -> dict[str, int]:
    """How many runs each owner may start with the free capacity `slots`, in the order in which owners are served.

    The next start goes to the owner with the fewest active runs; among equals, to the one whose last claim is longest
    ago. An owner with `kept` active runs or more leaves a capacity of `kept` free, so that long runs cannot take all.
    """
    places = [Claimant(each.owner, each.running, each.served_ms, each.room) for each in claimants]
    given: dict[str, int] = {}
    for left in range(slots, 0, -1):
        open_ones = [
            each for each in places if (each.room is None or each.room > 0) and (left > kept or each.running < kept)
        ]
        if not open_ones:
            break
        chosen = min(open_ones, key=lambda each: (each.running, each.served_ms, each.owner))
        chosen.take()
        given[chosen.owner] = given.get(chosen.owner, 0) + 1
    return given
