"""Jobs as rows of the view `cb_schedules`: what its columns mean, for requests by the view and for statements."""

from __future__ import annotations

from dataclasses import replace

from horae.core.job.definition import JobSpec, TaskSpec, only_task_name
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Schedule
from horae.errors import Conflict, shown

REASON = "cb_schedules"
"""The reason of a version that was made through the view, in the job's history."""


def row_schedule(text: str, present: Schedule | None = None) -> Schedule:
    """The schedule for `cron_spec`: a cron expression, `every 90s`, or an ISO 8601 interval.

    A cron expression or ISO 8601 interval keeps the zone of `present`; a cron for a cron also keeps its dialect.
    """
    if text.startswith("every "):
        return Every(text[6:])
    if text[:1] in ("R", "P"):
        return Iso8601(text, tz="UTC" if present is None else present.timezone)
    if isinstance(present, Cron):
        return replace(present, expr=text)
    return Cron(text, tz="UTC" if present is None else present.timezone)


def row_job(name: str, cron_spec: str, *, enabled: bool, owner: str | None = None) -> JobSpec:
    """The job that a new row defines: one Python task, whose handler has the job's name."""
    task = TaskSpec(only_task_name(name, "PYTHON", name), name)
    state = JobState.ENABLED if enabled else JobState.PAUSED
    return JobSpec(name, row_schedule(cron_spec), (task,), state=state, owner=owner)


def disabled_job_conflict(name: str) -> Conflict:
    """The error for `enabled = true` on a disabled job: the row has one boolean for PAUSED and DISABLED."""
    return Conflict(
        f"Job {shown(name)} is disabled, not paused: enabled = true only resumes",
        hint=f"Enable it: horae job enable {name}",
    )
