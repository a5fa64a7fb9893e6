"""Text of others on SQLite runs in a process that can be killed: whatever it does, the node and the file go on."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from tests.store.catalogs import PATIENCE, Place, minutely
from tests.store.joining import Worker, with_worker
from tests.store.running import MOST, ran, somebody
from tests.work.world import is_alive, until

from horae import errors
from horae.errors import HoraeError, InvalidInput, StatementFailed, StoreUnavailable, TransactionExpired
from horae.store.catalog.catalog import Catalog
from horae.store.driver import KeyTaken
from horae.store.sqlite.driver import SqliteDriver
from horae.store.sqlite.text import child, text_processes
from horae.store.sqlite.text.child import TextCommands
from horae.store.sqlite.text.messages import GO, WAITING, WRITING, receive_plain, send
from horae.store.sqlite.text.write_turn import WriteTurn
from horae.testing.clock import ManualClock

ALICE = somebody("alice", ("SELECT", "things"), ("INSERT", "things"))
BOB = somebody("bob")
SETUP = "CREATE TABLE sys.things (name TEXT)"
ENDLESS = "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"
ONE_STEP = "SELECT instr(printf('%.*c', 8000000, 'a'), printf('%.*c', 4000000, 'a') || 'b')"
"""One step of SQLite's machine, in which no clock is looked at: hours of it."""
SPILLS = """WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n LIMIT 200000)
SELECT count(*) FROM (SELECT a, zeroblob(6000) AS b FROM n UNION SELECT 0, 0)"""
"""More to be told apart than the memory of its process."""
WRITES = "INSERT INTO things VALUES ('gone'); "


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("sqlite", str(tmp_path / "horae.db"))


def processes(store: object) -> list[int]:
    """The pids of those at work."""
    assert isinstance(store, Catalog)
    driver = store.driver
    assert isinstance(driver, SqliteDriver)
    return [each.pid for each in driver._apart._busy]


def things(place: Place) -> list[str]:
    return [name for (name,) in place.sql("SELECT name FROM sys.things ORDER BY name")]


def test_a_text_is_run_and_settled_in_a_process_of_its_own(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins("alice") as joined:
            [pid] = processes(worker.store)
            assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
            rows = await joined.run_text("SELECT count(*) AS n FROM things", ALICE, MOST)
            assert (rows, rows.columns) == ([(0,)], ("n",))
            await joined.run_text("INSERT INTO things VALUES ('one')", ALICE, MOST)
            # Nobody sees it yet, and who only reads waits for nothing.
            assert things(place) == []
            await joined.settle(worker.word(0))
        assert things(place) == ["one"]
        history = await worker.store.history(worker.claim.run_id)
        assert [task.state for task in history.tasks] == ["SUCCESS", "RUNNING"]

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=SETUP))


@pytest.mark.parametrize("text", [WRITES + ENDLESS, WRITES + ONE_STEP], ids=["many steps", "one step"])
def test_who_writes_for_too_long_is_undone_and_told_the_limit_by_its_name(place: Place, text: str) -> None:
    async def body(worker: Worker) -> None:
        writing = asyncio.create_task(taken(worker, text, limit=0.3))
        # The catalog's own writers wait, and then have their turn.
        async with asyncio.timeout(PATIENCE):
            await worker.store.define([minutely("b")])
            with pytest.raises(TransactionExpired, match=r"sqlite_write_limit \(0.3 s"):
                await writing
        assert processes(worker.store) == []
        await ran(worker, "INSERT INTO things VALUES ('next')", ALICE)

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=SETUP))
    assert things(place) == ["next"]


async def taken(worker: Worker, text: str, limit: float = PATIENCE, owner: str = "alice") -> None:
    async with worker.joins(owner, limit) as joined:
        await joined.run_text(text, ALICE, MOST)
        await joined.settle(worker.word(0))


@pytest.mark.parametrize("text", [ENDLESS, ONE_STEP, WRITES + ONE_STEP], ids=["reads", "one step", "writes"])
def test_who_is_cancelled_ends_its_process_at_once(place: Place, text: str) -> None:
    async def body(worker: Worker) -> None:
        text_task = asyncio.create_task(taken(worker, text))
        [pid] = await until(lambda: processes(worker.store))
        await until(lambda: is_at_work(pid))
        text_task.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([text_task])
        assert text_task.cancelled()
        assert not is_alive(pid)
        await ran(worker, "SELECT 1", ALICE)

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=SETUP))
    assert things(place) == []


