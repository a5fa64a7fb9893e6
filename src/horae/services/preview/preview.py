"""Previews: the occurrences to come of a schedule, and explanations of their starts.

Pure: the caller gives the text and the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from typing import Any

from horae.core.schedule.clock_changes import DaylightEffect, daylight_effects
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Schedule
from horae.core.time.duration import format_duration
from horae.core.time.instant import FIRST, LAST, aware, instant, rfc3339, seconds_of
from horae.core.time.zone import Zone
from horae.core.time.zone import zone as zone
from horae.core.window.constraint import clauses_text
from horae.core.window.decision import MAX_ATTEMPTS, Decision, Explanation, decide, explain
from horae.core.window.probability import HINT as EXACT_HINT
from horae.core.window.probability import narrow_odds
from horae.core.window.window import Window
from horae.errors import InvalidCron, InvalidInput, InvalidTime, shown
from horae.formats.krontab.lint import LintFinding, lint_jobs
from horae.formats.krontab.parser import KrontabJob, find_job, read_jobs
from horae.services.effort import Effort

__all__ = [
    "Explanation",
    "KrontabJob",
    "LintFinding",
    "Preview",
    "Schedule",
    "UpcomingRun",
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
"""Past scheduled times, the latest ones, that are searched for starts still to come."""
MOST_JUDGED = 20
"""Jobs of a file whose windows are judged. `lint` judges all."""
MOST_WALKED = 200_000
MOST_DRAWN = 500_000
"""Effort for a user at a terminal. A server, where other users wait, gives less."""
_CENTURY = 36_525 * 86_400
_ISO = re.compile(r"R[0-9-]*/|P[0-9T]|[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class UpcomingRun:
    """One run to come: its scheduled time (`nominal`), its start (`chosen`, None: its window allows none), and the text
    of both in the job's zone."""

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
    """The occurrences to come of one schedule or of a whole file, with the clock changes that affect them."""

    title: str
    description: str
    timezone: str
    start: datetime
    occurrences: tuple[UpcomingRun, ...]
    effects: tuple[tuple[str, DaylightEffect], ...] = ()
    """The clock changes that affect a job, each with the job's name, by time."""
    windowed: bool = False
    """Whether a job has a window, so that scheduled and chosen times may differ."""
    zoned: bool = False
    """Whether any job has a zone other than UTC."""
    note: str | None = None
    """Reservations about the list: suspended jobs, unlikely starts, occurrences left out."""

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
    """Parses a schedule as users type it: a cron expression, `every 90s`, or ISO 8601 (`P1M`, `R5/…/P1D`). Raises
    InvalidCron, InvalidInput."""
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
    """Parses a time as users type it: `now`, with an offset, or without one in `timezone`. Raises InvalidTime."""
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
    """Returns the next `count` occurrences of one schedule after `start`, shown in `timezone` or in the schedule's own
    zone.

    An interval without a start counts from `start`, as it would for a job defined at that moment.
    """
    subject = _Subject(str(schedule), schedule.anchored(start), timezone or schedule.timezone)
    return _preview(str(schedule), (subject,), start, count, effort)


def jobs_of(text: str, *, file: str, job: str | None = None) -> tuple[KrontabJob, ...]:
    """Returns the jobs of a krontab, or the one called `job`. Raises the file's first error."""
    if job is not None:
        return (find_job(text, job, file=file),)
    return tuple(each.job for each in read_jobs(text, file=file))


def shared_timezone(jobs: Sequence[KrontabJob]) -> str:
    """Returns the zone for times without an offset: the one that all jobs share, else UTC."""
    zones = {job.schedule.tz for job in jobs}
    return zones.pop() if len(zones) == 1 else "UTC"


def preview_jobs(
    jobs: Sequence[KrontabJob], start: datetime, count: int, *, title: str, effort: Effort | None = None
) -> Preview:
    """Returns the next `count` occurrences of all `jobs` together. Of several jobs, suspended ones are left out."""
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
    """Returns the trace of the decision for the scheduled time `at`, and whether the schedule has that time."""
    return explain(job.window.request(job.name, at, job.schedule.tz)), job.schedule.matches(at)


def narrow_note(job: KrontabJob, now: datetime) -> str | None:
    """Returns a note where the job's constraints leave so little of its window that draws may find no start."""
    odds = narrow_odds(job.name, job.schedule, job.window, now)
    return None if odds is None else f"{odds}. {EXACT_HINT}"


def lint_files(texts: Mapping[str, str], now: datetime) -> tuple[LintFinding, ...]:
    """Returns the findings of `lint` in each file, and an error for each name that two files define."""
    findings: list[LintFinding] = []
    owners: dict[str, str] = {}
    for file, text in texts.items():
        found, lines = lint_jobs(text, file=file, now=now)
        findings += found
        for each in lines:
            owner = owners.setdefault(each.job.name, file)
            if owner != file:
                reason = f"job {shown(each.job.name)} is already defined in {owner}"
                findings.append(LintFinding(file, each.line, 1, "error", "invalid_krontab", reason))
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
) -> tuple[tuple[UpcomingRun, ...], list[str]]:
    """Returns the next `count` occurrences, or as many as the effort allows, and notes about those left out."""
    passed = effort.part(min(effort.slots // 2, MOST_PASSED), effort.draws // 2)
    begins = [_earliest(subject, begin, passed.slots // len(subjects)) for subject in subjects]
    skipped = any(is_cut for _, is_cut in begins)
    slots = merge(*(_named_slots(subject, first) for subject, (first, _) in zip(subjects, begins, strict=True)))
    found: list[UpcomingRun] = []
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
    # Windows may start a later scheduled time earlier. Users read a list by starts.
    return tuple(sorted(found, key=lambda each: (each.chosen or each.nominal, each.job))), notes


def _earliest(subject: _Subject, begin: datetime, most: int) -> tuple[datetime, bool]:
    """Returns the time after which scheduled times are examined, and whether earlier ones are left out. With a window,
    up to `most` past scheduled times are examined too: their starts may still be to come."""
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


def _occurrence(subject: _Subject, nominal: datetime) -> tuple[UpcomingRun, Decision | None]:
    chosen: datetime | None = nominal
    reason = decision = None
    if subject.window is not None:
        decision = decide(subject.window.request(subject.name, nominal, subject.timezone))
        chosen, reason = decision.chosen_time, decision.reason
    shown_at, slot = local_text(chosen or nominal, subject.zone), local_text(nominal, subject.zone)
    return UpcomingRun(subject.name, nominal, chosen, shown_at, slot, reason), decision


def explanation_dict(explanation: Explanation, *, is_occurrence: bool) -> dict[str, Any]:
    """Returns the whole trace as plain values."""
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
