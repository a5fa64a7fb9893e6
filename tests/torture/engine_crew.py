"""The parent of an engine's torture: starts nodes, kills, stops and restarts them, cuts the server, operates the jobs.

    python -m tests.torture.engine_crew --seeds 25 --table        every seed on PostgreSQL and on SQLite
    python -m tests.torture.engine_crew --seed 7 --store sqlite   one of them

What is done and when comes from the number a torture is given; what the machine makes of it is its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg
from tests.torture.engine_catalog import GUARD, Evidence, Row, active, prepare
from tests.torture.engine_checker import Checker, Journal, report
from tests.torture.engine_operator import Operator, disable_all
from tests.torture.engine_table import HEAD, line, unseen
from tests.torture.engine_worker import READY, UNREACHABLE
from tools.postgres import PostgresServer, running_postgres

from horae import Horae, HoraeError

ROOT = Path(__file__).parents[2]
SHORT = 12.0
"""Seconds of torture in `make test`, at least."""
LONGEST = 240.0
"""Seconds after which a torture ends that still has not shown everything."""
LEFT = "stopped, "
"""What a node says when it has left the catalog."""
LONG_STOPS = 0.2
"""How many of the disturbances are stops for longer than a node may be silent, where there are any."""
PATIENCE = 90.0
"""Seconds in which something must move until everything that was born has ended."""


@dataclass
class Node:
    """One process. `told` says why it may end by itself."""

    process: subprocess.Popen[bytes]
    output: Path
    told: bool = False
    killed: bool = False

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def ready(self) -> bool:
        return READY in self.said

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.runs:
            self.process.send_signal(number)


def start_node(url: str, folder: Path, **environment: str) -> Node:
    """Starts a worker on the folder's log; keywords are set in its environment as they are."""
    output = folder / f"node-{time.monotonic_ns()}.out"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.engine_worker", url, str(folder / "effects.log")],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    return Node(process, output)


def end(nodes: list[Node]) -> None:
    """Kills whoever is left, so that no failure leaves processes behind."""
    for node in nodes:
        if node.runs:
            node.process.kill()
        node.process.wait(PATIENCE)


