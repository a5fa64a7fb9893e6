"""Reads jobs, runs, and the whole history of one run. Nothing here takes locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from horae.core.job import ids
from horae.core.report.report import AttemptRow, RunReportRow, TaskRow
from horae.core.run.lifecycle import AttemptState, JobState, RunState, TaskState
from horae.store.catalog.jobs.operations import run_not_found
from horae.store.catalog.row_codec import JobRow, moment, optional_json, optional_moment, run_record, to_json, uuid_of
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.driver import Row
from horae.store.records import Claim, Definition, JobRecord, RunHistory, RunRecord, StateCounts, ThreadRecord

_VERSION = 7
"""The position of a run's version in the rows of `list_*`."""


async def jobs(
    work: UnitOfWork,
    names: Sequence[str] | None,
    tag: str | None,
    state: JobState | None,
    after: str | None,
    limit: int,
) -> tuple[JobRecord, ...]:
    wanted = None if names is None else [str(ids.job_uuid(name)) for name in names]
    rows = await work.transaction.rows(
        "list_jobs",
        jobs=wanted,
        tag=tag,
        state=None if state is None else str(state),
        after=after,
        # A caller who names jobs takes one that is left out for one that does not exist.
        limit=limit if names is None else len(names),
    )
    return await job_records(work, rows)


async def job_records(work: UnitOfWork, rows: Sequence[Row]) -> tuple[JobRecord, ...]:
    """Builds records from rows of `list_jobs`."""
    await work.cache.load(work.transaction, [(row[0], row[2]) for row in rows])
    return tuple(_job_record(work, row) for row in rows)


def _job_record(work: UnitOfWork, row: Row) -> JobRecord:
    """Returns the cached record where the job's row is the same as at the last read, as most are."""
    definition = work.cache[row[0], row[2]].definition
    known = work.cache.records.get(row[0])
    if known is not None and known[0] == row and known[1].definition is definition:
        return known[1]
    record = _new_record(definition, JobRow(row[:-2]), *row[-2:])
    work.cache.keep_record(row, record)
    return record


def _new_record(definition: Definition, job: JobRow, by: str, owner: str) -> JobRecord:
    return JobRecord(
        job.name,
        job.version,
        JobState(job.state),
        definition,
        moment(job.created_at),
        moment(job.updated_at),
        by,
        moment(job.planned_until),
        optional_moment(job.next_run_time),
        optional_moment(job.wake_at),
        optional_moment(job.paused_until),
        job.pause_note,
        optional_moment(job.moved_slot),
        optional_moment(job.moved_to),
        optional_moment(job.covered_until),
        optional_moment(job.last_enqueued_at),
        owner,
    )


async def runs(
    work: UnitOfWork, *, job: str | None, state: RunState | None, active: bool, before: str | None, limit: int
) -> tuple[RunRecord, ...]:
    number = 2**62
    if before is not None:
        found = await work.transaction.rows("find_runs", runs=[uuid_of(before)])
        if not found:
            raise run_not_found(before)
        number = found[0][0]
    chosen: dict[str, Any] = {"state": None if state is None else str(state), "before": number, "limit": limit}
    if active or state in (RunState.PENDING, RunState.QUEUED, RunState.RUNNING):
        statement = "list_active_runs"
        chosen["job"] = None if job is None else str(ids.job_uuid(job))
    elif job is not None:
        statement = "list_runs_of_job"
        chosen["job"] = str(ids.job_uuid(job))
    else:
        statement = "list_runs"
    return await run_records(work, await work.transaction.rows(statement, **chosen))


async def run_records(work: UnitOfWork, rows: Sequence[Row]) -> tuple[RunRecord, ...]:
    """Builds records from rows of `list_runs`."""
    await work.cache.load(work.transaction, [(row[0], row[_VERSION]) for row in rows])
    return tuple(_run_record(work, row[0], row[1:]) for row in rows)


def _run_record(work: UnitOfWork, job_uuid: str, row: tuple[Any, ...]) -> RunRecord:
    """Builds a run's record. Where the run has no payload of its own, the record has that of its job's version."""
    record = run_record(row)
    has_ended = record.completed_at is not None
    if row[-1] is not None and has_ended:
        return record
    definition = work.cache[job_uuid, record.version].definition
    payload = record.payload if row[-1] is not None else definition.spec.payload
    if payload is None and has_ended:
        return record
    return replace(record, payload=payload, requires=None if has_ended else definition.requirements)


