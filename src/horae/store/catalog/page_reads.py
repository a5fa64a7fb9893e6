"""The catalog's verbs for pages and lists. Their contract is `store.protocols.reads.Board`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from typing import Any, TypeAlias

import msgspec

from horae.core.access import user_uuid
from horae.core.clock_set_back import TOLERATED_MS, ClockLag, EarlyJob
from horae.core.job import ids
from horae.core.job.outline import READ_ERRORS
from horae.core.run.lifecycle import RunState
from horae.errors import HoraeError, InvalidInput, shown
from horae.store.catalog.definition_cache import CompiledDefinition
from horae.store.catalog.jobs.operations import run_not_found
from horae.store.catalog.reads import job_records, run_records
from horae.store.catalog.references import kept_name
from horae.store.catalog.row_codec import (
    length,
    milliseconds,
    moment,
    optional_json,
    optional_milliseconds,
    optional_moment,
    uuid_of,
)
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.catalog.verb_group import VerbGroup
from horae.store.protocols.reads import (
    JOB_ORDERS,
    UNREADABLE,
    AuditEntry,
    HalfDeletedJob,
    JobsPage,
    JobsQuery,
    OutputPart,
    OverdueCounts,
    RecentRun,
    RefusedRequest,
    RunPace,
    RunsQuery,
    ScheduleFields,
    Tally,
    VersionRecord,
    VisibleJobs,
)
from horae.store.records import JobRecord, RunRecord

WAITING = frozenset({RunState.PENDING, RunState.QUEUED})
ACTIVE = WAITING | {RunState.RUNNING}
FAILED = frozenset({RunState.FAILED, RunState.FAILED_STALE})
EVERY = sorted(map(str, RunState))
ENDED = sorted(str(each) for each in RunState if each not in ACTIVE)
_STATES = {str(each): each for each in RunState}
_MOST_OVERDUE = 1_000
"""How many overdue jobs have their definitions checked, the oldest first. The others count as overdue unchecked."""
_MOST_AHEAD = 20
"""How many jobs with a cursor ahead of the clock are named."""
_LAST = 2**62
_NO_NODE = "00000000-0000-0000-0000-000000000000"
_FIRST_KEY, _BEHIND_KEYS = "schedule:", "schedule;"
_FIRST_SECOND, _BEHIND_SECONDS = 10**9, 10**10
"""Between these bounds seconds have ten digits, so that their keys sort by time."""
MOST_LATEST = 20_000
"""How many rows are read for one page job by job. Where it would take more, the runs of so many jobs are frequent among
all runs, and those are read instead."""
MOST_RUNS_SCANNED = 20_000
"""How many runs of any job are read for a page of a few jobs' runs. Where it would take more, all runs of those jobs
are read instead."""


class PageReadVerbs(VerbGroup):
    """Implements Board."""

    async def list_jobs(self, asked: JobsQuery) -> JobsPage:
        if asked.sort not in JOB_ORDERS:
            raise InvalidInput(f"Jobs cannot be sorted by {shown(asked.sort)}", hint=f"Choose {', '.join(JOB_ORDERS)}.")
        chosen = _chosen_jobs(asked)
        page: dict[str, Any] = {"limit": asked.limit, "offset": asked.offset}
        async with self._looking() as work:
            if asked.owner is not None:
                chosen["owner"] = str(user_uuid(await kept_name(work, asked.owner)))
            if asked.sort == "name":
                statement = "jobs_by_name_down" if asked.descending else "jobs_by_name"
            else:
                statement = "jobs_by_column"
                page |= {"sort": asked.sort, "descending": asked.descending}
            found = [row[0] for row in await work.transaction.rows(statement, **chosen, **page)]
            if any(value is not None for name, value in chosen.items() if name != "granted"):
                total = (await work.transaction.rows("count_found_jobs", **chosen))[0][0]
            else:
                total = (await work.transaction.rows("count_all_jobs"))[0][0]
            rows = await work.transaction.rows("read_jobs", jobs=found) if found else []
            return JobsPage(await job_records(work, rows), total)

    async def last_runs(self, names: Sequence[str], most: int) -> Mapping[str, tuple[RecentRun, ...]]:
        keys = {str(ids.job_uuid(name)): name for name in names}
        if not keys or most < 1:
            return {}
        async with self._looking() as work:
            rows = await work.transaction.rows("strips", jobs=list(keys), most=most)
        found = {keys[uuid]: _strip(scheduled, others, most) for uuid, scheduled, others in rows}
        return {name: found[name] for name in keys.values() if found.get(name)}

    async def schedules(self, names: Sequence[str]) -> Mapping[str, ScheduleFields]:
        async with self._looking() as work:
            rows = await work.transaction.rows("read_schedules", jobs=[str(ids.job_uuid(name)) for name in names])
        return {name: ScheduleFields(no, kind, text, optional_moment(last)) for name, no, kind, text, last in rows}

    async def dependents(self, job: str, most: int) -> tuple[JobRecord, ...]:
        async with self._looking() as work:
            found = await work.transaction.rows("list_dependents", job=str(ids.job_uuid(job)), limit=most)
            rows = await work.transaction.rows("read_jobs", jobs=[row[0] for row in found]) if found else []
            return await job_records(work, rows)

    async def half_deleted(self, most: int) -> tuple[HalfDeletedJob, ...]:
        async with self._looking() as work:
            rows = await work.transaction.rows("half_deleted_jobs", limit=most)
        return tuple(HalfDeletedJob(_name_in(definition), uuid, *counts) for uuid, definition, *counts in rows)

    async def refusals(self, since: datetime, most: int) -> tuple[RefusedRequest, ...]:
        async with self._looking() as work:
            rows = await work.transaction.rows("refused_requests", since=milliseconds(since), limit=most)
        return tuple(RefusedRequest(name, field, error, moment(at), by) for name, field, error, at, by in rows)

    async def list_runs(self, asked: RunsQuery) -> tuple[RunRecord, ...]:
        chosen: dict[str, Any] = {
            "states": sorted(map(str, asked.states)) or None,
            "origin": None if asked.origin is None else str(asked.origin),
            "since": optional_milliseconds(asked.since),
            "until": optional_milliseconds(asked.until),
            "before": _LAST,
            "first": 0,
            "limit": asked.limit,
        }
        if asked.beginning is not None:
            chosen["lowest"], chosen["highest"] = ids.run_range(asked.beginning)
        async with self._looking() as work:
            if asked.before is not None:
                page_end = await work.transaction.rows("find_runs", runs=[uuid_of(asked.before)])
                if not page_end:
                    raise run_not_found(asked.before)
                chosen["before"] = page_end[0][0]
            jobs = await _jobs_of(work, asked.job, asked.seen_by)
            records: list[RunRecord] = []
            while chosen["limit"] > 0:
                numbers = await _run_numbers(work, jobs, asked.states, chosen)
                rows = await work.transaction.rows("read_runs", runs=numbers) if numbers else []
                found = await run_records(work, rows)
                # A run may have changed its state, or been deleted, since it was chosen. Other runs fill the page.
                records += [each for each in found if not asked.states or each.state in asked.states]
                if len(numbers) < chosen["limit"]:
                    break
                chosen |= {"before": numbers[-1], "limit": asked.limit - len(records)}
        return tuple(records)

    async def tally(
        self,
        since: datetime,
        until: datetime,
        step: timedelta,
        *,
        job: str | None = None,
        seen_by: VisibleJobs | None = None,
    ) -> tuple[Tally, ...]:
        first, behind, each = milliseconds(since), milliseconds(until), length(step) or 0
        if each < 1:
            raise InvalidInput(f"Invalid step {shown(step)}: must be a millisecond or more")
        chosen: dict[str, Any] = {"since": first, "until": behind, "step": each}
        async with self._looking() as work:
            jobs = await _jobs_of(work, job, seen_by)
            if jobs == []:
                return ()
            if job is None:
                rows = await work.transaction.rows("tally_of_jobs", jobs=jobs, **chosen)
            else:
                keys = {"since_key": _key(first), "until_key": _key(behind)}
                rows = await work.transaction.rows("tally_of_job", job=str(ids.job_uuid(job)), **chosen, **keys)
        return tuple(Tally(moment(first + place * each), RunState(state), count) for place, state, count in rows)

    async def pace(
        self, *, job: str | None = None, most: int = 500, seen_by: VisibleJobs | None = None
    ) -> tuple[RunPace, ...]:
        async with self._looking() as work:
            jobs = await _jobs_of(work, job, seen_by)
            if job is not None and jobs:
                rows = await work.transaction.rows("latest_runs", **_latest(jobs, most, ENDED))
                numbers = [row[1] for row in _newest(rows, most)]
            else:
                chosen = {"states": ENDED, "origin": None, "since": None, "until": None}
                limits = {"before": _LAST, "first": 0, "limit": most}
                numbers = await _run_numbers(work, jobs, frozenset(map(RunState, ENDED)), chosen | limits)
            rows = await work.transaction.rows("read_pace", runs=numbers) if numbers else []
        return tuple(RunPace(name, lag / 1000, None if took is None else took / 1000) for name, lag, took in rows)

    async def jobs_timed(self, timeout: timedelta) -> tuple[str, ...]:
        async with self._looking() as work:
            rows = await work.transaction.rows("jobs_timed", seconds=timeout // timedelta(seconds=1))
            return tuple(name for (name,) in rows)

    async def overdue(self, grace: timedelta) -> OverdueCounts:
        async with self._looking() as work:
            late = work.now - grace // timedelta(milliseconds=1)
            jobs, woke, job = (await work.transaction.rows("overdue_jobs", late=late))[0]
            unread: list[str] = []
            if jobs:
                rows = await work.transaction.rows("oldest_overdue_jobs", late=late, limit=_MOST_OVERDUE)
                await work.cache.load(work.transaction, [(row[0], row[1]) for row in rows])
                readable = [row for row in rows if _can_be_asked(work.cache[row[0], row[1]], work.moment)]
                unread = [row[2] for row in rows if row not in readable]
                jobs -= len(unread)
                _, _, job, woke = readable[0] if readable else (None, None, None, None)
            runs, due, of = (await work.transaction.rows("overdue_runs", late=late))[0]
            return OverdueCounts(
                work.moment, jobs, optional_moment(woke), job, runs, optional_moment(due), of, tuple(sorted(unread))
            )

    async def set_back(self, job: str | None = None) -> ClockLag:
        clock = await self.driver.clock_reading()
        async with self._looking() as work:
            rows = await work.transaction.rows(
                "jobs_ahead_of_the_clock", clock=clock, tolerated=TOLERATED_MS, job=job, limit=_MOST_AHEAD
            )
        early = tuple(EarlyJob(name, moment(cursor), moment(planned)) for name, cursor, planned, _ in rows)
        return ClockLag(moment(clock), rows[0][3] if rows else 0, early)

    async def mark(self, besides: str | None) -> tuple[int, ...] | None:
        async with self._looking() as work:
            rows = await work.transaction.rows("mark_of_runs", node=besides or _NO_NODE)
        return tuple(rows[0]) if rows else None

    async def pools(self) -> Mapping[str, int]:
        async with self._looking() as work:
            return dict(await work.transaction.rows("read_pools"))

    async def versions(self, job: str, *, before: int | None = None, limit: int = 50) -> tuple[VersionRecord, ...]:
        async with self._looking() as work:
            rows = await work.transaction.rows(
                "list_versions", job=str(ids.job_uuid(job)), before=_LAST if before is None else before, limit=limit
            )
        return tuple(
            VersionRecord(
                version,
                _plain(definition),
                source,
                author,
                reason,
                moment(created),
                {} if defaults is None else _plain(defaults),
            )
            for version, definition, source, author, reason, created, defaults in rows
        )

    async def trail(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        event: str | None = None,
        actor: str | None = None,
        job: str | None = None,
    ) -> tuple[AuditEntry, ...]:
        async with self._looking() as work:
            rows = await work.transaction.rows(
                "list_trail",
                before=_LAST if before is None else before,
                limit=limit,
                event=ids.checked_text(event, "event"),
                actor=ids.checked_text(actor, "actor"),
                job=None if job is None else str(ids.job_uuid(job)),
            )
        return tuple(_entry(row) for row in rows)

    async def output_after(self, attempt_id: str, after: int = 0) -> OutputPart:
        attempt = ids.checked_id(attempt_id, ids.ATTEMPT).removeprefix(ids.ATTEMPT)
        async with self._looking() as work:
            rows = await work.transaction.rows("output_after", attempt=attempt, after=after)
        return OutputPart("".join(text for _, text in rows), rows[-1][0] + 1 if rows else after)


# ---- jobs ----------------------------------------------------------------------------------------------------------


def _chosen_jobs(asked: JobsQuery) -> dict[str, Any]:
    seen = asked.seen_by
    for text, what in ((asked.search, "search"), (asked.tag, "tag"), (asked.owner, "owner")):
        ids.checked_text(text, what)
    return {
        "state": None if asked.state is None else str(asked.state),
        "namespace": ids.checked_text(asked.namespace, "namespace"),
        "owner": None,
        "tag": asked.tag,
        "search": asked.search.lower() if asked.search else None,
        "plain": None if not asked.search else asked.search.isascii(),
        **_visibility(seen),
    }


def _visibility(seen: VisibleJobs | None) -> dict[str, Any]:
    if seen is None:
        return {"viewer": None, "granted": []}
    return {"viewer": str(user_uuid(seen.owner)), "granted": sorted(map(ids.job_key, seen.jobs))}


# ---- runs ----------------------------------------------------------------------------------------------------------


async def _jobs_of(work: UnitOfWork, job: str | None, seen_by: VisibleJobs | None) -> list[str] | None:
    """Returns the uuids of the jobs whose runs are wanted and visible. None: every job."""
    wanted = None if job is None else str(ids.job_uuid(job))
    if seen_by is None:
        return None if wanted is None else [wanted]
    seen = [row[0] for row in await work.transaction.rows("seen_jobs", **_visibility(seen_by))]
    return seen if wanted is None else [wanted] if wanted in seen else []


async def _run_numbers(
    work: UnitOfWork, jobs: list[str] | None, states: frozenset[RunState], chosen: Mapping[str, Any]
) -> list[int]:
    """Returns the run numbers of one page, by the index that contains the fewest other runs."""
    if jobs == []:
        return []
    if "lowest" in chosen:
        statement = "page_of_runs_between"
    elif states and states <= ACTIVE:
        statement = "page_of_active_runs"
    elif states and states <= FAILED:
        statement = "page_of_failed_runs"
    elif jobs is not None and len(jobs) * chosen["limit"] <= MOST_LATEST:
        return await _numbers_of_few(work, jobs, chosen)
    else:
        statement = "page_of_runs"
    return [row[0] for row in await work.transaction.rows(statement, jobs=jobs, **chosen)]


async def _numbers_of_few(work: UnitOfWork, jobs: list[str], chosen: Mapping[str, Any]) -> list[int]:
    """Returns the run numbers of one page of a few jobs' runs.

    A job's runs can be found by scheduled time, and runs are created nearly, but not exactly, in that order. So the
    latest runs by scheduled time give a lower bound for the numbers of the page, and only runs from there on are read.
    """
    limit = chosen["limit"]
    latest = _latest(jobs, limit, chosen["states"] or EVERY)
    latest |= {name: chosen[name] for name in ("before", "origin", "since", "until")}
    if chosen["since"] is not None:
        latest["since_key"] = _key(chosen["since"])
    if chosen["until"] is not None:
        latest["until_key"] = _key(chosen["until"])
    rows = await work.transaction.rows("latest_runs", **latest)
    numbers = nlargest(limit, (row[1] for row in rows))
    if len(rows) < limit or not numbers:
        return numbers
    chosen = {**chosen, "jobs": jobs, "first": numbers[-1]}
    newest = (await work.transaction.rows("newest_run"))[0][0]
    if min(newest + 1, chosen["before"]) - numbers[-1] <= MOST_RUNS_SCANNED:
        found = await work.transaction.rows("page_of_runs", **chosen)
    else:
        keys = {name: latest[name] for name in ("since_key", "until_key")}
        found = await work.transaction.rows("page_of_jobs_runs", **chosen, **keys)
    return [row[0] for row in found]


def _latest(jobs: list[str], most: int, states: list[str]) -> dict[str, Any]:
    """Returns the parameters of `latest_runs`, with their defaults."""
    return {
        "jobs": jobs,
        "most": most,
        "states": states,
        "before": _LAST,
        "origin": None,
        "since": None,
        "until": None,
        "since_key": _FIRST_KEY,
        "until_key": _BEHIND_KEYS,
    }


def _key(at: int) -> str:
    """Returns the key of the first scheduled time at or after `at` (milliseconds), as far as keys sort by time."""
    second = -(-at // 1000)
    if second < _FIRST_SECOND:
        return _FIRST_KEY
    return _BEHIND_KEYS if second >= _BEHIND_SECONDS else f"schedule:{second}"


def _newest(rows: Sequence[tuple[Any, ...]], most: int) -> list[tuple[Any, ...]]:
    """Returns the newest of one job's rows of `latest_runs`: by scheduled time, then by number."""
    return nlargest(most, rows, key=lambda row: (row[4], row[1]))


