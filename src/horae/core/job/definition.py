"""Definitions: a job with its schedule, its tasks and the settings that cascade from scheduler to job to task.

Each level stores only what it sets. `effective` merges the levels, and the innermost level wins, as in CSS. A run has
the settings of the job version that it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from horae.core.change.update_policy import IMMEDIATE, Update, parse_update
from horae.core.job import ids
from horae.core.job.options import checked_options
from horae.core.job.placement import JOB_CLASSES, checked_partition
from horae.core.job.policies import (
    COMPLETIONS,
    DELIVERIES,
    FAILURE_STRATEGIES,
    ISOLATIONS,
    MODES,
    NO_RETRY,
    Bounded,
    Overlap,
    Queue,
    Recovery,
    Retry,
    checked_choice,
    parse_overlap,
    parse_recovery,
    parse_retry,
)
from horae.core.run.lifecycle import JobState
from horae.core.schedule.custom import as_schedule
from horae.core.schedule.schedules import Schedule, schedule_from_dict
from horae.core.time.duration import format_duration, parse_duration
from horae.core.window.window import Window
from horae.errors import InvalidDefinition, InvalidName, InvalidPolicy, JobNotFound, shown

DEEPEST = 64
"""How deep lists and objects may be nested where any value is allowed: payloads, arguments."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a job or a task, with their defaults."""

    mode: str = "sequential"
    failure: str = "fail_fast"
    retry: Retry = NO_RETRY
    overlap: Overlap = "skip"
    recovery: Recovery = "last"
    misfire_grace: timedelta = timedelta(seconds=60)
    deadline: timedelta | None = None
    window: Window | None = None
    execution_timeout: timedelta | None = None
    task_timeout: timedelta | None = None
    delivery: str = "at_least_once"
    isolation: str = "auto"
    max_lost: int | None = 3
    cancel_grace: timedelta = timedelta(seconds=30)
    pool: str | None = None
    max_concurrent: int | None = None
    on_completion: str = "preserve"
    update_policy: Update = IMMEDIATE

    @property
    def owes_once(self) -> bool:
        """Whether one run is enough for all slots that came due. The run of the latest slot replaces those that have
        not started, and ends a waiting retry. True for the tasks of the declarative scheduler."""
        return self.retry.max_retries is None and self.overlap == "coalesce" and self.recovery == "last"

    @property
    def owes_each(self) -> bool:
        """Whether every slot gets a run of its own, so that none is skipped while earlier slots catch up."""
        return self.recovery == "all"

    def to_dict(self) -> dict[str, Any]:
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


DEFAULTS = Settings()
TASK_SETTINGS = frozenset({"failure", "retry", "task_timeout", "isolation", "cancel_grace"})
"""The settings that a task may override. All others apply to the job as a whole."""

_CHOICES = {
    "mode": MODES,
    "failure": FAILURE_STRATEGIES,
    "delivery": DELIVERIES,
    "isolation": ISOLATIONS,
    "on_completion": COMPLETIONS,
}
_DURATIONS = {"misfire_grace", "deadline", "execution_timeout", "task_timeout", "cancel_grace"}
_OPTIONAL = {"deadline", "execution_timeout", "task_timeout", "window", "max_lost", "pool", "max_concurrent"}
_COUNTS = {"max_lost", "max_concurrent"}


