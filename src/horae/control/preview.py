"""Previews: what a schedule will do, said before anything runs. Pure: the caller gives the text and the time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Any

from horae.core.daylight import DaylightEffect, effects
from horae.core.decision import Explanation, decide, explain
from horae.core.duration import format_duration
from horae.core.instant import FIRST, LAST, aware, instant, parse_instant, rfc3339, seconds_of
from horae.core.interval import Every, Iso8601
from horae.core.krontab import KrontabJob, find_job, parse_file
from horae.core.lint import Finding, lint_jobs
from horae.core.schedule import Cron, Schedule
from horae.core.window import Window
from horae.core.zone import UTC_ZONE, Zone, zone
from horae.errors import InvalidInput, InvalidTime, shown

__all__ = [
    "Explanation",
    "Finding",
    "KrontabJob",
    "Occurrence",
    "Preview",
    "Schedule",
    "describe",
    "explain_slot",
    "explanation_dict",
    "find_job",
    "lint_files",
    "preview",
    "preview_file",
    "read_schedule",
    "read_time",
]

MOST_OCCURRENCES = 10_000
_ISO = re.compile(r"R[0-9-]*/|P[0-9T]|[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One coming run: its nominal time, the time chosen for it, and how the job's own clocks show that."""

    job: str
    nominal: datetime
    chosen: datetime | None
    local: str
    nominal_local: str
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "nominal": rfc3339(self.nominal),
            "chosen": None if self.chosen is None else rfc3339(self.chosen),
            "local": self.local,
            "nominal_local": self.nominal_local,
        } | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True)
class Preview:
    """The coming occurrences of one schedule or of a whole file, with the clock changes that touch them."""

    title: str
    description: str
    timezone: str
    start: datetime
    occurrences: tuple[Occurrence, ...]
    effects: tuple[DaylightEffect, ...] = ()
    windowed: bool = False
    """Some start is chosen inside a window, so nominal and chosen times differ."""
    zoned: bool = False
    """Some clocks shown are not UTC's."""
    note: str | None = None
    """What a person should know before believing the list."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "schedule": self.title,
            "description": self.description,
            "timezone": self.timezone,
            "from": rfc3339(self.start),
            "note": self.note,
            "occurrences": [each.to_dict() for each in self.occurrences],
            "daylight_effects": [each.to_dict() for each in self.effects],
        }


@dataclass(frozen=True, slots=True)
class _Subject:
    name: str
    schedule: Schedule
    timezone: str
    window: Window | None = None

    @property
    def zone(self) -> Zone:
        return zone(self.timezone)


def read_schedule(
    text: str, *, tz: str = "UTC", dialect: str = "extended", gap: str = "skip", fold: str = "auto"
) -> Schedule:
    """A schedule as typed by a person: a cron expression, `every 90s`, or ISO 8601 (`P1M`, `R5/…/P1D`)."""
    trimmed = text.strip()
    if trimmed.lower().startswith("every "):
        return Every(trimmed[6:].strip())
    if _ISO.match(trimmed):
        return Iso8601(trimmed, tz)
    return Cron(text, tz, dialect, gap, fold)  # type: ignore[arg-type]  # Cron itself refuses unknown words


def read_time(text: str, timezone: str, now: datetime, name: str = "time") -> datetime:
    """A time as typed by a person: `now`, with an offset, or without one on the clocks of `timezone`."""
    if text == "now":
        return now
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return parse_instant(text, name)
    if parsed.tzinfo is not None:
        return aware(parsed, name)
    found = zone(timezone).instants(seconds_of(parsed.replace(tzinfo=UTC), name))
    if not found:
        raise InvalidTime(f"Invalid {name} {shown(text)}: the clocks in {timezone} skip it", details={"name": name})
    if not FIRST <= found[0] <= LAST:
        raise InvalidTime(f"Invalid {name} {shown(text)}: lies outside the years 1 to 9999", details={"name": name})
    return instant(found[0])


def preview(schedule: Schedule, start: datetime, count: int, *, timezone: str | None = None) -> Preview:
    """The next `count` occurrences of one schedule after `start`, shown on the clocks of `timezone` or its own.

    An interval without a start counts from `start`, as a job defined then would.
    """
    subject = _Subject("preview", schedule.anchored(start), timezone or schedule.timezone)
    return _preview(str(schedule), (subject,), start, count)


def preview_file(text: str, start: datetime, count: int, *, file: str, job: str | None = None) -> Preview:
    """The next `count` occurrences of one job of a krontab, or of all of them together."""
    jobs = (find_job(text, job, file=file),) if job is not None else _all_jobs(text, file)
    suspended = [each.name for each in jobs if each.suspend]
    if job is not None:
        note = "suspended: nothing runs until it is resumed" if suspended else None
        return replace(_preview(job, (_subject(jobs[0]),), start, count), note=note)
    note = f"suspended, not shown: {', '.join(suspended)}" if suspended else None
    subjects = tuple(_subject(each) for each in jobs if not each.suspend)
    return replace(_preview(file, subjects, start, count), note=note)


def explain_slot(job: KrontabJob, at: datetime) -> tuple[Explanation, bool]:
    """Everything that decides the job's run with nominal time `at`, and whether `at` is one of its occurrences."""
    return explain(job.window.request(job.name, at, job.schedule.tz)), job.schedule.matches(at)


