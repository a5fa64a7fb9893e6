"""Operations that change a catalog, for Python, SQL, HTTP, the command line and the dashboard."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from time import time_ns
from typing import Any, TypeVar

from horae.core.access import Privilege
from horae.core.change.update_policy import Update
from horae.core.job import ids
from horae.core.job.definition import JobSpec, check_depth, job_not_found
from horae.core.job.ids import checked_name
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.schedules import Schedule
from horae.core.time.instant import FIRST, aware, instant, seconds_of
from horae.errors import Conflict, InvalidInput, StoreConflict, StoreUnavailable, VersionConflict, shown
from horae.security.access import AccessChecker, judged_version
from horae.store.protocols.store import Admission, AdmissionResult, DefinitionResult, JobRecord, Origin, Store
from horae.store.repeat import repeat_verb

Answer = TypeVar("Answer")
MOST_BACKFILLED = 100_000
ADMITTED_AT_ONCE = 500
BACKFILLED_AT_ONCE = 100
"""Runs of a backfill in one transaction. Other writers get their turn between two transactions."""
_WALKED_AT_ONCE = 1_000
_TRIES = 5
"""How often a change that names no version is tried, where other writers change the job meanwhile."""


class RunRef(str):
    """A run's id, with the state that the run had when it was requested. `fresh` is False where the key was known
    already."""

    state: RunState
    fresh: bool

    @classmethod
    def of(cls, admitted: AdmissionResult) -> RunRef:
        ref = cls(admitted.run_id)
        ref.state = admitted.state
        ref.fresh = admitted.fresh
        return ref

    @property
    def run_id(self) -> str:
        return str(self)


class StoreCaller:
    """Base of the services that call a store. An open gate counts as no gate.

    `alone`: each call is a transaction of its own, and is repeated where it lost against another. Calls that share a
    transaction can only be repeated all together.
    """

    def __init__(self, store: Store, gate: AccessChecker | None, *, alone: bool) -> None:
        self._store = store
        self._gate = None if gate is None or gate.is_open else gate
        self._alone = alone

    async def _asked(self, verb: Callable[[], Awaitable[Answer]]) -> Answer:
        return await (repeat_verb(verb) if self._alone else verb())


class Commands(StoreCaller):
    """Operations on the catalog, in the name of `by`. The gate checks each of them; without a gate, everything is
    allowed."""

    def __init__(
        self, store: Store, *, by: str = "local", gate: AccessChecker | None = None, alone: bool = True
    ) -> None:
        super().__init__(store, gate, alone=alone)
        self._by = by

    async def define(
        self,
        specs: Sequence[JobSpec],
        *,
        source: str = "code",
        defaults: Mapping[str, Any] | None = None,
        expected: Mapping[str, int] | None = None,
        reason: str | None = None,
        update: Update | None = None,
        keeps_state: Collection[str] = (),
    ) -> tuple[DefinitionResult, ...]:
        """Creates or changes jobs, all of them or none: see `Store.define`. A job without an expected version is
        defined again where another writer changed it meanwhile. Raises AccessDenied, VersionConflict, and the errors of
        `Store.define`."""
        said = expected or {}
        for left in reversed(range(_TRIES)):
            checked = said if self._gate is None else await self._checked(self._gate, specs, said, defaults or {})

            def define(checked: Mapping[str, int] = checked) -> Awaitable[tuple[DefinitionResult, ...]]:
                return self._store.define(
                    specs,
                    by=self._by,
                    source=source,
                    defaults=defaults,
                    expected=checked or None,
                    reason=reason,
                    update=update,
                    keeps_state=keeps_state,
                )

            try:
                return await self._asked(define)
            except VersionConflict as error:
                # A caller that names no version accepts any, also one that another writer has just created.
                if error.name in said or not left:
                    raise
                if not self._alone:
                    # Nothing of this transaction can be kept: the caller repeats all of it.
                    raise StoreConflict(error.message) from error
        raise AssertionError("there is a last try")

    async def _checked(
        self, gate: AccessChecker, specs: Sequence[JobSpec], said: Mapping[str, int], defaults: Mapping[str, Any]
    ) -> Mapping[str, int]:
        """Checks that the caller may define all these jobs, and returns the versions that the check judged. Only these
        versions are changed, whatever the caller expects: another writer could create a version after the check, and
        give the job to another owner. Raises AccessDenied, VersionConflict."""
        present = {job.name: job for job in await self._store.jobs([spec.name for spec in specs])}
        checked: dict[str, int] = {}
        for spec in specs:
            # Without a job to judge, a caller who wants a new one gets VersionConflict for an existing name, and not
            # AccessDenied for another's job.
            is_new = said.get(spec.name) == 0
            job = None if is_new else present.get(spec.name)
            await gate.define(spec, job, defaults=defaults)
            checked[spec.name] = judged_version(spec, job, said.get(spec.name))
        return checked

    async def _may(self, privilege: Privilege, name: str, action: str) -> None:
        if self._gate is not None:
            job = await self._job(name)
            await self._gate.require(privilege, name, owner=job.owner, action=action)

    async def _may_touch(self, run_id: str, action: str) -> None:
        """Checks that the caller may execute the run's job. Raises AccessDenied, RunNotFound."""
        if self._gate is not None:
            history = await self._asked(lambda: self._store.history(run_id))
            await self._may(Privilege.EXECUTE_JOB, history.record.job_name, action)

    async def trigger(self, name: str, payload: Any = None, key: str | None = None) -> RunRef:
        """Creates a run that is due now, beside the schedule. The same key always returns the same run. Raises
        JobNotFound, AccessDenied."""
        request = await self._request(name, payload, key)
        return await self._asked(lambda: self._admit(request))

    async def trigger_many(self, requests: Iterable[Sequence[Any]]) -> tuple[RunRef, ...]:
        """Creates runs of several jobs in one transaction, all of them or none. Each request is `(name, payload, key)`
        as for `trigger`; payload and key may be left out. Returns the runs in the order of the requests."""
        asked: list[Admission] = []
        for number, each in enumerate(requests):
            if isinstance(each, str | bytes) or not isinstance(each, Sequence) or not 1 <= len(each) <= 3:
                raise InvalidInput(
                    f"Invalid request {number}: {shown(each)}",
                    hint="Write (name, payload, key); only the name must be.",
                )
            asked.append(await self._request(*each))
        found = await self._asked(lambda: self._store.admit(asked)) if asked else ()
        return tuple(RunRef.of(each) for each in found)

    async def _request(self, name: str, payload: Any = None, key: str | None = None) -> Admission:
        check_depth(payload, f"payload for job {shown(name)}")
        await self._may(Privilege.EXECUTE_JOB, name, "run it")
        if payload is not None and self._gate is not None:
            await self._gate.require_owner(name, "run it with another payload")
        if key is None:
            # With a generated key, a repeat after a lost answer returns the same run.
            key = str(ids.uuid7(time_ns() // 1_000_000, os.urandom(10)))
        return Admission(name, Origin.TRIGGER, self._by, key=checked_name(key, "key"), payload=payload)

    async def pause(self, name: str, until: datetime | None = None, note: str | None = None) -> None:
        """Pauses a job: its scheduled times are recorded as SKIPPED until it is resumed or `until` has come. Raises
        Conflict for a disabled job, InvalidInput where `until` has passed."""
        end = None if until is None else aware(until, "until")
        ids.checked_text(note, "note")
        await self._may(Privilege.ALTER_JOB, name, "pause it")
        if end is not None and end <= await self._store.now():
            raise InvalidInput(
                f"Job {shown(name)} cannot be paused until {shown(end)}, which has passed", hint="Give a time to come."
            )
        before = await self._set_state(name, JobState.PAUSED, JobState.ENABLED, JobState.PAUSED, until=end, note=note)
        if before is JobState.DISABLED:
            raise Conflict(f"Job {shown(name)} is disabled: there is nothing to pause", hint="Enable it first.")

    async def resume(self, name: str) -> None:
        """Ends a pause. Raises Conflict for a disabled job."""
        await self._may(Privilege.ALTER_JOB, name, "resume it")
        if await self._set_state(name, JobState.ENABLED, JobState.PAUSED) is JobState.DISABLED:
            raise Conflict(f"Job {shown(name)} is disabled, not paused", hint="Enable it instead.")

    async def enable(self, name: str) -> None:
        """Enables a paused or disabled job."""
        await self._may(Privilege.ALTER_JOB, name, "enable it")
        await self._set_state(name, JobState.ENABLED, JobState.PAUSED, JobState.DISABLED)

    async def disable(self, name: str) -> None:
        """Disables an enabled or paused job."""
        await self._may(Privilege.ALTER_JOB, name, "disable it")
        await self._set_state(name, JobState.DISABLED, JobState.ENABLED, JobState.PAUSED)

    async def _set_state(
        self, name: str, state: JobState, *among: JobState, until: datetime | None = None, note: str | None = None
    ) -> JobState:
        """Sets the state of a job that is in one of the states `among`. Returns the state that the job had."""
        ids.checked_name(name)
        return await self._asked(
            lambda: self._store.set_state(name, state, until=until, note=note, among=among, by=self._by)
        )

    async def reschedule(self, name: str, at: datetime) -> datetime:
        """Moves the next scheduled time to `at`, and no other. Returns the original scheduled time, which stays the
        run's identity."""
        moment = aware(at, "at")
        for privilege in (Privilege.ALTER_JOB, Privilege.EXECUTE_JOB):
            # To choose when a job runs is to run it.
            await self._may(privilege, name, "move its next run")
        return await self._asked(lambda: self._store.reschedule(name, moment, by=self._by))

    async def drop(self, name: str, keep_history: bool = False) -> None:  # noqa: FBT001, FBT002 - the public signature
        await self.drop_all([name], keep_history=keep_history)

    async def drop_all(self, names: Sequence[str], *, keep_history: bool = False) -> int:
        """Drops jobs, all of them or none. Returns their number."""
        for name in names:
            await self._may(Privilege.DROP_JOB, name, "drop it")
        return await self._asked(lambda: self._store.drop(names, keep_history=keep_history, by=self._by))

    async def cancel(self, run_id: str, reason: str = "cancelled") -> RunState:
        """Ends a run that has not started, or asks a running one to stop. Returns the run's state after that."""
        ids.checked_text(reason, "reason")
        await self._may_touch(str(run_id), "cancel its runs")
        states = await self._asked(lambda: self._store.cancel([str(run_id)], by=self._by, reason=reason))
        return states[0]

    async def replay(self, run_id: str, reason: str, task: str | None = None, *, onwards: bool = False) -> RunRef:
        """Creates a run that does again what an old run did. With `task` it does only that task, with `onwards` also
        all tasks after it; the other tasks keep their results of the old run. Raises InvalidInput for a missing reason,
        or for `onwards` without a task."""
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidInput("A replay needs a reason", hint="Say why, for whoever reads the history.")
        ids.checked_text(reason, "reason")
        await self._may_touch(str(run_id), "replay its runs")
        history = await self._asked(lambda: self._store.history(str(run_id)))
        tasks: tuple[str, ...] | None = None if task is None else (task,)
        if onwards:
            if task is None:
                raise InvalidInput("A replay goes onwards from a task, and none is named", hint="Name it: task=…")
            # A run that never started has no task runs yet: the tasks of the job's definition count.
            names = [each.name for each in history.tasks]
            names = names or [each.name for each in (await self._job(history.record.job_name)).definition.tasks]
            tasks = tuple(names[names.index(task) :]) if task in names else tasks
        return await self._admit(
            Admission(
                history.record.job_name, Origin.REPLAY, self._by, replay_of=str(run_id), tasks=tasks, reason=reason
            )
        )

    async def backfill(self, name: str, start: datetime, end: datetime) -> tuple[RunRef, ...]:
        """Creates a run for each scheduled time from `start` to `end` (at most now) that no scheduled run has started
        for, the oldest first. Raises InvalidInput where the range is empty or to come, where the job has no schedule,
        and for more than MOST_BACKFILLED runs."""
        first, last = aware(start, "start"), aware(end, "end")
        if first > last:
            raise InvalidInput(
                f"Nothing lies between {shown(first)} and {shown(last)}", hint="Give the earlier one first."
            )
        await self._may(Privilege.EXECUTE_JOB, name, "backfill it")
        job = await self._job(name)
        schedule = job.schedule
        job.definition.check_readable()
        if schedule is None:
            raise InvalidInput(f"Job {shown(name)} has no schedule to take slots from", hint="Trigger it instead.")
        now = await self._asked(self._store.now)
        if first > now:
            raise InvalidInput(
                f"Nothing has passed since {shown(first)}, which is to come",
                hint="Backfill takes past slots of the schedule; those to come run by themselves.",
            )
        slots = await self._open_slots(name, schedule, first, min(last, now))
        found: list[RunRef] = []
        for index in range(0, len(slots), BACKFILLED_AT_ONCE):
            batch = [
                Admission(name, Origin.BACKFILL, self._by, scheduled_time=slot)
                for slot in slots[index : index + BACKFILLED_AT_ONCE]
            ]
            admitted = await self._asked(lambda batch=batch: self._store.admit(batch))  # type: ignore[misc]  # mypy: bound
            found += [RunRef.of(each) for each in admitted]
            await asyncio.sleep(0)
        return tuple(found)

    async def _open_slots(self, name: str, schedule: Schedule, first: datetime, last: datetime) -> list[datetime]:
        """Returns the scheduled times from `first` to `last` that no scheduled run has started for."""
        begun = await self._started_slots(name, first)
        found: list[datetime] = []
        for walked, slot in enumerate(_slots_from(schedule, first, last), start=1):
            if slot not in begun:
                found.append(slot)
            if len(found) > MOST_BACKFILLED:
                raise InvalidInput(
                    f"More than {MOST_BACKFILLED} slots lie between {shown(first)} and {shown(last)}",
                    hint="Backfill a shorter span at a time.",
                )
            if not walked % _WALKED_AT_ONCE:
                await asyncio.sleep(0)
        return found

    async def _started_slots(self, name: str, first: datetime) -> set[datetime]:
        """Returns the scheduled times from `first` on that a scheduled run has started for."""
        begun: set[datetime] = set()
        before: str | None = None
        earliest = instant(max(seconds_of(first) - 2 * 86_400, FIRST))
        while True:
            page = await self._store.runs(job=name, before=before, limit=1000)
            begun |= {
                run.scheduled_time for run in page if run.started_at is not None and run.origin is Origin.SCHEDULE
            }
            # Runs come newest first, and no run is created more than a window before its scheduled time.
            if len(page) < 1000 or page[-1].created_at < earliest:
                return begun
            before = page[-1].run_id

    async def _admit(self, request: Admission) -> RunRef:
        while True:
            with suppress(*[StoreConflict] if self._alone else []):
                return RunRef.of((await self._store.admit([request]))[0])
            await asyncio.sleep(0)

    async def _job(self, name: str) -> JobRecord:
        found = await self._asked(lambda: self._store.jobs([name]))
        if not found:
            raise job_not_found(name)
        return found[0]


_Requested = tuple[JobSpec, int | None, asyncio.Future[DefinitionResult]]
"""A definition, the version that the caller expects (None: any), and the future that the caller awaits."""


class DefinitionBatcher:
    """Writes definitions that many callers request at once together: thousands of jobs from as many web requests."""

    def __init__(self, commands: Commands, defaults: Mapping[str, Any] | None) -> None:
        self._commands = commands
        self._defaults = defaults
        self._waiting: list[_Requested] = []
        self._writing: asyncio.Task[None] | None = None

    async def define(self, spec: JobSpec, expected: int | None = None) -> DefinitionResult:
        """Defines one job. `expected` is the version that the caller has read, 0 for a new job, None for any. Raises as
        `Commands.define`."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[DefinitionResult] = loop.create_future()
        self._waiting.append((spec, expected, answer))
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write())
        return await answer

    async def _write(self) -> None:
        while self._waiting:
            batch, rest = {}, []
            for one in self._waiting[:ADMITTED_AT_ONCE]:
                # Two definitions of the same name are two changes, one after the other.
                if one[0].name in batch:
                    rest.append(one)
                else:
                    batch[one[0].name] = one
            self._waiting = [*rest, *self._waiting[ADMITTED_AT_ONCE:]]
            await self._define(list(batch.values()))

    async def _define(self, batch: list[_Requested]) -> None:
        expected = {spec.name: version for spec, version, _ in batch if version is not None}
        try:
            defined = await self._commands.define(
                [spec for spec, _, _ in batch], source="schedule", defaults=self._defaults, expected=expected
            )
        except StoreUnavailable as error:
            _fail(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - the caller gets it; the other callers must not
            if len(batch) > 1:
                # One definition is at fault. Each is written alone, so that only its caller gets the error.
                for one in batch:
                    await self._define([one])
            else:
                _fail(batch, error)
            return
        except BaseException:
            _fail(batch, Conflict("The definition was not written: the loop is ending"))
            raise
        for (_, _, answer), each in zip(batch, defined, strict=True):
            if not answer.done():
                answer.set_result(each)


def _slots_from(schedule: Schedule, first: datetime, last: datetime) -> Iterator[datetime]:
    """Returns the scheduled times from `first` to `last`, both included."""
    before = instant(max(seconds_of(first) - 1, FIRST))
    return (slot for slot in schedule.between(before, last) if slot >= first)


def _fail(batch: Sequence[_Requested], error: Exception) -> None:
    for _, _, answer in batch:
        if not answer.done():
            answer.set_exception(error)
