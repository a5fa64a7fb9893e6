"""Conversion of schedules between their SQL parts and their values in core.

Times without an offset are read in the job's zone. The parts of a union have zones and daylight rules of their own;
those of any other schedule are clauses of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horae.core.schedule.bounds import bound_text
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule, Union
from horae.core.time.instant import aware, floored, rfc3339
from horae.core.time.zone import zone
from horae.errors import InvalidDefinition, InvalidTime, shown
from horae.formats.sql.statements import AtMoments, CronMoments, EveryMoments, IsoMoments, Moments

DEFAULT_GAP, DEFAULT_FOLD, DEFAULT_ZONE = "skip", "once", "UTC"


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """The zone and the daylight rules of a schedule whose text does not name its own."""

    zone: str = DEFAULT_ZONE
    gap: str = DEFAULT_GAP
    fold: str = DEFAULT_FOLD


def clocks_of(schedule: Schedule | None) -> ZoneRules:
    """Returns the zone and the daylight rules of a present schedule: a change keeps those that it does not name."""
    if isinstance(schedule, Cron):
        return ZoneRules(schedule.tz, schedule.gap, schedule.fold)
    return ZoneRules(DEFAULT_ZONE if schedule is None else schedule.timezone)


def instant_of(text: str, zone_name: str, what: str = "time") -> datetime:
    """Parses a time with an offset or Z, or without one in the zone `zone_name`. `what` names it in errors. Raises
    InvalidTime."""
    try:
        value = datetime.fromisoformat(text.strip())
    except ValueError:
        hint = "Write it as '2026-01-15 10:00:00', in the job's zone, or with an offset: '2026-01-15T10:00:00Z'."
        raise InvalidTime(f"Invalid {what} {shown(text)}: is not a date and time", hint=hint) from None
    return aware(value, what) if value.tzinfo is not None else zone(zone_name).first_shown(value, what)


def schedule_of(parts: tuple[Moments, ...], clocks: ZoneRules, *, drop: bool, now: datetime) -> Schedule:
    """Returns the schedule of the parts, a union where there are several. `drop` holds for an AT without THEN. Raises
    core's errors for an invalid part, and InvalidTime for an AT before `now`."""
    made = [_one(part, clocks, drop=drop, now=now) for part in parts]
    union = Union(tuple(made))
    return union if len(union.parts) > 1 else union.parts[0]


def _one(part: Moments, clocks: ZoneRules, *, drop: bool, now: datetime) -> Schedule:
    match part:
        case CronMoments():
            given: dict[str, Any] = {
                "tz": part.zone or clocks.zone,
                "gap": part.gap or clocks.gap,
                "fold": part.fold or clocks.fold,
                "dialect": part.dialect or "extended",
            }
            given |= _bounds(given["tz"], starts=part.starts, ends=part.ends)
            return Cron(part.expr, **given)
        case AtMoments():
            at = floored(instant_of(part.at, clocks.zone, "AT"))
            if at < floored(now):
                hint = "Name a time to come. What should run now is EXECUTE JOB."
                raise InvalidTime(f"Invalid AT {shown(part.at)}: {rfc3339(at)} is in the past", hint=hint)
            return Once(at, drop if part.then is None else part.then == "drop")
        case EveryMoments():
            return Every(part.interval, **_bounds(clocks.zone, part.starts, part.ends, part.anchor))
        case IsoMoments():
            named = part.zone or clocks.zone
            return Iso8601(part.text, named, **_bounds(named, anchor=part.anchor))


def _bounds(
    zone_name: str, starts: str | None = None, ends: str | None = None, anchor: str | None = None
) -> dict[str, datetime]:
    given = (("start", "STARTS", starts), ("end", "ENDS", ends), ("anchor", "ANCHOR", anchor))
    return {name: instant_of(text, zone_name, word) for name, word, text in given if text is not None}


def moments_of(schedule: Schedule, *, says_completion: bool) -> tuple[tuple[Moments, ...], ZoneRules]:
    """Returns the parts from which `schedule_of` makes the schedule, and the zone and daylight rules for clauses of the
    job.

    `says_completion`: ON COMPLETION is a setting of the job, so an AT needs a THEN of its own. Raises InvalidDefinition
    for a custom schedule.
    """
    if isinstance(schedule, Union):
        return tuple(_part(each, alone=False, says_completion=True) for each in schedule.parts), ZoneRules()
    clocks = clocks_of(schedule) if isinstance(schedule, Cron | Iso8601) else ZoneRules()
    return (_part(schedule, alone=True, says_completion=says_completion),), clocks


def _part(schedule: Schedule, *, alone: bool, says_completion: bool) -> Moments:
    match schedule:
        case Cron():
            return CronMoments(
                schedule.expr,
                None if schedule.dialect == "extended" else schedule.dialect,
                None if alone or schedule.tz == DEFAULT_ZONE else schedule.tz,
                None if alone or schedule.gap == DEFAULT_GAP else schedule.gap,
                None if alone or schedule.fold == DEFAULT_FOLD else schedule.fold,
                _text(schedule.start),
                _text(schedule.end),
            )
        case Once():
            then = ("drop" if schedule.drop else "preserve") if says_completion else None
            return AtMoments(rfc3339(schedule.at), then)
        case Every():
            whole = Every(schedule.interval).interval
            assert not isinstance(whole, int | float | str)
            return EveryMoments(whole, _text(schedule.start), _text(schedule.end), _text(schedule.anchor))
        case Iso8601():
            named = None if alone or schedule.tz == DEFAULT_ZONE else schedule.tz
            return IsoMoments(schedule.text, named, _text(schedule.anchor))
        case _:
            raise InvalidDefinition(
                f"SQL has no words for the schedule {shown(str(schedule))}",
                hint="It can say CRON, AT, EVERY and ISO8601, and several of them with OR.",
            )


def _text(at: datetime | None) -> str | None:
    return None if at is None else bound_text(at)