@dataclass
class EngineCrew:
    """Nodes on one catalog, and what happens to them."""

    url: str
    folder: Path
    count: int
    number: int
    server: PostgresServer | None = None
    seconds: float = SHORT
    long_stops: bool = False
    """Whether nodes are also stopped for longer than others wait before they declare them dead."""
    nodes: list[Node] = field(default_factory=list)
    everybody: list[Node] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)
    deeds: Counter[str] = field(default_factory=Counter)
    jobs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _over: bool = False

    def chance(self, what: str) -> random.Random:
        return random.Random(f"{self.number} {what}")

    # ---- the whole ---------------------------------------------------------------------------------------------------

    async def work(self) -> Evidence:
        """Tortures, lets everything come to rest, and checks. Raises AssertionError with all that is wrong."""
        app = Horae(self.url)
        try:
            await app.jobs()
            prepare(self.url)
            self.nodes = [self.start() for _ in range(self.count)]
            await self._until(lambda: any(node.ready for node in self.nodes), PATIENCE, "no node came up")
            self.jobs = [job.name for job in await app.jobs()]
            async with asyncio.TaskGroup() as group:
                group.create_task(self._disturb())
                group.create_task(self._operate(app))
                group.create_task(self._look_after())
                if self.server is not None:
                    group.create_task(self._cut(self.server))
                await asyncio.sleep(self.seconds)
                # A slow machine takes longer until all has come about that is to be withstood.
                ends = time.monotonic() + LONGEST
                while await asyncio.to_thread(self.unseen) and time.monotonic() < ends:
                    await asyncio.sleep(0.5)
                self._over = True
            await self._settle(app)
            await self._stop_all()
        finally:
            end(self.everybody)
            with suppress(HoraeError):
                await app.close()
        return self.check()

    def check(self) -> Evidence:
        evidence = Evidence(self.url)
        self.problems += Checker(evidence, self.folder / "effects.log", self.journal).check()
        heard = [(node.output.name, node.said) for node in self.everybody]
        if self.server is not None:
            heard.append(("the server", self.server.log))
        for name, said in heard:
            self.problems += [f"{name}: {line}" for line in said.splitlines() if GUARD in line]
            self.problems += [f"{name}: {line}" for line in said.splitlines() if line.startswith("Traceback")]
        assert not self.problems, f"torture {self.number} of {self.url} in {self.folder}: {report(self.problems)}"
        return evidence

    def unseen(self) -> list[str]:
        """What this torture has not shown so far."""
        try:
            return unseen(self.url, self.deeds)
        except psycopg.OperationalError:
            return ["the server is away"]

    def start(self) -> Node:
        """One that nobody but this crew stops and wakes."""
        node = start_node(self.url, self.folder, HORAE_UNDISTURBED="1")
        self.everybody.append(node)
        self.deeds["nodes"] += 1
        return node

    async def _until(self, done: Any, patience: float, otherwise: str) -> None:
        ends = time.monotonic() + patience
        while not done():
            assert time.monotonic() < ends, f"{otherwise}: {[node.said[-2000:] for node in self.nodes]}"
            await asyncio.sleep(0.05)

    # ---- what happens to nodes ---------------------------------------------------------------------------------------

    async def _disturb(self) -> None:
        chance = self.chance("nodes")
        blackout = chance.uniform(0.3, 0.7) * self.seconds
        began = time.monotonic()
        async with asyncio.TaskGroup() as stopped:
            while not self._over:
                # Past its time, a torture goes on because the machine is slow: nodes need a while to get anything done.
                pace = 1 if time.monotonic() - began < self.seconds else 4
                await asyncio.sleep(chance.uniform(0.2, 1.2) * pace)
                kind = chance.choices(("kill", "stop", "term", "term twice"), (4, 3, 2, 1))[0]
                length = chance.uniform(0.2, 3.5)
                if self.long_stops and chance.random() < LONG_STOPS:
                    kind, length = "stop", chance.uniform(28, 40)
                place = chance.random()
                if blackout and time.monotonic() - began > blackout:
                    blackout = 0.0
                    await self._black_out(length + 1.5)
                    continue
                up = [node for node in self.nodes if node.ready and node.runs and not node.told]
                if up and not self._over:
                    self.deeds[kind] += 1
                    stopped.create_task(self._strike(up[int(place * len(up))], kind, length))

    async def _strike(self, node: Node, kind: str, length: float) -> None:
        if kind == "kill":
            node.killed = True
            node.signal(signal.SIGKILL)
        elif kind == "stop":
            node.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(length)
            finally:
                node.signal(signal.SIGCONT)
        else:
            node.told = True
            node.signal(signal.SIGTERM)
            if kind == "term twice":
                await asyncio.sleep(min(length, 1.0))
                node.signal(signal.SIGTERM)

    async def _black_out(self, length: float) -> None:
        """Everybody at once, and nobody in their place for a while: slots are missed."""
        self.deeds["blackout"] += 1
        dark, self.nodes = self.nodes, []
        for node in dark:
            node.killed = True
            node.signal(signal.SIGKILL)
        await asyncio.sleep(length)
        self.nodes = [self.start() for _ in range(self.count)]

    async def _look_after(self) -> None:
        """Puts another node in the place of each that is gone, a moment later."""
        chance = self.chance("places")
        while not self._over:
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            self._replace()

    def _replace(self) -> None:
        for index, node in enumerate(self.nodes):
            if not node.runs:
                self._judge(node)
                self.nodes[index] = self.start()

    def _judge(self, node: Node) -> None:
        """Whether a node ended as it may: killed by us, drained when told to, or without a store while it started."""
        code = node.process.returncode
        allowed = {0} if node.told else set()
        allowed |= {-signal.SIGKILL} if node.killed else set()
        # A second signal may come when it has left already, and is on its way out.
        allowed |= {-signal.SIGTERM} if node.told and LEFT in node.said else set()
        if code == UNREACHABLE or (node.told and not node.ready):
            # A server that is away, a file that a stopped node has locked; told to go before it had come.
            self.deeds["failed starts"] += 1
        elif code not in allowed:
            self.problems.append(f"{node.output.name} ended with {code}: {node.said[-1500:]}")

    # ---- what happens to the server ----------------------------------------------------------------------------------

    async def _cut(self, server: PostgresServer) -> None:
        chance = self.chance("server")
        moments = sorted(chance.uniform(0.1, 0.9) * self.seconds for _ in range(max(3, round(self.seconds / 6))))
        restart = chance.randrange(len(moments))
        began = time.monotonic()
        for index, moment in enumerate(moments):
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            if self._over:
                return
            if index % 4 == restart % 4:
                mode: Literal["fast", "immediate"] = "fast" if chance.random() < 0.5 else "immediate"
                self.deeds[f"{mode} restart"] += 1
                await asyncio.to_thread(server.restart, mode)
            else:
                self.deeds["cut"] += 1
                with suppress(Exception):
                    await asyncio.to_thread(server.terminate_backends, self.url)

    # ---- what people do meanwhile ------------------------------------------------------------------------------------

    async def _operate(self, app: Horae) -> None:
        chance = self.chance("operations")
        operator = Operator(app, self.jobs, self.journal, self.deeds, chance)
        while not self._over:
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            await operator.act()
        await operator.undo()

    # ---- coming to rest ----------------------------------------------------------------------------------------------

    async def _settle(self, app: Horae) -> None:
        """Everybody is there again; then every job is disabled, and all that was born must end."""
        self._replace()
        await self._until(lambda: all(node.ready or not node.runs for node in self.nodes), PATIENCE, "nodes are not up")
        await asyncio.sleep(1.0)
        await disable_all(app, self.jobs, self.journal)
        last: list[Row] = []
        ends = time.monotonic() + PATIENCE
        while left := active(self.url):
            self._replace()
            if left != last:
                # What was missed may be a long line of runs; nothing is stuck while it moves.
                last, ends = left, time.monotonic() + PATIENCE
            if time.monotonic() > ends:
                self.problems.append(f"nothing moved for {PATIENCE:.0f} s: {len(left)} runs, {left[:10]}")
                return
            await asyncio.sleep(0.2)

    async def _stop_all(self) -> None:
        for node in self.nodes:
            node.told = True
            node.signal(signal.SIGTERM)
        await self._until(lambda: not any(node.runs for node in self.nodes), PATIENCE, "nodes did not stop")
        for node in self.nodes:
            self._judge(node)


