"""A cache of compiled definitions. A version never changes, so an entry stays valid while the process lives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from horae.core.access import LOCAL_NAME
from horae.core.change.succession import Stage
from horae.core.job import ids
from horae.core.job.definition import JobSpec, Settings, continuing_positions, effective, parse_settings
from horae.core.job.outline import READ_ERRORS, outlined_needs, outlined_settings, outlined_tasks
from horae.core.job.requirements import UNREADABLE, needs
from horae.core.run.progress import first_starts
from horae.core.schedule.custom import ScheduleLike, load_custom_schedules
from horae.core.schedule.schedules import Once
from horae.errors import HoraeError, InvalidDefinition, shown
from horae.store.catalog.row_codec import length, milliseconds, moment, payload_text, required
from horae.store.driver import Row, Transaction
from horae.store.records import AttemptStart, Definition, JobRecord

MOST_CACHED = 200_000
MOST_RECORDS = 2_000
MOST_CACHED_SETTINGS = 2_000


def build(spec: JobSpec, version: int, defaults: Mapping[str, Any], former: tuple[Stage, ...] = ()) -> Definition:
    """Builds a definition with its effective settings: the scheduler's defaults, then the job's, then the task's."""
    settings = _worked_out.settings(defaults, spec.settings)
    tasks = tuple(
        effective(defaults, spec.settings, task.settings) if task.settings else settings for task in spec.tasks
    )
    handlers = needs(spec.tasks[0]) if len(spec.tasks) == 1 else frozenset[str]().union(*map(needs, spec.tasks))
    return Definition(spec, version, settings, tasks, handlers, continuing_positions(spec.tasks), former)


def unreadable(
    name: str,
    version: int,
    fault: str,
    tasks: Sequence[str],
    namespace: str,
    owner: str | None,
    texts: tuple[str | None, str | None] = (None, None),
) -> Definition:
    """Builds a stand-in for a version whose definition cannot be read here, so that only its job is affected.

    `texts` are the definition and the defaults as they are stored.
    """
    known = outlined_tasks(texts[0], tasks)
    kept = None if owner == LOCAL_NAME else owner
    spec = JobSpec(name, None, known, outlined_settings(*texts), namespace=namespace, owner=kept)
    return replace(build(spec, version, {}), fault=fault, stored_needs=outlined_needs(texts[0]))


def check_batch(specs: Sequence[JobSpec]) -> None:
    """Raises InvalidDefinition for what can be refused without reading the catalog."""
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


