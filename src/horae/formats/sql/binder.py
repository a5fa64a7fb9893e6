"""The binder: job definitions from CREATE JOB and ALTER JOB statements.

Without clauses for them, the SQL defaults apply: three retries after 60 s, 120 s and 240 s, an execution timeout of one
hour, one run for a wall time that occurs twice, the zone UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from horae.core.job.definition import JobSpec, TaskSpec, only_task_name, parse_settings
from horae.core.job.policies import NO_RETRY, Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.time.zone import zone
from horae.core.window.constraint import ALL, Constraints
from horae.core.window.distribution import DISTRIBUTIONS, UNIFORM, Distribution
from horae.core.window.window import Window
from horae.errors import HoraeError
from horae.formats.sql.clause_actions import RETRY_PARTS
from horae.formats.sql.schedule_text import clocks_of, instant_of, schedule_of
from horae.formats.sql.statements import (
    DEFAULT,
    AlterJob,
    AtMoments,
    CreateJob,
    CronMoments,
    ExplainJob,
    JobClause,
    TaskBody,
    TaskClause,
    WindowValue,
)
from horae.formats.sql.tokens import SourceSpan

SQL_RETRY = Retry(3, timedelta(seconds=60), factor=2.0)
SQL_TIMEOUT = timedelta(hours=1)
SQL_DEFAULTS = {"retry": SQL_RETRY, "execution_timeout": SQL_TIMEOUT}
"""Settings of a CREATE JOB that has no clauses for them. Other front ends default to no retries and no timeout."""
SETTINGS = {
    "MODE": "mode",
    "FAILURE": "failure",
    "OVERLAP": "overlap",
    "RECOVERY": "recovery",
    "CATCH_UP": "recovery",
    "UPDATE_POLICY": "update_policy",
    "MISFIRE_GRACE": "misfire_grace",
    "DEADLINE": "deadline",
    "WINDOW": "window",
    "TIMEOUT": "execution_timeout",
    "TASK_TIMEOUT": "task_timeout",
    "DELIVERY": "delivery",
    "ISOLATION": "isolation",
    "MAX_LOST": "max_lost",
    "CANCEL_GRACE": "cancel_grace",
    "POOL": "pool",
    "MAX_CONCURRENT": "max_concurrent",
}
"""Clauses that set one setting each, with the setting's name."""
FIELDS = {
    "DEPENDS ON": "depends_on",
    "RUN AS": "run_as",
    "CLASS": "job_class",
    "PARTITION BY": "partition",
    "PAYLOAD": "payload",
    "TAGS": "tags",
    "NAMESPACE": "namespace",
    "DESCRIPTION": "description",
    "OWNER": "owner",
}
"""Clauses that set one field of the definition each, with the field's name."""
_RETRY_FIELDS = dict(zip(RETRY_PARTS, ("max_retries", "interval", "factor", "max_interval", "jitter"), strict=True))
_ON_THE_CLOCK = ("TIMEZONE", "GAP", "FOLD", "DST")


def create_definition(statement: CreateJob, *, now: datetime) -> JobSpec:
    """Returns the definition of CREATE JOB, CREATE OR ALTER JOB or RECREATE JOB. Raises InvalidStatement."""
    given = _given(statement.clauses)
    if "SCHEDULE" not in given:
        hint = "SCHEDULE = CRON, AT, EVERY or ISO8601; or NONE, for a job that only EXECUTE JOB runs."
        raise statement.at.fault(f"job {statement.name} has no SCHEDULE", hint=hint)
    if "BODY" not in given and "TASKS" not in given:
        hint = "Add AS 'sql', CALL procedure(), EXEC 'command', PYTHON handler, or TASKS ( … )."
        raise statement.at.fault(f"job {statement.name} has nothing to do", hint=hint)
    blank = statement.at.at(JobSpec, statement.name, None, settings=SQL_DEFAULTS)
    return _changed(blank, given, statement.at, now)


def alter_definition(
    statement: AlterJob, present: JobSpec, state: JobState | str | None = None, *, now: datetime
) -> JobSpec:
    """Returns `present` with the changes of the statement. The state is the statement's, else `state`, else that of
    `present`.

    Ignores `statement.owner`: the caller changes the owner. Raises InvalidStatement.
    """
    given = _given(statement.clauses)
    _check_retries(present, given)
    changed = _changed(present, given, statement.at, now)
    wanted = statement.state or state
    return changed if wanted is None else replace(changed, state=JobState(wanted))


