"""Maintenance: nodes and heartbeats, runs of dead nodes, runs past their timeout, and what no hand-over reached."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from horae.core.access import SYSTEM_NAME
from horae.core.declarative import RegistrationStatus, catch_up_cursor
from horae.core.job import ids
from horae.core.run.lifecycle import EXCEEDED, JobState, RunState
from horae.core.run.progress import TaskProgress, stop_allowance
from horae.errors import NodeNameTaken, shown
from horae.store.catalog import threads
from horae.store.catalog.jobs.missing_handlers import resolve_missing_handlers
from horae.store.catalog.jobs.next_runs import NextRunCalculator
from horae.store.catalog.jobs.operations import forget_runs
from horae.store.catalog.outbox import expire
from horae.store.catalog.row_codec import JobRow, length, milliseconds, moment, optional_json, to_json
from horae.store.catalog.runs.handover import after_endings, finish_once_jobs, judge_dependents
from horae.store.catalog.runs.run_claims import task_progress
from horae.store.catalog.runs.settlement import SettlementWriter
from horae.store.catalog.unit_of_work import CatalogRunRow, UnitOfWork
from horae.store.records import HeartbeatResult, NodeRecord, Settlement, ThreadKey, UnreportedRun

TIMEOUT = "timeout"


async def join(
    work: UnitOfWork, node: str, name: str | None, details: Mapping[str, Any] | None, alive: Sequence[str]
) -> None:
    """Writes the node's row. `alive` are the incarnations whose liveness lock is held. Raises NodeNameTaken."""
    if name is not None:
        await work.transaction.rows("lock_node_names")
        for (other,) in await work.transaction.rows("nodes_of_name", name=name):
            if other != node and other in alive:
                raise NodeNameTaken(
                    f"A node called {shown(name)} is running already",
                    hint="Give this one another name, or none.",
                    details={"name": name, "node": other},
                )
    await work.transaction.rows(
        "insert_node", node=node, name=name, details=to_json(dict(details)) if details else None
    )


async def heartbeat(
    work: UnitOfWork, node: str, known: Mapping[str, int], working: Collection[ThreadKey] | None
) -> HeartbeatResult:
    """Counts one heartbeat, and compares the rows that the node owns with the runs and threads that it reports."""
    beaten = await work.transaction.rows("beat", node=node)
    if not beaten:
        return HeartbeatResult(work.moment, expelled=True, lost=tuple(sorted(known)))
    if beaten[0][1] and working is not None:
        await threads.keep_only(work, node, working)
    owned = {ids.RUN + row[1]: row for row in await work.transaction.rows("runs_of_node", node=node)}
    unknown = [row for run_id, row in owned.items() if known.get(run_id) != row[2]]
    released = await _release(work, node, unknown, started=False) if unknown else ()
    lost = tuple(sorted(run_id for run_id, fence in known.items() if run_id not in owned or owned[run_id][2] != fence))
    cancels = {run_id: row[3] for run_id, row in owned.items() if row[3] is not None and known.get(run_id) == row[2]}
    return HeartbeatResult(work.moment, released=released, lost=lost, cancels=cancels)


async def leave(work: UnitOfWork, node: str, *, working: bool) -> int:
    rows = await work.transaction.rows("runs_of_node", node=node)
    released = await _release(work, node, rows, started=True) if rows else ()
    if working:
        # Its threads end with its process, and nothing reports that. The node stays ALIVE until it is taken over.
        return len(released)
    await threads.keep_only(work, node, ())
    await work.transaction.rows("end_node", node=node, state="STOPPED")
    return len(released)


async def _release(work: UnitOfWork, node: str, rows: Sequence[tuple[Any, ...]], *, started: bool) -> tuple[str, ...]:
    settlements = [
        Settlement(ids.RUN + uuid, number, fence, release=True, started=started) for number, uuid, fence, _ in rows
    ]
    answers = await SettlementWriter(work, node).settle(settlements)
    work.transaction.wake()
    return tuple(sorted(answer.run_id for answer in answers))


