"""Catalogs for tests on a real PostgreSQL: one database per worker, emptied between tests, which is ten times faster
than a new one each."""

from __future__ import annotations

import asyncio

from tools.postgres import PostgresServer

from horae.store.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver

_EMPTY = """
DO $$
DECLARE found text;
BEGIN
    SELECT string_agg(format('sys.%I', tablename), ', ') INTO found
    FROM pg_tables WHERE schemaname = 'sys' AND tablename NOT IN ('schema_migrations', 'users');
    EXECUTE 'TRUNCATE ' || found || ' RESTART IDENTITY CASCADE';
    DELETE FROM sys.users WHERE user_name <> 'local';
    UPDATE sys.users SET password_hash = NULL WHERE user_name = 'local';
    PERFORM setval('sys.run_numbers', 1, false);
END $$
"""


class Databases:
    """Catalogs on one server."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._url: str | None = None

    def emptied(self) -> str:
        """The URL of a migrated catalog without content; the same one each time."""
        if self._url is None:
            self._url = self.fresh()
        self.server.terminate_backends(self._url)
        self.server.execute(_EMPTY, database=self._url.rsplit("/", 1)[1])
        return self._url

    def fresh(self) -> str:
        """The URL of a new database with an empty catalog."""
        url = self.server.create_database()
        asyncio.run(_migrated(url))
        return url


async def _migrated(url: str) -> None:
    store = Catalog(PostgresDriver(url))
    await store.open()
    await store.close()
