"""Runs that wait for a handler that is gone: they move to their job's present version, or end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from horae.core.access import SYSTEM_NAME
from horae.core.lifecycle import RunState
from horae.core.move import GONE, WAITED_FOR, is_gone, moved_tasks
from horae.core.needs import handlers_of, reported
from horae.store.definitions import Compiled
from horae.store.move import move_run
from horae.store.rows import JobRow, moment, optional_json, to_json
from horae.store.work import Active, Handlers, Work

UNREAD = "definition unreadable"
"""The reason of a run that ends because its own version cannot be read and the next one has other tasks."""
_WAITING = (RunState.PENDING, RunState.QUEUED)
LOOKED_AT = 5000
"""Runs that are looked at in one sweep."""


async def known_handlers(work: Work, since: int) -> Handlers:
    """What live nodes have, and what nodes had that ended after `since`."""
    # Nodes do not change within a transaction, and a batch may ask for each of its jobs.
    if since == work.now and work.handlers is not None:
        return work.handlers
    found = await _read_handlers(work, since)
    if since == work.now:
        work.handlers = found
    return found


async def _read_handlers(work: Work, since: int) -> Handlers:
    live: list[frozenset[str] | None] = []
    started, ended = [], []
    for state, started_at, ended_at, details in await work.transaction.rows("handlers_of_nodes", since=since):
        has = reported(optional_json(details) or {})
        if state == "ALIVE":
            live.append(has)
            started.append(started_at)
        elif ended_at is not None:
            ended.append((ended_at, has))
    return Handlers(handlers_of(live), ended, min(started, default=work.now))


async def with_lacks(work: Work, active: Active) -> Active:
    """The same runs; those that wait for a handler which no live node has say for which."""
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


async def settle_gone(work: Work, grace: timedelta, limit: int) -> tuple[int, list[str]]:
    """How many runs moved or ended, and the jobs of those that ended."""
    due = work.now - grace // timedelta(milliseconds=1)
    handlers = await known_handlers(work, due)
    if handlers.live is None:
        return 0, []
    live = handlers.live
    had = to_json(sorted(live))
    rows = await work.transaction.rows("runs_without_handler", handlers=had, due=due, limit=LOOKED_AT)
    keys = {(row[1], version) for row in rows for version in (row[3], row[4])}
    await work.cache.load(work.transaction, sorted(keys))

    def waits_in_vain(job: str, version: int, present: int, created: int) -> bool:
        if any(work.cache[job, each].definition.fault is not None for each in (version, present)):
            # What one of them needs is not known here.
            return False
        missing = work.cache[job, version].handlers - live
        # What a node had that never said all of it is not known: it may have been this.
        had_until = (at for at, names in handlers.ended if names is None or not missing.isdisjoint(names))
        lacking = moment(max((created, handlers.since, *had_until)))
        return is_gone(missing, work.cache[job, present].handlers, lacking, work.moment, grace)

    # Judged before anything is locked, and again under the locks: most runs wait for what will come.
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
        if run.waiting_for in WAITED_FOR or not waits_in_vain(
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


async def move_unread(work: Work, job: JobRow, own: Compiled, present: Compiled) -> bool:
    """What waits under a version that cannot be read goes on under the one that replaces it, or ends; says whether a
    run ended. One that has ended is left as it is, even while a thread of it still works."""
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
