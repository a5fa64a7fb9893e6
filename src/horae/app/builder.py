"""The builder that `app.job` returns: a decorator for a job with one task, or a builder for a job with several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import Bounded, Queue, Retry
from horae.core.time.duration import DurationLike
from horae.core.window.window import Window
from horae.engine.handlers import HandlerRegistry
from horae.errors import InvalidDefinition, shown
from horae.executors.processes import locate

Function = TypeVar("Function", bound=Callable[..., Any])


class TaskPolicies(TypedDict, total=False):
    """Settings that one task may override."""

    failure: str
    retry: Retry | None
    task_timeout: DurationLike | None
    isolation: str
    cancel_grace: DurationLike


class Policies(TaskPolicies, total=False):
    """Settings that a job may have. A setting that is left out comes from the app's `defaults`."""

    mode: str
    overlap: str | Queue
    recovery: str | Bounded
    misfire_grace: DurationLike
    deadline: DurationLike | None
    window: Window | None
    execution_timeout: DurationLike | None
    pool: str | None
    max_concurrent: int | None
    delivery: str
    max_lost: int | None
    on_completion: str
    update_policy: str | Update


class JobBuilder:
    """A job that is being defined.

    Use it as a decorator for a job with one task, or decorate each function with `.task` for a job with several tasks.
    The tasks keep the order in which they were added.

        etl = app.job("etl", Every("1h"))

        @etl.task
        def extract(): ...

        @etl.task(retry=Retry(3, "30s"))
        def load(run): ...
    """

    def __init__(
        self,
        registry: HandlerRegistry,
        name: str,
        schedule: Any,
        settings: Mapping[str, Any],
        *,
        payload: Any = None,
        tags: Iterable[str] = (),
        description: str = "",
        state: str = "ENABLED",
        depends_on: Iterable[str] = (),
        namespace: str = "default",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called after each task that is added. Raises InvalidDefinition or InvalidPolicy for a bad
        setting."""
        self._changed = changed
        self._registry = registry
        self._single = False
        # Built now, so that the traceback points at the line that defines the job.
        self._spec = JobSpec(
            name,
            schedule,
            (),
            settings,
            payload,
            names(tags),
            description,
            state,  # type: ignore[arg-type]  # JobSpec checks it
            names(depends_on),
            namespace,
        )
        self._tasks: list[TaskSpec] = []

    @property
    def name(self) -> str:
        return self._spec.name

    def __call__(self, function: Function) -> Function:
        """Makes `function` the job's only task. Raises InvalidDefinition if the job already has tasks."""
        if self._tasks:
            raise InvalidDefinition(
                f"Job {shown(self.name)} has tasks already",
                hint="Add another with its .task, or give a new job a name.",
            )
        self._add(function, None, {})
        self._single = True
        return function

    @overload
    def task(self, function: Function, /) -> Function: ...

    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, **settings: Unpack[TaskPolicies]
    ) -> Callable[[Function], Function]: ...

    def task(self, function: Any = None, /, *, name: str | None = None, **settings: Unpack[TaskPolicies]) -> Any:
        """Adds a task: `@job.task`, or `@job.task(failure="continue", retry=…, name=…)`.

        `name` is the function's own name by default. Raises InvalidDefinition if the job already has a task of that
        name.
        """
        if function is not None:
            self._add(function, name, settings)
            return function

        def add(given: Function) -> Function:
            self._add(given, name, settings)
            return given

        return add

    def _add(self, function: Callable[..., Any], name: str | None, settings: Mapping[str, Any]) -> None:
        if self._single:
            raise InvalidDefinition(
                f"Job {shown(self.name)} was given its only task already",
                hint="Write job = app.job(…), then @job.task on each function.",
            )
        task_name = name or getattr(function, "__name__", "task").strip("<>")
        spec = TaskSpec(task_name, f"{self.name}.{task_name}", settings=settings)
        if any(task.name == task_name for task in self._tasks):
            raise InvalidDefinition(
                f"Job {shown(self.name)} has two tasks called {shown(task_name)}",
                hint='Give one another name: @job.task(name="…").',
            )
        check_isolation(function, task_name, {**self._spec.settings, **spec.settings})
        self._registry.add(spec.handler, function)
        self._tasks.append(spec)
        self._changed()

    @property
    def has_tasks(self) -> bool:
        return bool(self._tasks)

    def spec(self) -> JobSpec:
        """Returns the complete definition. Raises InvalidDefinition if the job has no task yet."""
        if not self._tasks:
            raise InvalidDefinition(
                f"Job {shown(self.name)} has no task", hint="Decorate a function with it, or with its .task."
            )
        if len(self._spec.tasks) != len(self._tasks):
            self._spec = replace(self._spec, tasks=tuple(self._tasks))
        return self._spec


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Returns the names as a tuple. A single text stays as it is, so that JobSpec refuses it instead of reading its
    letters."""
    return given if isinstance(given, str) else tuple(given)  # type: ignore[return-value]  # as the docstring says


def check_isolation(function: Callable[..., Any], name: str, settings: Mapping[str, Any]) -> None:
    """Raises InvalidDefinition if a task with isolation="process" has no import path, so that no child process could
    find it."""
    if settings.get("isolation") == "process" and locate(function) is None:
        raise InvalidDefinition(
            f'Task {shown(name)} has isolation="process", but no import path leads to it',
            hint="Define it at the top level of a module: a process of its own has to import it.",
        )
