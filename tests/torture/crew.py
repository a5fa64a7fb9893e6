"""The parent of a torture run: starts workers, kills them, puts others in their place, and is the keeper meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

from tests.tier import seeds
from tests.torture.drivers import AFTER, BEFORE, STATEMENT, Blow, opened
from tests.torture.evidence import Row
from tests.torture.worker import EXPELLED

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.node_liveness import SILENCE, NodeObservation, ObserverMemory, observe
from horae.core.run.lifecycle import AttemptState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Once
from horae.errors import StoreConflict, StoreUnavailable
from horae.store.catalog.catalog import Catalog
from horae.store.records import AttemptEnd, AttemptStart, Capacity, Claim, Settlement

ROOT = Path(__file__).parents[2]
SEEDS = seeds(1)
KEEPER = uuid4()
LOOKS_EVERY_SECONDS = 0.2
PATIENCE = 90.0
"""Seconds without anything new after which nothing new will come."""
SETTINGS = {"misfire_grace": "1h", "max_lost": None}
"""A slot counts as on time however long the torture takes, and a run may lose its worker as often as that happens."""


def yearly(at: datetime) -> Every:
    """One slot at this second, the next in a year: a schedule that goes on, with one slot due."""
    return Every("365d", start=at)


def due_jobs(count: int, prefix: str = "job", *, tasks: int = 1, now: datetime | None = None) -> list[JobSpec]:
    """Jobs with exactly one slot each, up to five seconds ago; every third is a Once, the rest go on next year."""
    moment = now or datetime.now(UTC)
    steps = tuple(TaskSpec(f"t{index}") for index in range(tasks))
    specs = []
    for index in range(count):
        at = moment - timedelta(seconds=1 + index % 5)
        schedule = Once(at) if index % 3 == 0 else yearly(at)
        specs.append(JobSpec(f"{prefix}{index:04d}", schedule, steps, SETTINGS))
    return specs


async def define(url: str, specs: Sequence[JobSpec], ago: float = 60.0) -> None:
    """Defines jobs as if some time ago, so that their slots since then are due."""
    then = datetime.now(UTC) - timedelta(seconds=ago)
    async with opened(url, connections=1, clock=lambda: then) as store:
        for index in range(0, len(specs), 250):
            await store.define(specs[index : index + 250])


@dataclass
class Member:
    """One worker process. `doomed_at` is the monotonic moment at which the parent kills it."""

    node: UUID
    process: subprocess.Popen[bytes]
    log: Path
    doomed_at: float | None = None

    def lines(self) -> list[list[str]]:
        """What it logged; a last line that was cut off by its death is left out."""
        text = self.log.read_text() if self.log.exists() else ""
        return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def errors(self) -> str:
        return self.log.with_suffix(".err").read_text()


def start_worker(
    url: str, folder: Path, *, blow: Blow | None = None, node: UUID | None = None, **environment: str
) -> Member:
    """Starts a worker; keywords are set in its environment as they are."""
    node = node or uuid4()
    log = folder / f"{node}.log"
    variables = {**os.environ, **environment}
    variables.pop("HORAE_TORTURE_KILL", None)
    if blow is not None:
        variables["HORAE_TORTURE_KILL"] = str(blow)
    with log.with_suffix(".err").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.worker", url, str(node), str(log)],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd=ROOT,
            env=variables,
        )
    return Member(node, process, log)


class Keeper:
    """Watches the nodes and takes over from the dead, as a survivor would; `sweeps` while it is at it, or not."""

    def __init__(self, store: Catalog, *, sweeps: bool = True) -> None:
        self.store = store
        self.sweeps = sweeps
        self.memory = ObserverMemory()

    async def look(self, at: float | None = None) -> int:
        """One look, now or at another moment of the keeper's own time. Returns how many nodes were judged dead."""
        sights = [
            NodeObservation(node.node, node.counter, node.lock_free)
            for node in await self.store.nodes()
            if node.state == "ALIVE" and node.node != str(KEEPER)
        ]
        moment = time.monotonic() if at is None else at
        self.memory, dead = observe(self.memory, sights, moment, released=self.store.lock_grace)
        for node, counter in dead:
            await self.store.take_over(KEEPER, UUID(node), counter)
        if self.sweeps:
            await self.store.sweep()
        await self.store.reap()
        return len(dead)

    async def bury(self) -> None:
        """Takes over from everybody whose process is known to be gone: at each look the keeper's own time is a whole
        silence later, so that nobody waits for one."""
        ends, moment = time.monotonic() + PATIENCE, time.monotonic()
        while any(node.state == "ALIVE" for node in await self.store.nodes()):
            assert time.monotonic() < ends, f"still alive: {await self.store.nodes()}"
            moment += SILENCE
            await self.look(moment)


async def finish_alone(store: Catalog, node: UUID) -> None:
    """Does everything that is due, in this process, and leaves."""
    await store.join(node)
    capacity = Capacity(str(node), 100)
    while claims := [*(await store.create_due_runs(start=capacity)).claims, *(await store.claim_runs(capacity)).claims]:
        starts = {claim.run_id: claim.starts for claim in claims}
        while starts:
            answers = await store.settle(
                node, [success(claim, starts[claim.run_id]) for claim in claims if claim.run_id in starts]
            )
            starts = {answer.run_id: answer.starts for answer in answers if answer.starts}
    await store.leave(node)


def success(claim: Claim, starts: Sequence[AttemptStart] | None = None) -> Settlement:
    """These attempts of a run, or those it was claimed with, have succeeded."""
    made = claim.starts if starts is None else starts
    ends = tuple(AttemptEnd(start.position, start.number, AttemptState.SUCCESS) for start in made)
    return Settlement(claim.run_id, claim.run_no, claim.fence, ends)