def parse_settings(given: Mapping[str, Any], *, of_task: bool = False) -> Mapping[str, Any]:
    """The settings of one level, checked and converted to their types.

    None is a value of the settings that allow it and never means "unset". Raises InvalidDefinition, InvalidPolicy or
    another InvalidInput.
    """
    parsed: dict[str, Any] = {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidDefinition(f"Invalid settings {shown(given)}: must be a mapping from names to values")
    for name, value in sorted(given.items()):
        known = TASK_SETTINGS if of_task else DEFAULTS.__dataclass_fields__.keys()
        if name not in known:
            what = "task" if of_task else "job"
            raise InvalidDefinition(
                f"Unknown {what} setting {shown(name)}", hint=f"Known settings: {', '.join(sorted(known))}."
            )
        parsed[name] = _parse_setting(name, value)
    return parsed


def _parse_setting(name: str, value: Any) -> Any:
    if value is None and name in _OPTIONAL:
        return None
    if name in _CHOICES:
        return checked_choice(value, _CHOICES[name], name)
    if name in _DURATIONS:
        return parse_duration(value, name=name)
    if name in _COUNTS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a whole number from 1, or None")
        return value
    match name:
        case "retry":
            return parse_retry(value)
        case "overlap":
            return parse_overlap(value)
        case "recovery":
            return parse_recovery(value)
        case "window":
            return value if isinstance(value, Window) else Window.from_dict(value)
        case "update_policy":
            return _lasting(parse_update(value))
        case _:
            return ids.checked_name(value, f"{name} name")


def _lasting(update: Update) -> Update:
    if update.until is not None:
        raise InvalidPolicy(
            "Invalid update_policy: a moment belongs to one change, and not to a job",
            hint="Write graceful here, and give the moment with the change.",
        )
    return update


def effective(*levels: Mapping[str, Any]) -> Settings:
    """The settings that result from `levels`, outermost first: a later level wins over an earlier one."""
    merged: dict[str, Any] = {}
    for level in levels:
        merged |= parse_settings(level)
    return replace(DEFAULTS, **merged) if merged else DEFAULTS


def settings_from_dict(data: Mapping[str, Any]) -> Settings:
    """Reads what `Settings.to_dict` wrote."""
    return effective(parse_settings(data))


_NONE: Mapping[str, Any] = {}
KINDS = ("PYTHON", "SQL", "PROCEDURE", "EXTERNAL")


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a job.

    `kind` says what `handler` is: the name of a Python callable, SQL text, the name of a procedure, or a command.
    `settings` are those that the task overrides. `options` are what else its kind needs (`core.job.options`).
    """

    name: str
    handler: str = ""
    kind: str = "PYTHON"
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids.checked_name(self.name, "task name")
        if not isinstance(self.handler, str) or self.kind not in KINDS:
            hint = f"handler is text, kind one of: {', '.join(KINDS)}."
            raise InvalidDefinition(f"Task {shown(self.name)} has a handler or kind that is none", hint=hint)
        ids.checked_text(self.handler, f"handler of task {self.name}")
        object.__setattr__(self, "settings", parse_settings(self.settings, of_task=True))
        if self.options:
            check_depth(self.options, f"options of task {shown(self.name)}")
            object.__setattr__(self, "options", checked_options(self.kind, self.options))

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "handler": self.handler, "kind": self.kind}
        if self.settings:
            data["settings"] = _level(self.settings)
        if self.options:
            data["options"] = dict(self.options)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskSpec:
        return cls(**_known(data, cls))


def only_task_name(job: str, kind: str, handler: str) -> str:
    """The name of a job's only task where its definition gives none: that of its Python callable, else the job's."""
    last = re.split("[.:]", handler)[-1] if kind == "PYTHON" else job
    try:
        return ids.checked_name(last, "task name")
    except InvalidName:
        return job


def continuing_positions(tasks: Sequence[TaskSpec]) -> frozenset[int]:
    """Positions of the tasks that set `failure="continue"` themselves. The failure of a sibling does not stop them."""
    return frozenset(place for place, task in enumerate(tasks) if task.settings.get("failure") == "continue")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The definition of a job. Two specs are equal when they define the same job."""

    name: str
    schedule: Schedule | None
    tasks: tuple[TaskSpec, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    payload: Any = None
    tags: tuple[str, ...] = ()
    description: str = ""
    state: JobState = JobState.ENABLED
    depends_on: tuple[str, ...] = ()
    namespace: str = "default"
    run_as: str | None = None
    """The role that the job's SQL runs as; None: its owner."""
    job_class: str | None = None
    """LOCAL_SAFE, LEADER_ONLY or QUORUM_REQUIRED. Stored, without effect on a single node."""
    partition: Mapping[str, Any] | None = None
    """{"strategy": …} with "shards" or "expression". Stored, without effect on a single node."""
    owner: str | None = None
    """The user who owns the job and whose rights it runs with. None: the present owner; for a new job, its definer."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        ids.checked_name(self.name)
        ids.checked_name(self.namespace, "namespace")
        if self.schedule is not None:
            put(self, "schedule", as_schedule(self.schedule))
        put(self, "settings", parse_settings(self.settings))
        check_depth(self.payload, f"payload of job {shown(self.name)}")
        put(self, "tasks", tuple(self.tasks))
        if not all(isinstance(task, TaskSpec) for task in self.tasks) or not isinstance(self.description, str):
            raise InvalidDefinition(f"Job {shown(self.name)}: tasks must be TaskSpecs and description text")
        ids.checked_text(self.description, f"description of job {self.name}")
        for name in ("tags", "depends_on"):
            if isinstance(getattr(self, name), str):
                raise InvalidDefinition(f"Job {shown(self.name)}: {name} must be a list of names, not one text")
        put(self, "tags", tuple(dict.fromkeys(ids.checked_name(tag, "tag") for tag in self.tags)))
        put(self, "depends_on", tuple(dict.fromkeys(ids.checked_name(other) for other in self.depends_on)))
        for who, what in ((self.run_as, "role name"), (self.owner, "user name")):
            if who is not None:
                ids.checked_name(who, what)
        if self.job_class is not None:
            checked_choice(self.job_class, JOB_CLASSES, "job class")
        if self.partition is not None:
            put(self, "partition", checked_partition(self.partition))
        if self.state not in tuple(JobState):
            checked_choice(self.state, tuple(JobState), "state")
        put(self, "state", JobState(self.state))
        names: set[str] = set()
        for task in self.tasks:
            if task.name in names:
                raise InvalidDefinition(f"Job {shown(self.name)} has two tasks called {shown(task.name)}")
            names.add(task.name)

    def like(self, name: str, tasks: tuple[TaskSpec, ...], schedule: Schedule) -> JobSpec:
        """A copy of this job with another name, other tasks and another schedule.

        Everything else is shared with this job and not checked again, which makes large batches of such jobs quick.
        """
        made = object.__new__(JobSpec)
        for field_name in _FIELDS:
            object.__setattr__(made, field_name, getattr(self, field_name))
        object.__setattr__(made, "name", ids.checked_name(name))
        object.__setattr__(made, "tasks", tasks)
        object.__setattr__(made, "schedule", schedule)
        return made

    @property
    def uuid(self) -> UUID:
        return ids.job_uuid(self.name)

    def effective(self, scheduler: Mapping[str, Any] = _NONE, task: str | None = None) -> Settings:
        """The settings of the job, or of one of its tasks, under the scheduler's defaults."""
        if task is None:
            return effective(scheduler, self.settings)
        found = next((each for each in self.tasks if each.name == task), None)
        if found is None:
            raise InvalidDefinition(f"Job {shown(self.name)} has no task {shown(task)}")
        return effective(scheduler, self.settings, found.settings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without fields that have their default."""
        data: dict[str, Any] = {"name": self.name}
        if self.schedule is not None:
            data["schedule"] = self.schedule.to_dict()
        if self.tasks:
            data["tasks"] = [task.to_dict() for task in self.tasks]
        if self.settings:
            data["settings"] = _level(self.settings)
        for name, default in _LEFT_OUT:
            value = getattr(self, name)
            if value != default:
                data[name] = list(value) if isinstance(value, tuple) else value
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobSpec:
        values = _known(data, cls)
        if values.get("schedule") is not None:
            values["schedule"] = schedule_from_dict(values["schedule"])
        values.setdefault("schedule", None)
        values["tasks"] = tuple(TaskSpec.from_dict(task) for task in values.get("tasks", ()))
        return cls(**values)


def check_depth(value: Any, what: str) -> None:
    """Raises InvalidDefinition where `value` is nested too deep (DEEPEST) for every reader and writer of it."""
    level = [value]
    for _ in range(DEEPEST + 1):
        # Each object is visited once: otherwise lists that share their parts would multiply.
        inner = {id(each): each for each in level if isinstance(each, (Mapping, list, tuple))}
        if not inner:
            return
        level = [each for one in inner.values() for each in (one.values() if isinstance(one, Mapping) else one)]
    raise InvalidDefinition(
        f"The {what} has lists and objects more than {DEEPEST} deep in each other",
        hint="Give it a flatter form, or keep it elsewhere and name the place.",
    )


def job_not_found(name: str) -> JobNotFound:
    return JobNotFound(
        f"There is no job {shown(name)}",
        hint="Names are exact; `horae job list` or app.jobs() lists them.",
        details={"name": name},
    )


_FIELDS = tuple(each.name for each in fields(JobSpec))
_LEFT_OUT = tuple((each.name, each.default) for each in fields(JobSpec) if each.name in _FIELDS[4:])


def _known(data: Mapping[str, Any], cls: type[TaskSpec | JobSpec]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidDefinition(f"{shown(data)} is not a definition: it must be a mapping")
    what = f"{'task' if cls is TaskSpec else 'job'} {shown(data.get('name'))}"
    known = [each.name for each in fields(cls)]
    for key in data:
        if key not in known:
            raise InvalidDefinition(f"Unknown key {shown(key)} in {what}", hint=f"Known keys: {', '.join(known)}.")
    if "name" not in data:
        raise InvalidDefinition(f"No name in {what}")
    return dict(data)


def _level(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in settings.items()} if settings else {}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, _WRITTEN_OUT):
        return value.to_dict()
    return value


_WRITTEN_OUT = (Retry, Queue, Bounded, Window, Update)
