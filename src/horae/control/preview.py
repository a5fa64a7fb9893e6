"""Previews: what a schedule will do, said before anything runs. Pure: the caller gives the text and the time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from typing import Any

from horae.control.effort import Effort
from horae.core.chance import HINT as EXACT_HINT
from horae.core.chance import narrow_odds
from horae.core.constraint import clauses_text
from horae.core.daylight import DaylightEffect, daylight_effects
from horae.core.decision import MAX_ATTEMPTS, Decision, Explanation, decide, explain
from horae.core.duration import format_duration
from horae.core.instant import FIRST, LAST, aware, instant, rfc3339, seconds_of
from horae.core.interval import Every, Iso8601
from horae.core.krontab import KrontabJob, find_job, read_jobs
from horae.core.lint import Finding, lint_jobs
from horae.core.schedule import Cron, Schedule
from horae.core.window import Window
from horae.core.zone import Zone
from horae.core.zone import zone as zone
from horae.errors import InvalidCron, InvalidInput, InvalidTime, shown

__all__ = [
    "Explanation",
    "Finding",
    "KrontabJob",
    "Occurrence",
    "Preview",
    "Schedule",
    "clauses_text",
    "explain_slot",
    "explanation_dict",
    "find_job",
    "jobs_of",
    "lint_files",
    "narrow_note",
    "preview",
    "preview_jobs",
    "read_schedule",
    "read_time",
    "shared_timezone",
]

MOST_OCCURRENCES = 10_000
MOST_PASSED = 10_000
"""Slots that have passed among which those are looked for whose start is still to come; the nearest."""
MOST_JUDGED = 20
"""Jobs of a file whose windows are judged; `lint` judges all."""
MOST_WALKED = 200_000
MOST_DRAWN = 500_000
"""What a person at a terminal waits for; whoever has others waiting gives less."""
_CENTURY = 36_525 * 86_400
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
    effects: tuple[tuple[str, DaylightEffect], ...] = ()
    """The clock changes that touch a job, each with the job's name, in order."""
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
            "daylight_effects": [{"job": job} | effect.to_dict() for job, effect in self.effects],
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
    text: str, *, tz: str = "UTC", dialect: str | None = None, gap: str | None = None, fold: str | None = None
) -> Schedule:
    """A schedule as typed by a person: a cron expression, `every 90s`, or ISO 8601 (`P1M`, `R5/…/P1D`)."""
    trimmed = text.strip()
    interval = trimmed.lower().startswith("every ") or _ISO.match(trimmed) is not None
    for name, value in (("dialect", dialect), ("gap", gap), ("fold", fold)):
        if interval and value is not None:
            raise InvalidInput(f"--{name} belongs to a cron expression, and {shown(trimmed)} is an interval")
    if interval:
        return Iso8601(trimmed, tz) if trimmed[:6].lower() != "every " else Every(trimmed[6:].strip())
    try:
        return Cron(text, tz, dialect or "extended", gap or "skip", fold or "auto")  # type: ignore[arg-type]  # Cron itself refuses unknown words
    except InvalidCron as error:
        if error.field != "expression" or error.hint:
            raise
        hint = 'Give a cron expression in quotes, "every 90s", an ISO 8601 interval such as P1M, or a krontab file.'
        raise InvalidCron(error.expression, error.field, error.reason, hint=hint) from error


def read_time(text: str, timezone: str, now: datetime, name: str = "time") -> datetime:
    """A time as typed by a person: `now`, with an offset, or without one on the clocks of `timezone`."""
    if text == "now":
        return now
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        hint = "Write now, 2027-03-01, 2027-03-01T09:00 (on the schedule's clocks) or 2027-03-01T09:00:00+01:00."
        reason = f"Invalid {name} {shown(text)}: is not a date or time"
        raise InvalidTime(reason, hint=hint, details={"name": name}) from None
    return aware(parsed, name) if parsed.tzinfo is not None else zone(timezone).first_shown(parsed, name)


