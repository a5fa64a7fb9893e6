"""A node whose heartbeat is not confirmed stops its work: by a thread of its own, whatever hangs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine import process_tasks
from tests.engine.world import until
from tests.store.databases import Databases
from tests.store.swallowing import SwallowingProxy

from horae import Every, Horae, Run
from horae.engine.watchdog import WatchdogThread
from horae.events import HeartbeatLate

PATIENCE = 60.0
BRISK = {"heartbeat": "200ms", "late_after": "1s", "take_over_after": "2s", "sweep_every": "1h", "tee": False}


def test_a_node_whose_heartbeat_hangs_for_ever_stops_its_work(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", settings=BRISK)
    late: list[HeartbeatLate] = []
    app.events.listen(late.append, HeartbeatLate)

    async def main() -> None:
        began, stopped = asyncio.Event(), asyncio.Event()

        @app.job("a", Every("1d"))
        async def work() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with app:
            await app.trigger("a")
            await asyncio.wait_for(began.wait(), PATIENCE)
            assert app.engine is not None
            # Every heartbeat waits for this, and none is ever given up.
            async with app.engine.claimer.claiming:
                await asyncio.wait_for(stopped.wait(), PATIENCE)

    asyncio.run(main())
    assert late
    assert late[0].seconds >= 1.0


def test_a_sync_task_is_told_to_stop_even_while_the_loop_is_blocked(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", settings=BRISK)
    began, told = threading.Event(), threading.Event()

    @app.job("sync", Every("1d"))
    def work(run: Run) -> None:
        began.set()
        while not run.cancelled:
            threading.Event().wait(0.01)
        told.set()

    async def main() -> None:
        async with app:
            await app.trigger("sync")
            await asyncio.to_thread(began.wait, PATIENCE)
            # Nothing of the loop goes on until the task has been told.
            assert told.wait(PATIENCE)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["late", "lost"])
def test_a_process_ends_before_another_node_has_its_run_or_soon_after(tmp_path: Path, how: str) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", settings={"tee": False})
    file = tmp_path / "pid"
    app.job("a", None, isolation="process", cancel_grace="1h")(process_tasks.ignore)

    async def main() -> None:
        async with app:
            engine = app.engine
            assert engine is not None
            engine.runner._processes.cancel_grace = 3600.0
            ref = await app.trigger("a", {"file": str(file)})
            await until(file.exists)
            (run,) = engine.ledger.runs.values()
            # No heartbeat is confirmed meanwhile, and nothing is claimed again.
            async with engine.claimer.claiming:
                await app.cancel(ref)
                if how == "lost":
                    engine.settler.lost(run)
                else:
                    clock = engine.maintenance.watchdog.clock
                    engine.maintenance.watchdog.clock = lambda: clock() + engine.maintenance.rhythm[0]
                await until(lambda: not engine.ledger.attempts)

    asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_a_node_that_is_cut_off_without_a_word_stops_its_work(databases_18: Databases) -> None:
    url = databases_18.emptied()

    async def main() -> None:
        async with SwallowingProxy(url) as proxy:
            app = Horae(_as_url(proxy.url), settings=BRISK)
            began, stopped = asyncio.Event(), asyncio.Event()

            @app.job("a", Every("1d"))
            async def work() -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()

            await app.open()
            await app.trigger("a")
            await asyncio.wait_for(began.wait(), PATIENCE)
            proxy.swallow(new=True)
            await asyncio.wait_for(stopped.wait(), PATIENCE)
            proxy.pass_on()
            await app.shut()

    asyncio.run(main())


def _as_url(conninfo: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(conninfo)
    login = f"{parts['user']}:{parts['password']}"
    return f"postgresql://{login}@{parts['host']}:{parts['port']}/{parts['dbname']}?sslmode=disable"


@pytest.fixture
def watchdog() -> WatchdogThread:
    return WatchdogThread()


def test_a_watchdog_counts_from_when_the_last_confirmed_heartbeat_was_sent_and_calls_once(
    watchdog: WatchdogThread,
) -> None:
    now = [100.0]
    watchdog.clock = lambda: now[0]
    calls: list[float] = []
    called = threading.Condition()

    def stop(seconds: float) -> None:
        with called:
            calls.append(seconds)
            called.notify_all()

    def until(condition: Callable[[], bool]) -> None:
        with called:
            assert called.wait_for(condition, PATIENCE)

    watchdog.limit(25.0)
    watchdog.confirm(90.0)
    watchdog.start(stop)
    try:
        assert watchdog.overdue() is None
        now[0] = 115.5
        until(lambda: calls == [25.5])
        assert watchdog.overdue() is None, "it was told already"
        watchdog.confirm(115.0)
        now[0] = 141.0
        until(lambda: calls == [25.5, 26.0])
        watchdog.limit(None)
        watchdog.confirm(141.0)
        now[0] = 10_000.0
        assert watchdog.overdue() is None
    finally:
        watchdog.close()
    assert calls == [25.5, 26.0]
