"""Converts between a krontab line and a definition with one EXTERNAL task.

    concurrency   overlap: forbid is skip
    deadline      the same; 0 s where the line has none, so that missed times are not caught up on
    timeout       task_timeout; the run as a whole then needs no other
    suspend       PAUSED
    window        left out where it would change nothing

A job that a line can define has exactly one line that defines it.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron
from horae.core.time.duration import parse_duration
from horae.core.window.window import Window
from horae.errors import HoraeError, InvalidDefinition, shown
from horae.formats.krontab.parser import CONCURRENCY, KrontabJob

TASK_NAME = "command"
OPTIONS = ("cwd", "group", "stderr", "stdout", "umask", "user")
_NO_WINDOW = Window("after", timedelta(0))
_OVERLAPS = {overlap: concurrency for concurrency, overlap in CONCURRENCY.items()}


def job_from_krontab(job: KrontabJob, *, namespace: str = "default") -> JobSpec:
    """The definition that a line stands for."""
    options: dict[str, Any] = {name: getattr(job, name) for name in OPTIONS if getattr(job, name) is not None}
    if job.env:
        options["env"] = dict(job.env)
    if job.shell:
        options["shell"] = True
    settings: dict[str, Any] = {"overlap": CONCURRENCY[job.concurrency], "deadline": job.deadline}
    if job.window != _NO_WINDOW:
        settings["window"] = job.window
    if job.timeout is not None:
        settings |= {"task_timeout": job.timeout, "execution_timeout": None}
    return JobSpec(
        job.name,
        job.schedule,
        (TaskSpec(TASK_NAME, job.command, "EXTERNAL", options=options),),
        settings,
        description=job.description or "",
        state=JobState.PAUSED if job.suspend else JobState.ENABLED,
        namespace=namespace,
    )


def krontab_from_job(spec: JobSpec) -> KrontabJob:
    """The line's job that stands for `spec`, its env in the order of names. Raises InvalidDefinition for a job with
    something that a line cannot express."""
    task = spec.tasks[0] if len(spec.tasks) == 1 else None
    overlap = spec.settings.get("overlap")
    if not isinstance(spec.schedule, Cron) or task is None or task.kind != "EXTERNAL" or overlap not in _OVERLAPS:
        raise _cannot(spec, _unsayable(spec))
    window = spec.settings.get("window") or _NO_WINDOW
    if any(len(clauses) > 1 for clauses in window.constraints.rules().avoid):
        raise _cannot(spec, "its avoid, which takes clauses together,")
    options = task.options
    timeout = spec.settings.get("task_timeout")
    job = KrontabJob(
        name=spec.name,
        command=task.handler,
        schedule=spec.schedule,
        window=window,
        concurrency=_OVERLAPS[overlap],
        deadline=parse_duration(spec.settings.get("deadline") or 0),
        suspend=spec.state is JobState.PAUSED,
        env=tuple(options.get("env", {}).items()),
        shell=options.get("shell", False),
        timeout=timeout,
        description=spec.description or None,
        **{name: options.get(name) for name in OPTIONS},
    )
    try:
        again = job_from_krontab(job, namespace=spec.namespace)
    except HoraeError as error:
        raise _cannot(spec, error.message) from error
    different = [each.name for each in fields(JobSpec) if getattr(again, each.name) != getattr(spec, each.name)]
    if different:
        settings = [name for name in {**spec.settings, **again.settings} if _said(spec, name) != _said(again, name)]
        keys = {"settings": f"settings ({', '.join(sorted(settings))})"}
        raise _cannot(spec, f"its {', '.join(keys.get(each, each) for each in different)}")
    return job


def _said(spec: JobSpec, name: str) -> tuple[bool, Any]:
    return name in spec.settings, spec.settings.get(name)


def _unsayable(spec: JobSpec) -> str:
    """The parts of the job that no line can express."""
    found = []
    if not isinstance(spec.schedule, Cron):
        found.append("its schedule, which is no cron expression,")
    kinds = [task.kind for task in spec.tasks]
    if kinds != ["EXTERNAL"]:
        told = f"{len(kinds)} of them" if len(kinds) != 1 else f"of the kind {kinds[0]}"
        found.append(f"its tasks, {told} where a line has one command,")
    overlap = spec.settings.get("overlap")
    if overlap is None:
        found.append("its overlap, which is left to the scheduler where a line says it,")
    elif overlap not in _OVERLAPS:
        found.append(f"its overlap, {shown(str(overlap))},")
    return " and ".join(found)


def _cannot(spec: JobSpec, what: str) -> InvalidDefinition:
    return InvalidDefinition(f"Job {shown(spec.name)} cannot be written as a krontab line: {what} cannot be said there")