def is_at_work(pid: int) -> bool:
    """Whether it has spent more than half a second of a processor: its start takes less."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12]) > 1.5 * os.sysconf("SC_CLK_TCK")
    return False


def test_a_process_that_is_killed_fails_its_text_alone(place: Place) -> None:
    async def body(worker: Worker) -> None:
        text_task = asyncio.create_task(taken(worker, WRITES + ENDLESS))
        [pid] = await until(lambda: processes(worker.store))
        await until(lambda: is_at_work(pid))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(StatementFailed, match="process of the text ended"):
            await text_task
        await ran(worker, "INSERT INTO things VALUES ('next')", ALICE)

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=SETUP))
    assert things(place) == ["next"]


def test_a_snapshot_that_became_too_old_to_write_on_is_taken_anew(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins("alice") as joined:
            # The transaction has read: who owns the run. Now somebody else writes.
            await worker.store.define([minutely("b")])
            place.sql("INSERT INTO sys.things VALUES ('theirs')")
            rows = await joined.run_text("SELECT count(*) FROM things; INSERT INTO things VALUES ('mine')", ALICE, MOST)
            assert rows == [(1,)]
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=SETUP))
    assert things(place) == ["mine", "theirs"]


def writer_of(place: Place) -> apsw.Connection:
    """Another client, which has the writer's place until it is closed."""
    other = apsw.Connection(place.target)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_waiting_for_another_writer_does_not_count_as_writing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(with_worker(place, nothing, setup=SETUP))
    passed, said = [0.0], list[str]()
    work = TextCommands(lambda message: said.append(message[0]), lambda: (GO,))
    work.open(place.target, 30.0)
    work.begin(0, 5.0)
    other = writer_of(place)

    def waits(_: float) -> None:
        passed[0] += 1.0
        if passed[0] == 20.0:
            other.close()

    monkeypatch.setattr(child, "monotonic", lambda: passed[0])
    monkeypatch.setattr(child, "sleep", waits)
    # Enough steps of SQLite's machine that it asks whether the limit is over.
    text = f"{WRITES}{ENDLESS.replace('n)', 'n LIMIT 100000)', 1)}"
    assert work.text(text, ALICE, MOST) == [(100_000,)]
    assert (passed, said) == ([20.0], [WRITING, WAITING, WRITING])
    work.commit()
    assert things(place) == ["gone"]


async def nothing(worker: Worker) -> None:
    """The catalog is there: no more is wanted."""


def test_a_process_that_waits_for_another_writer_is_not_killed_for_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float | None]()

    class Poll:
        def register(self, *_: object) -> None:
            """There is one socket."""

        def poll(self, left: float | None) -> list[int]:
            waited.append(left)
            return [1]

    ours, theirs = socket.socketpair()
    process = object.__new__(text_processes.TextProcess)
    process._end, process._killed, process.write_limit, process._writes_until = ours, False, 5.0, float("inf")
    process._turn = WriteTurn()
    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(text_processes, "monotonic", lambda: 100.0)
    with ours, theirs:
        for message in ((WRITING,), (WAITING,), (WRITING,), ("done", 1)):
            send(theirs, message)
        assert process.call("text") == 1
    limited = (5.0 + text_processes.GRACE) * 1000
    assert waited == [None, limited, None, limited]


def test_a_wait_for_another_writer_that_runs_out_is_the_failure_of_the_store(place: Place) -> None:
    class Impatient(Place):
        def store(self, clock: ManualClock | None = None) -> Catalog:
            return Catalog(SqliteDriver(self.target, patience=0.2))

    async def body(worker: Worker) -> None:
        async with worker.joins("alice", limit=20.0) as joined:
            other = writer_of(place)
            with pytest.raises(StoreUnavailable, match="busy"):
                await joined.run_text("INSERT INTO things VALUES ('gone')", ALICE, MOST)
            other.close()
        await ran(worker, "INSERT INTO things VALUES ('next')", ALICE)

    asyncio.run(with_worker(Impatient("sqlite", place.target), body, tasks=("one", "two"), setup=SETUP))
    assert things(place) == ["next"]


def test_a_run_that_was_taken_meanwhile_keeps_nothing_of_its_text(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins("alice") as joined:
            place.sql("UPDATE sys.job_runs SET fence = fence + 1")
            await joined.run_text("INSERT INTO things VALUES ('gone')", ALICE, MOST)
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=SETUP))
    assert things(place) == []


