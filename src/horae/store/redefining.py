"""Changing one job by hand: its state, and the scheduler's defaults it was defined under, stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from horae.core.job import JobSpec
from horae.core.lifecycle import JobState
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
) -> Defined:
    """Changes a locked job to `spec`, which is of the version `expected`, if that is said."""
    definer = Definer(
        work,
        by=by,
        source="sql",
        defaults=await _kept_defaults(work, job),
        expected={} if expected is None else {spec.name: expected},
        reason=reason,
        unplannable=unplannable,
    )
    (defined,) = await definer.define([replace(spec, state=JobState(job.state))])
    return defined


async def _kept_defaults(work: Work, job: JobRow) -> dict[str, Any]:
    """The scheduler's defaults that the job's present version was defined under."""
    rows = await work.transaction.rows("read_defaults", job=job.uuid, version=job.version)
    text = rows[0][0] if rows else None
    return {} if text is None else dict(json.loads(text))
