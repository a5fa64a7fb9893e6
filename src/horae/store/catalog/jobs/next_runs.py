"""Computes when a job runs next and when its runs are to be created next, without creating any."""

from __future__ import annotations

from horae.core.run.due import due
from horae.core.run.lifecycle import JobState
from horae.store.catalog.row_codec import JobRow, job_view, optional_milliseconds
from horae.store.catalog.unit_of_work import UnitOfWork


def look_ahead(work: UnitOfWork, job: JobRow) -> None:
    """Sets `next_run_time` and `wake_at` as `create_due_runs` would, without creating runs."""
    compiled = work.definition(job)
    if compiled.definition.fault is not None and JobState(job.state) is not JobState.DISABLED:
        # A node that can read the definition computes the rest.
        job.wake_at = work.now if job.wake_at is None else job.wake_at
        return
    if compiled.schedule is None or JobState(job.state) is JobState.DISABLED:
        job.next_run_time = job.wake_at = None
        return
    plan = due(job_view(job, compiled.definition, ()), work.moment)
    job.next_run_time = optional_milliseconds(plan.next_run_time)
    owes = bool(plan.births or plan.endings or plan.more)
    job.wake_at = work.now if owes else optional_milliseconds(plan.wake_at)


class NextRunCalculator:
    """`look_ahead` for many jobs. Jobs that must have the same answer share one computation."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work
        self._known: dict[tuple[object, ...], tuple[int | None, int | None]] = {}

    def look(self, job: JobRow) -> None:
        definition = self._work.definition(job).definition
        settings = definition.settings
        settled = job.paused_until is None and job.moved_slot is None and not definition.former
        if settings.window is not None or not settled or definition.fault is not None:
            look_ahead(self._work, job)
            return
        key = (definition.spec.schedule, settings.misfire_grace, settings.deadline, job.planned_until, job.state)
        if key not in self._known:
            look_ahead(self._work, job)
            self._known[key] = (job.next_run_time, job.wake_at)
        job.next_run_time, job.wake_at = self._known[key]