async def history(work: UnitOfWork, run_id: str) -> RunHistory:
    rows = await work.transaction.rows("run_by_uuid", run=uuid_of(run_id))
    if not rows:
        raise run_not_found(run_id)
    number, job_uuid, *columns = rows[0]
    compiled = await work.cache.one(work.transaction, job_uuid, columns[_VERSION - 1])
    record = _run_record(work, job_uuid, tuple(columns))
    attempts: dict[int, list[AttemptRow]] = {}
    rows = await work.transaction.rows("read_tasks", run=number)
    # By the names in the run's own rows, because its definition may not be readable any more.
    task_runs = {row[0]: ids.task_run_id(run_id, ids.task_uuid(UUID(job_uuid), row[1])) for row in rows}
    for position, attempt, state, started, ended, error, trace in await work.transaction.rows(
        "read_attempts", run=number
    ):
        if position not in task_runs:
            continue
        row = AttemptRow(
            ids.attempt_id(task_runs[position], attempt),
            attempt,
            AttemptState(state),
            optional_moment(started),
            optional_moment(ended),
            error,
            trace,
        )
        attempts.setdefault(position, []).append(row)
    tasks, results = [], {}
    settings = dict(enumerate(compiled.definition.task_settings))
    for position, name, state, reason, cancelled_by, result in rows:
        failure = settings.get(position, compiled.settings).failure
        tries = tuple(attempts.get(position, ()))
        value = optional_json(result)
        tasks.append(TaskRow(task_runs[position], name, TaskState(state), failure, tries, cancelled_by, reason, value))
        if result is not None:
            results[name] = value
    return RunHistory(
        _report_row(record, compiled.settings.mode, compiled.settings.failure), tuple(tasks), record, results
    )


async def previous_starts(work: UnitOfWork, claims: Sequence[Claim]) -> dict[str, datetime]:
    """Returns when the run before each claimed run started, by run id.

    Runs of one job that were due and claimed together share one answer. A run that started before is looked up by
    itself, because it must not find its own start.
    """
    wanted: dict[tuple[str, int, int, int], list[str]] = {}
    for claim in claims:
        own = claim.run_no if claim.fence > 1 else 0
        key = (str(ids.job_uuid(claim.job_name)), claim.chosen_ms, claim.started_ms, own)
        wanted.setdefault(key, []).append(claim.run_id)
    rows = await work.transaction.rows(
        "previous_starts",
        wanted=to_json(
            [(job, chosen, f"schedule:{chosen // 1000}", started, own) for job, chosen, started, own in wanted]
        ),
    )
    run_ids = list(wanted.values())
    found: dict[str, datetime] = {}
    for place, scheduled, asked in rows:
        started = max((each for each in (scheduled, asked) if each is not None), default=None)
        if started is not None:
            found |= dict.fromkeys(run_ids[place], moment(started))
    return found


async def threads(work: UnitOfWork, limit: int) -> tuple[ThreadRecord, ...]:
    rows = await work.transaction.rows("list_threads", limit=limit)
    return tuple(
        ThreadRecord(ids.RUN + uuid, job, task, number, node, name, moment(since), pool)
        for uuid, job, task, number, node, name, since, pool in rows
    )


async def totals(work: UnitOfWork) -> StateCounts:
    running, queued, pending, due = (await work.transaction.rows("count_runs"))[0]
    jobs = {row[0]: row[1] for row in await work.transaction.rows("count_jobs")}
    return StateCounts(
        running, queued, pending, due, jobs.get("ENABLED", 0), jobs.get("PAUSED", 0), jobs.get("DISABLED", 0)
    )


def _report_row(record: RunRecord, mode: str, failure: str) -> RunReportRow:
    return RunReportRow(
        record.run_id,
        record.job_name,
        record.state,
        record.scheduled_time,
        record.chosen_time,
        record.started_at,
        record.completed_at,
        record.version,
        str(record.origin),
        mode,
        failure,
        record.is_recovery,
        record.covers_from,
        record.covers_to,
        record.replay_of,
        record.cancelled_by,
        record.reason,
        record.replay_reason,
    )
