"""A worker that is cut off from PostgreSQL without a word: its work stops before another worker starts it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from tests.store.databases import Databases
from tests.store.swallowing import SwallowingProxy

from horae.core.run.lifecycle import RunState
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.records import Admission, Origin

PATIENCE = 120.0
PROGRAM = """
import asyncio, os, time
from pathlib import Path
from horae import Every, Horae, Run

rhythm = {"heartbeat": "500ms", "late_after": "3s", "take_over_after": "8s"}
app = Horae(os.environ["STORE"], node=os.environ["NODE"], settings=rhythm, grace_period="5s")
app.pool("one", 1)


def say(what: str, run: Run) -> None:
    with open("log", "a") as log:
        log.write(f"{time.monotonic():.3f} {os.environ['NODE']} {what} {run.run_id}\\n")


@app.job("only", Every("1d"), pool="one", overlap="allow")
async def only(run: Run) -> None:
    say("begins", run)
    try:
        while not Path("go-on").exists():
            await asyncio.sleep(0.05)
    finally:
        say("ends", run)
"""


@contextmanager
def worker(folder: Path, node: str, url: str) -> Iterator[None]:
    parts = conninfo_to_dict(url)
    store = f"postgresql://{parts['user']}:{parts['password']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    told = {**os.environ, "STORE": f"{store}?sslmode=disable", "NODE": node, "HORAE_UNDISTURBED": "1"}
    with (
        (folder / f"{node}.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "horae", "worker", "prog:app"], cwd=folder, env=told, stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield
        finally:
            process.kill()


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await found():
            await asyncio.sleep(0.05)


def test_the_owner_s_work_stops_before_its_successor_starts_it_and_a_pool_of_one_never_holds_two(
    tmp_path: Path, databases_18: Databases
) -> None:
    url = databases_18.emptied()
    (tmp_path / "prog.py").write_text(PROGRAM)
    log = tmp_path / "log"
    log.touch()

    def said() -> list[list[str]]:
        return [line.split() for line in log.read_text().splitlines()]

    async def begun_by_b() -> bool:
        return any(words[1:3] == ["b", "begins"] for words in said())

    async def main() -> None:
        store = Catalog(PostgresDriver(url))
        await store.open()

        async def asked(key: str) -> None:
            await store.admit([Admission("only", Origin.TRIGGER, "ann", key=key)])

        async def is_there(node: str) -> bool:
            return any(each.name == node and each.state == "ALIVE" for each in await store.nodes())

        async def defined() -> bool:
            return await is_there("a") and bool(await store.jobs(["only"]))

        async def both_done() -> bool:
            return len(await store.runs(state=RunState.COMPLETED, limit=3)) == 2

        async def begun() -> bool:
            return bool(said())

        async with SwallowingProxy(url) as proxy:
            with worker(tmp_path, "a", proxy.url):
                await until(defined)
                await asked("first")
                await until(begun)
                with worker(tmp_path, "b", url):
                    await until(lambda: is_there("b"))
                    await asked("second")
                    proxy.swallow(new=True)
                    await until(begun_by_b)
                    proxy.pass_on()
                    (tmp_path / "go-on").touch()
                    await until(both_done)
        await store.close()

    asyncio.run(main())
    under_way: set[str] = set()
    for _, node, what, run in sorted(said(), key=lambda words: float(words[0])):
        (under_way.add if what == "begins" else under_way.discard)(f"{node} {run}")
        assert len(under_way) <= 1, f"two at once in a pool of one: {said()}"
    assert said()[0][1:3] == ["a", "begins"]
    assert said()[1][1:3] == ["a", "ends"]
