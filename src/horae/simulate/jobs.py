"""The jobs that are simulated, with all their settings and their history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from fnmatch import fnmatchcase

from horae.app.desired_state import wanted_by
from horae.app.process.targets import load_targets
from horae.config import Configuration
from horae.core.change.succession import Stage
from horae.core.job.definition import TASK_SETTINGS, JobSpec, Settings
from horae.errors import AccessDenied, NotFound, shown
from horae.services.job_records import Call, ServerJob, list_server_jobs, read_server_job
from horae.services.service import Service
from horae.store.protocols.store import JobRecord

LATEST = 100
"""How many of a job's latest runs count as its history."""
_AT_ONCE = 500
_POOLS = "SELECT pool_name, max_running FROM sys.pools ORDER BY pool_name"
_SLOTS = "scheduler.max_concurrent_jobs"
_DONE = frozenset({"COMPLETED", "COMPLETED_WITH_ERRORS"})
_FAILED = frozenset({"FAILED", "FAILED_STALE"})
_EACH = tuple(each.name for each in fields(Settings))


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The durations of a job's latest runs, in seconds, and how many of the runs that ended had failed."""

    seconds: tuple[float, ...] = ()
    ended: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """One job of a simulation.

    `spec` has every effective setting of the job. `moved` is a scheduled time that an operator moved, and its new time.
    `earlier` are former versions whose schedule still applies to scheduled times to come.
    """

    spec: JobSpec
    past: JobHistory = JobHistory()
    paused_until: datetime | None = None
    moved: tuple[datetime, datetime] | None = None
    earlier: tuple[Stage, ...] = ()
    version: int = 0
    created_at: datetime | None = None
    """When the catalog first had the job. None for a job of a file."""
    is_stated: bool = True
    """Whether the file states the job's state. Otherwise a job that exists keeps its own."""

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class SimulatedJobs:
    """The jobs of a simulation, by name.

    `slots` is the concurrency limit of the catalog's system settings. Custom schedules may be imported from `modules`.
    Without `knows_pools` the pools could not be read, and none limits a run.
    """

    parts: tuple[SimulatedJob, ...] = ()
    pools: Mapping[str, int] = field(default_factory=dict)
    slots: int | None = None
    modules: tuple[str, ...] = ()
    knows_pools: bool = True

    def with_past_of(self, other: SimulatedJobs) -> SimulatedJobs:
        """The same jobs with the history of the other's jobs of the same names."""
        known = {part.name: part.past for part in other.parts}
        return replace(self, parts=tuple(replace(part, past=known.get(part.name, part.past)) for part in self.parts))

    def only(self, patterns: Sequence[str]) -> SimulatedJobs:
        """The jobs that match the names or patterns (`*` stands for anything), and all jobs they depend on. Raises
        NotFound."""
        by_name = {part.name: part for part in self.parts}
        wanted: list[str] = []
        for pattern in patterns:
            found = [name for name in by_name if name == pattern or fnmatchcase(name, pattern)]
            if not found:
                raise NotFound(f"No job is called {shown(pattern)}", hint="Names are exact; * stands for anything.")
            wanted += found
        kept: set[str] = set()
        while wanted:
            name = wanted.pop()
            if name in by_name and name not in kept:
                kept.add(name)
                wanted += by_name[name].spec.depends_on
        return replace(self, parts=tuple(part for part in self.parts if part.name in kept))


def jobs_of_targets(targets: Sequence[str], configuration: Configuration | None = None) -> SimulatedJobs:
    """The jobs of files, folders and apps, read as `horae serve` reads them.

    An app's module is imported, but none of its tasks is called. Raises the errors of `load_targets`.
    """
    # Names a store, so that the app's own store is never used.
    app = load_targets(targets, store="sqlite://", configuration=configuration).app
    wanted = wanted_by(app)
    parts = tuple(
        SimulatedJob(
            _with_settings(spec, spec.effective(app.defaults)),
            paused_until=wanted.pauses[spec.name].until if spec.name in wanted.pauses else None,
            is_stated=spec.name in wanted.stated,
        )
        for spec in sorted(wanted.specs, key=lambda spec: spec.name)
    )
    return SimulatedJobs(parts, app.pools, modules=app.tuning.modules)


