"""New catalogs on SQLite are copies of one that each process of the tests migrates once.

A run opens thousands of new files, and the migrations would be most of what a small test does. What migrates is tested
where it is called by name (`tests/store/test_migrations.py`), and by every test that starts a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import apsw
import pytest

from horae.store.catalog import catalog
from horae.store.driver import Driver
from horae.store.schema import check_catalog, migrate
from horae.store.sqlite.driver import SqliteDriver


async def _pages() -> bytes:
    driver = SqliteDriver(":memory:")
    await driver.open()
    await migrate(driver)
    pages = driver.connection.serialize("sys")
    await driver.close()
    return pages


@pytest.fixture(scope="session", autouse=True)
def new_catalogs_are_copies() -> Iterator[None]:
    migrated = apsw.Connection(":memory:")
    migrated.deserialize("main", asyncio.run(_pages()))

    async def check(driver: Driver) -> None:
        if isinstance(driver, SqliteDriver):
            # No await between the look and the copy: nobody else here opens the same file meanwhile.
            connection = driver.connection
            if not connection.execute("SELECT count(*) FROM sys.sqlite_schema").get:
                with connection.backup("sys", migrated, "main") as copy:
                    copy.step()
                async with driver.migration() as migrator:
                    connection.execute("UPDATE sys.schema_migrations SET applied_at = ?", (migrator.now,))
        await check_catalog(driver)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "check_catalog", check)
        yield
    migrated.close()
