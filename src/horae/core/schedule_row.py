"""A job as a row of `cb_schedules`: what its columns mean, for the view's requests and for statements alike."""

from __future__ import annotations

from dataclasses import replace

from horae.core.interval import Every, Iso8601
from horae.core.job import JobSpec, TaskSpec, only_task_name
from horae.core.lifecycle import JobState
from horae.core.schedule import Cron, Schedule
from horae.errors import Conflict, shown

REASON = "cb_schedules"
"""Why a version was made, as its history says."""


def row_schedule(text: str, present: Schedule | None = None) -> Schedule:
    """`cron_spec`: a cron expression, `every 90s`, or an ISO 8601 interval; a cron keeps its zone and dialect."""
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


def only_resumes(name: str) -> Conflict:
    """The refusal of `enabled = true` for a disabled job: the row has one boolean for two states."""
    return Conflict(
        f"Job {shown(name)} is disabled, not paused: enabled = true only resumes",
        hint=f"Enable it: horae job enable {name}",
    )