def preview(
    schedule: Schedule, start: datetime, count: int, *, timezone: str | None = None, effort: Effort | None = None
) -> Preview:
    """The next `count` occurrences of one schedule after `start`, shown on the clocks of `timezone` or its own.

    An interval without a start counts from `start`, as a job defined then would.
    """
    subject = _Subject(str(schedule), schedule.anchored(start), timezone or schedule.timezone)
    return _preview(str(schedule), (subject,), start, count, effort)


def jobs_of(text: str, *, file: str, job: str | None = None) -> tuple[KrontabJob, ...]:
    """The jobs of a krontab, or the one called `job`. Raises the file's first fault."""
    if job is not None:
        return (find_job(text, job, file=file),)
    return tuple(each.job for each in read_jobs(text, file=file))


def shared_timezone(jobs: Sequence[KrontabJob]) -> str:
    """The zone a time without an offset is read in: the one all jobs share, else UTC."""
    zones = {job.schedule.tz for job in jobs}
    return zones.pop() if len(zones) == 1 else "UTC"


def preview_jobs(
    jobs: Sequence[KrontabJob], start: datetime, count: int, *, title: str, effort: Effort | None = None
) -> Preview:
    """The next `count` occurrences of all `jobs` together; of several, those that are suspended are left out."""
    suspended = [job.name for job in jobs if job.suspend]
    if len(jobs) == 1:
        note = "suspended: nothing runs until it is resumed" if suspended else None
    else:
        note = f"suspended, not shown: {', '.join(suspended)}" if suspended else None
    subjects = tuple(
        _Subject(job.name, job.schedule, job.schedule.tz, job.window)
        for job in jobs
        if not job.suspend or len(jobs) == 1
    )
    found = _preview(title, subjects, start, count, effort)
    narrow = [
        f"{job.name}: {odds}"
        for job in jobs[:MOST_JUDGED]
        if (odds := narrow_odds(job.name, job.schedule, job.window, start)) is not None
    ]
    return replace(found, note="; ".join(filter(None, (note, *narrow, found.note))) or None)


def explain_slot(job: KrontabJob, at: datetime) -> tuple[Explanation, bool]:
    """Everything that decides the job's run with nominal time `at`, and whether `at` is one of its occurrences."""
    return explain(job.window.request(job.name, at, job.schedule.tz)), job.schedule.matches(at)


def narrow_note(job: KrontabJob, now: datetime) -> str | None:
    """What to know of a job whose constraints leave so little of its window that draws may find nothing."""
    odds = narrow_odds(job.name, job.schedule, job.window, now)
    return None if odds is None else f"{odds}. {EXACT_HINT}"


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


def local_text(at: datetime, clocks: Zone) -> str:
    """`Mon 2026-03-30 09:00 +02:00`; seconds only where there are any."""
    wall = clocks.wall(at)
    date, _, clock = wall.isoformat().partition("T")
    shown_clock = clock[:8] if wall.second else clock[:5]
    return f"{wall.strftime('%a')} {date} {shown_clock} {wall.isoformat()[19:25]}"


def _preview(title: str, subjects: tuple[_Subject, ...], start: datetime, count: int, given: Effort | None) -> Preview:
    begin = aware(start, "start")
    if not 1 <= count <= MOST_OCCURRENCES:
        raise InvalidInput(f"Invalid count {count}: must lie between 1 and {MOST_OCCURRENCES}")
    effort = Effort(MOST_WALKED, MOST_DRAWN) if given is None else given
    found, notes = _coming(subjects, begin, count, effort)
    single = subjects[0] if len(subjects) == 1 else None
    last = max((seconds_of(each.nominal) for each in found), default=seconds_of(begin)) + 86_400
    told = min(last, seconds_of(begin) + _CENTURY, LAST)
    if told < min(last, LAST) and any(subject.timezone != "UTC" for subject in subjects):
        notes.append("clock changes are told for a hundred years")
    touched = sorted(
        (
            (subject.name, effect)
            for subject in subjects
            for effect in daylight_effects(subject.schedule, begin, instant(told))
        ),
        key=lambda each: (each[1].at, each[1].wall, each[0]),
    )
    return Preview(
        title,
        single.schedule.describe() if single is not None else f"{len(subjects)} jobs",
        single.timezone if single is not None else "UTC",
        begin,
        found,
        tuple(touched),
        windowed=any(subject.window is not None and bool(subject.window.length) for subject in subjects),
        zoned=any(subject.timezone != "UTC" for subject in subjects),
        note="; ".join(notes) or None,
    )