@dataclass
class Crew:
    """Workers on one catalog. `kills` is how many may be killed in all, by themselves or from here."""

    url: str
    folder: Path
    widths: Sequence[int]
    """How many connections each worker has; it works in two lanes less, or in one."""
    chance: random.Random
    kills: int
    slots: int = 5
    open: Path | None = None
    """A file; while it is there, workers with nothing left to do wait for more."""
    members: dict[UUID, Member] = field(default_factory=dict)
    everybody: list[Member] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    expelled: set[str] = field(default_factory=set)
    sweeps: bool = True
    left_to_sweep: int = field(default=0, init=False)
    """What a sweep found when all was done: whatever no hand-over reached."""

    def start(self, width: int) -> None:
        blow, doomed_in = None, None
        if self.kills > 0:
            self.kills -= 1
            if self.chance.random() < 0.6:
                verb = self.chance.choice(("create_due_runs", "claim_runs", "settle", "heartbeat"))
                where = self.chance.choice((STATEMENT, BEFORE, AFTER))
                blow = Blow(verb, where, self.chance.randint(1, 2 if verb == "heartbeat" else 8))
            else:
                doomed_in = self.chance.uniform(0.0, 0.4)
        member = start_worker(
            self.url,
            self.folder,
            blow=blow,
            HORAE_TORTURE_CONNECTIONS=str(width),
            HORAE_TORTURE_LANES=str(max(1, width - 2)),
            HORAE_TORTURE_SLOTS=str(self.slots),
            HORAE_TORTURE_OPEN="" if self.open is None else str(self.open),
        )
        if doomed_in is not None:
            # Counted from the first START on; until then it is only being loaded.
            member.doomed_at = -doomed_in - 1
        self.everybody.append(member)
        self.members[member.node] = member

    async def work(self, disturb: Callable[[Crew], None] | None = None) -> None:
        """Until every worker found nothing left to do; `disturb` is called again and again, in a thread."""
        ends, done = time.monotonic() + PATIENCE, 0
        widths = {}
        for width in self.widths:
            self.start(width)
            widths[self.everybody[-1].node] = width
        try:
            async with opened(self.url, connections=2) as store:
                keeper = Keeper(store, sweeps=self.sweeps)
                while self.members:
                    if (lines := sum(len(member.lines()) for member in self.everybody)) > done:
                        ends, done = time.monotonic() + PATIENCE, lines
                    assert time.monotonic() < ends, f"nothing moved for {PATIENCE} s: {await store.nodes()}"
                    for member in list(self.members.values()):
                        if self._look_after(member):
                            self.start(widths[member.node])
                            widths[self.everybody[-1].node] = widths[member.node]
                    if disturb is not None:
                        await asyncio.to_thread(disturb, self)
                    try:
                        await keeper.look()
                    except (StoreUnavailable, StoreConflict):
                        continue
                    finally:
                        await asyncio.sleep(LOOKS_EVERY_SECONDS)
                self.left_to_sweep = await store.sweep()
        finally:
            self.end()

    def _look_after(self, member: Member) -> bool:
        """Kills a member whose time has come; says whether one is gone and another must take its place."""
        now = time.monotonic()
        if member.doomed_at is not None and member.process.poll() is None:
            if member.doomed_at < 0 and len(member.lines()) > 1:
                member.doomed_at = now - member.doomed_at - 1
            if 0 <= member.doomed_at <= now:
                member.process.kill()
                member.process.wait(PATIENCE)
        code = member.process.poll()
        if code is None:
            return False
        del self.members[member.node]
        if code == -signal.SIGKILL:
            self.killed.add(str(member.node))
        elif code == EXPELLED:
            self.expelled.add(str(member.node))
        else:
            assert code == 0, f"worker {member.node} ended with {code}:\n{member.errors()}"
        return code != 0

    def end(self) -> None:
        """Kills whoever is left, so that no failure leaves processes behind."""
        for member in self.members.values():
            member.process.kill()
            member.process.wait(PATIENCE)

    def check_logs(self, attempts: Mapping[Row, Row]) -> None:
        """What workers say they did is what the catalog says: every SUCCESS was made, by that node with that fence.

        A worker that was neither killed nor expelled heard the answer to everything it began.
        """
        gone = self.killed | self.expelled
        made: dict[Row, Row] = {}
        settled: dict[str, int] = {}
        for member in self.everybody:
            begun: dict[tuple[str, str], int] = {}
            for kind, *words in member.lines():
                if kind == "START":
                    run_id, fence, position, number, run_no = words
                    key = (int(run_no), int(position), int(number))
                    assert key not in made, f"attempt {key} was made twice"
                    made[key] = (str(member.node), int(fence))
                    begun[run_id, fence] = begun.get((run_id, fence), 0) + 1
                elif kind == "END":
                    run_id, fence, verdict, _ = words
                    begun.pop((run_id, fence))
                    settled[run_id] = settled.get(run_id, 0) + (verdict == "SETTLED")
            assert not begun or str(member.node) in gone, f"{member.node} began {begun} and heard no answer"
        assert set(settled.values()) <= {0, 1}, "a run was settled twice"
        for attempt, (state, *by) in attempts.items():
            if state == "SUCCESS":
                assert made.get(attempt) == tuple(by), f"{attempt} succeeded by {by}, made by {made.get(attempt)}"
        assert made.keys() <= attempts.keys(), "something was made that the catalog knows nothing of"