async def take_over(work: UnitOfWork, dead: str, counter: int) -> int | None:
    """Takes the runs of a node judged dead, and fences everything that it writes from now on. Returns how many runs, or
    None where its counter moved on or another node took it over first."""
    if not await work.transaction.rows("bury_node", node=dead, counter=counter):
        return None
    numbers = [row[0] for row in await work.transaction.rows("runs_of_node", node=dead)]
    left = await threads.threads_of(work, dead)
    if not numbers and not left:
        return 0
    await work.transaction.rows("lock_jobs_of_runs", runs=[*numbers, *(thread.run_no for thread in left)])
    runs = await work.lock_runs(numbers)
    tasks = await _progress_of_each(work, numbers)
    settler = SettlementWriter(work, dead)
    taken = 0
    again: set[str] = set()
    for run in runs.values():
        if run.state == "RUNNING" and run.owner == dead:
            answer = settler.lost(run, work.cache[run.job_uuid, run.version], tasks.get(run.run_no, []))
            taken += 1
            if answer.state is RunState.PENDING:
                again.add(run.job_uuid)
                work.passed.append(_taken_over_run(work, run, RunState.PENDING, f"node {dead} died"))
    work.passed += [_taken_over_run(work, run, state, reason) for run, state, reason in settler.ended]
    await settler.finish()
    await threads.remove(work, left)
    if again:
        await _coalesce_catch_up(work, sorted(again))
    work.transaction.wake()
    return taken


async def _progress_of_each(work: UnitOfWork, numbers: list[int]) -> dict[int, list[TaskProgress] | None]:
    """Returns the task rows of these runs as core takes them, None for a run whose rows are invalid."""
    found: dict[int, list[TaskProgress] | None] = {}
    try:
        found |= await task_progress(work, numbers)
    except (ValueError, TypeError, ArithmeticError):
        if len(numbers) == 1:
            return {numbers[0]: None}
        for number in numbers:
            found |= await _progress_of_each(work, [number])
    return found


def _taken_over_run(work: UnitOfWork, run: CatalogRunRow, state: RunState, reason: str | None) -> UnreportedRun:
    """The record of how one run of a dead node ended or was put back."""
    name = work.cache[run.job_uuid, run.version].definition.name
    elapsed = None if run.started_at is None else work.moment - moment(run.started_at)
    return UnreportedRun(
        name, state, 1, reason, bool(run.is_recovery), run.run_id, moment(run.scheduled_time), None, elapsed
    )


async def _coalesce_catch_up(work: UnitOfWork, again: Sequence[str]) -> None:
    """Makes the run that is started again the only catch-up run of its job, where the job catches up with one run
    however many scheduled times it missed: moves the cursor to now and ends the job's other unstarted runs."""
    jobs = await work.lock_jobs(uuids=again)
    ahead = NextRunCalculator(work)
    owing = [job for job in jobs.values() if work.definition(job).settings.owes_once]
    for job in owing:
        if JobState(job.state) is JobState.ENABLED:
            cursor = catch_up_cursor(RegistrationStatus.ORPHANED, moment(job.planned_until), None, work.moment)
            job.planned_until = milliseconds(cursor)
            ahead.look(job)
            work.write("save_jobs", job.saved())
    await coalesce_unstarted(work, [job.uuid for job in owing])


async def coalesce_unstarted(work: UnitOfWork, job_uuids: Sequence[str]) -> None:
    """Ends SKIPPED the runs of these jobs that never began: an interrupted run of theirs is started again instead."""
    if not job_uuids:
        return
    ended = []
    for job_uuid, active in (await work.active(job_uuids)).items():
        for number, run, _ in active.values():
            if run.state is not RunState.RUNNING and not run.begun and not run.is_over:
                work.end_unstarted(number, RunState.SKIPPED, "coalesced")
                ended.append(job_uuid)
    await work.flush()
    if ended:
        await after_endings(work, ended)


