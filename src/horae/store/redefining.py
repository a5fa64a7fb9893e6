"""Changing one job by hand: its state, and the scheduler's defaults it was defined under, stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from horae.core.custom import loaded
from horae.core.job import JobSpec, parse_settings
from horae.core.lifecycle import JobState
from horae.core.outline import READ_ERRORS
from horae.core.update import Update
from horae.errors import Conflict, shown
from horae.store.defining import Definer
from horae.store.records import Defined
from horae.store.rows import JobRow
from horae.store.work import Work


async def redefine(
    work: Work,
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
) -> Defined:
    """Changes a locked job to `spec`, which is of the version `expected`, if that is said. The scheduler's defaults
    under it are those of the version `defaults_of`, or else of the present one."""
    definer = Definer(
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
        # Read from text, a schedule of a user's own is only its path.
        schedule = loaded(schedule, work.cache.find)
    (defined,) = await definer.define([replace(spec, schedule=schedule, state=JobState(job.state))])
    return defined


async def _kept_defaults(work: Work, job: JobRow, version: int) -> dict[str, Any]:
    """The scheduler's defaults that a version of the job was defined under. Raises Conflict where they cannot be
    read."""
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