def _coming(
    subjects: tuple[_Subject, ...], begin: datetime, count: int, effort: Effort
) -> tuple[tuple[Occurrence, ...], list[str]]:
    """The next `count` occurrences, or so many as the effort is enough for; and what to know of those left out."""
    passed = effort.part(min(effort.slots // 2, MOST_PASSED), effort.draws // 2)
    begins = [_earliest(subject, begin, passed.slots // len(subjects)) for subject in subjects]
    skipped = any(is_cut for _, is_cut in begins)
    slots = merge(*(_named_slots(subject, first) for subject, (first, _) in zip(subjects, begins, strict=True)))
    found: list[Occurrence] = []
    for at, _, subject in slots:
        has_passed = at <= begin
        if has_passed and passed.is_spent:
            skipped = True
            continue
        if effort.is_spent:
            break
        each, decision = _occurrence(subject, at)
        effort.spend(subject.window, decision)
        if has_passed:
            passed.spend(subject.window, decision)
        if (each.chosen or each.nominal) > begin:
            found.append(each)
            if len(found) == count:
                break
    notes = []
    if len(found) < count and effort.is_spent:
        notes.append(f"cut short after {len(found)}: deciding on more takes too long")
    if skipped:
        notes.append("not all slots that have passed were looked at for starts that are still to come")
    # Windows may start a later slot earlier: people read a list by when things start.
    return tuple(sorted(found, key=lambda each: (each.chosen or each.nominal, each.job))), notes


def _earliest(subject: _Subject, begin: datetime, most: int) -> tuple[datetime, bool]:
    """From where on slots are looked at. With a window, also the last `most` of those that have passed but whose start
    may still be to come; and whether there are more."""
    if subject.window is None:
        return begin, False
    edge = instant(max(seconds_of(begin) - int(subject.window.lag.total_seconds()), FIRST))
    at = begin
    for _ in range(most):
        before = subject.schedule.previous(at)
        if before is None or before <= edge:
            return edge, False
        at = before
    return max(instant(seconds_of(at) - 1), edge), True


def _named_slots(subject: _Subject, begin: datetime) -> Iterator[tuple[datetime, str, _Subject]]:
    return ((at, subject.name, subject) for at in subject.schedule.between(begin, instant(LAST)))


def _occurrence(subject: _Subject, nominal: datetime) -> tuple[Occurrence, Decision | None]:
    chosen: datetime | None = nominal
    reason = decision = None
    if subject.window is not None:
        decision = decide(subject.window.request(subject.name, nominal, subject.timezone))
        chosen, reason = decision.chosen_time, decision.reason
    shown_at, slot = local_text(chosen or nominal, subject.zone), local_text(nominal, subject.zone)
    return Occurrence(subject.name, nominal, chosen, shown_at, slot, reason), decision


def explanation_dict(explanation: Explanation, *, is_occurrence: bool) -> dict[str, Any]:
    """The whole trace as plain values."""
    request, decision = explanation.request, explanation.decision
    return decision.to_dict() | {
        "identity": request.identity,
        "timezone": request.timezone,
        "nominal_local": local_text(decision.nominal_time, zone(request.timezone)),
        "window_mode": request.window_mode,
        "window_seconds": int((decision.window_end - decision.window_start).total_seconds()),
        "window_length": format_duration(decision.window_end - decision.window_start),
        "seed_strategy": request.seed_strategy,
        "salt": request.salt,
        "exact": request.exact,
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
                "is_picked": each.attempt > MAX_ATTEMPTS,
            }
            for each in explanation.candidates
        ],
    }