_Strip: TypeAlias = list[tuple[int, str, str, int, int | None, int | None]]
_read_strip = msgspec.json.Decoder(_Strip).decode


def _strip(scheduled: str | None, others: str | None, most: int) -> tuple[RecentRun, ...]:
    rows = _read_strip(scheduled) if scheduled else []
    more = _read_strip(others) if others else []
    if more:
        rows = nlargest(most, [*rows, *more], key=lambda row: (row[3], row[0]))
    return tuple(
        RecentRun(
            ids.RUN + uuid,
            _STATES[state],
            at,
            started,
            None if started is None or completed is None else (completed - started) / 1000,
        )
        for _, uuid, state, at, started, completed in rows
    )


# ---- the trail -----------------------------------------------------------------------------------------------------


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    number, at, event, actor, outcome, job, run, details, is_sealed = row
    told = optional_json(details)
    return AuditEntry(
        number,
        moment(at),
        event,
        actor,
        outcome,
        job,
        None if run is None else ids.RUN + run,
        told if isinstance(told, dict) else {} if told is None else {"runs": told},
        bool(is_sealed),
    )


def _plain(definition: str) -> dict[str, Any]:
    """Returns a stored definition, or the defaults beside it, as plain values. A text that is no JSON object is
    returned as it is under the key UNREADABLE."""
    try:
        found = json.loads(definition)
    except READ_ERRORS:
        found = None
    return found if isinstance(found, dict) else {UNREADABLE: definition}


def _can_be_asked(compiled: CompiledDefinition, now: datetime) -> bool:
    """Whether the definition can be read here, and its schedule evaluated."""
    try:
        if compiled.schedule is not None:
            compiled.schedule.next(now)
    except HoraeError:
        return False
    return compiled.definition.fault is None


def _name_in(definition: str | None) -> str | None:
    """Returns the job's name in a stored definition, even where the rest of it is invalid."""
    try:
        found = json.loads(definition or "null")
    except ValueError:
        return None
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None
