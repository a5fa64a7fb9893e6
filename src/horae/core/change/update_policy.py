"""How a change of a definition takes effect: at once, after the announced slot, or within a horizon."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.job.policies import UPDATE_POLICIES, checked_choice
from horae.core.schedule.bounds import bound_text
from horae.core.schedule.schedules import Schedule
from horae.core.time.duration import DurationLike, format_duration, parse_duration
from horae.core.time.instant import aware, parse_instant
from horae.errors import InvalidInput, InvalidPolicy, shown

_SECOND = timedelta(seconds=1)
HORIZON = timedelta(days=30)
"""The horizon of a windowed change that names none."""


@dataclass(frozen=True, slots=True)
class Update:
    """How a change takes effect. Only graceful takes `until`, only windowed takes `horizon`.

    Raises InvalidPolicy for any other combination, and for a horizon that is not positive.
    """

    policy: str = "immediate"
    until: datetime | None = None
    horizon: DurationLike | None = None

    def __post_init__(self) -> None:
        checked_choice(self.policy, UPDATE_POLICIES, "update policy")
        if self.until is not None and self.policy != "graceful":
            raise InvalidPolicy("Invalid update policy: only graceful takes a time until which the old schedule holds")
        if self.horizon is not None and self.policy != "windowed":
            raise InvalidPolicy("Invalid update policy: only windowed takes a horizon")
        if self.until is not None:
            object.__setattr__(self, "until", aware(self.until, "until"))
        if self.policy == "windowed":
            horizon = HORIZON if self.horizon is None else parse_duration(self.horizon, name="horizon")
            if horizon <= timedelta(0):
                raise InvalidPolicy("Invalid update policy: the horizon of windowed must be more than nothing")
            object.__setattr__(self, "horizon", horizon)

    def switch_at(self, old: Schedule | None, now: datetime, after: datetime | None) -> datetime:
        """The last moment whose slots belong to the old schedule. The announced slot is the next one after `after`;
        None: no slot is announced."""
        if self.policy != "graceful" or old is None:
            return now
        if self.until is not None:
            # The old schedule owns every slot before `until`. Slots are whole seconds: its last is one second earlier.
            whole = self.until.replace(microsecond=0)
            return now if self.until <= now else max(now, whole if self.until > whole else whole - _SECOND)
        announced = None if after is None else old.next(after)
        return now if announced is None else max(now, announced)

    def reaches(self, now: datetime) -> datetime | None:
        """The last moment that a change at `now` reaches; None: it has no end."""
        return None if self.horizon is None else now + parse_duration(self.horizon)

    def to_dict(self) -> Any:
        """The value that `parse_update` reads back: a word, or a mapping from the word to its argument."""
        if self.until is not None:
            return {self.policy: bound_text(self.until)}
        return self.policy if self.horizon is None else {self.policy: format_duration(parse_duration(self.horizon))}

    def __str__(self) -> str:
        said = self.to_dict()
        return said if isinstance(said, str) else "=".join(*said.items())


IMMEDIATE = Update()


def parse_update(value: Any) -> Update:
    """Reads `"graceful"`, `"windowed=7d"`, `"graceful=2027-01-01T00:00:00Z"`, `{"windowed": "7d"}`."""
    if isinstance(value, Update):
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        policy, argument = next(iter(value.items()))
    elif isinstance(value, str):
        policy, equals, text = value.partition("=")
        argument = text if equals else None
    else:
        raise InvalidPolicy(
            f"Invalid update policy {shown(value)}",
            hint='Write "immediate", "graceful", {graceful = TIME}, "windowed" or {windowed = "7d"}.',
        )
    checked_choice(policy, UPDATE_POLICIES, "update policy")
    match policy:
        case "graceful" if argument is not None:
            until = argument if isinstance(argument, datetime) else parse_instant(argument, "until")
            return Update("graceful", until=until)
        case "windowed" if argument is not None:
            return Update("windowed", horizon=parse_duration(argument, name="horizon"))
        case "immediate" if argument is not None:
            raise InvalidPolicy("Invalid update policy: immediate takes nothing more")
    return Update(str(policy))


def checked_version(expected: int | None) -> int | None:
    """The version that a change expects to find; 0 is that of a job that does not exist yet. Raises InvalidInput."""
    if expected is None or (isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0):
        return expected
    raise InvalidInput(
        f"Invalid expected_version {shown(expected)}: must be a whole number, 0 for a job that is new",
        hint="Take it from app.get_job(name).version, or from what schedule() returned.",
    )


def expected_versions(expected: int | Mapping[str, int] | None, names: Collection[str]) -> dict[str, int]:
    """The versions that a change of these jobs expects to find, by name. A single number is for the only job in
    `names`. Raises InvalidInput for unknown names, and for one number with several jobs."""
    if isinstance(expected, Mapping):
        unknown = sorted(set(expected) - set(names))
        if unknown:
            raise InvalidInput(
                f"expected_version names {shown(unknown[0])}, which is not among the definitions",
                hint="Name only jobs that the definitions have.",
            )
        return {name: version for name in expected if (version := checked_version(expected[name])) is not None}
    version = checked_version(expected)
    if version is None:
        return {}
    if len(names) != 1:
        raise InvalidInput(
            f"One expected_version for {len(names)} jobs", hint="Give a mapping from each name to its version."
        )
    return dict.fromkeys(names, version)
