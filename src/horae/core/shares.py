"""Shares: how many jobs, runs, starts and bytes each owner may have, and whose turn it is when several have due runs.

Limits are off until somebody sets them, and never hold for `local`. A limit that ALTER USER sets counts before the one
that ALTER SYSTEM sets, and that before the one of the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from horae.core.instant import EPOCH, rfc3339
from horae.core.size import parse_size
from horae.errors import InvalidPolicy, shown

UNLIMITED = -1
"""A limit of a user's own that lifts the one of the system."""
MINUTE_MS = 60_000
PREFIX = "scheduler.owner_"
KEPT, LEAST_PLACES = 10, 4
KINDS = ("max_jobs", "max_running", "max_starts", "max_storage")


class Limits(NamedTuple):
    """None: no limit. `max_starts` is per minute, `max_storage` in bytes."""

    max_jobs: int | None = None
    max_running: int | None = None
    max_starts: int | None = None
    max_storage: int | None = None

    @property
    def hold_starts_back(self) -> bool:
        """Whether a run may have to wait for them."""
        return self[1:] != (None, None, None)


OwnLimits = Limits
"""The same four of one user: None where the system's counts, UNLIMITED where none does."""


class Use(NamedTuple):
    """What one owner has at present. Starts are counted in the minute that began at `window_ms`."""

    running: int = 0
    window_ms: int = 0
    window_starts: int = 0
    stored: int | None = None

    def starts_at(self, now_ms: int) -> int:
        return 0 if self.is_over(now_ms) else self.window_starts

    def is_over(self, now_ms: int) -> bool:
        """Also where the clock was set back: a minute that begins in the future counts nothing."""
        return not self.window_ms <= now_ms < self.window_ms + MINUTE_MS


def parse_limits(given: Mapping[str, object]) -> dict[str, int | None]:
    """Limits of a user's own as people write them: a number, "none" to lift the system's, None or "default" to take
    one back; `max_storage` also as a size. Raises InvalidPolicy."""
    found: dict[str, int | None] = {}
    for name, value in given.items():
        kind = name.lower()
        if kind not in KINDS:
            raise InvalidPolicy(f"Unknown limit {shown(name)}", hint=f"Known limits: {', '.join(KINDS)}.")
        word = value.strip().lower() if isinstance(value, str) else value
        if word is None or word == "default":
            found[kind] = None
        elif word in ("none", UNLIMITED):
            # What a statement was read as is given back to here.
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


def effective(own: OwnLimits, system: Mapping[str, object], configured: Limits) -> Limits:
    """What holds for one owner. `system` is what ALTER SYSTEM has set, by its full names."""
    found: list[int | None] = []
    for kind, mine, default in zip(KINDS, own, configured, strict=True):
        said = system.get(PREFIX + kind)
        others = said if type(said) is int and said >= 1 else default
        chosen = others if mine is None else mine
        found.append(None if chosen == UNLIMITED else chosen)
    return Limits(*found)


def room(limits: Limits, use: Use, now_ms: int) -> int | None:
    """How many more runs of an owner may start now; None: any number."""
    rooms = []
    if limits.max_running is not None:
        rooms.append(limits.max_running - use.running)
    if limits.max_starts is not None:
        rooms.append(limits.max_starts - use.starts_at(now_ms))
    if _is_full(limits, use):
        rooms.append(0)
    return max(0, min(rooms)) if rooms else None


def reached(owner: str, limits: Limits, use: Use, now: datetime) -> str | None:
    """Which limit keeps an owner's runs from starting, in a sentence's end; None where none does."""
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


def _is_full(limits: Limits, use: Use) -> bool:
    return limits.max_storage is not None and use.stored is not None and use.stored >= limits.max_storage


@dataclass(slots=True)
class Claimant:
    """An owner with due runs, while places are given out. `room`: how many more of its runs may start."""

    owner: str
    running: int
    served_ms: int
    room: int | None = None

    def take(self) -> None:
        self.running += 1
        if self.room is not None:
            self.room -= 1


def kept_places(places: int) -> int:
    """How many of a node's places are kept for owners with fewer runs under way than that: one of ten. A node with very
    few places keeps none."""
    return 0 if places < LEAST_PLACES else -(-places // KEPT)


def portions(claimants: Iterable[Claimant], slots: int, kept: int = 0) -> dict[str, int]:
    """Who is given how many of the free slots: each goes to the owner with the fewest runs under way, of several such
    to the one that has waited longest since a run of its was claimed. In the order in which they are served. An owner
    with `kept` runs under way leaves that many slots free: runs that last long could take all there are."""
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
