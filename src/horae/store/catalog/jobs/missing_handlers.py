"""Moves runs that wait for a handler that is gone to their job's present version, or ends them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from horae.core.access import SYSTEM_NAME
from horae.core.change.run_move import GONE, UNMOVABLE_WAITS, is_gone, moved_tasks
from horae.core.job.requirements import handlers_of, reported_needs
from horae.core.run.lifecycle import RunState
from horae.store.catalog.definition_cache import CompiledDefinition
from horae.store.catalog.row_codec import JobRow, moment, optional_json, to_json
from horae.store.catalog.runs.move import move_run
from horae.store.catalog.unit_of_work import Active, NodeHandlers, UnitOfWork

UNREAD = "definition unreadable"
"""The reason of a run that ends because its own version cannot be read and the next one has other tasks."""
_WAITING = (RunState.PENDING, RunState.QUEUED)
MOST_RUNS_READ = 5000
"""How many runs one sweep looks at."""


async def known_handlers(work: UnitOfWork, since: int) -> NodeHandlers:
    """Returns the handlers of live nodes, and of the nodes that ended after `since` (milliseconds)."""
    # Nodes do not change within a transaction, and a batch may ask for each of its jobs.
    if since == work.now and work.handlers is not None:
        return work.handlers
    found = await _read_handlers(work, since)
    if since == work.now:
        work.handlers = found
    return found


async def _read_handlers(work: UnitOfWork, since: int) -> NodeHandlers:
    live: list[frozenset[str] | None] = []
    started, ended = [], []
    for state, started_at, ended_at, details in await work.transaction.rows("handlers_of_nodes", since=since):
        has = reported_needs(optional_json(details) or {})
        if state == "ALIVE":
            live.append(has)
            started.append(started_at)
        elif ended_at is not None:
            ended.append((ended_at, has))
    return NodeHandlers(handlers_of(live), ended, min(started, default=work.now))


async def with_missing_handlers(work: UnitOfWork, active: Active) -> Active:
    """Returns the same runs, with `lacks` set on those that wait for a handler which no live node has."""
    waiting = [number for number, run, _ in active.values() if run.state is RunState.PENDING and run.judged]
    handlers = await known_handlers(work, work.now) if waiting else None
    if handlers is None or handlers.live is None:
        return active
    found = dict(active)
    required = {row[0]: row[1] for row in await work.transaction.rows("requires_of_runs", runs=waiting)}
    for run_id, (number, run, waits) in active.items():
        missing = sorted(set(optional_json(required.get(number)) or ()) - handlers.live)
        if missing:
            found[run_id] = (number, replace(run, lacks=missing[0].strip()), waits)
    return found


async def resolve_missing_handlers(work: UnitOfWork, grace: timedelta, limit: int) -> tuple[int, list[str]]:
    """Moves or ends up to `limit` waiting runs whose handler no live node has had for `grace`.

    Returns how many moved or ended, and the jobs of those that ended.
    """
    due = work.now - grace // timedelta(milliseconds=1)
    handlers = await known_handlers(work, due)
    if handlers.live is None:
        return 0, []
    live = handlers.live
    had = to_json(sorted(live))
    rows = await work.transaction.rows("runs_without_handler", handlers=had, due=due, limit=MOST_RUNS_READ)
    keys = {(row[1], version) for row in rows for version in (row[3], row[4])}
    await work.cache.load(work.transaction, sorted(keys))

    def waits_in_vain(job: str, version: int, present: int, created: int) -> bool:
        if any(work.cache[job, each].definition.fault is not None for each in (version, present)):
            # The handlers that an unreadable version needs are not known here.
            return False
        missing = work.cache[job, version].handlers - live
        # A node that never reported all of its handlers may have had this one.
        had_until = (at for at, names in handlers.ended if names is None or not missing.isdisjoint(names))
        lacking = moment(max((created, handlers.since, *had_until)))
        return is_gone(missing, work.cache[job, present].handlers, lacking, work.moment, grace)

    # Judged before anything is locked, because most runs wait for something that will come; again under the locks.
    created = {row[0]: row[2] for row in rows if waits_in_vain(row[1], row[3], row[4], row[2])}
    created = dict(list(created.items())[:limit])
    if not created:
        return 0, []
    jobs = await work.lock_jobs(uuids=sorted({row[1] for row in rows if row[0] in created}))
    runs = await work.lock_runs(sorted(created))
    settled, ended = 0, []
    for run in runs.values():
        job = jobs.get(run.job_uuid)
        if job is None or run.state not in _WAITING or run.version == job.version:
            continue
        if run.waiting_for in UNMOVABLE_WAITS or not waits_in_vain(
            run.job_uuid, run.version, job.version, created[run.run_no]
        ):
            continue
        settled += 1
        if not await move_run(work, run, work.definition(job), moved_tasks, GONE):
            work.end_unstarted(run.run_no, RunState.FAILED, GONE)
            work.audit("JOB_FAILED", run.job_uuid, run.uuid, SYSTEM_NAME, "FAILED", reason=GONE, run_no=run.run_no)
            ended.append(run.job_uuid)
    await work.flush()
    return settled, ended


async def move_unread(work: UnitOfWork, job: JobRow, own: CompiledDefinition, present: CompiledDefinition) -> bool:
    """Moves runs that wait under a version that cannot be read to the version that replaces it, or ends them.

    Returns whether a run ended. Runs that ended before are left as they are, even while a thread of them still works.
    """
    active = (await work.active([job.uuid])).get(job.uuid, {})
    waiting = [number for number, run, _ in active.values() if run.state in _WAITING]
    ended = False
    for run in (await work.lock_runs(waiting)).values():
        if run.state not in _WAITING or run.version != own.definition.version:
            # Another node may have started it since it was read.
            continue
        if await move_run(work, run, present, moved_tasks, UNREAD):
            continue
        work.end_unstarted(run.run_no, RunState.FAILED, UNREAD)
        work.audit("JOB_FAILED", run.job_uuid, run.uuid, SYSTEM_NAME, "FAILED", reason=UNREAD, run_no=run.run_no)
        ended = True
    await work.flush()
    return ended