class _SettingsCache:
    """Caches effective settings by the identity of their inputs: jobs that are defined together mostly share those."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Mapping[str, Any], Mapping[str, Any], Settings]] = {}

    def settings(self, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Settings:
        key = (id(defaults), id(given))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_CACHED_SETTINGS:
                self._known.clear()
            # The entry keeps the objects alive, so that no other object can have the same id.
            found = self._known[key] = (defaults, given, effective(defaults, given))
        return found[2]


_worked_out = _SettingsCache()


class CompiledDefinition:
    """A definition with the values that the hot paths need of it, computed once."""

    __slots__ = (
        "definition", "first_rows", "handlers", "job_uuid", "payload", "plain", "pooled", "positions", "requires",
        "rhythm", "schedule", "settings", "settles_plain", "since", "starts", "task_names", "timeout",
    )  # fmt: skip

    def __init__(self, job_uuid: str, definition: Definition, rhythm: object) -> None:
        """`rhythm` is one object for all definitions with equal schedule, misfire grace and deadline."""
        settings, spec = definition.settings, definition.spec
        self.job_uuid = job_uuid
        self.definition = definition
        self.settings = settings
        self.schedule = definition.schedule
        self.since = milliseconds(definition.former[-1].until) if definition.former else None
        """Earlier versions decide scheduled times up to this moment, in milliseconds. Later ones are this version's."""
        self.handlers = definition.handlers
        self.requires = required(definition.handlers if definition.fault is None else definition.stored_needs)
        self.task_names = tuple(task.name for task in spec.tasks)
        self.positions = first_starts(len(spec.tasks), settings.mode)
        self.starts = tuple(AttemptStart(position, 1) for position in self.positions)
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
    """Compiled definitions by job and version. Where there are too many, the oldest entries are dropped."""

    def __init__(self, find: Callable[[str], ScheduleLike | None] | None = None) -> None:
        """`find` returns the schedule for a custom schedule's import path, or None where this process has none."""
        self.find = find
        self.known: dict[tuple[str, int], CompiledDefinition] = {}
        self.faulty: dict[tuple[str, int], str] = {}
        """Versions that could not be read, with the reason. Every `load` and every sweep reads them again. Statements
        that claim runs skip the runs of these versions."""
        self.records: dict[str, tuple[Row, JobRecord]] = {}
        """The last record built for each job, with the row that it was built from."""
        self._rhythms: dict[object, object] = {}

    def put(self, job_uuid: str, definition: Definition) -> CompiledDefinition:
        settings, schedule = definition.settings, definition.schedule
        rhythm = (schedule, settings.misfire_grace, settings.deadline)
        if len(self._rhythms) > MOST_CACHED:
            self._rhythms.clear()
        compiled = CompiledDefinition(job_uuid, definition, self._rhythms.setdefault(rhythm, rhythm))
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

    def get(self, job_uuid: str, version: int) -> CompiledDefinition | None:
        return self.known.get((job_uuid, version))

    def faulty_text(self) -> str | None:
        """The versions that cannot be read here, as a statement parameter."""
        return json.dumps(sorted(self.faulty)) if self.faulty else None

    async def load(self, transaction: Transaction, wanted: Iterable[tuple[str, int]]) -> None:
        """Reads the `wanted` versions that are not cached. Afterwards `self[…]` has all of them, with stand-ins for
        those that cannot be read or do not exist."""
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
            # Only the schedules and windows of these are used, so the versions before them are not read.
            read |= self._read_all(rows, faults)
        for key in missing:
            if key in read:
                spec, level = read[key]
                stages = tuple(
                    self._stage(read, (key[0], version), until)
                    for version, until in former.get(key, ())
                    # Where an earlier version cannot be read, its remaining scheduled times are lost.
                    if (key[0], version) in read or (key[0], version) in self.known
                )
                self.put(key[0], build(spec, key[1], level, stages))
        lost = [key for key in missing if key not in read]
        if lost:
            await self._stand_in(transaction, lost, faults, texts)

    async def review(self, transaction: Transaction) -> None:
        """Reads versions again that could not be read, and drops those that no job and no active run uses."""
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
        """Caches a stand-in for each version that cannot be read, from its job's other rows and what its text still
        shows."""
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
        """Returns the definitions that can be read, and adds to `faults` why the others cannot."""
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
        """Returns the earlier versions that each version in `read` took over from, and until when each of them counts,
        in milliseconds. A version whose list cannot be read is moved from `read` to `faults`."""
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
            spec = replace(spec, schedule=load_custom_schedules(spec.schedule, self.find))
        return spec, {} if row[3] is None else parse_settings(json.loads(row[3]))

    def _stage(
        self, read: Mapping[tuple[str, int], tuple[JobSpec, Mapping[str, Any]]], key: tuple[str, int], until: int
    ) -> Stage:
        if key in read:
            spec, level = read[key]
            return Stage(key[1], moment(until), spec.schedule, effective(level, spec.settings).window)
        known = self.known[key].definition
        return Stage(key[1], moment(until), known.spec.schedule, known.settings.window)

    async def one(self, transaction: Transaction, job_uuid: str, version: int) -> CompiledDefinition:
        await self.load(transaction, [(job_uuid, version)])
        return self.known[job_uuid, version]

    def __getitem__(self, key: tuple[str, int]) -> CompiledDefinition:
        return self.known[key]