async def reap(work: UnitOfWork, limit: int) -> int:
    """Asks runs past their execution timeout to stop, and ends those that did not. Returns how many it ended.

    Runs whose definition cannot be read here are left to nodes that can read it, because their timeout is not known.
    """
    overdue = await _overdue_runs(work, limit)
    if not overdue:
        return 0
    await work.transaction.rows("lock_jobs_of_runs", runs=overdue)
    ended: list[str] = []
    asked = False
    for run in (await work.lock_runs(overdue)).values():
        if run.state != "RUNNING":
            continue
        definition = work.cache[run.job_uuid, run.version].definition
        if definition.fault is not None:
            continue
        settings = definition.settings
        if run.cancel_requested_at is not None:
            allowed = stop_allowance(settings, definition.task_settings, definition.spared)
            if work.now - run.cancel_requested_at > (length(allowed) or 0):
                _abandon(work, run)
                ended.append(run.job_uuid)
        elif settings.execution_timeout is None:
            # The run was claimed under a timeout that its version no longer has.
            work.write("forget_expiry", (run.run_no,))
        elif _overdue(work, run, length(settings.execution_timeout)):
            work.request_cancel(run.run_no, TIMEOUT, TIMEOUT)
            asked = True
    await work.flush()
    if ended:
        await after_endings(work, ended)
    if ended or asked:
        work.transaction.wake()
    return len(ended)


async def _overdue_runs(work: UnitOfWork, limit: int) -> list[int]:
    """Returns the numbers of up to `limit` runs that may have to be stopped or ended. Skips runs whose definition
    cannot be read here."""
    found: list[int] = []
    last = 0
    while len(found) < limit:
        rows = await work.transaction.rows("runs_to_reap", after=last, limit=limit)
        await work.cache.load(work.transaction, sorted({(row[1], row[2]) for row in rows}))
        found += [row[0] for row in rows if work.cache[row[1], row[2]].definition.fault is None]
        if len(rows) < limit:
            break
        last = rows[-1][0]
    return found[:limit]


def _overdue(work: UnitOfWork, run: CatalogRunRow, timeout: int | None) -> bool:
    return timeout is not None and run.spent_ms + work.now - (run.resumed_at or work.now) > timeout


def _abandon(work: UnitOfWork, run: CatalogRunRow) -> None:
    late = run.cancel_reason == TIMEOUT
    work.write("suspect_threads", (run.run_no, work.now))
    state, reason = (RunState.FAILED_STALE, EXCEEDED) if late else (RunState.CANCELLED, "abandoned")
    work.end_unstarted(run.run_no, state, reason, fence_up=True, lost=True)
    event = "JOB_FAILED" if late else "JOB_CANCELLED"
    work.audit(event, run.job_uuid, run.uuid, "keeper", str(state), reason=reason, run_no=run.run_no)


async def sweep(work: UnitOfWork, limit: int, handler_grace: timedelta) -> int:
    """Repairs what no hand-over reached: QUEUED runs with nothing before them, runs whose dependencies are met or given
    up, Once jobs that are done, runs whose handler is gone, threads whose node is gone.

    Also reads unreadable definitions again and deletes expired hooks and notices. Returns how many runs and jobs moved.
    """
    await work.cache.review(work.transaction)
    moved, without = await resolve_missing_handlers(work, handler_grace, limit)
    if without:
        moved += await after_endings(work, without)
    moved += await threads.end_orphans(work, limit)
    waiting = [row[0] for row in await work.transaction.rows("jobs_with_queue", limit=limit)]
    if waiting:
        await work.transaction.rows("lock_jobs", jobs=sorted(waiting))
        moved += await after_endings(work, waiting)
    freed, ended = await judge_dependents(work, None)
    moved += freed + len(ended)
    if ended:
        moved += await after_endings(work, ended)
    rows = await work.transaction.rows("once_jobs_to_finish", limit=limit)
    jobs = [JobRow(row) for row in rows]
    await work.cache.load(work.transaction, [(job.uuid, job.version) for job in jobs])
    moved += await finish_once_jobs(work, jobs)
    await expire(work)
    if moved:
        work.transaction.wake()
    return moved


async def retain(work: UnitOfWork, before: int, limit: int) -> int:
    """Deletes up to `limit` runs that ended before `before` (milliseconds), with their rows in other tables. Returns
    how many."""
    numbers = [row[0] for row in await work.transaction.rows("runs_to_forget", before=before, limit=limit)]
    if numbers:
        await forget_runs(work, numbers, SYSTEM_NAME)
    return len(numbers)


def node_record(row: tuple[Any, ...], free: set[str]) -> NodeRecord:
    node, name, state, counter, started, beaten, details, running = row
    told = {} if details is None else optional_json(details) or {}
    return NodeRecord(node, name, state, counter, moment(started), moment(beaten), node in free, running, told)
