"""Questions about the whole: what goes on, the nodes, what is wrong, SQL, settings."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from horae.control.bars import ended_by_hour
from horae.control.queries import VIEW
from horae.control.service import Kept
from horae.control.views import JobsAsked, JobsPage, Pace, RunsAsked
from horae.control.wait_facts import concurrency_of
from horae.core.instant import rfc3339
from horae.core.lifecycle import JobState, RunState
from horae.core.liveness import SILENCE
from horae.ddl.session import Result, Session
from horae.desk import asking, making, sights
from horae.desk.about import Part, Receipt
from horae.desk.coming import is_quick, merged_starts
from horae.desk.shapes import Coming
from horae.desk.words import ENDED
from horae.errors import HoraeError, InvalidStatement
from horae.store.port import JobRecord, NodeRecord, RunRecord

OVERDUE = timedelta(seconds=30)
"""How late something may be before it counts as overdue."""
_DAY = timedelta(hours=24)
_FAILED = frozenset({RunState.FAILED, RunState.FAILED_STALE})
_MOST_ACTIVE = 50
_MOST_COMING = 30
_MOST_JOBS = 60
"""Jobs that are asked for what comes next: each has one start at least."""
_FEW = 20
MOST_FAILED = 500
"""Failed runs that are counted: a page need not tell more exactly how bad it is."""
_COUNTED = 1_000
"""Jobs and runs that are counted one by one for somebody who does not see all of them."""
LARGEST_SQL_ANSWER = 20_000_000
"""Characters or so that all results of one text may have: one SELECT may have 16 million."""
_LEFT_OUT = " (left out: the results before it are as much as one answer may be)"


class _Room:
    """What the rows of one answer may have between them."""

    def __init__(self, left: int = LARGEST_SQL_ANSWER) -> None:
        self.left = left

    def result(self, result: Result) -> sights.SqlResult:
        told = result.to_dict()
        rows = told.get("rows")
        self.left -= sum(_weight(value) for row in rows or () for value in row)
        is_left_out = bool(rows) and self.left < 0
        return sights.SqlResult(
            statement=result.statement,
            message=result.message + (_LEFT_OUT if is_left_out else ""),
            columns=told.get("columns"),
            rows=[] if is_left_out else rows,
            cut=result.cut or is_left_out,
            rowcount=result.rowcount,
        )


class Whole(Part):
    """What goes on."""

    async def overview(self, asked: asking.Nothing) -> sights.Overview:
        views, now = self.service.views, await self.service.now()
        running = await views.list_runs(RunsAsked(states=frozenset({RunState.RUNNING}), limit=_MOST_ACTIVE))
        waiting = await views.list_runs(
            RunsAsked(states=frozenset({RunState.PENDING, RunState.QUEUED}), limit=_MOST_ACTIVE)
        )
        jobs = await views.list_jobs(
            JobsAsked(sort="next_run_time", limit=_MOST_JOBS if views.seen is None else _COUNTED)
        )
        recent = await views.list_runs(RunsAsked(states=ENDED, limit=_FEW))
        pace = await views.pace()
        bars = await ended_by_hour(self.service.store, views, now)
        nodes = await self._nodes(now)
        ended: Counter[str] = Counter()
        for counts in bars.values():
            ended.update(counts)
        failures = await self._failures(now)
        alive = [each for each in nodes if each.state == "ALIVE"]
        return sights.Overview(
            now=rfc3339(now),
            totals=await self._totals(jobs, now),
            running=[making.run(each) for each in running],
            waiting=[making.run(each) for each in waiting],
            coming=await _coming([job for job in jobs.jobs if job.next_run_time is not None], waiting, now),
            failures=[making.run(each) for each in failures[:_FEW]],
            failed=len(failures),
            failed_since=rfc3339(now - _DAY),
            recent=[making.run(each) for each in recent],
            bars=[sights.Bar(at=rfc3339(at), runs=dict(counts)) for at, counts in bars.items()],
            ended=dict(ended),
            lag=_spread([each.lag for each in pace]),
            duration=_spread(_durations(pace)),
            slots=sum(each.slots or 0 for each in alive),
            slots_taken=sum(each.running for each in alive),
            nodes=len(alive),
            overdue=await self._overdue(waiting, now),
        )

    async def _failures(self, now: datetime) -> tuple[RunRecord, ...]:
        """The runs of the day's slots that failed, the newest first, which have an index; no more than are counted."""
        asked = RunsAsked(states=_FAILED, since=now - _DAY, limit=MOST_FAILED)
        return await self.service.views.list_runs(asked)

    async def _totals(self, page: JobsPage, now: datetime) -> sights.Totals:
        views = self.service.views
        if views.seen is None:
            found = await self.service.store.totals()
            return sights.Totals(
                jobs_enabled=found.jobs_enabled,
                jobs_paused=found.jobs_paused,
                jobs_disabled=found.jobs_disabled,
                runs_running=found.runs_running,
                runs_queued=found.runs_queued,
                runs_pending=found.runs_pending,
                runs_due=found.runs_due,
            )
        jobs = Counter(job.state for job in page.jobs)
        if page.total > len(page.jobs):
            for state in JobState:
                jobs[state] = (await views.list_jobs(JobsAsked(state=state, limit=1))).total
        active = await views.list_runs(RunsAsked(states=frozenset(RunState) - ENDED, limit=_COUNTED))
        runs = Counter(run.state for run in active)
        return sights.Totals(
            jobs_enabled=jobs[JobState.ENABLED],
            jobs_paused=jobs[JobState.PAUSED],
            jobs_disabled=jobs[JobState.DISABLED],
            runs_running=runs[RunState.RUNNING],
            runs_queued=runs[RunState.QUEUED],
            runs_pending=runs[RunState.PENDING],
            runs_due=sum(1 for run in active if _is_due(run, now)),
        )

    async def _overdue(self, waiting: Sequence[RunRecord], now: datetime) -> int:
        if self.service.views.seen is not None:
            return sum(1 for run in waiting if _is_due(run, now - OVERDUE))
        found = await self.service.views.overdue(OVERDUE)
        return found.undecided + found.unstarted

    async def nodes(self, asked: asking.Nothing) -> sights.Nodes:
        now = await self.service.now()
        return sights.Nodes(nodes=await self._nodes(now), now=rfc3339(now))

    async def _nodes(self, now: datetime) -> list[sights.Node]:
        records = await self.service.store.nodes()
        system = await self.service.store.settings() if records else {}
        sees_all = self.service.views.seen is None
        return [
            making.node(each, state=_state(each, now), slots=concurrency_of(each, system), with_details=sees_all)
            for each in sorted(records, key=lambda each: (each.name or "", each.started_at))
        ]

    async def doctor(self, asked: asking.Nothing) -> sights.Examination:
        await self.service.gate.require(VIEW, action="examine all jobs")
        return making.examination(await self.about.examine(self.service.store))

    async def sql(self, asked: asking.RunSql, receipt: Receipt | None = None) -> sights.SqlAnswer:
        """Where one statement of several is at fault, `done` of the error's details says how many were carried out.
        What the receipt says was done before is not done again: its results are answered as they were."""
        done: list[sights.SqlResult] = []
        if receipt is not None and receipt.noted:
            done += msgspec.json.decode(receipt.noted, type=sights.SqlAnswer).results
        room = _Room()

        async def note(store: Kept, results: Sequence[Result]) -> None:
            assert receipt is not None
            left = _Room(room.left)
            await receipt.note(store, sights.SqlAnswer(results=[*done, *(left.result(each) for each in results)]))

        session = Session(self.service, None if receipt is None else note)
        try:
            async for result in session.results(
                asked.text, each=asked.each, most=asking.MOST_STATEMENTS, skip=len(done)
            ):
                if receipt is not None:
                    receipt.settle()
                done.append(room.result(result))
        except HoraeError as error:
            if asked.each:
                error.details["done"] = len(done)
            raise
        if not done:
            raise InvalidStatement("There is no statement", line=1, column=1, hint="Write one: SHOW JOBS.")
        answer = sights.SqlAnswer(results=done)
        if receipt is not None:
            await receipt.finish(self.service.store, answer)
        return answer

    async def settings(self, asked: asking.Nothing) -> sights.Settings:
        values = await self.service.people.settings()
        known = {each.name: each for each in self.about.settings}
        found = [self._setting(name, values) for name in sorted({*known, *values})]
        return sights.Settings(settings=found)

    async def set_setting(self, asked: asking.SetSetting) -> sights.Setting:
        await self.service.people.set_setting(asked.name, asked.value)
        return self._setting(asked.name, await self.service.people.settings())

    def _setting(self, name: str, values: Mapping[str, Any]) -> sights.Setting:
        known = next((each for each in self.about.settings if each.name == name), None)
        return sights.Setting(
            name=name,
            value=values.get(name),
            default=None if known is None else known.default,
            description="" if known is None else known.description,
        )


