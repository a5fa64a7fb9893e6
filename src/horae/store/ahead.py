"""What people are shown of a job's future, and when it is to be planned next, without bearing anything."""

from __future__ import annotations

from horae.core.lifecycle import JobState
from horae.core.occurrence import due
from horae.store.rows import JobRow, job_view, optional_milliseconds
from horae.store.work import Work


def look_ahead(work: Work, job: JobRow) -> None:
    """Sets `next_run_time` and `wake_at` as planning would, without bearing anything."""
    compiled = work.definition(job)
    if compiled.definition.fault is not None and JobState(job.state) is not JobState.DISABLED:
        # Whoever can read it works out the rest.
        job.wake_at = work.now if job.wake_at is None else job.wake_at
        return
    if compiled.schedule is None or JobState(job.state) is JobState.DISABLED:
        job.next_run_time = job.wake_at = None
        return
    plan = due(job_view(job, compiled.definition, ()), work.moment)
    job.next_run_time = optional_milliseconds(plan.next_run_time)
    owes = bool(plan.births or plan.endings or plan.more)
    job.wake_at = work.now if owes else optional_milliseconds(plan.wake_at)


class Ahead:
    """`look_ahead` for many jobs, asked once for all that are bound to have the same answer."""

    def __init__(self, work: Work) -> None:
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
