"""Definitions -> statements: the other way of the binder. Only what differs from the SQL defaults is said."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from horae.core.constraint import ALL
from horae.core.distribution import UNIFORM
from horae.core.job import JobSpec, TaskSpec
from horae.core.lifecycle import JobState
from horae.core.policy import NO_RETRY, Retry
from horae.core.schedule import Once
from horae.core.window import Window
from horae.ddl.binder import FIELDS, SETTINGS, SQL_RETRY, SQL_TIMEOUT, retry_base, task_name
from horae.ddl.clauses import RETRY_PARTS
from horae.ddl.moments import DEFAULT_FOLD, DEFAULT_GAP, DEFAULT_ZONE, moments_of
from horae.ddl.statements import DEFAULT, Clause, CreateJob, Pairs, Task, WindowValue, Work

_TIMEOUT = "execution_timeout"
_KINDS = {name: kind for kind, name in SETTINGS.items() if kind != "CATCH_UP"}
_USUAL = {each.name: each.default for each in fields(JobSpec) if each.default is not MISSING}


def unbound(spec: JobSpec, *, state: JobState, verb: str, says: Collection[str] = ()) -> CreateJob:
    """The statement that `binder.created` makes `spec` of; `says` are settings it speaks of even where `spec` leaves
    them to the scheduler. Raises InvalidDefinition where SQL has no words for it."""
    clauses = [*_schedule(spec), *_settings(spec.settings), *_retry(spec.settings), *_fields(spec)]
    clauses += [Clause(_KINDS[name], DEFAULT) for name in sorted({*says, _TIMEOUT}) if name not in spec.settings]
    if state != JobState.ENABLED:
        clauses.append(Clause("STATE", state))
    clauses.append(_tasks(spec))
    return CreateJob(verb, spec.name, tuple(clauses))


def _schedule(spec: JobSpec) -> Iterator[Clause]:
    completion = spec.settings.get("on_completion")
    if spec.schedule is None:
        yield Clause("SCHEDULE", None)
    else:
        parts, clocks = moments_of(spec.schedule, says_completion=completion is not None)
        yield Clause("SCHEDULE", parts)
        usual = (
            ("TIMEZONE", clocks.zone, DEFAULT_ZONE),
            ("GAP", clocks.gap, DEFAULT_GAP),
            ("FOLD", clocks.fold, DEFAULT_FOLD),
        )
        for kind, value, default in usual:
            if value != default:
                yield Clause(kind, value)
    if completion is not None:
        yield Clause("ON COMPLETION", completion)
    elif isinstance(spec.schedule, Once) and spec.schedule.drop:
        yield Clause("ON COMPLETION", "drop")


def _settings(settings: Mapping[str, Any]) -> Iterator[Clause]:
    for name, kind in _KINDS.items():
        if name in settings and not (name == _TIMEOUT and settings[name] == SQL_TIMEOUT):
            value = settings[name]
            yield Clause(kind, _window(value) if isinstance(value, Window) else value)


def _retry(settings: Mapping[str, Any]) -> Iterator[Clause]:
    if "retry" not in settings:
        yield Clause("RETRY", DEFAULT)
    elif settings["retry"] == NO_RETRY:
        yield Clause("RETRY", None)
    else:
        yield from _parts(settings["retry"], SQL_RETRY)


def _parts(retry: Retry, base: Retry) -> Iterator[Clause]:
    for kind, each in zip(RETRY_PARTS, fields(Retry), strict=True):
        if getattr(retry, each.name) != getattr(base, each.name):
            yield Clause(kind, getattr(retry, each.name))


def _fields(spec: JobSpec) -> Iterator[Clause]:
    for kind, name in FIELDS.items():
        value = getattr(spec, name)
        if value != _USUAL[name]:
            yield Clause(kind, value)


def _tasks(spec: JobSpec) -> Clause:
    if len(spec.tasks) == 1:
        only = spec.tasks[0]
        work = _work(only)
        if not only.settings and only.name == task_name(spec.name, work):
            return Clause("BODY", work)
    return Clause("TASKS", tuple(_task(task, spec.settings) for task in spec.tasks))


def _task(task: TaskSpec, around: Mapping[str, Any]) -> Task:
    clauses = list(_settings(task.settings))
    retry: Retry | None = task.settings.get("retry")
    if retry is not None and retry == NO_RETRY:
        clauses.append(Clause("RETRY", None))
    elif retry is not None:
        # At least one of them, or the task would have none of its own.
        said = list(_parts(retry, retry_base(around)))
        clauses += said or [Clause("MAX_RETRIES", retry.max_retries)]
    return Task(task.name, _work(task), tuple(clauses))


def _work(task: TaskSpec) -> Work:
    return Work(task.kind, task.handler, dict(task.options))


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