def test_a_process_ends_with_the_node_that_started_it(place: Place, tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
from tests.store.catalogs import Place
from tests.store.joining import with_worker
from tests.store.test_text_apart import SETUP, WRITES, ONE_STEP, is_at_work, processes, taken
from tests.work.world import until

async def body(worker):
    asyncio.create_task(taken(worker, WRITES + ONE_STEP))
    [pid] = await until(lambda: processes(worker.store))
    await until(lambda: is_at_work(pid))
    print(pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(with_worker(Place("sqlite", {place.target!r}), body, tasks=("one", "two"), setup=SETUP))
"""
    node = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert node.stdout is not None
        pid = int(node.stdout.readline())
        node.kill()
        asyncio.run(until(lambda: not is_alive(pid)))
    finally:
        node.kill()
        node.wait()
        assert node.stdout is not None
        node.stdout.close()
    place.sql("INSERT INTO sys.things VALUES ('free')")
    assert things(place) == ["free"]


def test_one_owner_does_not_take_the_places_of_others(place: Place) -> None:
    async def body(worker: Worker) -> None:
        greedy = [asyncio.create_task(taken(worker, ENDLESS)) for _ in range(6)]
        await until(lambda: len(processes(worker.store)) == text_processes.MOST_OF_ONE)
        async with asyncio.timeout(PATIENCE), worker.joins("bob") as joined:
            assert await joined.run_text("SELECT 1", BOB, MOST) == [(1,)]
            assert len(processes(worker.store)) == text_processes.MOST_OF_ONE + 1
        for each in greedy:
            each.cancel()
        await asyncio.wait(greedy)
        assert processes(worker.store) == []

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=SETUP))


def test_a_select_that_is_one_step_is_stopped_at_its_limit(place: Place) -> None:
    async def body(worker: Worker) -> None:
        store = worker.store
        assert isinstance(store, Catalog)
        with pytest.raises(HoraeError, match=r"0\.3 s"):
            await store.driver.select(ONE_STEP, 10, 0.3)
        assert processes(store) == []
        assert await store.driver.select("SELECT 1", 10, PATIENCE) == [(1,)]

    asyncio.run(with_worker(place, body))


@pytest.mark.parametrize("surface", ["job", "select"])
def test_what_a_text_sorts_is_kept_in_its_own_memory_and_never_fills_the_disk(place: Place, surface: str) -> None:
    async def body(worker: Worker) -> None:
        store = worker.store
        assert isinstance(store, Catalog)
        if surface == "select":
            with pytest.raises(HoraeError, match="memory"):
                await store.driver.select(SPILLS, 10, 10 * PATIENCE)
        else:
            with pytest.raises(HoraeError, match="memory"):
                async with worker.joins("alice") as joined:
                    await joined.run_text(SPILLS, ALICE, MOST)
        assert await store.driver.select("SELECT 1", 10, PATIENCE) == [(1,)]

    asyncio.run(with_worker(place, body, setup=SETUP))


def test_a_store_that_is_closed_ends_what_is_under_way(place: Place) -> None:
    async def main() -> None:
        store = place.store()
        await store.open()
        asking = asyncio.create_task(store.driver.select(ONE_STEP, 10, 10 * PATIENCE))
        [pid] = await until(lambda: processes(store))
        await store.close()
        with pytest.raises(StoreUnavailable):
            await asking
        assert not is_alive(pid)

    asyncio.run(main())


def test_a_process_is_used_again_and_knows_nothing_of_the_environment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_MASTER_KEY", "secret")
    # One that is slow to undo what failed is killed, and another takes its place.
    monkeypatch.setattr(text_processes, "GRACE", PATIENCE)

    async def body(worker: Worker) -> None:
        seen = []
        for text in ("SELECT 1", "SELECT no_such_column", "SELECT 2"):
            async with worker.joins("alice") as joined:
                seen += processes(worker.store)
                with suppress(StatementFailed):
                    await joined.run_text(text, ALICE, MOST)
        assert len(seen) == 3
        assert len(set(seen)) == 1
        # Who is not root may not even look.
        with suppress(PermissionError):
            assert b"secret" not in Path(f"/proc/{seen[0]}/environ").read_bytes()
        assert Path(f"/proc/{seen[0]}/limits").read_text().count("1073741824") == 2

    asyncio.run(with_worker(place, body, setup=SETUP))


@pytest.mark.parametrize(
    "said", [os.system, eval, subprocess.Popen, Path, errors.shown], ids=lambda each: each.__name__
)
def test_what_a_process_says_names_nothing_that_could_be_called(said: object) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(theirs, ("done", said))
        with pytest.raises(pickle.UnpicklingError, match="no business"):
            receive_plain(ours)
        for plain in (
            InvalidInput("x", hint="y"),
            apsw.BusyError("z"),
            KeyTaken("k"),
            RuntimeError("r"),
            [(1, b"2", None)],
        ):
            send(theirs, ("done", plain))
            assert str(receive_plain(ours)) == str(("done", plain))


def test_a_catalog_in_memory_takes_no_text_of_others() -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises(InvalidInput, match="takes no text of others"):
            async with worker.joins("alice"):
                raise AssertionError("it was begun")
        store = worker.store
        assert isinstance(store, Catalog)
        with pytest.raises(InvalidInput, match="takes no text of others"):
            await store.driver.select("SELECT 1", 10, PATIENCE)
        assert await store.select("SELECT 1", own=True) == [(1,)]

    asyncio.run(with_worker(Place("sqlite", ":memory:"), body))


def test_a_closed_store_starts_no_process_in_the_loop_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(text_processes, "TextProcess", lambda *given: started.append("one"))

    async def ask() -> None:
        pool = text_processes.TextProcessPool(str(tmp_path / "horae.db"), PATIENCE)
        pool.open()
        pool.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await pool.select("alice", "SELECT 1", 1, 1.0, viewer=False)

    asyncio.run(ask())
    assert started == []
