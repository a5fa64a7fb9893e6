"""A disk that is full: a clear error, nothing torn, and everything as before once there is room again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.torture.crew import define, due_jobs, finish_alone, success
from tests.torture.drivers import TappedCatalog, TappedSqlite, opened
from tests.torture.evidence import Snapshot, check_finished, dump, integrity

from horae.errors import StoreFull
from horae.store.records import Capacity, OutputChunk

JOBS = 200
ENDLESS = 1_073_741_823


def limit_pages(store: TappedCatalog, spare: int | None) -> None:
    """Lets the file grow by so many pages from now on, or as it likes."""
    assert isinstance(store.driver, TappedSqlite)
    connection = store.driver.connection
    pages = ENDLESS if spare is None else int(connection.pragma("page_count", schema="sys")) + spare
    connection.execute(f"PRAGMA sys.max_page_count = {pages}").fetchall()


async def define_more(store: TappedCatalog, node: UUID) -> Any:
    return await store.define(due_jobs(JOBS, "more"), source="operator")


async def plan_fused(store: TappedCatalog, node: UUID) -> Any:
    return await store.create_due_runs(start=Capacity(str(node), JOBS))


async def plan_only(store: TappedCatalog, node: UUID) -> Any:
    return await store.create_due_runs()


async def write_much(store: TappedCatalog, node: UUID) -> Any:
    return await store.write_output([OutputChunk(1, 0, 1, f"attempt_{uuid4()}", 0, "x" * 1_000_000)])


@pytest.mark.parametrize("spare", [0, 1, 7])
@pytest.mark.parametrize("verb", [define_more, plan_fused, plan_only, write_much])
def test_a_full_disk_is_told_tears_nothing_and_is_forgotten_when_there_is_room(
    verb: Callable[[TappedCatalog, UUID], Awaitable[Any]], spare: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "horae.db")

    async def scenario() -> None:
        await define(path, due_jobs(JOBS))
        node = uuid4()
        async with opened(path) as store:
            await store.join(node)
            before = dump(path)
            limit_pages(store, spare)
            for _ in range(2):
                with pytest.raises(StoreFull, match="cannot grow") as told:
                    await verb(store, node)
                assert "nothing of this transaction was written" in (told.value.hint or "")
                assert told.value.__cause__ is not None
                assert dump(path) == before
                assert integrity(path) == [("ok",)]
            assert len(await store.jobs()) == JOBS, "what is there can still be read"
            limit_pages(store, None)
            await verb(store, node)
            assert dump(path) != before
            await store.leave(node)
            await finish_alone(store, uuid4())
            assert await store.runs(active=True) == ()
        Snapshot(path).check()
        assert integrity(path) == [("ok",)]

    asyncio.run(scenario())


def test_runs_that_cannot_be_settled_on_a_full_disk_are_settled_by_the_same_call_later(tmp_path: Path) -> None:
    path = str(tmp_path / "horae.db")

    async def scenario() -> None:
        await define(path, due_jobs(JOBS))
        node = uuid4()
        async with opened(path) as store:
            await store.join(node)
            claims = (await store.create_due_runs(start=Capacity(str(node), JOBS))).claims
            assert len(claims) == JOBS
            ends = [success(claim) for claim in claims]
            huge = [each._replace(ends=(each.ends[0]._replace(result='"' + "x" * 5000 + '"'),)) for each in ends]
            before = dump(path)
            limit_pages(store, 0)
            with pytest.raises(StoreFull):
                await store.settle(node, huge)
            assert dump(path) == before
            limit_pages(store, None)
            assert {answer.verdict for answer in await store.settle(node, huge)} == {"SETTLED"}
        check_finished(path, JOBS, set())
        assert integrity(path) == [("ok",)]

    asyncio.run(scenario())