def _check_retries(present: JobSpec, given: Mapping[str, JobClause]) -> None:
    """Refuses to change the spacing of retries of a job without retries: their number would be a guess."""
    parts = [kind for kind in _RETRY_FIELDS if kind in given]
    if parts and "MAX_RETRIES" not in given and present.settings.get("retry", NO_RETRY) == NO_RETRY:
        whose = "has no retries" if "retry" in present.settings else "leaves its retries to the scheduler"
        raise given[parts[0]].at.fault(f"job {present.name} {whose}", hint="Say MAX_RETRIES too.")


def pause_until(statement: AlterJob, present: JobSpec) -> datetime | None:
    """The time that PAUSE UNTIL names, read in the job's zone."""
    if statement.until is None:
        return None
    return statement.at.at(instant_of, statement.until, clocks_of(present.schedule).zone, "UNTIL")


def explain_time(statement: ExplainJob, present: JobSpec) -> datetime | None:
    """The time that EXPLAIN JOB … AT names, read in the job's zone."""
    if statement.when is None:
        return None
    return statement.at.at(instant_of, statement.when, clocks_of(present.schedule).zone, "AT")


def retry_base(settings: Mapping[str, Any]) -> Retry:
    """Returns the retry policy that clauses such as MAX_RETRIES change: the one in `settings`, or the SQL default where
    `settings` have no retries."""
    base: Retry = settings.get("retry", SQL_RETRY)
    return SQL_RETRY if base == NO_RETRY else base


def task_name(job: str, work: TaskBody) -> str:
    """Returns the name of a job's only task: the last part of a Python handler's path, or else the job's name."""
    return only_task_name(job, work.kind, work.handler)


def _given(clauses: Iterable[JobClause]) -> dict[str, JobClause]:
    found: dict[str, JobClause] = {}
    for clause in clauses:
        if clause.kind == "DST":
            found |= {kind: JobClause(kind, value, at=clause.at) for kind, value in clause.value.items()}
        else:
            found[clause.kind] = clause
    return found


def _changed(spec: JobSpec, given: Mapping[str, JobClause], mark: SourceSpan, now: datetime) -> JobSpec:
    settings = _settings(dict(spec.settings), given.values())
    schedule = _schedule(spec.schedule, settings, given, now)
    changes: dict[str, Any] = {FIELDS[kind]: clause.value for kind, clause in given.items() if kind in FIELDS}
    if "STATE" in given:
        changes["state"] = given["STATE"].value
    if "BODY" in given:
        changes["tasks"] = _only_task(spec, given["BODY"])
    if "TASKS" in given:
        changes["tasks"] = tuple(_task(task, settings) for task in given["TASKS"].value)
    _check_clocks(schedule, settings, given)
    try:
        return replace(spec, schedule=schedule, settings=settings, **changes)
    except HoraeError as error:
        for kind, name in FIELDS.items():
            if kind in given:
                # Applies the clauses one by one, so that the error shows the clause at fault.
                given[kind].at.at(replace, spec, **{name: given[kind].value})
        raise mark.fault(error.message, hint=error.hint) from error


def _settings(settings: dict[str, Any], clauses: Iterable[JobClause], *, of_task: bool = False) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for clause in clauses:
        name = SETTINGS.get(clause.kind)
        if clause.kind in _RETRY_FIELDS:
            parts[_RETRY_FIELDS[clause.kind]] = clause.value
            settings["retry"] = clause.at.at(replace, retry_base(settings), **parts)
        elif clause.kind == "RETRY":
            _put(settings, "retry", DEFAULT if clause.value is DEFAULT else NO_RETRY)
        elif clause.kind == "WINDOW" and isinstance(clause.value, WindowValue):
            settings["window"] = clause.at.at(window_of, clause.value)
        elif name is not None and clause.value is DEFAULT:
            settings.pop(name, None)
        elif name is not None:
            settings |= clause.at.at(parse_settings, {name: clause.value}, of_task=of_task)
    return settings


def _put(settings: dict[str, Any], name: str, value: Any) -> None:
    if value is DEFAULT:
        settings.pop(name, None)
    else:
        settings[name] = value


def window_of(value: WindowValue) -> Window:
    """Returns the window of a WINDOW clause. Raises the errors of `Window`, `Distribution` and `Constraints`."""
    distribution = UNIFORM
    if value.distribution is not None:
        known = {name.lower(): name for name in DISTRIBUTIONS}
        named = known.get(value.distribution.lower(), value.distribution)
        distribution = Distribution(named, dict(value.parameters))
    avoid: list[Mapping[str, Any]] = [
        *(dict(each) for each in value.avoid),
        *({ALL: dict(each)} for each in value.avoid_all),
    ]
    constraints = Constraints([dict(each) for each in value.only] or None, avoid or None)
    return Window(
        value.mode,  # type: ignore[arg-type]  # Window refuses other words
        value.duration,
        distribution,
        value.seed or "stable",  # type: ignore[arg-type]  # as above
        value.salt or "",
        constraints,
        value.exact,
    )


