"""Changes one job by hand, and keeps its state and the scheduler's defaults that it was defined under."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, parse_settings
from horae.core.job.outline import READ_ERRORS
from horae.core.run.lifecycle import JobState
from horae.core.schedule.custom import load_custom_schedules
from horae.errors import Conflict, shown
from horae.store.catalog.jobs.definition import JobDefiner
from horae.store.catalog.row_codec import JobRow
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.records import DefinitionResult


async def redefine(
    work: UnitOfWork,
    job: JobRow,
    spec: JobSpec,
    *,
    by: str,
    unplannable: set[str],
    reason: str | None = None,
    expected: int | None = None,
    update: Update | None = None,
    source: str = "sql",
    defaults_of: int | None = None,
) -> DefinitionResult:
    """Changes a locked job to `spec`. `expected` is the version that the caller read, where given. The scheduler's
    defaults are those of the version `defaults_of`, or else of the present one."""
    definer = JobDefiner(
        work,
        by=by,
        source=source,
        defaults=await _kept_defaults(work, job, job.version if defaults_of is None else defaults_of),
        expected={} if expected is None else {spec.name: expected},
        reason=reason,
        unplannable=unplannable,
        update=update,
    )
    schedule = spec.schedule
    if schedule is not None and work.cache.find is not None:
        # A custom schedule that was read from text is only its import path.
        schedule = load_custom_schedules(schedule, work.cache.find)
    (defined,) = await definer.define([replace(spec, schedule=schedule, state=JobState(job.state))])
    return defined


async def _kept_defaults(work: UnitOfWork, job: JobRow, version: int) -> dict[str, Any]:
    """Returns the scheduler's defaults that a version of the job was defined under. Raises Conflict where they cannot
    be read."""
    rows = await work.transaction.rows("read_defaults", job=job.uuid, version=version)
    text = rows[0][0] if rows else None
    try:
        kept = {} if text is None else dict(json.loads(text))
        parse_settings(kept)
    except READ_ERRORS as error:
        raise Conflict(
            f"The defaults that version {version} of job {shown(job.name)} was defined under cannot be read: {error}",
            hint="Define the whole job anew, or drop it.",
            details={"name": job.name, "version": version},
        ) from error
    return kept
