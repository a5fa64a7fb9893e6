"""Definitions, compiled once: versions never change, so what was read stays true for as long as the process lives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from horae.core import ids
from horae.core.access import LOCAL_NAME
from horae.core.custom import Schedules, loaded
from horae.core.job import JobSpec, Settings, effective, parse_settings, spared
from horae.core.needs import UNREADABLE, needs
from horae.core.outline import READ_ERRORS, outlined_needs, outlined_settings, outlined_tasks
from horae.core.progress import first_starts
from horae.core.schedule import Once
from horae.core.succession import Stage
from horae.errors import HoraeError, InvalidDefinition, shown
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


def unreadable(
    name: str,
    version: int,
    fault: str,
    tasks: Sequence[str],
    namespace: str,
    owner: str | None,
    texts: tuple[str | None, str | None] = (None, None),
) -> Definition:
    """Stands for a version whose definition cannot be read here, so that it costs one job and not the catalog.

    `texts` are the definition and the defaults as they are stored.
    """
    known = outlined_tasks(texts[0], tasks)
    kept = None if owner == LOCAL_NAME else owner
    spec = JobSpec(name, None, known, outlined_settings(*texts), namespace=namespace, owner=kept)
    return replace(build(spec, version, {}), fault=fault, stored_needs=outlined_needs(texts[0]))


def check_batch(specs: Sequence[JobSpec]) -> None:
    """What can be refused without looking at the catalog."""
    names: set[str] = set()
    for spec in specs:
        if any(task.handler == UNREADABLE for task in spec.tasks):
            raise InvalidDefinition(
                f"The present definition of job {shown(spec.name)} cannot be read, so no part of it can be changed",
                hint="Define the whole job anew, or drop it.",
            )
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
        self.requires = required(definition.handlers if definition.fault is None else definition.stored_needs)
        self.task_names = tuple(task.name for task in spec.tasks)
        self.positions = first_starts(len(spec.tasks), settings.mode)
        self.starts = tuple(Start(position, 1) for position in self.positions)
        self.timeout = length(settings.execution_timeout)
        self.pooled = settings.pool is not None or settings.max_concurrent is not None
        self.payload = payload_text(spec.name, spec.payload)
        compressed = settings.recovery == "compressed"
        alone = settings.window is None and not spec.depends_on and not self.pooled and not compressed
        self.plain = alone and spec.schedule is not None
        self.first_rows = tuple(
            (position, name, int(position in self.positions)) for position, name in enumerate(self.task_names)
        )
        self.rhythm = rhythm
        self.settles_plain = (
            len(spec.tasks) == 1
            and spec.tasks[0].kind == "PYTHON"
            and not compressed
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
        self.faulty: dict[tuple[str, int], str] = {}
        """Versions that could not be read, and why: they are read again whenever somebody asks, and at each sweep.
        Statements that claim runs pass over those of these versions."""
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
        if definition.fault is not None:
            self.faulty[job_uuid, definition.version] = definition.fault
        else:
            self.faulty.pop((job_uuid, definition.version), None)
        if len(self.known) > MOST_CACHED:
            del self.known[next(iter(self.known))]
        return compiled

    def keep_record(self, row: Row, record: JobRecord) -> None:
        self.records[row[0]] = row, record
        if len(self.records) > MOST_RECORDS:
            del self.records[next(iter(self.records))]

    def get(self, job_uuid: str, version: int) -> Compiled | None:
        return self.known.get((job_uuid, version))

    def faulty_text(self) -> str | None:
        """The versions that cannot be read here, as statements take them."""
        return json.dumps(sorted(self.faulty)) if self.faulty else None

    async def load(self, transaction: Transaction, wanted: Iterable[tuple[str, int]]) -> None:
        """Reads those of `wanted` that are not known yet; afterwards `self[…]` has all that exist."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self.known or key in self.faulty]
        if not missing:
            return
        faults: dict[tuple[str, int], str] = {}
        rows = await transaction.rows("load_versions", wanted=json.dumps(missing))
        texts = {(row[0], row[1]): (row[2], row[3]) for row in rows}
        read = self._read_all(rows, faults)
        former = self._former(rows, read, faults)
        earlier = {(uuid, other) for (uuid, _), pairs in former.items() for other, _ in pairs}
        unread = sorted(key for key in earlier if key not in read and key not in self.known)
        if unread:
            rows = await transaction.rows("load_versions", wanted=json.dumps(unread))
            # Of these only the slots are asked: which versions they took over from is past.
            read |= self._read_all(rows, faults)
        for key in missing:
            if key in read:
                spec, level = read[key]
                stages = tuple(
                    self._stage(read, (key[0], version), until)
                    for version, until in former.get(key, ())
                    # What an earlier version still had to say is lost with it.
                    if (key[0], version) in read or (key[0], version) in self.known
                )
                self.put(key[0], build(spec, key[1], level, stages))
        lost = [key for key in missing if key not in read]
        if lost:
            await self._stand_in(transaction, lost, faults, texts)

    async def review(self, transaction: Transaction) -> None:
        """Reads versions again that could not be read, and forgets those that no job and no active run is of."""
        if not self.faulty:
            return
        rows = await transaction.rows("versions_in_use", wanted=json.dumps(sorted(self.faulty)))
        used = {(row[0], row[1]) for row in rows}
        for key in self.faulty.keys() - used:
            del self.faulty[key]
            self.known.pop(key, None)
        await self.load(transaction, sorted(used))

    async def _stand_in(
        self,
        transaction: Transaction,
        lost: Sequence[tuple[str, int]],
        faults: Mapping[tuple[str, int], str],
        texts: Mapping[tuple[str, int], tuple[str, str | None]],
    ) -> None:
        """Keeps for each version that cannot be read what the other tables say of its job, and what is left of it."""
        rows = await transaction.rows("read_outlines", jobs=sorted({uuid for uuid, _ in lost}))
        outlines = {uuid: (name, namespace, owner, json.loads(tasks)) for uuid, name, namespace, owner, tasks in rows}
        for uuid, version in lost:
            name, namespace, owner, tasks = outlines.get(uuid, (f"job {uuid}", "default", None, []))
            fault = faults.get((uuid, version), "the catalog has no such version")
            if self.faulty.get((uuid, version)) != fault or (uuid, version) not in self.known:
                text = texts.get((uuid, version), (None, None))
                self.put(uuid, unreadable(name, version, fault, tasks, namespace, owner, text))

    def _read_all(
        self, rows: Iterable[Row], faults: dict[tuple[str, int], str]
    ) -> dict[tuple[str, int], tuple[JobSpec, Mapping[str, Any]]]:
        """Those that can be read; `faults` is given why the others cannot."""
        read = {}
        for row in rows:
            try:
                spec, level = self._read(row)
                build(spec, row[1], level)
            except HoraeError as error:
                faults[row[0], row[1]] = error.message
            except READ_ERRORS as error:
                faults[row[0], row[1]] = f"{type(error).__name__}: {error}"
            else:
                read[row[0], row[1]] = spec, level
        return read

    def _former(
        self, rows: Iterable[Row], read: dict[tuple[str, int], Any], faults: dict[tuple[str, int], str]
    ) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """Which versions those that were read took over from, and until when each of them counts. Where that cannot be
        read, neither can the version: it is taken out of `read`."""
        former: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for row in rows:
            key = (row[0], row[1])
            if row[4] is None or key not in read:
                continue
            try:
                former[key] = [(int(version), milliseconds(moment(until))) for version, until in json.loads(row[4])]
            except READ_ERRORS as error:
                faults[key] = f"earlier versions: {type(error).__name__}: {error}"
                del read[key]
        return former

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
