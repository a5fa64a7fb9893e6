"""Runs in trouble, in the model store: those of a dead node are taken over, those that take too long are reaped."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from horae.core.declarative import RegistrationStatus, catch_up_cursor
from horae.core.run.lifecycle import EXCEEDED, AttemptState, JobState, RunState, TaskState
from horae.core.run.progress import stop_allowance
from horae.store.records import AttemptEnd
from horae.testing.clock import whole_milliseconds
from horae_store_tests.model.creation import set_alarm
from horae_store_tests.model.progress import go_on, put_back
from horae_store_tests.model.rows import Run, Work
from horae_store_tests.model.threads import remove_threads, suspect_threads, threads_of
from horae_store_tests.model.transitions import coalesce_unstarted, end, hand_over_all, request_cancel


def take_over(work: Work, dead: UUID, counter: int) -> int | None:
    row = work.catalog.nodes.get(str(dead))
    if row is None or row.state != "ALIVE" or row.counter != counter:
        return None
    row.state = "DEAD"
    row.ended_at = work.now
    taken = work.catalog.owned(row.node)
    left = threads_of(work, row.node)
    again: list[Run] = []
    for run in taken:
        lost = [
            AttemptEnd(task.progress.position, task.progress.attempts, AttemptState.LOST)
            for task in run.tasks
            if task.progress.state is TaskState.RUNNING
        ]
        result = go_on(work, run, lost, start=False)
        if result.outcome is None:
            assert result.park_until is not None
            put_back(work, run)
            run.not_before = whole_milliseconds(result.park_until)
            run.waiting_for = None if run.not_before <= work.now else "retry"
            again.append(run)
    hand_over_all(work)
    remove_threads(work, left)
    for name in sorted({run.job_name for run in again}):
        _let_stand_for_all(work, name)
    hand_over_all(work)
    return len(taken)


def _let_stand_for_all(work: Work, job_name: str) -> None:
    """Where a job owes one run however many slots have passed, the one that is started again is that one."""
    job = work.catalog.jobs.get(job_name)
    if job is None or not work.catalog.definition(job).settings.owes_once:
        return
    if job.state is JobState.ENABLED:
        job.planned_until = catch_up_cursor(RegistrationStatus.ORPHANED, job.planned_until, None, work.now)
        set_alarm(work, job)
    coalesce_unstarted(work, job)


def reap(work: Work, limit: int) -> int:
    ended = looked_after = 0
    for run in work.catalog.runs:
        if run.state is not RunState.RUNNING or looked_after >= limit:
            continue
        definition = work.catalog.definition(run)
        settings = definition.settings
        allowed = stop_allowance(settings, definition.task_settings, definition.spared)
        asked = run.cancel_requested_at
        if asked is None and _overran(work, run, settings.execution_timeout):
            request_cancel(work, run, by="timeout", reason="timeout")
            looked_after += 1
        elif asked is not None and work.now - asked > allowed:
            # The owner may still be at work: with another fence, nothing it says of this run counts.
            run.fence += 1
            suspect_threads(work, run)
            if run.cancel_reason == "timeout":
                end(work, run, RunState.FAILED_STALE, EXCEEDED, attempts=AttemptState.LOST)
            else:
                end(work, run, RunState.CANCELLED, "abandoned", attempts=AttemptState.LOST)
            looked_after += 1
            ended += 1
    hand_over_all(work)
    return ended


def _overran(work: Work, run: Run, timeout: timedelta | None) -> bool:
    assert run.stretch_at is not None
    return timeout is not None and run.spent + (work.now - run.stretch_at) > timeout
