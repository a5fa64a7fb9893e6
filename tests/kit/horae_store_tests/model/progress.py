"""Runs at work in the model store: claimed, settled, released."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from horae.core.job import ids
from horae.core.run.lifecycle import ATTEMPTS, TASK_RUNS, AttemptState, RunState, TaskState
from horae.core.run.progress import Advance, EndedAttempt, TaskProgress, advance
from horae.store.records import (
    AttemptEnd,
    AttemptStart,
    Capacity,
    Claim,
    ClaimResult,
    Definition,
    Settlement,
    SettlementResult,
    SettlementVerdict,
)
from horae.testing.clock import whole_milliseconds
from horae_store_tests.model.records import claim
from horae_store_tests.model.rows import Attempt, Run, Task, Work
from horae_store_tests.model.threads import mark_threads
from horae_store_tests.model.transitions import end, finish, hand_over_all, is_late, leave_stretch


def is_alive(work: Work, node: str) -> bool:
    """Only a node that has joined, and that nobody declared dead, is given anything."""
    row = work.catalog.nodes.get(node)
    return row is not None and row.state == "ALIVE"


def claim_runs(work: Work, capacity: Capacity) -> ClaimResult:
    waiting = [
        (run.not_before, run.number, run)
        for run in work.catalog.runs
        if run.state is RunState.PENDING and run.waiting_for in (None, "retry") and run.not_before is not None
    ]
    claims: list[Claim] = []
    for not_before, _, run in sorted(waiting, key=lambda each: each[:2]):
        if len(claims) >= capacity.slots or not is_alive(work, capacity.node):
            break
        if not_before <= work.now and not is_late(work, run) and _suits(work, run, capacity) and _has_room(work, run):
            claimed = claim_run(work, run, capacity.node)
            if claimed is not None:
                claims.append(claimed)
    later = [not_before for not_before, _, run in waiting if not_before > work.now]
    return ClaimResult(work.now, tuple(claims), min(later, default=None))


def due_runs(work: Work) -> list[Run]:
    """The runs that wait for nothing but somebody to take them."""
    return [
        run
        for run in work.catalog.runs
        if run.state is RunState.PENDING
        and run.waiting_for in (None, "retry")
        and run.not_before is not None
        and run.not_before <= work.now
        and not is_late(work, run)
    ]


def _suits(work: Work, run: Run, capacity: Capacity) -> bool:
    return capacity.handlers is None or work.catalog.definition(run).handlers <= capacity.handlers


def _has_room(work: Work, run: Run) -> bool:
    """Whether neither the run's pool nor its job has its limit running. A pool nobody has set has no limit."""
    settings = work.catalog.definition(run).settings
    left = {thread.run_id for thread in work.catalog.threads}
    running = [other for other in work.catalog.runs if other.state is RunState.RUNNING or other.run_id in left]
    limit = None if settings.pool is None else work.catalog.pools.get(settings.pool)
    if limit is not None:
        in_pool = [other for other in running if work.catalog.definition(other).settings.pool == settings.pool]
        if len(in_pool) >= limit:
            return False
    of_job = [other for other in running if other.job_name == run.job_name]
    return settings.max_concurrent is None or len(of_job) < settings.max_concurrent


def claim_run(work: Work, run: Run, node: str) -> Claim | None:
    """Gives the run to the node; None, and nothing changed, where none of its tasks can start yet."""
    definition = work.catalog.definition(run)
    tasks = run.tasks or _first_tasks(definition, run)
    progress = [task.progress for task in tasks]
    result = advance(progress, definition.settings, definition.task_settings, (), work.now, spared=definition.spared)
    if not result.starts:
        return None
    if run.state is not RunState.RUNNING:
        run.move(RunState.RUNNING)
    run.tasks = tasks
    run.owner = node
    run.fence += 1
    run.waiting_for = None
    run.not_before = None
    run.stretch_at = work.now
    if run.started_at is None:
        run.started_at = work.now
    _write(work, run, result, ())
    return claim(work.catalog, run, _starts(result), _wakes(result))


def _first_tasks(definition: Definition, run: Run) -> list[Task]:
    TASK_RUNS.check(None, TaskState.PENDING)
    return [
        Task(TaskProgress(position, task.name, TaskState.PENDING))
        for position, task in enumerate(definition.tasks)
        if run.only is None or task.name in run.only
    ]


def _wakes(result: Advance) -> datetime | None:
    return None if result.wake_at is None else whole_milliseconds(result.wake_at)


def _starts(result: Advance) -> tuple[AttemptStart, ...]:
    return tuple(AttemptStart(position, number) for position, number in result.starts)


