"""The cast: which jobs are rehearsed, with all their settings, and what their past says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from horae.app.targets import load_targets
from horae.config import Configuration
from horae.control.service import Service
from horae.core.instant import parse_instant
from horae.core.job import TASK_SETTINGS, JobSpec, Settings, settings_from_dict
from horae.core.jobtable import read_job_table
from horae.core.lifecycle import JobState
from horae.core.schedule import Schedule
from horae.core.window import Window
from horae.errors import AccessDenied, HoraeError, InvalidJobFile, NotFound, shown
from horae.store.port import JobRecord

LATEST = 100
"""How many of a job's latest runs its past is made of."""
_AT_ONCE = 500
_POOLS = "SELECT pool_name, max_running FROM sys.pools ORDER BY pool_name"
_SLOTS = "scheduler.max_concurrent_jobs"
_DONE = frozenset({"COMPLETED", "COMPLETED_WITH_ERRORS"})
_FAILED = frozenset({"FAILED", "FAILED_STALE"})
_EACH = tuple(each.name for each in fields(Settings))

Call = Callable[..., Any]
"""Asks one of the desk's operations by its name: what the command line has of a server."""


@dataclass(frozen=True, slots=True)
class Past:
    """How long a job's latest runs took, in seconds, and how many of those that ended had failed."""

    seconds: tuple[float, ...] = ()
    ended: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier version still says of the slots up to `until`, that moment included."""

    until: datetime
    schedule: Schedule | None
    window: Window | None


@dataclass(frozen=True, slots=True)
class Part:
    """One job. `spec` has every setting that holds for it, whoever set it; `moved` is a slot that a person moved, and
    to when."""

    spec: JobSpec
    past: Past = Past()
    paused_until: datetime | None = None
    moved: tuple[datetime, datetime] | None = None
    earlier: tuple[Earlier, ...] = ()

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

    def over(self, other: Cast) -> Cast:
        """This cast laid over another: who is in both is as here, with the past that either knows."""
        mine = self.with_past_of(other)
        parts = {part.name: part for part in (*other.parts, *mine.parts)}
        return Cast(
            tuple(parts[name] for name in sorted(parts)),
            {**other.pools, **self.pools},
            self.slots if self.slots is not None else other.slots,
            tuple(dict.fromkeys((*self.modules, *other.modules))),
            other.knows_pools,
        )

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
    specs = sorted(app.specs(), key=lambda spec: spec.name)
    parts = tuple(Part(replace(spec, settings={**app.defaults, **spec.settings})) for spec in specs)
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
    pools = {str(row[0]): int(row[1]) for row in await service.store.select(_POOLS)} if sees_all else {}
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
    offset: int | None = 0
    while offset is not None:
        page = call("list_jobs", offset=offset, limit=_AT_ONCE, outcomes=LATEST)
        for job in page.jobs:
            past = _past((each.state, each.duration_seconds) for each in job.outcomes or ())
            parts.append(_told(call("get_job", name=job.name), past))
        offset = page.next_offset
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
    earlier = tuple(Earlier(stage.until, stage.schedule, stage.window) for stage in record.former)
    spec = _with_settings(definition.spec, definition.settings, definition.task_settings)
    return Part(replace(spec, state=record.state), past, record.paused_until, moved, earlier)


def _told(whole: Any, past: Past) -> Part:
    """A job as a server tells it."""
    try:
        spec = read_job_table(whole.name, whole.definition)
    except InvalidJobFile:
        # What no table can say is told as it is kept.
        spec = JobSpec.from_dict(whole.definition)
    moved = None
    if whole.moved is not None:
        moved = parse_instant(whole.moved.slot), parse_instant(whole.moved.to)
    until = None if whole.paused_until is None else parse_instant(whole.paused_until)
    try:
        settings = settings_from_dict(whole.settings)
    except HoraeError:
        settings = spec.effective()
    return Part(replace(_with_settings(spec, settings, ()), state=JobState(whole.state)), past, until, moved)


def _with_settings(spec: JobSpec, settings: Settings, of_tasks: Sequence[Settings]) -> JobSpec:
    """The job with everything that holds for it said by itself: nobody's defaults are under it any more."""
    tasks = spec.tasks
    if of_tasks:
        tasks = tuple(
            replace(task, settings={name: getattr(own, name) for name in sorted(TASK_SETTINGS)})
            for task, own in zip(spec.tasks, of_tasks, strict=True)
        )
    return replace(spec, tasks=tasks, settings={name: getattr(settings, name) for name in _EACH})
