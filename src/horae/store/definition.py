"""One version of a job as verbs know it, and what became of an attempt to define one."""

from __future__ import annotations

from dataclasses import dataclass

from horae.core.job import JobSpec, Settings, TaskSpec
from horae.core.schedule import Schedule
from horae.core.succession import Stage, in_force
from horae.core.wait import Requirements
from horae.errors import Conflict, shown


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
    fault: str | None = None
    """Why the stored definition cannot be read here. `spec` then has only what the catalog's other columns say, and
    tasks that no node can do."""
    stored_needs: frozenset[str] = frozenset()
    """Where it cannot be read here: what nodes that can must have to run it, as far as the stored text says."""

    @property
    def schedule(self) -> Schedule | None:
        """What slots are taken from: the definition's own, after those of the versions that still speak."""
        return in_force(self.spec.schedule, self.former)

    def check_readable(self) -> None:
        """Raises Conflict where the stored definition cannot be read here."""
        if self.fault is not None:
            raise Conflict(
                f"Version {self.version} of job {shown(self.name)} cannot be read here: {self.fault}",
                hint="Define the job anew, drop it, or use the release of Horae that wrote it.",
                details={"name": self.name, "version": self.version},
            )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def requirements(self) -> Requirements:
        own, settings = self.spec.schedule, self.settings
        zone = "UTC" if own is None else own.timezone
        return Requirements(
            self.handlers,
            settings.pool,
            settings.max_concurrent,
            self.spec.depends_on,
            settings.window,
            zone if self.fault is None else None,
        )

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        return self.spec.tasks


@dataclass(frozen=True, slots=True)
class Defined:
    """What `define` did with one job: `change` is created, changed or unchanged."""

    name: str
    version: int
    change: str
