"""Operations on jobs: list, pause, resume, trigger, reschedule, backfill, drop, explain."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import date, datetime

from horae.api import requests
from horae.api.context import OperationGroup
from horae.api.responses import conversion, job_responses
from horae.api.words import job_order, job_state
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Schedule
from horae.core.time.instant import aware, rfc3339
from horae.core.time.zone import Zone, zone
from horae.services.views import JobsQuery
from horae.services.year_calendar import DayCounts, bounds_of, clock_changes, count_days, days_of, local_day, step_of
from horae.store.protocols.reads import Tally
from horae.store.protocols.store import JobRecord


class JobOperations(OperationGroup):
    """Lists jobs, operates them, and explains when they run."""

    async def list_jobs(self, asked: requests.ListJobs) -> job_responses.JobPage:
        wanted = JobsQuery(
            search=asked.search or None,
            state=job_state(asked.state),
            tag=asked.tag or None,
            owner=asked.owner or None,
            namespace=asked.namespace or None,
            sort=job_order(asked.sort or "name"),
            descending=asked.descending,
            offset=asked.offset,
            limit=asked.limit,
        )
        page = await self.service.views.list_jobs(wanted)
        names = [each.name for each in page.jobs]
        strips = await self.service.views.last_runs(names, asked.outcomes)
        jobs = [conversion.job(each, strips.get(each.name, ()) if asked.outcomes else None) for each in page.jobs]
        behind = asked.offset + len(jobs)
        return job_responses.JobPage(
            jobs=jobs, total=page.total, next_offset=behind if jobs and behind < page.total else None
        )

    # ---- operating jobs ----------------------------------------------------------------------------------------------

    async def pause(self, asked: requests.PauseJob) -> job_responses.Done:
        await self.service.commands.pause(asked.name, asked.until, asked.note)
        ending = "" if asked.until is None else f" until {_moment(asked.until)}"
        return await self._done(asked.name, "pause", f"paused {asked.name}{ending}")

    async def resume(self, asked: requests.NameRequest) -> job_responses.Done:
        await self.service.commands.resume(asked.name)
        return await self._done(asked.name, "resume", f"resumed {asked.name}")

    async def enable(self, asked: requests.NameRequest) -> job_responses.Done:
        await self.service.commands.enable(asked.name)
        return await self._done(asked.name, "enable", f"enabled {asked.name}")

    async def disable(self, asked: requests.NameRequest) -> job_responses.Done:
        await self.service.commands.disable(asked.name)
        return await self._done(asked.name, "disable", f"disabled {asked.name}")

    async def drop_job(self, asked: requests.DropJobRequest) -> job_responses.Done:
        await self.service.commands.drop(asked.name, asked.keep_history)
        kept = ", keeping its history" if asked.keep_history else ""
        return job_responses.Done(job=asked.name, action="drop", message=f"dropped {asked.name}{kept}")

    async def _done(self, name: str, action: str, message: str) -> job_responses.Done:
        found = await self.service.store.jobs([name])
        return job_responses.Done(
            job=name,
            action=action,
            message=message,
            state=str(found[0].state) if found else None,
            next_run_time=conversion.time_text(found[0].next_run_time) if found else None,
        )

    async def trigger(self, asked: requests.TriggerJob) -> job_responses.Admitted:
        found = await self.service.commands.trigger(asked.name, asked.payload, asked.key)
        again = "" if found.fresh else f", which was asked for before and is {found.state}"
        return job_responses.Admitted(
            run_id=found.run_id,
            job=asked.name,
            state=str(found.state),
            fresh=found.fresh,
            message=f"run {found.run_id} of {asked.name}{again}",
        )

    async def reschedule(self, asked: requests.RescheduleJob) -> job_responses.Rescheduled:
        slot = await self.service.commands.reschedule(asked.name, asked.at)
        told = f"{asked.name}: the run of {_moment(slot)} starts at {_moment(asked.at)}"
        return job_responses.Rescheduled(job=asked.name, slot=_moment(slot), at=_moment(asked.at), message=told)

    async def backfill(self, asked: requests.BackfillJob) -> job_responses.Backfilled:
        runs = [each.run_id for each in await self.service.commands.backfill(asked.name, asked.start, asked.end)]
        told = f"{len(runs)} run{'' if len(runs) == 1 else 's'} of {asked.name} to catch up"
        if not runs:
            told = f"nothing to catch up: every slot of {asked.name} has a run"
        return job_responses.Backfilled(job=asked.name, runs=runs, message=told)

    # ---- explanations and calendar -----------------------------------------------------------------------------------

    async def explain_job(self, asked: requests.ExplainJobRequest) -> job_responses.Explained:
        job = await self.service.queries.get_job(asked.name)
        at = None if asked.at is None else aware(asked.at, "at")
        lines = await self.service.queries.explain(job, await self.service.now(), at)
        return job_responses.Explained(job=job.name, steps=[list(each) for each in lines])

    async def job_calendar(self, asked: requests.JobCalendar) -> job_responses.Calendar:
        record = await self.service.queries.get_job(asked.name)
        schedule = record.schedule
        clocks = zone("UTC" if schedule is None else schedule.timezone)
        now = await self.service.now()
        today = local_day(clocks, now)
        year = today.year if asked.year is None else asked.year
        begin, end = bounds_of(year)
        tallies = await self.service.views.tally(begin, end, step_of(clocks, year), job=asked.name)
        coming = await asyncio.to_thread(_coming, record, schedule, year, now)
        runs = _by_day(tallies, clocks, year)
        changes = clock_changes(clocks, year)
        has_window = record.definition.settings.window is not None
        days = []
        for day in days_of(year):
            marks = ["clocks_change"] if day in changes else []
            marks += ["window"] if has_window and (day in runs or coming.days[day]) else []
            marks += ["today"] if day == today else []
            days.append(
                job_responses.Day(date=day.isoformat(), runs=runs.get(day, {}), coming=coming.days[day], marks=marks)
            )
        total: Counter[str] = Counter()
        for states in runs.values():
            total.update(states)
        return job_responses.Calendar(
            job=record.name,
            year=year,
            timezone=clocks.key,
            days=days,
            runs=dict(total),
            coming=coming.days.total(),
            clock_changes=[day.isoformat() for day in changes],
            cut=coming.until is not None,
            counted_until=conversion.time_text(coming.until),
        )


def _coming(record: JobRecord, schedule: Schedule | None, year: int, now: datetime) -> DayCounts:
    """Counts the scheduled times that are to come, including those that a pause will skip. A disabled job has none."""
    if schedule is None or record.state is JobState.DISABLED:
        return DayCounts(Counter())
    try:
        return count_days(schedule, year, after=max(record.planned_until, now))
    except Exception:  # noqa: BLE001 - a user's own schedule may raise anything; the rest is shown
        return DayCounts(Counter(), now)


def _by_day(tallies: tuple[Tally, ...], clocks: Zone, year: int) -> dict[date, dict[str, int]]:
    found: dict[date, Counter[str]] = {}
    for at, state, count in tallies:
        day = local_day(clocks, at)
        if day.year == year:
            found.setdefault(day, Counter())[str(state)] += count
    return {day: dict(states) for day, states in found.items()}


def _moment(at: datetime) -> str:
    return rfc3339(aware(at, "time"))
