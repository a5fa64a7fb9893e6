"""Keeping: nodes and their heartbeats, runs whose node is gone, runs that take too long, what no hand-over reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from horae.core import ids
from horae.core.access import SYSTEM_NAME
from horae.core.declarative import Standing, owed_after
from horae.core.lifecycle import JobState, RunState
from horae.errors import NodeNameTaken, shown
from horae.store.ahead import Ahead
from horae.store.dispatching import task_progress
from horae.store.gone import settle_gone
from horae.store.handover import after_endings, finish_once_jobs, judge_dependents
from horae.store.operating import forget_runs
from horae.store.records import NodeRecord, Pulse, Settlement
from horae.store.rows import JobRow, length, milliseconds, moment, optional_json, to_json
from horae.store.settling import Settler
from horae.store.work import RunRow, Work

TIMEOUT = "timeout"


async def join(
    work: Work, node: str, name: str | None, details: Mapping[str, Any] | None, alive: Sequence[str]
) -> None:
    """Writes the node's row; `alive` are the incarnations whose liveness lock is held."""
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


async def heartbeat(work: Work, node: str, known: Mapping[str, int]) -> Pulse:
    """Counts one heartbeat and compares the rows the node owns with the runs it knows."""
    beaten = await work.transaction.rows("beat", node=node)
    if not beaten:
        return Pulse(work.moment, expelled=True, lost=tuple(sorted(known)))
    owned = {ids.RUN + row[1]: row for row in await work.transaction.rows("runs_of_node", node=node)}
    unknown = [row for run_id, row in owned.items() if known.get(run_id) != row[2]]
    released = await _release(work, node, unknown, started=False) if unknown else ()
    lost = tuple(sorted(run_id for run_id, fence in known.items() if run_id not in owned or owned[run_id][2] != fence))
    cancels = {run_id: row[3] for run_id, row in owned.items() if row[3] is not None and known.get(run_id) == row[2]}
    return Pulse(work.moment, released=released, lost=lost, cancels=cancels)


async def leave(work: Work, node: str) -> int:
    rows = await work.transaction.rows("runs_of_node", node=node)
    released = await _release(work, node, rows, started=True) if rows else ()
    await work.transaction.rows("end_node", node=node, state="STOPPED")
    return len(released)


async def _release(work: Work, node: str, rows: Sequence[tuple[Any, ...]], *, started: bool) -> tuple[str, ...]:
    settlements = [
        Settlement(ids.RUN + uuid, number, fence, release=True, started=started) for number, uuid, fence, _ in rows
    ]
    answers = await Settler(work, node).settle(settlements)
    work.transaction.wake()
    return tuple(sorted(answer.run_id for answer in answers))


async def take_over(work: Work, dead: str, counter: int) -> int:
    """Takes the runs of a node judged dead, unless its counter moved on; everything it writes from now on is fenced."""
    if not await work.transaction.rows("bury_node", node=dead, counter=counter):
        return 0
    numbers = [row[0] for row in await work.transaction.rows("runs_of_node", node=dead)]
    if not numbers:
        return 0
    await work.transaction.rows("lock_jobs_of_runs", runs=numbers)
    runs = await work.lock_runs(numbers)
    tasks = await task_progress(work, numbers)
    settler = Settler(work, dead)
    taken = 0
    again: set[str] = set()
    for run in runs.values():
        if run.state == "RUNNING" and run.owner == dead:
            answer = settler.lost(run, work.cache[run.job_uuid, run.version], tasks.get(run.run_no, []))
            taken += 1
            if answer.state is RunState.PENDING:
                again.add(run.job_uuid)
    await settler.finish()
    if again:
        await _let_stand_for_all(work, sorted(again))
    work.transaction.wake()
    return taken


async def _let_stand_for_all(work: Work, again: Sequence[str]) -> None:
    """Where a job owes one run however many slots have passed, the one that is started again is that one."""
    jobs = await work.lock_jobs(uuids=again)
    ahead = Ahead(work)
    owing = [job for job in jobs.values() if work.definition(job).settings.owes_once]
    for job in owing:
        if JobState(job.state) is JobState.ENABLED:
            cursor = owed_after(Standing.ORPHANED, moment(job.planned_until), None, work.moment)
            job.planned_until = milliseconds(cursor)
            ahead.look(job)
            work.write("save_jobs", job.saved())
    await coalesce_unstarted(work, [job.uuid for job in owing])


async def coalesce_unstarted(work: Work, job_uuids: Sequence[str]) -> None:
    """Ends what these jobs have in line and never began: a run of theirs that was cut off is started again instead."""
    if not job_uuids:
        return
    ended = []
    for job_uuid, active in (await work.active(job_uuids)).items():
        for number, run, _ in active.values():
            if run.state is not RunState.RUNNING and not run.begun:
                work.end_unstarted(number, RunState.SKIPPED, "coalesced")
                ended.append(job_uuid)
    await work.flush()
    if ended:
        await after_endings(work, ended)


async def reap(work: Work, limit: int) -> int:
    """Asks runs that take too long to stop, and ends those that were asked and did not."""
    numbers = [row[0] for row in await work.transaction.rows("runs_to_reap", limit=limit)]
    if not numbers:
        return 0
    await work.transaction.rows("lock_jobs_of_runs", runs=numbers)
    ended: list[str] = []
    asked = False
    for run in (await work.lock_runs(numbers)).values():
        if run.state != "RUNNING":
            continue
        settings = work.cache[run.job_uuid, run.version].settings
        if run.cancel_requested_at is not None:
            if work.now - run.cancel_requested_at > (length(settings.cancel_grace) or 0):
                _abandon(work, run)
                ended.append(run.job_uuid)
        elif _overdue(work, run, length(settings.execution_timeout)):
            work.request_cancel(run.run_no, TIMEOUT, TIMEOUT)
            asked = True
    await work.flush()
    if ended:
        await after_endings(work, ended)
    if ended or asked:
        work.transaction.wake()
    return len(ended)


def _overdue(work: Work, run: RunRow, timeout: int | None) -> bool:
    return timeout is not None and run.spent_ms + work.now - (run.resumed_at or work.now) > timeout


def _abandon(work: Work, run: RunRow) -> None:
    late = run.cancel_reason == TIMEOUT
    state, reason = (RunState.FAILED_STALE, TIMEOUT) if late else (RunState.CANCELLED, "abandoned")
    work.end_unstarted(run.run_no, state, reason, fence_up=True, lost=True)
    event = "JOB_FAILED" if late else "JOB_CANCELLED"
    work.audit(event, run.job_uuid, run.uuid, "keeper", str(state), reason=reason, run_no=run.run_no)


async def sweep(work: Work, limit: int, handler_grace: timedelta) -> int:
    """Finds QUEUED runs with nothing before them, dependencies met or given up, Once jobs that are done, runs whose
    handler is gone."""
    moved, without = await settle_gone(work, handler_grace, limit)
    if without:
        moved += await after_endings(work, without)
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
    if moved:
        work.transaction.wake()
    return moved


async def retain(work: Work, before: int, limit: int) -> int:
    """Deletes ended runs with all that hangs on them; returns how many."""
    numbers = [row[0] for row in await work.transaction.rows("runs_to_forget", before=before, limit=limit)]
    if numbers:
        await forget_runs(work, numbers, SYSTEM_NAME)
    return len(numbers)


def node_record(row: tuple[Any, ...], free: set[str]) -> NodeRecord:
    node, name, state, counter, started, beaten, details, running = row
    told = {} if details is None else optional_json(details) or {}
    return NodeRecord(node, name, state, counter, moment(started), moment(beaten), node in free, running, told)
