"""Runs that wait for a handler that is gone: they move to their job's present version, or end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from horae.core import ids
from horae.core.access import SYSTEM_NAME
from horae.core.lifecycle import RunState
from horae.core.move import GONE, Moved, is_gone, moved_tasks
from horae.core.needs import handlers_of, reported
from horae.core.progress import TaskProgress
from horae.store.definitions import Compiled
from horae.store.dispatching import task_progress
from horae.store.rows import JobRow, moment, optional_json, optional_moment, to_json
from horae.store.work import Active, Handlers, RunRow, Work

LOOKED_AT = 5000
"""Runs that are looked at in one sweep."""
_ABOVE = 1_000_000
"""Where tasks are put while they change places, above every position."""


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
    ended = []
    for state, ended_at, details in await work.transaction.rows("handlers_of_nodes", since=since):
        has = reported(optional_json(details) or {})
        if state == "ALIVE":
            live.append(has)
        elif ended_at is not None:
            ended.append((ended_at, has or frozenset()))
    return Handlers(handlers_of(live), ended)


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

    def waits_in_vain(job: str, version: int, present: int, since: int) -> bool:
        missing = work.cache[job, version].handlers - live
        last_had = max((at for at, names in handlers.ended if not missing.isdisjoint(names)), default=None)
        named = work.cache[job, present].handlers
        return is_gone(missing, named, moment(since), optional_moment(last_had), work.moment, grace)

    # Judged before anything is locked, and again under the locks: most runs wait for what will come.
    since = {row[0]: row[2] for row in rows if waits_in_vain(row[1], row[3], row[4], row[2])}
    since = dict(list(since.items())[:limit])
    if not since:
        return 0, []
    jobs = await work.lock_jobs(uuids=sorted({row[1] for row in rows if row[0] in since}))
    runs = await work.lock_runs(sorted(since))
    settled, ended = 0, []
    for run in runs.values():
        job = jobs.get(run.job_uuid)
        if job is None or run.state != "PENDING" or run.version == job.version:
            continue
        if not waits_in_vain(run.job_uuid, run.version, job.version, since[run.run_no]):
            continue
        own, present = work.cache[run.job_uuid, run.version], work.definition(job)
        settled += 1
        if not await _move(work, run, job, own, present):
            work.end_unstarted(run.run_no, RunState.FAILED, GONE)
            work.audit("JOB_FAILED", run.job_uuid, run.uuid, SYSTEM_NAME, "FAILED", reason=GONE, run_no=run.run_no)
            ended.append(run.job_uuid)
    await work.flush()
    return settled, ended


async def _move(work: Work, run: RunRow, job: JobRow, own: Compiled, present: Compiled) -> bool:
    names = present.task_names
    if run.only_tasks is not None and not set(json.loads(run.only_tasks)) <= set(names):
        return False
    tasks = (await task_progress(work, [run.run_no])).get(run.run_no, [])
    moves = moved_tasks(tasks, names, at_most_once=own.settings.delivery == "at_most_once")
    if moves is None:
        return False
    if tasks:
        await _move_tasks(work, run, tasks, moves, names)
    columns = (run.run_no, present.definition.version, present.requires, present.settings.pool, present.pooled)
    work.write("move_runs", columns)
    told = {"version": present.definition.version, "version_before": run.version, "reason": GONE}
    work.audit("RUN_MOVED", run.job_uuid, run.uuid, SYSTEM_NAME, "OK", run_no=run.run_no, **told)
    return True


async def _move_tasks(
    work: Work, run: RunRow, tasks: Iterable[TaskProgress], moves: Sequence[Moved], names: Sequence[str]
) -> None:
    """Brings the run's rows to their new places, by way of places that none has, and adds the tasks that are new."""
    attempts = {task.position: task.attempts for task in tasks}
    for statement in ("move_task", "move_attempts", "move_output"):
        for move in moves:
            await work.transaction.rows(statement, run=run.run_no, before=move.before, after=move.after + _ABOVE)
        for move in moves:
            await work.transaction.rows(statement, run=run.run_no, before=move.after + _ABOVE, after=move.after)
    job = ids.job_uuid(work.cache[run.job_uuid, run.version].definition.name)
    for move in moves:
        await work.transaction.rows("rename_task", run=run.run_no, position=move.after, name=move.name)
        task_run = ids.task_run_id(run.run_id, ids.task_uuid(job, move.name))
        for number in range(1, attempts[move.before] + 1):
            uuid = ids.attempt_id(task_run, number).removeprefix(ids.ATTEMPT)
            await work.transaction.rows("rename_output", run=run.run_no, position=move.after, attempt=number, uuid=uuid)
    taken = {move.after for move in moves}
    for position, name in enumerate(names):
        if position not in taken and run.only_tasks is None:
            work.write("insert_task_runs", (run.run_no, position, name, "PENDING", 0, None))
