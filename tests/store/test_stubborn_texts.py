"""Text on PostgreSQL that catches its cancel and goes on: its session is ended, also where its node has died."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from tests.store.catalogs import PATIENCE, Place
from tests.store.joining import Worker
from tests.store.running import EVERY_GROUND, MOST, Ground, ground_of, ran, somebody, with_people
from tests.work.world import until

from horae.errors import HoraeError
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.postgres.text import runaway_sessions
from horae.store.postgres.text.runaway_sessions import MarkedSession, SessionWatcher
from horae.store.protocols.people import Identity

ALICE = somebody("alice", ("SELECT", "things"), ("INSERT", "things"))
BOB = somebody("bob", ("INSERT", "things"))
SETUP = "DROP TABLE IF EXISTS things CASCADE; CREATE TABLE things (name TEXT PRIMARY KEY)"
STUBBORN = """
INSERT INTO things VALUES ('mine');
DO $$ BEGIN
    PERFORM set_config('application_name', 'somebody else', false);
    PERFORM pg_advisory_unlock_all();
    LOOP
        BEGIN
            PERFORM pg_sleep(3600);
        EXCEPTION WHEN query_canceled THEN NULL;
        END;
    END LOOP;
END $$
"""
AT_WORK = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


@pytest.fixture(params=EVERY_GROUND)
def ground(request: pytest.FixtureRequest) -> Ground:
    return ground_of(request)


@pytest.fixture(params=["18 plain"])
def plain(request: pytest.FixtureRequest) -> Ground:
    return ground_of(request)


def driver_of(store: object) -> PostgresDriver:
    assert isinstance(store, Catalog)
    assert isinstance(store.driver, PostgresDriver)
    return store.driver


def at_work(place: Place) -> list[int]:
    return sorted(pid for (pid,) in place.sql(AT_WORK))


def begun(worker: Worker, who: Identity = ALICE, limit: float = PATIENCE, text: str = STUBBORN) -> asyncio.Task[None]:
    async def run() -> None:
        async with worker.joins(who.name, limit) as joined:
            await joined.run_text(text, who, MOST)

    return asyncio.ensure_future(run())


async def given_up(text: asyncio.Task[None]) -> None:
    text.cancel()
    async with asyncio.timeout(PATIENCE):
        with suppress(asyncio.CancelledError, HoraeError):
            await text


def test_a_text_that_catches_its_cancel_is_ended_with_its_session_and_its_locks(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        text = begun(worker)
        await until(lambda: at_work(ground.place))
        await given_up(text)
        async with asyncio.timeout(PATIENCE):
            await ran(worker, "INSERT INTO things VALUES ('mine')", BOB)
        await until(lambda: not at_work(ground.place))
        driver = driver_of(worker.store)
        await until(lambda: not driver._hoarders._ending)
        assert driver._hoarders._watched == set()
        # It was the text that went on, not the server that was silent: nobody doubts the other connections.
        assert driver._trust.doubted_at == float("-inf")

    with_people(ground, body, ALICE, BOB, setup=SETUP)


def test_it_keeps_its_owner_s_turn_and_is_watched_until_it_is_gone(
    plain: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_left = runaway_sessions._END_LEFT
    monkeypatch.setattr(runaway_sessions, "_END_LEFT", "SELECT 1 WHERE %s > 0 AND %s > 0")

    async def body(worker: Worker) -> None:
        driver = driver_of(worker.store)
        text = begun(worker)
        [pid] = await until(lambda: at_work(plain.place))
        await given_up(text)
        await until(lambda: at_work(plain.place) == [pid])
        assert driver._hoarders._watched == {pid}
        assert list(driver._text_turns._owners) == ["alice"]
        monkeypatch.setattr(runaway_sessions, "_END_LEFT", end_left)
        await until(lambda: not driver._text_turns._owners)
        await until(lambda: not at_work(plain.place))
        assert driver._hoarders._watched == set()

    with_people(plain, body, ALICE, setup=SETUP)


def test_what_a_node_that_died_has_left_is_ended_by_another_when_its_time_is_over(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> None:
        """As of a process that was killed: nobody is there to end anything."""

    def nothing(self: SessionWatcher, session: MarkedSession) -> asyncio.Task[Any]:
        return asyncio.ensure_future(gone())

    monkeypatch.setattr(SessionWatcher, "end", nothing)
    monkeypatch.setattr(runaway_sessions, "SPARE", 0)

    async def body(worker: Worker) -> None:
        place = ground.place
        lasting = begun(worker, limit=100 * PATIENCE, text=STUBBORN.replace("'mine'", "'lasting'"))
        [others] = await until(lambda: at_work(place))
        over = begun(worker, limit=1.0)
        await until(lambda: len(at_work(place)) == 2)
        for text in (lasting, over):
            await given_up(text)
        await until(lambda: len(at_work(place)) == 2)
        heir = place.store()
        await heir.open()

        async def is_swept() -> bool:
            await heir.sweep()
            return at_work(place) == [others]

        await until(is_swept)
        await heir.close()
        ground.server.terminate_backends(ground.url)

    with_people(ground, body, ALICE, setup=SETUP)


def test_who_holds_the_lock_of_one_mark_does_not_keep_others_from_theirs(
    plain: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def draw(_: int) -> int:
        drawn.append(len(drawn) // 2)
        return drawn[-1]

    monkeypatch.setattr(runaway_sessions, "randrange", draw)

    async def body(worker: Worker) -> None:
        with psycopg.connect(plain.url, autocommit=True) as stranger:
            stranger.execute("SELECT pg_advisory_lock(%s::int, %s::int)", (runaway_sessions._OURS << 16, int(PATIENCE)))
            await ran(worker, "SELECT 1", BOB)
        assert drawn == [0, 0, 1]

    with_people(plain, body, BOB, setup=SETUP)
