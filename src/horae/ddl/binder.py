"""Statements -> definitions: what CREATE JOB defines, and what ALTER JOB makes of a definition that is there.

Where a statement is silent, the SQL defaults hold: three retries after 60 s, 120 s and 240 s, wall times that occur
twice run once, the zone is UTC. Of these only what differs from the scheduler's own defaults is written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from horae.core.constraint import ALL, Constraints
from horae.core.distribution import DISTRIBUTIONS, UNIFORM, Distribution
from horae.core.interval import Iso8601
from horae.core.job import JobSpec, TaskSpec, only_task_name, parse_settings
from horae.core.lifecycle import JobState
from horae.core.policy import NO_RETRY, Retry
from horae.core.schedule import Cron, Once, Schedule
from horae.core.window import Window
from horae.core.zone import zone
from horae.ddl.clauses import RETRY_PARTS
from horae.ddl.moments import clocks_of, instant_of, schedule_of
from horae.ddl.statements import (
    DEFAULT,
    AlterJob,
    AtMoments,
    Clause,
    CreateJob,
    CronMoments,
    ExplainJob,
    Task,
    WindowValue,
    Work,
)
from horae.ddl.text import Mark
from horae.errors import HoraeError

SQL_RETRY = Retry(3, timedelta(seconds=60), factor=2.0)
SQL_TIMEOUT = timedelta(hours=1)
SQL_DEFAULTS = {"retry": SQL_RETRY, "execution_timeout": SQL_TIMEOUT}
"""What CREATE JOB says where its clauses do not: other surfaces have neither retries nor a timeout then."""
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
"""The clauses that are one setting each, by the setting's name."""
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
"""The clauses that are one field of the definition each."""
_RETRY_FIELDS = dict(zip(RETRY_PARTS, ("max_retries", "interval", "factor", "max_interval", "jitter"), strict=True))
_ON_THE_CLOCK = ("TIMEZONE", "GAP", "FOLD", "DST")


def created(statement: CreateJob, *, now: datetime) -> JobSpec:
    """The definition that CREATE JOB, CREATE OR ALTER JOB or RECREATE JOB gives. Raises InvalidStatement."""
    given = _given(statement.clauses)
    if "SCHEDULE" not in given:
        hint = "SCHEDULE = CRON, AT, EVERY or ISO8601; or NONE, for a job that only EXECUTE JOB runs."
        raise statement.at.fault(f"job {statement.name} has no SCHEDULE", hint=hint)
    if "BODY" not in given and "TASKS" not in given:
        hint = "Add AS 'sql', CALL procedure(), EXEC 'command', PYTHON handler, or TASKS ( … )."
        raise statement.at.fault(f"job {statement.name} has nothing to do", hint=hint)
    blank = statement.at.at(JobSpec, statement.name, None, settings=SQL_DEFAULTS)
    return _changed(blank, given, statement.at, now)


def altered(statement: AlterJob, present: JobSpec, state: JobState | str | None = None, *, now: datetime) -> JobSpec:
    """`present` with the changes of the statement; its state is the statement's, or else `state`, or else its own.

    A change of owner is not a change of the definition: whoever carries the statement out sees to `statement.owner`.
    """
    given = _given(statement.clauses)
    _check_retries(present, given)
    changed = _changed(present, given, statement.at, now)
    wanted = statement.state or state
    return changed if wanted is None else replace(changed, state=JobState(wanted))


def _check_retries(present: JobSpec, given: Mapping[str, Clause]) -> None:
    """How retries are spaced can be changed where there are some; that there are any is not to be guessed."""
    parts = [kind for kind in _RETRY_FIELDS if kind in given]
    if parts and "MAX_RETRIES" not in given and present.settings.get("retry", NO_RETRY) == NO_RETRY:
        whose = "has no retries" if "retry" in present.settings else "leaves its retries to the scheduler"
        raise given[parts[0]].at.fault(f"job {present.name} {whose}", hint="Say MAX_RETRIES too.")


def pause_until(statement: AlterJob, present: JobSpec) -> datetime | None:
    """The time that PAUSE UNTIL names, read in the job's zone."""
    if statement.until is None:
        return None
    return statement.at.at(instant_of, statement.until, clocks_of(present.schedule).zone, "UNTIL")


def explained_at(statement: ExplainJob, present: JobSpec) -> datetime | None:
    """The time that EXPLAIN JOB … AT names, read in the job's zone."""
    if statement.when is None:
        return None
    return statement.at.at(instant_of, statement.when, clocks_of(present.schedule).zone, "AT")


def retry_base(settings: Mapping[str, Any]) -> Retry:
    """What MAX_RETRIES and its like change: the retries that hold around them, or the SQL defaults."""
    base: Retry = settings.get("retry", SQL_RETRY)
    return SQL_RETRY if base == NO_RETRY else base


def task_name(job: str, work: Work) -> str:
    """How the only task of a job is called: as its callable, or else as the job."""
    return only_task_name(job, work.kind, work.handler)


def _given(clauses: Iterable[Clause]) -> dict[str, Clause]:
    found: dict[str, Clause] = {}
    for clause in clauses:
        if clause.kind == "DST":
            found |= {kind: Clause(kind, value, at=clause.at) for kind, value in clause.value.items()}
        else:
            found[clause.kind] = clause
    return found


def _changed(spec: JobSpec, given: Mapping[str, Clause], mark: Mark, now: datetime) -> JobSpec:
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
                # One by one now, so that the clause at fault is the one that is shown.
                given[kind].at.at(replace, spec, **{name: given[kind].value})
        raise mark.fault(error.message, hint=error.hint) from error


def _settings(settings: dict[str, Any], clauses: Iterable[Clause], *, of_task: bool = False) -> dict[str, Any]:
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
    """The window a WINDOW clause says. Raises what core says of it."""
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
        value.mode,  # type: ignore[arg-type]  # refused there, by name
        value.duration,
        distribution,
        value.seed or "stable",  # type: ignore[arg-type]  # as above
        value.salt or "",
        constraints,
        value.exact,
    )


def _schedule(
    present: Schedule | None, settings: dict[str, Any], given: Mapping[str, Clause], now: datetime
) -> Schedule | None:
    """The schedule after the change; ON COMPLETION is the schedule's own for an AT, and a setting for the others."""
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


def _check_clocks(schedule: Schedule | None, settings: Mapping[str, Any], given: Mapping[str, Clause]) -> None:
    """Refuses what would have no effect: rules of clocks for a schedule that goes by none."""
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


def _only_task(spec: JobSpec, clause: Clause) -> tuple[TaskSpec, ...]:
    work: Work = clause.value
    if len(spec.tasks) > 1:
        reason = f"job {spec.name} has {len(spec.tasks)} tasks, so it is not clear which one this would be"
        raise clause.at.fault(reason, hint="SET TASKS ( … ) names them all.")
    name, settings = task_name(spec.name, work), dict[str, Any]()
    if spec.tasks:
        # The task stays the one it was, so that its history is still its own.
        name, settings = spec.tasks[0].name, dict(spec.tasks[0].settings)
    return (clause.at.at(TaskSpec, name, work.handler, work.kind, settings, work.options),)


def _task(task: Task, job_settings: Mapping[str, Any]) -> TaskSpec:
    around = {"retry": job_settings["retry"]} if "retry" in job_settings else {}
    settings = _settings(dict(around), task.clauses, of_task=True)
    if not any(clause.kind == "RETRY" or clause.kind in _RETRY_FIELDS for clause in task.clauses):
        settings.pop("retry", None)
    return task.at.at(TaskSpec, task.name, task.work.handler, task.work.kind, settings, task.work.options)