# ---- by hand ---------------------------------------------------------------------------------------------------------


@contextmanager
def place(store: str, folder: Path) -> Iterator[tuple[str, PostgresServer | None]]:
    """A new catalog's address, and the server it is on."""
    if store == "sqlite":
        yield f"sqlite:///{folder / 'horae.db'}", None
        return
    with running_postgres(18) as server:
        yield server.create_database(), server


def torture(store: str, number: int, folder: Path, *, seconds: float = SHORT, long_stops: bool = False) -> str:
    """One torture; returns its line of the table. Raises AssertionError with all that is wrong."""
    began = time.monotonic()
    with place(store, folder) as (url, server):
        crew = EngineCrew(url, folder, 4 if server else 2, number, server, seconds, long_stops)
        evidence = asyncio.run(crew.work())
    return line(store, number, crew.deeds, evidence, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description="Tortures engines and checks what is left.")
    parser.add_argument("--seeds", type=int, default=0, help="numbers 0 to this, less one")
    parser.add_argument("--seed", type=int, action="append", default=[], help="one number; may be repeated")
    parser.add_argument("--store", choices=("postgres", "sqlite", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=SHORT)
    parser.add_argument("--long-stops", action="store_true", help="also stop nodes until others declare them dead")
    parser.add_argument("--table", action="store_true", help="print the head of the table too")
    parser.add_argument("--keep", type=Path, help="keep logs and files in this folder")
    given = parser.parse_args()
    if given.table:
        print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    failed = 0
    for number in given.seed or range(given.seeds):
        for store in ("postgres", "sqlite") if given.store == "both" else (given.store,):
            folder = Path(tempfile.mkdtemp(prefix=f"horae-torture-{store}-{number}-", dir=given.keep))
            try:
                print(torture(store, number, folder, seconds=given.seconds, long_stops=given.long_stops), flush=True)
            except AssertionError as error:
                failed += 1
                print(f"| {store} | {number} | FAILED | {error}", flush=True)
                continue
            if given.keep is None:
                shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
