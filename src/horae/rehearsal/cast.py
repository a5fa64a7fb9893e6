"""The cast: which jobs are rehearsed, with all their settings, and what their past says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from fnmatch import fnmatchcase

from horae.app.targets import load_targets
from horae.app.wanting import wanted_by
from horae.config import Configuration
from horae.control.answers import Call, ToldJob, listed_jobs, told_job
from horae.control.service import Service
from horae.core.job import TASK_SETTINGS, JobSpec, Settings
from horae.core.succession import Stage
from horae.errors import AccessDenied, NotFound, shown
from horae.store.port import JobRecord

LATEST = 100
"""How many of a job's latest runs its past is made of."""
_AT_ONCE = 500
_POOLS = "SELECT pool_name, max_running FROM sys.pools ORDER BY pool_name"
_SLOTS = "scheduler.max_concurrent_jobs"
_DONE = frozenset({"COMPLETED", "COMPLETED_WITH_ERRORS"})
_FAILED = frozenset({"FAILED", "FAILED_STALE"})
_EACH = tuple(each.name for each in fields(Settings))


@dataclass(frozen=True, slots=True)
class Past:
    """How long a job's latest runs took, in seconds, and how many of those that ended had failed."""

    seconds: tuple[float, ...] = ()
    ended: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One job. `spec` has every setting that holds for it, whoever set it; `moved` is a slot that a person moved, and
    to when; `earlier` are versions that still speak for slots to come."""

    spec: JobSpec
    past: Past = Past()
    paused_until: datetime | None = None
    moved: tuple[datetime, datetime] | None = None
    earlier: tuple[Stage, ...] = ()
    version: int = 0
    created_at: datetime | None = None
    """When the catalog first had it; None: it is of a file."""
    is_stated: bool = True
    """Its file says its state; otherwise a job that is there keeps its own."""

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Cast:
    """Who is on, by name. `slots` is what the catalog's system says, `modules` where schedules of users' own may be
    imported from. Without `knows_pools`, what pools there are could not be seen, and none holds anything up."""

    parts: tuple[Part, ...] = ()
    pools: Mapping[str, int] = field(default_factory=dict)
    slots: int | None = None
    modules: tuple[str, ...] = ()
    knows_pools: bool = True

    def with_past_of(self, other: Cast) -> Cast:
        """The same jobs, each with what the other knows of the past of a job of its name."""
        known = {part.name: part.past for part in other.parts}
        return replace(self, parts=tuple(replace(part, past=known.get(part.name, part.past)) for part in self.parts))

    def only(self, patterns: Sequence[str]) -> Cast:
        """Those whose names are given, `*` standing for anything, and all that they depend on. Raises NotFound."""
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


def cast_of_targets(targets: Sequence[str], configuration: Configuration | None = None) -> Cast:
    """The jobs of files, folders and apps, read as `horae serve` reads them. An app's module is imported, and nothing
    of it is called. Raises what is wrong with a target."""
    # The store is named so that the app's own is never meant, let alone opened.
    app = load_targets(targets, store="sqlite://", configuration=configuration).app
    wanted = wanted_by(app)
    parts = tuple(
        Part(
            _with_settings(spec, spec.effective(app.defaults)),
            paused_until=wanted.pauses[spec.name].until if spec.name in wanted.pauses else None,
            is_stated=spec.name in wanted.stated,
        )
        for spec in sorted(wanted.specs, key=lambda spec: spec.name)
    )
    return Cast(parts, app.pools, modules=app.tuning.modules)


async def cast_of_catalog(service: Service, configuration: Configuration | None = None) -> Cast:
    """The jobs of a catalog that is opened here, as far as whoever asks may see them. Nothing is written."""
    records = await service.queries.jobs()
    pasts: dict[str, Past] = {}
    for index in range(0, len(records), _AT_ONCE):
        names = [record.name for record in records[index : index + _AT_ONCE]]
        found = await service.views.last_runs(names, LATEST)
        pasts |= {name: _past((str(each.state), each.seconds) for each in runs) for name, runs in found.items()}
    # Whoever sees not all of a catalog is not told of its pools; asking would be a refusal in its audit trail.
    sees_all = service.gate.is_open or service.views.seen is None
    pools = await service.store.pools() if sees_all else {}
    slots = (await service.store.settings()).get(_SLOTS)
    return Cast(
        tuple(_recorded(record, pasts.get(record.name, Past())) for record in records),
        pools,
        slots=slots if isinstance(slots, int) else None,
        modules=_modules(configuration),
        knows_pools=sees_all,
    )


def cast_of_server(call: Call, configuration: Configuration | None = None) -> Cast:
    """The jobs of a server, each asked for; its pools where it shows them to whoever asks."""
    parts: list[Part] = []
    for listed, _ in listed_jobs(call, LATEST):
        told = told_job(call, listed.name)
        if told is not None:
            past = _past((each.state, each.duration_seconds) for each in listed.outcomes or ())
            parts.append(_told(told, past))
    try:
        rows = call("sql", text=_POOLS).results[-1].rows
    except AccessDenied:
        return Cast(tuple(parts), modules=_modules(configuration), knows_pools=False)
    return Cast(tuple(parts), {str(row[0]): int(row[1]) for row in rows}, modules=_modules(configuration))


def _modules(configuration: Configuration | None) -> tuple[str, ...]:
    return () if configuration is None else tuple(configuration.scheduler.get("modules", ()))


def _past(outcomes: Iterable[tuple[str, float | None]]) -> Past:
    """Lengths of runs that completed, or, where none has, of those that ended in any other way."""
    ended = [(state, seconds) for state, seconds in outcomes if state in _DONE or state in _FAILED]
    done = tuple(seconds for state, seconds in ended if state in _DONE and seconds is not None)
    rest = tuple(seconds for _, seconds in ended if seconds is not None)
    return Past(done or rest, len(ended), sum(state in _FAILED for state, _ in ended))


def _recorded(record: JobRecord, past: Past) -> Part:
    definition = record.definition
    moved = None
    if record.moved_slot is not None and record.moved_to is not None:
        moved = record.moved_slot, record.moved_to
    spec = replace(_with_settings(definition.spec, definition.settings), state=record.state)
    return Part(spec, past, record.paused_until, moved, record.former, record.version, record.created_at)


def _told(job: ToldJob, past: Past) -> Part:
    """A job as a server tells it."""
    spec = replace(_with_settings(job.spec, job.settings), state=job.spec.state)
    return Part(spec, past, job.paused_until, job.moved, job.former, job.version, job.created_at)


def _with_settings(spec: JobSpec, settings: Settings) -> JobSpec:
    """The job with everything that holds for it, and for each of its tasks, said by itself: nobody's defaults are under
    it any more."""
    whole = replace(spec, settings={name: getattr(settings, name) for name in _EACH})
    tasks = []
    for task in spec.tasks:
        own = whole.effective(task=task.name)
        tasks.append(replace(task, settings={name: getattr(own, name) for name in sorted(TASK_SETTINGS)}))
    return replace(whole, tasks=tuple(tasks))
