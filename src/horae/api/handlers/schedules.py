"""Operations on schedules: listing them, and previewing what a schedule will do."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from horae.api import requests
from horae.api.context import OperationGroup
from horae.api.responses import catalog_responses, conversion, job_responses
from horae.core.access import LOCAL_NAME
from horae.core.schedule.schedules import Cron
from horae.core.time.instant import aware, rfc3339
from horae.core.time.zone import zone
from horae.core.window.decision import explain
from horae.core.window.window import Window
from horae.errors import InvalidInput, shown
from horae.formats.krontab.lint import warnings
from horae.services.effort import Effort
from horae.services.preview.preview import (
    KrontabJob,
    Schedule,
    explain_slot,
    explanation_dict,
    jobs_of,
    lint_files,
    preview,
    preview_jobs,
    read_schedule,
)
from horae.services.views import JobsQuery
from horae.services.year_calendar import clock_changes, count_days, days_of, local_day
from horae.store.protocols.store import JobRecord

_MODIFIER = re.compile(r"(?:^|\s)@[a-z]+\(")
_FIELD = re.compile(r"(?:^|\s)(?:name|command)=")
_TZ = re.compile(r"(?:^|\s)@tz\(")
_FILE = "krontab"
_GONE = (None, "task", None, None)
"""The row of a job that was dropped between two reads."""
_NO_WINDOW = Window.after(0)
_SHORT, _FEW = 200, 50
"""The most letters of text, and the most starts, that are calculated without a thread."""
_MOST_WALKED = 5_000
_MOST_DRAWN = 6_000
"""The effort of one preview. It is limited because a preview needs no privilege."""
_MOST_LINTED = 20
"""Lines that the linter checks: it decides some scheduled times of each."""
_previews = ThreadPoolExecutor(2, thread_name_prefix="preview")
"""The threads for previews. Previews only calculate, so their number is limited."""


class ScheduleOperations(OperationGroup):
    """Lists schedules with the columns of `cb_schedules`, and previews schedules."""

    async def list_schedules(self, asked: requests.ListSchedules) -> catalog_responses.SchedulePage:
        wanted = JobsQuery(search=asked.search or None, offset=asked.offset, limit=asked.limit)
        page = await self.service.views.list_jobs(wanted)
        rows = await self._rows(page.jobs)
        behind = asked.offset + len(rows)
        more = behind if rows and behind < page.total else None
        return catalog_responses.SchedulePage(schedules=rows, total=page.total, next_offset=more)

    async def _rows(self, jobs: Sequence[JobRecord]) -> list[catalog_responses.ScheduleRow]:
        known = await self.service.views.schedules([job.name for job in jobs])
        found = []
        for job in jobs:
            number, kind, spec, last = known.get(job.name, _GONE)
            found.append(
                catalog_responses.ScheduleRow(
                    id=number,
                    name=job.name,
                    kind=kind,
                    cron_spec=spec or None,
                    next_run_at=conversion.time_text(job.next_run_time),
                    last_run_at=conversion.time_text(last),
                    last_enqueued_at=conversion.time_text(job.last_enqueued_at),
                    enabled=str(job.state) == "ENABLED",
                    created_at=rfc3339(job.created_at),
                    updated_at=rfc3339(job.updated_at),
                )
            )
        return found

    async def preview(self, asked: requests.PreviewSchedule) -> catalog_responses.Preview:
        now = await self.service.now()
        if _is_quick(asked):
            return previewed(asked, now)
        if self.service.who.name != LOCAL_NAME:
            async with self.turn() as calculate:
                return await calculate(previewed, asked, now)
        gone = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(_previews, previewed, asked, now, gone.is_set)
        finally:
            # Stops the calculation if the client disconnects before the response.
            gone.set()


def _is_quick(asked: requests.PreviewSchedule) -> bool:
    """Returns whether a few starts of a schedule without a window are requested, which are calculated faster than a
    thread starts."""
    is_short = len(asked.text) <= _SHORT and not _is_line(asked.text.strip())
    return is_short and asked.count <= _FEW and asked.year is None and asked.at is None


def _is_line(text: str) -> bool:
    return "\n" in text or _MODIFIER.search(text) is not None or _FIELD.search(text) is not None


@dataclass(frozen=True, slots=True)
class _Subject:
    """The subject of a preview: a schedule, or the jobs of krontab lines."""

    schedule: Schedule | None
    jobs: tuple[KrontabJob, ...] = ()
    text: str = ""

    @property
    def single(self) -> KrontabJob | None:
        return self.jobs[0] if len(self.jobs) == 1 else None


def previewed(
    asked: requests.PreviewSchedule, now: datetime, stopped: Callable[[], bool] = bool
) -> catalog_responses.Preview:
    """Calculates a preview. It has no side effects: the time is passed in. It ends early once `stopped` returns
    True."""
    effort = Effort(_MOST_WALKED, _MOST_DRAWN, stopped)
    start = now if asked.start is None else aware(asked.start, "start")
    subject = _read(asked, start)
    if subject.jobs:
        title = f"{len(subject.jobs)} jobs" if subject.single is None else str(subject.single.schedule)
        found = preview_jobs(subject.jobs, start, asked.count, title=title, effort=effort)
    else:
        assert subject.schedule is not None
        clocks = _shown_in(subject.schedule, asked.timezone)
        found = preview(subject.schedule, start, asked.count, timezone=clocks, effort=effort)
    return catalog_responses.Preview(
        schedule=found.title,
        description=found.description,
        timezone=found.timezone,
        start=rfc3339(start),
        note=found.note,
        occurrences=[each.to_dict() for each in found.occurrences],
        daylight_effects=[{"job": job} | effect.to_dict() for job, effect in found.effects],
        windowed=found.windowed,
        kind="krontab" if subject.jobs else "schedule",
        calendar=None if asked.year is None else _calendar(subject, asked.year, now, stopped),
        trace=None if asked.at is None else _trace(subject, aware(asked.at, "at")),
        findings=[] if stopped() else _findings(subject, now),
    )


def _read(asked: requests.PreviewSchedule, start: datetime) -> _Subject:
    text = asked.text.strip()
    given = {name: value for name in ("dialect", "gap", "fold") if (value := getattr(asked, name))}
    if not _is_line(text):
        schedule = read_schedule(text, tz=asked.timezone or "UTC", **given)
        return _Subject(schedule.anchored(start), text=text)
    for name in given:
        raise InvalidInput(
            f"{name} belongs to a cron expression by itself; a krontab line has none",
            hint=f"Leave {name} out, or the line's modifiers.",
        )
    whole = _completed(text, asked.timezone)
    jobs = jobs_of(whole, file=_FILE)
    if not jobs:
        raise InvalidInput(f"There is no job in {shown(text)}", hint="Write a cron expression, or a krontab line.")
    return _Subject(None, jobs, whole)


def _completed(text: str, timezone: str) -> str:
    """Completes a line that has only a schedule, so that it can be parsed: adds the requested time zone, a name, a
    command."""
    if "\n" in text:
        return text
    fields = {match.group().strip() for match in _FIELD.finditer(text)}
    if not fields and timezone not in ("", "UTC") and _TZ.search(text) is None:
        text += f" @tz({timezone})"
    return text + "".join(f" {name}preview" for name in ("name=", "command=") if name not in fields)


def _shown_in(schedule: Schedule, timezone: str) -> str:
    """Returns the time zone for display. Intervals have none of their own, so they use the requested one."""
    return schedule.timezone if isinstance(schedule, Cron) else timezone or schedule.timezone


def _calendar(subject: _Subject, year: int, now: datetime, stopped: Callable[[], bool]) -> job_responses.Calendar:
    job = subject.single
    schedule = subject.schedule if job is None else job.schedule
    if schedule is None:
        raise InvalidInput("A calendar shows one job, and there are several", hint="Ask about one line.")
    clocks = zone(schedule.timezone)
    counted = count_days(schedule, year, job=job, stopped=stopped)
    changes = clock_changes(clocks, year)
    today = local_day(clocks, now)
    has_window = job is not None and bool(job.window.length)
    days = []
    for day in days_of(year):
        marks = ["clocks_change"] if day in changes else []
        marks += ["window"] if has_window and counted.days[day] else []
        marks += ["today"] if day == today else []
        days.append(job_responses.Day(date=day.isoformat(), coming=counted.days[day], marks=marks))
    return job_responses.Calendar(
        job=job.name if job is not None else str(schedule),
        year=year,
        timezone=clocks.key,
        days=days,
        runs={},
        coming=counted.days.total(),
        clock_changes=[day.isoformat() for day in changes],
        cut=counted.until is not None,
        counted_until=conversion.time_text(counted.until),
    )


def _trace(subject: _Subject, at: datetime) -> dict[str, object]:
    job = subject.single
    if job is not None:
        explanation, is_occurrence = explain_slot(job, at)
    elif subject.schedule is not None:
        schedule = subject.schedule
        explanation = explain(_NO_WINDOW.request("preview", at, schedule.timezone))
        is_occurrence = schedule.matches(at)
    else:
        raise InvalidInput("A trace is of one job's slot, and there are several", hint="Ask about one line.")
    return explanation_dict(explanation, is_occurrence=is_occurrence)


def _findings(subject: _Subject, now: datetime) -> list[dict[str, object]]:
    if subject.jobs:
        lines = subject.text.split("\n")[:_MOST_LINTED]
        return [each.to_dict() for each in lint_files({_FILE: "\n".join(lines)}, now)]
    schedule = subject.schedule
    if not isinstance(schedule, Cron):
        return []
    job = KrontabJob("preview", "preview", schedule, _NO_WINDOW)
    return [{"severity": "warning", "code": code, "message": message} for code, message in warnings(job, now)]
