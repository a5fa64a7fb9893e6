"""What the store contract's tests are written with: jobs in one line, a scene with a store, a clock and a node.

Every scene begins at 09:00 on a Monday, with one node joined. A run is told as one line, `09:01 SKIPPED overlap`: its
slot, its state, what it waits for in brackets, and the reason. Nothing here needs pytest: where a scenario does not
apply to a store, the standard library's SkipTest says so, which test runners understand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from unittest import SkipTest
from uuid import UUID, uuid4

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.ids import run_id
from horae.core.run.lifecycle import AttemptState, RunState
from horae.core.schedule.schedules import Cron, Schedule
from horae.errors import HoraeError
from horae.store.protocols.store import (
    Admission,
    AdmissionResult,
    AttemptEnd,
    AttemptStart,
    Capacity,
    Claim,
    CreationResult,
    DefinitionResult,
    JobRecord,
    Origin,
    RunHistory,
    RunRecord,
    Settlement,
    SettlementResult,
    Store,
    UnreportedRun,
)
from horae.testing.clock import ManualClock

BEGINNING = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
NODE = UUID("00000000-0000-4000-8000-000000000001")
OTHER = UUID("00000000-0000-4000-8000-000000000002")
THIRD = UUID("00000000-0000-4000-8000-000000000003")
MINUTELY = Cron("* * * * *")
HOURLY = Cron("0 * * * *")
SUCCESS, FAILED = AttemptState.SUCCESS, AttemptState.FAILED
CANCELLED, TIMEOUT = AttemptState.CANCELLED, AttemptState.TIMEOUT
_ALL = 100_000
Problem = TypeVar("Problem", bound=HoraeError)
Contracted = TypeVar("Contracted", bound="Contract")


def at(text: str, *, day: int = 2) -> datetime:
    """A time of the scene's day, written 09:01 or 09:01:30; `day` is the day of the month."""
    parts = [int(part) for part in text.split(":")]
    return BEGINNING.replace(day=day) + timedelta(hours=parts[0] - 9, minutes=parts[1], seconds=sum(parts[2:]))


def milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def job(
    name: str = "a", schedule: Schedule | None = MINUTELY, *, tasks: Sequence[Any] = ("work",), **given: Any
) -> JobSpec:
    """A job. What is no part of a JobSpec is a setting; tasks are names (their handlers too) or TaskSpecs."""
    parts = {part: given.pop(part) for part in tuple(given) if part in JobSpec.__dataclass_fields__}
    settings = {**given, **parts.pop("settings", {})}
    steps = tuple(task if isinstance(task, TaskSpec) else TaskSpec(task, handler=task) for task in tasks)
    return JobSpec(name, schedule, steps, settings, **parts)


def slot_id(name: str, slot: datetime) -> str:
    """The id the run of that slot must have, on every store."""
    return run_id(job(name).uuid, slot)


def ended(state: AttemptState = SUCCESS, position: int = 0, number: int = 1, **more: Any) -> AttemptEnd:
    return AttemptEnd(position, number, state, **more)


def told(run: RunRecord) -> str:
    """A run in one line: `09:01 PENDING (window)`, `09:02 MISSED deadline`."""
    slot = f"{run.scheduled_time:%H:%M:%S}".removesuffix(":00")
    waiting = f"({run.waiting_for})" if run.waiting_for else None
    return " ".join(part for part in (slot, str(run.state), waiting, run.reason) if part)


class Caught:
    """Where `raises` puts the error it caught."""

    error: Any = None


@contextmanager
def raises(kind: type[Problem]) -> Iterator[Caught]:
    """Fails unless the block raises `kind`; what it raised is in `.error` afterwards."""
    caught = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
    else:
        raise AssertionError(f"did not raise {kind.__name__}")


