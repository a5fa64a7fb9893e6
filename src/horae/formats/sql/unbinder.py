"""The inverse of the binder: a CREATE JOB statement from a definition.

The statement has only the clauses that differ from the SQL defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import NO_RETRY, Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Once
from horae.core.window.constraint import ALL
from horae.core.window.distribution import UNIFORM
from horae.core.window.window import Window
from horae.formats.sql.binder import FIELDS, SETTINGS, SQL_RETRY, SQL_TIMEOUT, retry_base, task_name
from horae.formats.sql.clause_actions import RETRY_PARTS
from horae.formats.sql.schedule_text import DEFAULT_FOLD, DEFAULT_GAP, DEFAULT_ZONE, moments_of
from horae.formats.sql.statements import DEFAULT, CreateJob, JobClause, Pairs, TaskBody, TaskClause, WindowValue

_TIMEOUT = "execution_timeout"
_KINDS = {name: kind for kind, name in SETTINGS.items() if kind != "CATCH_UP"}
_USUAL = {each.name: each.default for each in fields(JobSpec) if each.default is not MISSING}


def create_statement(spec: JobSpec, *, state: JobState, verb: str, says: Collection[str] = ()) -> CreateJob:
    """Returns the statement from which `binder.created` makes `spec`. Each setting in `says` that `spec` leaves to the
    scheduler gets a clause with DEFAULT. Raises InvalidDefinition where SQL cannot express the definition."""
    clauses = [*_schedule(spec), *_settings(spec.settings), *_retry(spec.settings), *_fields(spec)]
    clauses += [JobClause(_KINDS[name], DEFAULT) for name in sorted({*says, _TIMEOUT}) if name not in spec.settings]
    if state != JobState.ENABLED:
        clauses.append(JobClause("STATE", state))
    clauses.append(_tasks(spec))
    return CreateJob(verb, spec.name, tuple(clauses))


def _schedule(spec: JobSpec) -> Iterator[JobClause]:
    completion = spec.settings.get("on_completion")
    if spec.schedule is None:
        yield JobClause("SCHEDULE", None)
    else:
        parts, clocks = moments_of(spec.schedule, says_completion=completion is not None)
        yield JobClause("SCHEDULE", parts)
        usual = (
            ("TIMEZONE", clocks.zone, DEFAULT_ZONE),
            ("GAP", clocks.gap, DEFAULT_GAP),
            ("FOLD", clocks.fold, DEFAULT_FOLD),
        )
        for kind, value, default in usual:
            if value != default:
                yield JobClause(kind, value)
    if completion is not None:
        yield JobClause("ON COMPLETION", completion)
    elif isinstance(spec.schedule, Once) and spec.schedule.drop:
        yield JobClause("ON COMPLETION", "drop")


def _settings(settings: Mapping[str, Any]) -> Iterator[JobClause]:
    for name, kind in _KINDS.items():
        if name in settings and not (name == _TIMEOUT and settings[name] == SQL_TIMEOUT):
            value = settings[name]
            yield JobClause(kind, _window(value) if isinstance(value, Window) else value)


def _retry(settings: Mapping[str, Any]) -> Iterator[JobClause]:
    if "retry" not in settings:
        yield JobClause("RETRY", DEFAULT)
    elif settings["retry"] == NO_RETRY:
        yield JobClause("RETRY", None)
    else:
        yield from _parts(settings["retry"], SQL_RETRY)


def _parts(retry: Retry, base: Retry) -> Iterator[JobClause]:
    for kind, each in zip(RETRY_PARTS, fields(Retry), strict=True):
        if getattr(retry, each.name) != getattr(base, each.name):
            yield JobClause(kind, getattr(retry, each.name))


def _fields(spec: JobSpec) -> Iterator[JobClause]:
    for kind, name in FIELDS.items():
        value = getattr(spec, name)
        if value != _USUAL[name]:
            yield JobClause(kind, value)


def _tasks(spec: JobSpec) -> JobClause:
    if len(spec.tasks) == 1:
        only = spec.tasks[0]
        work = _work(only)
        if not only.settings and only.name == task_name(spec.name, work):
            return JobClause("BODY", work)
    return JobClause("TASKS", tuple(_task(task, spec.settings) for task in spec.tasks))


def _task(task: TaskSpec, around: Mapping[str, Any]) -> TaskClause:
    clauses = list(_settings(task.settings))
    retry: Retry | None = task.settings.get("retry")
    if retry is not None and retry == NO_RETRY:
        clauses.append(JobClause("RETRY", None))
    elif retry is not None:
        # Without a clause, the task would have no retries of its own.
        said = list(_parts(retry, retry_base(around)))
        clauses += said or [JobClause("MAX_RETRIES", retry.max_retries)]
    return TaskClause(task.name, _work(task), tuple(clauses))


def _work(task: TaskSpec) -> TaskBody:
    return TaskBody(task.kind, task.handler, dict(task.options))


def _window(window: Window) -> WindowValue:
    has_shape = window.distribution != UNIFORM
    data = window.constraints.to_dict()
    avoid = data.get("avoid", ())
    return WindowValue(
        window.mode,
        window.length,
        window.distribution.name if has_shape else None,
        window.distribution.items() if has_shape else (),
        None if window.seed == "stable" else window.seed,
        window.salt or None,
        _groups(data.get("only", ())),
        _groups(each for each in avoid if ALL not in each),
        _groups(each[ALL] for each in avoid if ALL in each),
        window.exact,
    )


def _groups(sets: Iterable[Mapping[str, str]]) -> tuple[Pairs, ...]:
    return tuple(tuple(each.items()) for each in sets)
