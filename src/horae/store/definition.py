"""One version of a job as verbs know it, and what became of an attempt to define one."""

from __future__ import annotations

from dataclasses import dataclass

from horae.core.job import JobSpec, Settings, TaskSpec
from horae.core.schedule import Schedule
from horae.core.succession import Stage, in_force
from horae.core.wait import Requirements


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of a job, with the settings that hold for the job and for each task. Immutable, so it is cached."""

    spec: JobSpec
    version: int
    settings: Settings
    task_settings: tuple[Settings, ...]
    handlers: frozenset[str]
    """What a node must have to run it, in the words of `core.needs`: its Python callables, and for other work more."""
    spared: frozenset[int] = frozenset()
    """Positions of the tasks that themselves say `failure="continue"`: no sibling's failure stops them."""
    former: tuple[Stage, ...] = ()
    """Earlier versions that speak for slots up to a moment: the change to this one is graceful."""

    @property
    def schedule(self) -> Schedule | None:
        """What slots are taken from: the definition's own, after those of the versions that still speak."""
        return in_force(self.spec.schedule, self.former)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def requirements(self) -> Requirements:
        return Requirements(self.handlers, self.settings.pool, self.settings.max_concurrent, self.spec.depends_on)

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        return self.spec.tasks


@dataclass(frozen=True, slots=True)
class Defined:
    """What `define` did with one job: `change` is created, changed or unchanged."""

    name: str
    version: int
    change: str