class Scene:
    """One store with one clock and one node, and the few moves that scenarios are made of."""

    def __init__(self, store: Store, clock: ManualClock, contract: Contract) -> None:
        self.store = store
        self.clock = clock
        self._contract = contract
        self._peers: list[Store] = []
        self._passed: list[UnreportedRun] = []

    async def begin(self) -> None:
        self.store.observe(self._passed.extend)
        await self.store.open()
        await self.store.join(NODE)

    async def end(self) -> None:
        for store in (*self._peers, self.store):
            await store.close()

    async def peer(self) -> Store | None:
        """A second store, opened on the same catalog; None where the store under test has none."""
        peer = self._contract.make_peer(self.store, self.clock)
        if peer is not None:
            await peer.open()
            self._peers.append(peer)
        return peer

    async def second(self) -> Store:
        """As `peer`, for a scenario that is about nothing else: it does not apply where there is none."""
        peer = await self.peer()
        if peer is None:
            raise SkipTest("there is no second store on the catalog of this one")
        return peer

    # ---- moves ---------------------------------------------------------------------------------------------------

    async def define(self, *specs: JobSpec, **options: Any) -> tuple[DefinitionResult, ...]:
        return await self.store.define(specs, **options)

    async def plan(self, slots: int = 0, handlers: frozenset[str] | None = None) -> CreationResult:
        """Plans; with slots, runs that may are born RUNNING on the scene's node."""
        return await self.store.create_due_runs(start=Capacity(str(NODE), slots, handlers) if slots else None)

    async def later(self, duration: str, slots: int = 0) -> CreationResult:
        """Lets time pass, then plans."""
        self.clock.advance(duration)
        return await self.plan(slots)

    async def until(self, text: str, slots: int = 0) -> CreationResult:
        """Lets it be that time, then plans."""
        self.clock.set(at(text))
        return await self.plan(slots)

    async def claim_runs(
        self, slots: int = 10, *, handlers: frozenset[str] | None = None, node: UUID = NODE
    ) -> tuple[Claim, ...]:
        return (await self.store.claim_runs(Capacity(str(node), slots, handlers))).claims

    async def claim(self, node: UUID = NODE) -> Claim:
        """The one run there is to be had."""
        (claim,) = await self.claim_runs(node=node)
        return claim

    async def settle(self, claim: Claim, *ends: AttemptEnd, node: UUID = NODE, **options: Any) -> SettlementResult:
        settlement = Settlement(claim.run_id, claim.run_no, claim.fence, ends, **options)
        (settled,) = await self.store.settle(node, (settlement,))
        return settled

    async def finish(self, claim: Claim, state: AttemptState = SUCCESS, *, node: UUID = NODE) -> SettlementResult:
        """Ends every attempt the claim began with in that state."""
        return await self.settle(claim, *(ended(state, *start) for start in claim.starts), node=node)

    async def run_once(self, state: AttemptState = SUCCESS) -> SettlementResult:
        """Takes the one run there is and ends it."""
        return await self.finish(await self.claim(), state)

    async def admit(self, name: str, origin: Origin, **options: Any) -> AdmissionResult:
        (admitted,) = await self.store.admit((Admission(name, origin, "ann", **options),))
        return admitted

    async def trigger(self, name: str = "a", key: str | None = None, **options: Any) -> AdmissionResult:
        return await self.admit(name, Origin.TRIGGER, key=key, **options)

    # ---- looks ---------------------------------------------------------------------------------------------------

    def passed(self) -> list[UnreportedRun]:
        """What the store has told, since the last time, of runs that no node reports."""
        found, self._passed[:] = list(self._passed), []
        return found

    async def job(self, name: str = "a") -> JobRecord:
        (record,) = await self.store.jobs((name,))
        return record

    async def runs(self, name: str | None = None) -> tuple[RunRecord, ...]:
        """All runs, the oldest slot first."""
        oldest_first = reversed(await self.store.runs(job=name, limit=_ALL))
        return tuple(sorted(oldest_first, key=lambda run: run.scheduled_time))

    async def run(self, name: str = "a") -> RunRecord:
        """The job's only run."""
        (run,) = await self.runs(name)
        return run

    async def story(self, name: str = "a") -> list[str]:
        """The job's runs, a line each, the oldest slot first."""
        return [told(run) for run in await self.runs(name)]

    async def history(self, name: str = "a") -> RunHistory:
        """The history of the job's only run."""
        return await self.store.history((await self.run(name)).run_id)

    async def tasks(self, name: str = "a") -> list[tuple[str, str, str | None]]:
        """Of the job's only run: each task's name and state, and who stopped it."""
        return [(task.name, str(task.state), task.cancelled_by) for task in (await self.history(name)).tasks]

    async def attempts(self, name: str = "a", task: int = 0) -> list[str]:
        """Of the job's only run: the states of one task's attempts."""
        return [str(attempt.state) for attempt in (await self.history(name)).tasks[task].attempts]

    async def everything(self) -> tuple[object, ...]:
        """All that can be read, to compare before with after."""
        runs = await self.runs()
        histories = [await self.store.history(run.run_id) for run in runs]
        nodes = sorted(await self.store.nodes(), key=lambda node: node.node)
        return await self.store.jobs(), runs, histories, nodes

    async def count(self, state: RunState) -> int:
        return len(await self.store.runs(state=state, limit=_ALL))


class SqlWords(NamedTuple):
    """How a store's SQL is written: where `things`, a table of the user's own, is created, and a parameter by position
    and by name, where that name is `value`."""

    table: str
    mark: str
    named: str


class Contract:
    """What a suite needs from whoever subclasses it: a store, and perhaps a second one on the same catalog."""

    sql: SqlWords | None = None
    """None where statements of a task's own cannot join a run's transaction: those tests are then skipped."""

    def words(self) -> SqlWords:
        """As `sql`, for a scenario that needs it: it does not apply where there are none."""
        if self.sql is None:
            raise SkipTest("statements of a task's own cannot join a run's transaction in this store")
        return self.sql

    def make_store(self, clock: ManualClock) -> Store:
        """A store that reads `clock`, not opened yet, whose catalog is empty and migrated. Called outside any loop."""
        raise NotImplementedError

    def make_peer(self, store: Store, clock: ManualClock) -> Store | None:
        """Another store on the catalog of `store`, not opened yet. None where there can be no such thing."""
        return None

    def play(self, scenario: Callable[[Scene], Awaitable[None]]) -> None:
        """Runs one scenario on a fresh store, in an event loop of its own."""
        clock = ManualClock(BEGINNING)
        scene = Scene(self.make_store(clock), clock, self)

        async def whole() -> None:
            try:
                await scene.begin()
                await scenario(scene)
            finally:
                await scene.end()

        asyncio.run(whole())


def scenario(test: Callable[[Contracted, Scene], Awaitable[None]]) -> Callable[[Contracted], None]:
    """Makes a plain test method of an async one that takes a scene."""

    def played(self: Contracted) -> None:
        self.play(lambda scene: test(self, scene))

    # Not functools.wraps: its __wrapped__ would have test runners ask for a "scene".
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(played, name, getattr(test, name))
    return played


def starts(*pairs: tuple[int, int]) -> tuple[AttemptStart, ...]:
    return tuple(AttemptStart(*pair) for pair in pairs)


def unknown_run() -> str:
    return f"occ_{uuid4()}"
