"""Files laid over a catalog: its jobs as if the files were applied at a moment, by the catalog's rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from horae.core.access import LOCAL_NAME
from horae.core.change.forecast import changed_view
from horae.core.change.succession import in_force
from horae.core.change.update_policy import IMMEDIATE
from horae.core.job.definition import JobSpec
from horae.core.run.due import job_after_due
from horae.core.run.job_view import JobView
from horae.core.run.lifecycle import JobState
from horae.errors import HoraeError
from horae.simulate.jobs import SimulatedJob, SimulatedJobs


def overlay(files: SimulatedJobs, catalog: SimulatedJobs, at: datetime) -> SimulatedJobs:
    """The jobs of the catalog as if the files were applied at `at`.

    Jobs that are in both change by their own `update_policy` and keep the catalog's history. The others stay as they
    are.
    """
    present = {part.name: part for part in catalog.parts}
    parts = dict(present)
    for part in files.parts:
        before = present.get(part.name)
        parts[part.name] = _created(part, at) if before is None else _changed(part, before, at)
    return SimulatedJobs(
        tuple(parts[name] for name in sorted(parts)),
        {**catalog.pools, **files.pools},
        files.slots if files.slots is not None else catalog.slots,
        tuple(dict.fromkeys((*files.modules, *catalog.modules))),
        catalog.knows_pools,
    )


def _created(part: SimulatedJob, at: datetime) -> SimulatedJob:
    schedule = None if part.spec.schedule is None else part.spec.schedule.anchored(at)
    return replace(part, spec=replace(part.spec, schedule=schedule), created_at=at)


def _changed(part: SimulatedJob, before: SimulatedJob, at: datetime) -> SimulatedJob:
    created_at = before.created_at or at
    state = part.spec.state if part.is_stated else before.spec.state
    schedule = None if part.spec.schedule is None else part.spec.schedule.anchored(created_at)
    spec = replace(part.spec, schedule=schedule, state=state, owner=_owner(part.spec, before.spec))
    paused_until = before.paused_until if state is before.spec.state else None
    if spec == replace(before.spec, state=state):
        # At most the state changes: graceful changes that wait for their time still do.
        return replace(before, spec=spec, paused_until=paused_until)
    view, settings = _view(before, at), spec.effective()
    try:
        view = None if view is None else job_after_due(view, at)
        after = changed_view(
            view, spec.name, schedule, settings, state, at, settings.update_policy, version=before.version
        )
    except HoraeError:
        # A schedule that cannot be imported here has announced no scheduled times.
        after = changed_view(view, spec.name, schedule, settings, state, at, IMMEDIATE, version=before.version)
    moved = None
    if after is not None and after.moved_slot is not None and after.moved_to is not None:
        moved = after.moved_slot, after.moved_to
    earlier = () if after is None else after.former
    return SimulatedJob(spec, before.past, paused_until, moved, earlier, before.version + 1, created_at)


def _view(part: SimulatedJob, at: datetime) -> JobView | None:
    """The job for core's rules; None if it has no schedule.

    Scheduled times for which runs exist already count as still to come, because a simulation carries over no runs.
    """
    holds = in_force(part.spec.schedule, part.earlier)
    if holds is None:
        return None
    slot, to = part.moved or (None, None)
    return JobView(
        part.name,
        holds,
        part.spec.effective(),
        at,
        JobState(part.spec.state),
        part.paused_until,
        slot,
        to,
        former=part.earlier,
    )


def _owner(spec: JobSpec, before: JobSpec) -> str | None:
    """The job's owner after the change: the present one, unless the file names another."""
    if spec.owner is None:
        return before.owner
    return None if spec.owner == LOCAL_NAME else spec.owner
