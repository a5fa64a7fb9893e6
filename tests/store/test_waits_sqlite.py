"""Nobody waits for ever for a transaction or a look of their own process: SQLite."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from horae.errors import StoreUnavailable
from horae.store.sqlite.driver import SqliteDriver
from horae.store.sqlite.read_connections import MOST_READERS

GUARD = 60.0
BRIEF = 0.05


def driver_of(path: Path) -> SqliteDriver:
    return SqliteDriver(str(path / "horae.db"), patience=BRIEF)


async def fails(block: AbstractAsyncContextManager[Any], said: str) -> None:
    with pytest.raises(StoreUnavailable, match=said):
        async with asyncio.timeout(GUARD), block:
            pass


@pytest.mark.parametrize("write", [True, False], ids=["to write", "to read"])
def test_a_transaction_that_another_of_its_process_keeps_open_is_waited_for_with_patience(
    tmp_path: Path, *, write: bool
) -> None:
    async def main() -> None:
        driver = driver_of(tmp_path)
        await driver.open()
        async with driver.transaction():
            await fails(driver.transaction(write=write), "kept .* for 0.05 s")
        async with driver.transaction(write=write):
            pass
        await driver.close()

    asyncio.run(main())


def test_a_look_that_finds_no_room_is_told_so_with_patience(tmp_path: Path) -> None:
    async def main() -> None:
        driver = driver_of(tmp_path)
        await driver.open()
        async with AsyncExitStack() as looks:
            for _ in range(MOST_READERS):
                await looks.enter_async_context(driver.looking())
            await fails(driver.looking(), "have not ended")
        async with driver.looking():
            pass
        await driver.close()

    asyncio.run(main())