async def _coming(jobs: Sequence[JobRecord], waiting: Sequence[RunRecord], now: datetime) -> list[Coming]:
    if is_quick(jobs):
        return merged_starts(jobs, waiting, now, _MOST_COMING)
    return await asyncio.to_thread(merged_starts, jobs, waiting, now, _MOST_COMING)


def _is_due(run: RunRecord, now: datetime) -> bool:
    """Its time has come, and it waits for nothing but a place to run."""
    return run.state is RunState.PENDING and run.not_before is not None and run.not_before <= now


def _state(node: NodeRecord, now: datetime) -> str:
    if node.state != "ALIVE":
        return node.state
    is_late = now - node.heartbeat_at > timedelta(seconds=SILENCE)
    return "SILENT" if node.lock_free or is_late else "ALIVE"


def _durations(pace: Sequence[Pace]) -> list[float]:
    return [each.seconds for each in pace if each.seconds is not None]


def _spread(values: list[float]) -> sights.Spread:
    if not values:
        return sights.Spread(count=0)
    values.sort()

    def at(percent: int) -> float:
        # The nearest rank: the smallest value that so many of a hundred do not exceed.
        return values[max(0, -(-percent * len(values) // 100) - 1)]

    return sights.Spread(count=len(values), p50=at(50), p95=at(95), p99=at(99), most=values[-1])


def _weight(value: object) -> int:
    return len(value) if isinstance(value, str) else 8
