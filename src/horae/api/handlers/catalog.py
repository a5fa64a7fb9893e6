"""Operations on the whole catalog: overview, nodes, doctor, SQL, settings."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from horae.api import requests
from horae.api.context import OperationGroup, Receipt
from horae.api.handlers.coming_starts import is_quick, merged_starts
from horae.api.responses import catalog_responses, conversion
from horae.api.responses.job_responses import Coming
from horae.api.words import ENDED
from horae.core.node_liveness import SILENCE
from horae.core.run.lifecycle import JobState, RunState
from horae.core.time.instant import rfc3339
from horae.errors import HoraeError, InvalidStatement
from horae.services.explain.wait_facts import concurrency_of
from horae.services.hourly_counts import ended_by_hour
from horae.services.queries import VIEW
from horae.services.service import ServiceCatalog
from horae.services.sql.session import Result, SqlSession
from horae.services.views import JobsPage, JobsQuery, RunPace, RunsQuery
from horae.store.protocols.store import JobRecord, NodeRecord, RunRecord

OVERDUE = timedelta(seconds=30)
"""How late a run may be before it counts as overdue."""
_DAY = timedelta(hours=24)
_FAILED = frozenset({RunState.FAILED, RunState.FAILED_STALE})
_MOST_ACTIVE = 50
_MOST_COMING = 30
_MOST_JOBS = 60
"""Jobs whose next starts are calculated; each has at least one."""
_FEW = 20
MOST_FAILED = 500
"""Failed runs that are counted at most; a larger number says no more."""
_COUNTED = 1_000
"""Jobs and runs that are counted one by one for a user who may not see all of them."""
LARGEST_SQL_ANSWER = 20_000_000
"""Characters, approximately, that all results of one text may have. A single SELECT may have 16 million."""
_LEFT_OUT = " (left out: the results before it are as much as one answer may be)"


class _ResponseBudget:
    """The space that is left for the rows of one response."""

    def __init__(self, left: int = LARGEST_SQL_ANSWER) -> None:
        self.left = left

    def result(self, result: Result) -> catalog_responses.SqlResult:
        told = result.to_dict()
        rows = told.get("rows")
        self.left -= sum(_weight(value) for row in rows or () for value in row)
        is_left_out = bool(rows) and self.left < 0
        return catalog_responses.SqlResult(
            statement=result.statement,
            message=result.message + (_LEFT_OUT if is_left_out else ""),
            columns=told.get("columns"),
            rows=[] if is_left_out else rows,
            cut=result.cut or is_left_out,
            rowcount=result.rowcount,
        )


class CatalogOperations(OperationGroup):
    """Reads and changes the catalog as a whole."""

    async def overview(self, asked: requests.EmptyRequest) -> catalog_responses.Overview:
        views, now = self.service.views, await self.service.now()
        running = await views.list_runs(RunsQuery(states=frozenset({RunState.RUNNING}), limit=_MOST_ACTIVE))
        waiting = await views.list_runs(
            RunsQuery(states=frozenset({RunState.PENDING, RunState.QUEUED}), limit=_MOST_ACTIVE)
        )
        jobs = await views.list_jobs(
            JobsQuery(sort="next_run_time", limit=_MOST_JOBS if views.seen is None else _COUNTED)
        )
        recent = await views.list_runs(RunsQuery(states=ENDED, limit=_FEW))
        pace = await views.pace()
        bars = await ended_by_hour(self.service.store, views, now)
        nodes = await self._nodes(now)
        ended: Counter[str] = Counter()
        for counts in bars.values():
            ended.update(counts)
        failures = await self._failures(now)
        alive = [each for each in nodes if each.state == "ALIVE"]
        return catalog_responses.Overview(
            now=rfc3339(now),
            totals=await self._totals(jobs, now),
            running=[conversion.run(each) for each in running],
            waiting=[conversion.run(each) for each in waiting],
            coming=await _coming([job for job in jobs.jobs if job.next_run_time is not None], waiting, now),
            failures=[conversion.run(each) for each in failures[:_FEW]],
            failed=len(failures),
            failed_since=rfc3339(now - _DAY),
            recent=[conversion.run(each) for each in recent],
            bars=[catalog_responses.Bar(at=rfc3339(at), runs=dict(counts)) for at, counts in bars.items()],
            ended=dict(ended),
            lag=_spread([each.lag for each in pace]),
            duration=_spread(_durations(pace)),
            slots=sum(each.slots or 0 for each in alive),
            slots_taken=sum(each.running for each in alive),
            nodes=len(alive),
            overdue=await self._overdue(waiting, now),
        )

    async def _failures(self, now: datetime) -> tuple[RunRecord, ...]:
        """Returns the failed runs of the last day's scheduled times, the newest first, at most MOST_FAILED. An index
        serves this."""
        asked = RunsQuery(states=_FAILED, since=now - _DAY, limit=MOST_FAILED)
        return await self.service.views.list_runs(asked)

    async def _totals(self, page: JobsPage, now: datetime) -> catalog_responses.Totals:
        views = self.service.views
        if views.seen is None:
            found = await self.service.store.totals()
            return catalog_responses.Totals(
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
                jobs[state] = (await views.list_jobs(JobsQuery(state=state, limit=1))).total
        active = await views.list_runs(RunsQuery(states=frozenset(RunState) - ENDED, limit=_COUNTED))
        runs = Counter(run.state for run in active)
        return catalog_responses.Totals(
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

    async def nodes(self, asked: requests.EmptyRequest) -> catalog_responses.Nodes:
        now = await self.service.now()
        return catalog_responses.Nodes(nodes=await self._nodes(now), now=rfc3339(now))

    async def _nodes(self, now: datetime) -> list[catalog_responses.Node]:
        records = await self.service.store.nodes()
        system = await self.service.store.settings() if records else {}
        sees_all = self.service.views.seen is None
        return [
            conversion.node(each, state=_state(each, now), slots=concurrency_of(each, system), with_details=sees_all)
            for each in sorted(records, key=lambda each: (each.name or "", each.started_at))
        ]

    async def doctor(self, asked: requests.EmptyRequest) -> catalog_responses.Examination:
        await self.service.gate.require(VIEW, action="examine all jobs")
        return conversion.examination(await self.about.examine(self.service.store))

    async def sql(self, asked: requests.RunSql, receipt: Receipt | None = None) -> catalog_responses.SqlAnswer:
        """Runs SQL statements.

        With `each`, the details of an error contain `done`: how many statements were carried out before. Statements
        that the receipt says were carried out before are not repeated; their results are returned as they were.
        """
        done: list[catalog_responses.SqlResult] = []
        if receipt is not None and receipt.noted:
            done += msgspec.json.decode(receipt.noted, type=catalog_responses.SqlAnswer).results
        room = _ResponseBudget()

        async def note(store: ServiceCatalog, results: Sequence[Result]) -> None:
            assert receipt is not None
            left = _ResponseBudget(room.left)
            await receipt.note(
                store, catalog_responses.SqlAnswer(results=[*done, *(left.result(each) for each in results)])
            )

        session = SqlSession(self.service, None if receipt is None else note)
        try:
            async for result in session.results(
                asked.text, each=asked.each, most=requests.MOST_STATEMENTS, skip=len(done)
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
        answer = catalog_responses.SqlAnswer(results=done)
        if receipt is not None:
            await receipt.finish(self.service.store, answer)
        return answer

    async def settings(self, asked: requests.EmptyRequest) -> catalog_responses.Settings:
        values = await self.service.people.settings()
        known = {each.name: each for each in self.about.settings}
        found = [self._setting(name, values) for name in sorted({*known, *values})]
        return catalog_responses.Settings(settings=found)

    async def set_setting(self, asked: requests.SetSetting) -> catalog_responses.Setting:
        await self.service.people.set_setting(asked.name, asked.value)
        return self._setting(asked.name, await self.service.people.settings())

    def _setting(self, name: str, values: Mapping[str, Any]) -> catalog_responses.Setting:
        known = next((each for each in self.about.settings if each.name == name), None)
        return catalog_responses.Setting(
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
    """Returns whether the run's time has come and it waits only for free capacity."""
    return run.state is RunState.PENDING and run.not_before is not None and run.not_before <= now


def _state(node: NodeRecord, now: datetime) -> str:
    if node.state != "ALIVE":
        return node.state
    is_late = now - node.heartbeat_at > timedelta(seconds=SILENCE)
    return "SILENT" if node.lock_free or is_late else "ALIVE"


def _durations(pace: Sequence[RunPace]) -> list[float]:
    return [each.seconds for each in pace if each.seconds is not None]


def _spread(values: list[float]) -> catalog_responses.Spread:
    if not values:
        return catalog_responses.Spread(count=0)
    values.sort()

    def at(percent: int) -> float:
        # The nearest rank: the smallest value that at least `percent` of all values do not exceed.
        return values[max(0, -(-percent * len(values) // 100) - 1)]

    return catalog_responses.Spread(count=len(values), p50=at(50), p95=at(95), p99=at(99), most=values[-1])


def _weight(value: object) -> int:
    return len(value) if isinstance(value, str) else 8