def _schedule(
    present: Schedule | None, settings: dict[str, Any], given: Mapping[str, JobClause], now: datetime
) -> Schedule | None:
    """Returns the schedule after the change. ON COMPLETION is part of an AT schedule; for other schedules it is a
    setting, which this writes to `settings`."""
    clocks = clocks_of(present)
    for kind in _ON_THE_CLOCK:
        if kind in given:
            clocks = replace(clocks, **{"zone" if kind == "TIMEZONE" else kind.lower(): given[kind].value})
    if "TIMEZONE" in given:
        given["TIMEZONE"].at.at(zone, clocks.zone)
    completion = given.get("ON COMPLETION")
    schedule = present
    if "SCHEDULE" in given:
        clause = given["SCHEDULE"]
        alone = clause.value is not None and len(clause.value) == 1 and isinstance(clause.value[0], AtMoments)
        if alone and clause.value[0].then is None and "on_completion" not in settings:
            drop = isinstance(present, Once) and present.drop if completion is None else completion.value == "drop"
            return clause.at.at(schedule_of, clause.value, clocks, drop=drop, now=now)
        if clause.value is None:
            schedule = None
        else:
            schedule = clause.at.at(schedule_of, clause.value, clocks, drop=False, now=now)
    elif isinstance(present, Cron):
        schedule = replace(present, tz=clocks.zone, gap=clocks.gap, fold=clocks.fold)  # type: ignore[arg-type]  # words of the grammar
    elif isinstance(present, Iso8601):
        schedule = replace(present, tz=clocks.zone)
    elif isinstance(present, Once) and completion is not None and "on_completion" not in settings:
        return replace(present, drop=completion.value == "drop")
    if completion is not None:
        _put(settings, "on_completion", completion.value)
    return schedule


def _check_clocks(schedule: Schedule | None, settings: Mapping[str, Any], given: Mapping[str, JobClause]) -> None:
    """Refuses TIMEZONE, GAP and FOLD where they would have no effect on the schedule."""
    clause = given.get("SCHEDULE")
    has_cron = isinstance(schedule, Cron) or (
        clause is not None and any(isinstance(part, CronMoments) for part in clause.value or ())
    )
    for kind in ("GAP", "FOLD"):
        if kind in given and not has_cron:
            raise given[kind].at.fault(f"{kind} has no effect here: only a CRON schedule goes by wall minutes")
    if "TIMEZONE" not in given:
        return
    named = given["TIMEZONE"]
    if schedule is None or (clause is None and not isinstance(schedule, Cron | Iso8601)):
        raise named.at.fault("TIMEZONE has nothing to change in this schedule", hint="SET SCHEDULE = … beside it.")
    window: Window | None = settings.get("window")
    if window is not None and window.constraints.rules() and zone(schedule.timezone) is not zone(named.value):
        raise named.at.fault(
            f"ONLY and AVOID would be read in {schedule.timezone}, not in {named.value}: EVERY and AT have no zone",
            hint="Use SCHEDULE = ISO8601 'PT1H' or a CRON, which go by the clocks of the zone.",
        )


def _only_task(spec: JobSpec, clause: JobClause) -> tuple[TaskSpec, ...]:
    work: TaskBody = clause.value
    if len(spec.tasks) > 1:
        reason = f"job {spec.name} has {len(spec.tasks)} tasks, so it is not clear which one this would be"
        raise clause.at.fault(reason, hint="SET TASKS ( … ) names them all.")
    name, settings = task_name(spec.name, work), dict[str, Any]()
    if spec.tasks:
        # The task keeps its name, and so its history.
        name, settings = spec.tasks[0].name, dict(spec.tasks[0].settings)
    return (clause.at.at(TaskSpec, name, work.handler, work.kind, settings, work.options),)


def _task(task: TaskClause, job_settings: Mapping[str, Any]) -> TaskSpec:
    around = {"retry": job_settings["retry"]} if "retry" in job_settings else {}
    settings = _settings(dict(around), task.clauses, of_task=True)
    if not any(clause.kind == "RETRY" or clause.kind in _RETRY_FIELDS for clause in task.clauses):
        settings.pop("retry", None)
    return task.at.at(TaskSpec, task.name, task.work.handler, task.work.kind, settings, task.work.options)