def lint_files(texts: Mapping[str, str], now: datetime) -> tuple[Finding, ...]:
    """What `lint` finds in each file, and every name that two of them define."""
    findings: list[Finding] = []
    owners: dict[str, str] = {}
    for file, text in texts.items():
        found, lines = lint_jobs(text, file=file, now=now)
        findings += found
        for each in lines:
            owner = owners.setdefault(each.job.name, file)
            if owner != file:
                reason = f"job {shown(each.job.name)} is already defined in {owner}"
                findings.append(Finding(file, each.line, 1, "error", "invalid_krontab", reason))
    return tuple(findings)


def describe(schedule: Schedule) -> str:
    if isinstance(schedule, Cron):
        return schedule.describe()
    text = str(schedule)
    return text[:1].upper() + text[1:]


def local_text(at: datetime, clocks: Zone) -> str:
    """`Mon 2026-03-30 09:00 +02:00`; seconds only where there are any."""
    wall = clocks.wall(at)
    date, _, clock = wall.isoformat().partition("T")
    shown_clock = clock[:8] if wall.second else clock[:5]
    return f"{wall.strftime('%a')} {date} {shown_clock} {wall.isoformat()[19:25]}"


def _all_jobs(text: str, file: str) -> tuple[KrontabJob, ...]:
    jobs, faults = parse_file(text, file=file)
    if faults:
        raise faults[0]
    return tuple(each.job for each in jobs)


def _subject(job: KrontabJob) -> _Subject:
    return _Subject(job.name, job.schedule, job.schedule.tz, job.window)


def _preview(title: str, subjects: tuple[_Subject, ...], start: datetime, count: int) -> Preview:
    begin = aware(start, "start")
    if not 1 <= count <= MOST_OCCURRENCES:
        raise InvalidInput(f"Invalid count {count}: must lie between 1 and {MOST_OCCURRENCES}")
    end = instant(LAST)
    slots = merge(*(_named_slots(subject, begin, end) for subject in subjects))
    decided = (_occurrence(subject, at) for at, _, subject in slots)
    coming = (each for each in decided if (each.chosen or each.nominal) > begin)
    found = tuple(islice(coming, count))
    single = subjects[0] if len(subjects) == 1 else None
    last = instant(min(seconds_of(found[-1].nominal if found else begin) + 86_400, LAST))
    touched = sorted(
        (effect for subject in subjects for effect in _effects(subject.schedule, begin, last)),
        key=lambda effect: (effect.at, effect.wall),
    )
    return Preview(
        title,
        describe(single.schedule) if single is not None else f"{len(subjects)} jobs",
        single.timezone if single is not None else "UTC",
        begin,
        found,
        tuple(dict.fromkeys(touched)),
        windowed=any(subject.window is not None and bool(subject.window.length) for subject in subjects),
        zoned=any(subject.timezone != "UTC" for subject in subjects),
    )


def _named_slots(subject: _Subject, begin: datetime, end: datetime) -> Iterator[tuple[datetime, str, _Subject]]:
    """The subject's slots; with a window, also those that have passed but whose start may still be to come."""
    if subject.window is not None:
        begin = instant(max(seconds_of(begin) - int(subject.window.lag.total_seconds()), FIRST))
    return ((at, subject.name, subject) for at in subject.schedule.between(begin, end))


def _effects(schedule: Schedule, begin: datetime, end: datetime) -> Iterator[DaylightEffect]:
    if isinstance(schedule, Cron) and schedule.zone is not UTC_ZONE:
        yield from effects(schedule, begin, end)


def _occurrence(subject: _Subject, nominal: datetime) -> Occurrence:
    chosen: datetime | None = nominal
    reason = None
    if subject.window is not None:
        decision = decide(subject.window.request(subject.name, nominal, subject.timezone))
        chosen, reason = decision.chosen_time, decision.reason
    shown_at, slot = local_text(chosen or nominal, subject.zone), local_text(nominal, subject.zone)
    return Occurrence(subject.name, nominal, chosen, shown_at, slot, reason)


def explanation_dict(explanation: Explanation, *, is_occurrence: bool) -> dict[str, Any]:
    """The whole trace as plain values."""
    request, decision = explanation.request, explanation.decision
    return decision.to_dict() | {
        "identity": request.identity,
        "timezone": request.timezone,
        "window_mode": request.window_mode,
        "window_seconds": int((decision.window_end - decision.window_start).total_seconds()),
        "window_length": format_duration(decision.window_end - decision.window_start),
        "seed_strategy": request.seed_strategy,
        "salt": request.salt,
        "seed_input": explanation.seed_input,
        "constraints": request.constraints.to_dict(),
        "is_occurrence": is_occurrence,
        "candidates": [
            {
                "attempt": each.attempt,
                "draw": each.draw,
                "time": rfc3339(each.time),
                "local": local_text(each.time, zone(request.timezone)),
                "accepted": each.objection is None,
                "objection": each.objection,
            }
            for each in explanation.candidates
        ],
    }