def _write(work: Work, run: Run, result: Advance, given: Sequence[AttemptEnd]) -> None:
    """Writes attempts and tasks as core advanced them; an end that core did not count leaves no trace."""
    tasks = {task.progress.position: task for task in run.tasks}
    for ended in result.ends:
        task = tasks[ended.position]
        told = next((each for each in given if (each.position, each.number) == (ended.position, ended.number)), None)
        attempt = next(each for each in task.attempts if each.number == ended.number)
        ATTEMPTS.check(attempt.state, ended.state)
        attempt.state = ended.state
        attempt.ended_at = work.now
        attempt.error = None if told is None else told.error
        attempt.traceback = None if told is None else told.traceback
        if ended.state is AttemptState.SUCCESS and told is not None:
            task.result = told.result
    for after in result.tasks:
        task = tasks[after.position]
        # A retry without a wait is RUNNING before and after, one attempt further.
        if task.progress.state is not after.state:
            TASK_RUNS.check(task.progress.state, after.state)
        retry_at = None if after.retry_at is None else whole_milliseconds(after.retry_at)
        task.progress = after._replace(retry_at=retry_at)
    for position, number in result.starts:
        ATTEMPTS.check(None, AttemptState.RUNNING)
        tasks[position].attempts.append(Attempt(number, AttemptState.RUNNING, work.now))
        run.retry_count += number > 1


def go_on(
    work: Work,
    run: Run,
    given: Sequence[AttemptEnd] = (),
    *,
    threads: Sequence[AttemptStart] = (),
    stop: str | None = None,
    release: bool = False,
    start: bool = True,
) -> Advance:
    """Asks core how a RUNNING run goes on after `given`, and writes what holds for everybody who asks.

    What is left to the caller is the run that neither ended nor goes on: released, or parked.
    """
    if stop is None and run.cancel_requested_at is not None:
        stop = run.cancel_reason
    definition = work.catalog.definition(run)
    attempt_ids = {
        task.progress.position: ids.attempt_id(run.task_run_id(task.progress.name), task.progress.attempts)
        for task in run.tasks
        if task.progress.state is TaskState.RUNNING
    }
    result = advance(
        [task.progress for task in run.tasks],
        definition.settings,
        definition.task_settings,
        [EndedAttempt(each.position, each.number, AttemptState(each.state), each.error) for each in given],
        work.now,
        spared=definition.spared,
        held={thread.position for thread in threads},
        attempt_ids=attempt_ids,
        stop=stop,
        release=release,
        start=start,
    )
    _write(work, run, result, given)
    if result.outcome is not None:
        finish(work, run, result.outcome, result.reason)
    return result


def put_back(work: Work, run: Run) -> None:
    """Makes a RUNNING run PENDING, nobody's; the caller says from when on and what it waits for."""
    leave_stretch(work, run)
    run.move(RunState.PENDING)
    run.owner = None
    if work.catalog.definition(run).settings.retry.max_retries is None:
        # Such a run no longer stands before anybody while it waits.
        work.ended.append(run.job_name)


def settle(work: Work, node: UUID, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
    answers = tuple(_settle_one(work, str(node), each) for each in settlements)
    hand_over_all(work)
    return answers


def _settle_one(work: Work, node: str, settlement: Settlement) -> SettlementResult:
    run = work.catalog.run(settlement.run_id)
    if run is None:
        return SettlementResult(settlement.run_id, SettlementVerdict.FENCED)
    ours = run.owner == node and run.fence == settlement.fence
    if not ours or run.state is not RunState.RUNNING:
        verdict = SettlementVerdict.ALREADY if ours and run.ended else SettlementVerdict.FENCED
        return SettlementResult(run.run_id, verdict, run.state)
    mark_threads(work, run, node, settlement.threads)
    if settlement.release:
        threads, started = settlement.threads, settlement.started
        release(work, run, settlement.ends, threads=threads, stop=settlement.stop, started=started)
        return SettlementResult(run.run_id, SettlementVerdict.SETTLED, run.state, reason=run.reason)
    result = go_on(work, run, settlement.ends, threads=settlement.threads, stop=settlement.stop)
    park_until = None
    if result.park_until is not None:
        park_until = whole_milliseconds(result.park_until)
        put_back(work, run)
        run.waiting_for = "previous_run" if result.for_thread else "retry"
        run.not_before = park_until
    starts, wake_at = _starts(result), _wakes(result)
    reason = run.reason if run.ended else None
    return SettlementResult(
        run.run_id, SettlementVerdict.SETTLED, run.state, starts, result.cancels, park_until, wake_at, reason
    )


def release(
    work: Work,
    run: Run,
    ends: Sequence[AttemptEnd] = (),
    *,
    threads: Sequence[AttemptStart] = (),
    stop: str | None = None,
    started: bool,
) -> None:
    """Hands a RUNNING run back, unless it ends by what is told of it or may not be delivered again."""
    result = go_on(work, run, ends, threads=threads, stop=stop, release=True)
    if result.outcome is not None:
        return
    if started and work.catalog.definition(run).settings.delivery == "at_most_once":
        end(work, run, RunState.CANCELLED, "released")
        return
    put_back(work, run)
    run.waiting_for = "previous_run" if result.for_thread else None
    run.not_before = work.now
    run.cancel_requested_at = None
    run.cancelled_by = None
    run.cancel_reason = None
