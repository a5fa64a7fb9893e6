"""Many statements and long ones: whatever else runs in the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.store.catalogs import PATIENCE, sqlite_place

from horae.core.access import LOCAL_NAME, Principal, user_uuid
from horae.errors import HoraeError, InvalidInput
from horae.services.service import Service
from horae.services.sql.script import read
from horae.services.sql.session import LONG_TEXT, READING_VERBS, SqlSession
from horae.services.turns import MOST_SELECTING, turns
from horae.store.catalog.catalog import Catalog
from horae.store.records import Rows

MANY = 40
SHOW = ";".join(["SHOW JOBS"] * MANY)


def with_a_store(tmp_path: Path, work: Callable[[Catalog], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = sqlite_place(tmp_path).store()
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(whole())


async def turns_during(work: Awaitable[object]) -> int:
    """How often something else in the loop had a turn."""
    counted = 0

    async def count() -> None:
        nonlocal counted
        while True:
            counted += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    try:
        await work
    finally:
        counting.cancel()
    return counted


async def carried_out(store: Catalog, text: str, *, each: bool = False, most: int | None = None) -> list[str]:
    found = SqlSession(Service(store)).results(text, each=each, most=most)
    return [result.statement async for result in found]


@pytest.mark.parametrize(
    ("text", "each"),
    [
        (SHOW, False),
        (SHOW, True),
        (f"{SHOW}; CREATE ROLE last", False),
        (f"CREATE ROLE first; {SHOW}", False),
        (f"CREATE ROLE first; {SHOW}; CREATE ROLE last", False),
    ],
    ids=["reading", "each", "before", "after", "between"],
)
def test_others_have_a_turn_after_every_statement(tmp_path: Path, text: str, each: bool) -> None:
    async def work(store: Catalog) -> None:
        assert await turns_during(carried_out(store, text, each=each)) >= MANY

    with_a_store(tmp_path, work)


def test_a_long_text_is_read_while_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, others_had_turns = Event(), Event()

    def slowly(text: str, most: int | None) -> Any:
        begun.set()
        assert others_had_turns.wait(PATIENCE), "the loop waits for the reader"
        return read(text, most)

    async def work(store: Catalog) -> None:
        monkeypatch.setattr("horae.services.sql.session.read", slowly)
        reading = asyncio.ensure_future(carried_out(store, "SHOW " + "(" * 15 * LONG_TEXT))
        while not begun.is_set():
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        others_had_turns.set()
        with pytest.raises(HoraeError):
            await reading

    with_a_store(tmp_path, work)


def test_more_statements_than_may_be_are_refused_before_one_is_carried_out(tmp_path: Path) -> None:
    async def work(store: Catalog) -> None:
        text = "CREATE ROLE first; SHOW JOBS; SHOW JOBS"
        with pytest.raises(InvalidInput, match="more than 2 statements") as refused:
            await carried_out(store, text, most=2)
        assert refused.value.hint == "Split it, or send the statements one by one (--each)."
        assert await store.role_grants("first") is None
        assert len(await carried_out(store, text, most=3)) == 3

    with_a_store(tmp_path, work)


def test_statements_that_only_read_are_called_so(tmp_path: Path) -> None:
    async def work(store: Catalog) -> None:
        await carried_out(store, "CREATE JOB a SCHEDULE = NONE AS 'SELECT 1'")
        text = "SELECT 1; SHOW JOBS; SHOW JOB RUNS FOR a; SHOW CREATE JOB a; EXPLAIN JOB a"
        assert set(await carried_out(store, text)) == READING_VERBS

    with_a_store(tmp_path, work)


def test_one_users_selects_wait_for_each_other_and_no_more_than_two_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[str] = []
    leave = asyncio.Event()

    async def slow(self: Catalog, sql: str, *, most: int, seconds: float, own: bool, viewer: bool) -> Rows:
        under_way.append(sql)
        await leave.wait()
        return Rows((), 0)

    async def work(store: Catalog) -> None:
        monkeypatch.setattr(Catalog, "select", slow)
        asked = [
            asyncio.ensure_future(Service(store, Principal(name, user_uuid(name), is_admin=True)).select(name))
            for name in ("ann", "ann", "bob", "eve")
        ]
        async with asyncio.timeout(PATIENCE):
            while len(under_way) < 2:
                await asyncio.sleep(0)
        # Everybody has had turns enough by then: whoever is not under way waits for another.
        for _ in range(100):
            await asyncio.sleep(0)
        assert under_way == ["ann", "bob"]
        leave.set()
        await asyncio.gather(*asked)
        assert sorted(under_way) == ["ann", "ann", "bob", "eve"]

    with_a_store(tmp_path, work)


def test_several_may_be_local_at_once(tmp_path: Path) -> None:
    async def work(store: Catalog) -> None:
        async with asyncio.timeout(PATIENCE), turns(store).taken(LOCAL_NAME), turns(store).taken(LOCAL_NAME):
            assert MOST_SELECTING == 2

    with_a_store(tmp_path, work)
