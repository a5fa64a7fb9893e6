"""One version of a job, and the result of defining a job."""

from __future__ import annotations

from dataclasses import dataclass

from horae.core.change.succession import Stage, in_force
from horae.core.job.definition import JobSpec, Settings, TaskSpec
from horae.core.run.waiting_reason import Requirements
from horae.core.schedule.schedules import Schedule
from horae.errors import Conflict, shown


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of a job, with the effective settings of the job and of each task. Immutable, so it is cached."""

    spec: JobSpec
    version: int
    settings: Settings
    task_settings: tuple[Settings, ...]
    handlers: frozenset[str]
    """What a node must have to run it, as `core.job.requirements` writes it: Python callables, and other needs."""
    spared: frozenset[int] = frozenset()
    """Positions of the tasks whose own settings say `failure="continue"`: the failure of another task never stops
    them."""
    former: tuple[Stage, ...] = ()
    """Earlier versions that decide scheduled times up to a moment, because the change to this one is graceful."""
    fault: str | None = None
    """Why the stored definition cannot be read here. `spec` then has only what the catalog's other columns say, and
    tasks that no node can run."""
    stored_needs: frozenset[str] = frozenset()
    """The needs of a definition that cannot be read here, as far as the stored text shows them. A node that can read it
    must have them."""

    @property
    def schedule(self) -> Schedule | None:
        """The schedule in force: those of `former`, each up to its moment, then the definition's own."""
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
class DefinitionResult:
    """What `define` did with one job. `change` is created, changed or unchanged."""

    name: str
    version: int
    change: str
