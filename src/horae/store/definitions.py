"""Definitions, compiled once: versions never change, so what was read stays true for as long as the process lives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from horae.core import ids
from horae.core.custom import Schedules, loaded
from horae.core.job import JobSpec, Settings, effective, parse_settings, spared
from horae.core.needs import needs
from horae.core.progress import first_starts
from horae.core.schedule import Once
from horae.core.succession import Stage
from horae.errors import InvalidDefinition, shown
from horae.store.driver import Row, Transaction
from horae.store.records import Definition, JobRecord, Start
from horae.store.rows import length, milliseconds, moment, payload_text, required

MOST_CACHED = 200_000
MOST_RECORDS = 2_000
MOST_WORKED_OUT = 2_000


def build(spec: JobSpec, version: int, defaults: Mapping[str, Any], former: tuple[Stage, ...] = ()) -> Definition:
    """A definition with its effective settings: scheduler, then job, then task."""
    settings = _worked_out.settings(defaults, spec.settings)
    tasks = tuple(
        effective(defaults, spec.settings, task.settings) if task.settings else settings for task in spec.tasks
    )
    handlers = needs(spec.tasks[0]) if len(spec.tasks) == 1 else frozenset[str]().union(*map(needs, spec.tasks))
    return Definition(spec, version, settings, tasks, handlers, spared(spec.tasks), former)


def check_batch(specs: Sequence[JobSpec]) -> None:
    """What can be refused without looking at the catalog."""
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise InvalidDefinition(f"Job {shown(spec.name)} is defined twice in one call", hint="Keep one of them.")
        names.add(spec.name)
        if not spec.tasks:
            raise InvalidDefinition(f"Job {shown(spec.name)} has no task", hint="Give it at least one.")
        payload_text(spec.name, spec.payload)


class _WorkedOut:
    """Settings by the very objects they were worked out from: of many jobs defined together, most share theirs."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Mapping[str, Any], Mapping[str, Any], Settings]] = {}

    def settings(self, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Settings:
        key = (id(defaults), id(given))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_WORKED_OUT:
                self._known.clear()
            # The objects are kept with their answer: as long as they live, nothing else has their address.
            found = self._known[key] = (defaults, given, effective(defaults, given))
        return found[2]


_worked_out = _WorkedOut()


class Compiled:
    """A definition with what the hot paths need of it, worked out once."""

    __slots__ = (
        "definition", "first_rows", "handlers", "job_uuid", "payload", "plain", "pooled", "positions", "requires",
        "rhythm", "schedule", "settings", "settles_plain", "since", "starts", "task_names", "timeout",
    )  # fmt: skip

    def __init__(self, job_uuid: str, definition: Definition, rhythm: object) -> None:
        """`rhythm` is one object for all definitions with equal schedule, grace and deadline."""
        settings, spec = definition.settings, definition.spec
        self.job_uuid = job_uuid
        self.definition = definition
        self.settings = settings
        self.schedule = definition.schedule
        self.since = milliseconds(definition.former[-1].until) if definition.former else None
        """Up to when earlier versions speak: slots after that are all this one's."""
        self.handlers = definition.handlers
        self.requires = required(definition.handlers)
        self.task_names = tuple(task.name for task in spec.tasks)
        self.positions = first_starts(len(spec.tasks), settings.mode)
        self.starts = tuple(Start(position, 1) for position in self.positions)
        self.timeout = length(settings.execution_timeout)
        self.pooled = settings.pool is not None or settings.max_concurrent is not None
        self.payload = payload_text(spec.name, spec.payload)
        self.plain = settings.window is None and spec.schedule is not None and not spec.depends_on and not self.pooled
        self.first_rows = tuple(
            (position, name, int(position in self.positions)) for position, name in enumerate(self.task_names)
        )
        self.rhythm = rhythm
        self.settles_plain = (
            len(spec.tasks) == 1
            and spec.tasks[0].kind == "PYTHON"
            and settings.recovery != "compressed"
            and not isinstance(spec.schedule, Once)
        )

    @property
    def task_uuids(self) -> tuple[Any, ...]:
        job = ids.job_uuid(self.definition.spec.name)
        return tuple(ids.task_uuid(job, name) for name in self.task_names)


class DefinitionCache:
    """Compiled definitions by job and version; of too many, those known longest are forgotten."""

    def __init__(self, find: Callable[[str], Schedules | None] | None = None) -> None:
        """`find` gives the schedule behind a custom one's import path, None where this process has none."""
        self.find = find
        self.known: dict[tuple[str, int], Compiled] = {}
        self.records: dict[str, tuple[Row, JobRecord]] = {}
        """What was told of jobs last, with the rows that said so."""
        self._rhythms: dict[object, object] = {}

    def put(self, job_uuid: str, definition: Definition) -> Compiled:
        settings, schedule = definition.settings, definition.schedule
        rhythm = (schedule, settings.misfire_grace, settings.deadline)
        if len(self._rhythms) > MOST_CACHED:
            self._rhythms.clear()
        compiled = Compiled(job_uuid, definition, self._rhythms.setdefault(rhythm, rhythm))
        self.known[job_uuid, definition.version] = compiled
        if len(self.known) > MOST_CACHED:
            del self.known[next(iter(self.known))]
        return compiled

    def keep_record(self, row: Row, record: JobRecord) -> None:
        self.records[row[0]] = row, record
        if len(self.records) > MOST_RECORDS:
            del self.records[next(iter(self.records))]

    def get(self, job_uuid: str, version: int) -> Compiled | None:
        return self.known.get((job_uuid, version))

    async def load(self, transaction: Transaction, wanted: Iterable[tuple[str, int]]) -> None:
        """Reads those of `wanted` that are not known yet; afterwards `self[…]` has all that exist."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self.known]
        if not missing:
            return
        rows = await transaction.rows("load_versions", wanted=json.dumps(missing))
        read = {(row[0], row[1]): self._read(row) for row in rows}
        former = {(row[0], row[1]): json.loads(row[4]) for row in rows if row[4] is not None}
        earlier = {(uuid, other) for (uuid, _), pairs in former.items() for other, _ in pairs}
        unread = sorted(key for key in earlier if key not in read and key not in self.known)
        if unread:
            rows = await transaction.rows("load_versions", wanted=json.dumps(unread))
            # Of these only the slots are asked: which versions they took over from is past.
            read |= {(row[0], row[1]): self._read(row) for row in rows}
        for key in missing:
            if key in read:
                spec, level = read[key]
                stages = tuple(self._stage(read, (key[0], version), until) for version, until in former.get(key, ()))
                self.put(key[0], build(spec, key[1], level, stages))

    def _read(self, row: Row) -> tuple[JobSpec, Mapping[str, Any]]:
        spec = JobSpec.from_dict(json.loads(row[2]))
        if self.find is not None and spec.schedule is not None:
            spec = replace(spec, schedule=loaded(spec.schedule, self.find))
        return spec, {} if row[3] is None else parse_settings(json.loads(row[3]))

    def _stage(
        self, read: Mapping[tuple[str, int], tuple[JobSpec, Mapping[str, Any]]], key: tuple[str, int], until: int
    ) -> Stage:
        if key in read:
            spec, level = read[key]
            return Stage(key[1], moment(until), spec.schedule, effective(level, spec.settings).window)
        known = self.known[key].definition
        return Stage(key[1], moment(until), known.spec.schedule, known.settings.window)

    async def one(self, transaction: Transaction, job_uuid: str, version: int) -> Compiled:
        await self.load(transaction, [(job_uuid, version)])
        return self.known[job_uuid, version]

    def __getitem__(self, key: tuple[str, int]) -> Compiled:
        return self.known[key]