async def jobs_of_catalog(service: Service, configuration: Configuration | None = None) -> SimulatedJobs:
    """The jobs of a catalog that is opened directly, as far as the principal may see them. Writes nothing."""
    records = await service.queries.jobs()
    pasts: dict[str, JobHistory] = {}
    for index in range(0, len(records), _AT_ONCE):
        names = [record.name for record in records[index : index + _AT_ONCE]]
        found = await service.views.last_runs(names, LATEST)
        pasts |= {name: _past((str(each.state), each.seconds) for each in runs) for name, runs in found.items()}
    # A principal who sees only some jobs may not read the pools; trying would leave a refusal in the audit trail.
    sees_all = service.gate.is_open or service.views.seen is None
    pools = await service.store.pools() if sees_all else {}
    slots = (await service.store.settings()).get(_SLOTS)
    return SimulatedJobs(
        tuple(_recorded(record, pasts.get(record.name, JobHistory())) for record in records),
        pools,
        slots=slots if isinstance(slots, int) else None,
        modules=_modules(configuration),
        knows_pools=sees_all,
    )


def jobs_of_server(call: Call, configuration: Configuration | None = None) -> SimulatedJobs:
    """The jobs of a server, one request for each, and its pools if the user may see them."""
    parts: list[SimulatedJob] = []
    for listed, _ in list_server_jobs(call, LATEST):
        told = read_server_job(call, listed.name)
        if told is not None:
            past = _past((each.state, each.duration_seconds) for each in listed.outcomes or ())
            parts.append(_told(told, past))
    try:
        rows = call("sql", text=_POOLS).results[-1].rows
    except AccessDenied:
        return SimulatedJobs(tuple(parts), modules=_modules(configuration), knows_pools=False)
    return SimulatedJobs(tuple(parts), {str(row[0]): int(row[1]) for row in rows}, modules=_modules(configuration))


def _modules(configuration: Configuration | None) -> tuple[str, ...]:
    return () if configuration is None else tuple(configuration.scheduler.get("modules", ()))


def _past(outcomes: Iterable[tuple[str, float | None]]) -> JobHistory:
    """The durations of runs that completed or, if none did, of those that ended in another way."""
    ended = [(state, seconds) for state, seconds in outcomes if state in _DONE or state in _FAILED]
    done = tuple(seconds for state, seconds in ended if state in _DONE and seconds is not None)
    rest = tuple(seconds for _, seconds in ended if seconds is not None)
    return JobHistory(done or rest, len(ended), sum(state in _FAILED for state, _ in ended))


def _recorded(record: JobRecord, past: JobHistory) -> SimulatedJob:
    definition = record.definition
    moved = None
    if record.moved_slot is not None and record.moved_to is not None:
        moved = record.moved_slot, record.moved_to
    spec = replace(_with_settings(definition.spec, definition.settings), state=record.state)
    return SimulatedJob(spec, past, record.paused_until, moved, record.former, record.version, record.created_at)


def _told(job: ServerJob, past: JobHistory) -> SimulatedJob:
    """A job from a server's answer."""
    spec = replace(_with_settings(job.spec, job.settings), state=job.spec.state)
    return SimulatedJob(spec, past, job.paused_until, job.moved, job.former, job.version, job.created_at)


def _with_settings(spec: JobSpec, settings: Settings) -> JobSpec:
    """The job with all its effective settings, and those of its tasks, written out, so that no defaults apply any
    more."""
    whole = replace(spec, settings={name: getattr(settings, name) for name in _EACH})
    tasks = []
    for task in spec.tasks:
        own = whole.effective(task=task.name)
        tasks.append(replace(task, settings={name: getattr(own, name) for name in sorted(TASK_SETTINGS)}))
    return replace(whole, tasks=tuple(tasks))
