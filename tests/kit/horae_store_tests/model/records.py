"""How the model store shows its rows: the frozen records of the store's door."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from horae.core.job import ids
from horae.core.report.report import AttemptRow, RunReportRow, TaskRow
from horae.core.run.lifecycle import RunState
from horae.core.time.instant import EPOCH
from horae.store.records import AttemptStart, Claim, JobRecord, NodeRecord, Origin, RunHistory, RunRecord
from horae_store_tests.model.rows import Catalog, Job, Node, Run

_MILLISECOND = timedelta(milliseconds=1)


def job_record(catalog: Catalog, job: Job) -> JobRecord:
    return JobRecord(
        name=job.name,
        version=job.version,
        state=job.state,
        definition=catalog.definition(job),
        created_at=job.created_at,
        updated_at=job.updated_at,
        created_by=job.created_by,
        planned_until=job.planned_until,
        next_run_time=job.next_run_time,
        wake_at=job.wake_at,
        paused_until=job.paused_until,
        pause_note=job.pause_note,
        moved_slot=job.moved_slot,
        moved_to=job.moved_to,
        covered_until=job.covered_until,
        last_enqueued_at=job.last_enqueued_at,
    )


def run_record(catalog: Catalog, run: Run) -> RunRecord:
    return RunRecord(
        run_id=run.run_id,
        job_name=run.job_name,
        state=run.state,
        scheduled_time=run.scheduled_time,
        chosen_time=run.chosen_time,
        origin=run.origin,
        version=run.version,
        fence=run.fence,
        created_at=run.created_at,
        key=run.key,
        not_before=run.not_before,
        waiting_for=run.waiting_for,
        started_at=run.started_at,
        completed_at=run.completed_at,
        owner=run.owner,
        reason=run.reason,
        is_recovery=run.is_recovery,
        covers_from=run.covers_from,
        covers_to=run.covers_to,
        count=run.count,
        replay_of=run.replay_of,
        cancel_requested_at=run.cancel_requested_at,
        cancelled_by=run.cancelled_by,
        retry_count=run.retry_count,
        payload=run.payload,
        error=_latest_error(run),
        requires=None if run.ended else catalog.definition(run).requirements,
        replay_reason=run.replay_reason,
    )


def _latest_error(run: Run) -> str | None:
    """The error of the last task that has one, in its latest attempt that failed."""
    errors = [
        (task.progress.position, attempt.number, attempt.error)
        for task in run.tasks
        for attempt in task.attempts
        if attempt.error is not None
    ]
    return max(errors)[2] if errors else None


def history(catalog: Catalog, run: Run) -> RunHistory:
    definition = catalog.definition(run)
    row = RunReportRow(
        run_id=run.run_id,
        job_name=run.job_name,
        state=run.state,
        scheduled_time=run.scheduled_time,
        chosen_time=run.chosen_time,
        started_at=run.started_at,
        completed_at=run.completed_at,
        version=run.version,
        origin=run.origin.value,
        mode=definition.settings.mode,
        failure=definition.settings.failure,
        is_recovery=run.is_recovery,
        covers_from=run.covers_from,
        covers_to=run.covers_to,
        replay_of=run.replay_of,
        cancelled_by=run.cancelled_by,
        reason=run.reason,
        replay_reason=run.replay_reason,
    )
    tasks = []
    for task in run.tasks:
        task_run = run.task_run_id(task.progress.name)
        attempts = tuple(
            AttemptRow(
                ids.attempt_id(task_run, one.number),
                one.number,
                one.state,
                one.started_at,
                one.ended_at,
                one.error,
                one.traceback,
            )
            for one in task.attempts
        )
        failure = definition.task_settings[task.progress.position].failure
        state, name = task.progress.state, task.progress.name
        result = None if task.result is None else json.loads(task.result)
        tasks.append(
            TaskRow(task_run, name, state, failure, attempts, task.progress.cancelled_by, task.progress.reason, result)
        )
    results = {task.progress.name: json.loads(task.result) for task in run.tasks if task.result is not None}
    return RunHistory(row, tuple(tasks), run_record(catalog, run), results)


def claim(catalog: Catalog, run: Run, starts: tuple[AttemptStart, ...], wake_at: datetime | None) -> Claim:
    """A RUNNING run for its owner; it started when this stretch did, and earlier ones are in `spent_ms`."""
    assert run.stretch_at is not None
    return Claim(
        run.run_id,
        run.number,
        catalog.definition(run),
        _milliseconds(run.scheduled_time),
        _milliseconds(run.chosen_time),
        _milliseconds(run.stretch_at),
        run.fence,
        starts,
        run.origin.value,
        run.is_recovery,
        None if run.covers_from is None else _milliseconds(run.covers_from),
        None if run.covers_to is None else _milliseconds(run.covers_to),
        run.payload,
        run.spent // _MILLISECOND,
        None if wake_at is None else _milliseconds(wake_at),
        0 if run.started_at is None else (run.stretch_at - run.started_at) // _MILLISECOND,
    )


def previous_start(catalog: Catalog, claim: Claim) -> datetime | None:
    """When the run before a claimed one started: of the scheduled ones and of the others the latest by nominal time."""
    before = [
        run
        for run in catalog.runs
        if run.job_name == claim.job_name
        and run.run_id != claim.run_id
        and run.started_at is not None
        and run.started_at < claim.started_at
        and run.scheduled_time <= claim.chosen_time
    ]
    latest = []
    for scheduled in (True, False):
        kind = [run for run in before if (run.origin is Origin.SCHEDULE) is scheduled]
        newest = max((run.scheduled_time for run in kind), default=None)
        latest += [run.started_at for run in kind if run.scheduled_time == newest and run.started_at is not None]
    return max(latest, default=None)


def node_record(catalog: Catalog, node: Node) -> NodeRecord:
    running = sum(1 for run in catalog.runs if run.state is RunState.RUNNING and run.owner == node.node)
    lock_free = node.node not in catalog.held
    return NodeRecord(
        node.node,
        node.name,
        node.state,
        node.counter,
        node.started_at,
        node.heartbeat_at,
        lock_free,
        running,
        dict(node.details),
    )


def _milliseconds(at: datetime) -> int:
    return (at - EPOCH) // _MILLISECOND
