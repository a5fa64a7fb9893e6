"""A catalog on each kind of store, for tests that are the same on both, with a plain SQL door beside the verbs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.schedules import Cron, Schedule
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.protocols.store import Store
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.clock import ManualClock

PATIENCE = 60.0
"""Seconds that anybody here waits for a store: so long only where what is waited for never comes."""


class Place:
    """Where a catalog lives: opens stores on it, and runs SQL as any other client would."""

    def __init__(self, kind: str, target: str) -> None:
        self.kind = kind
        self.target = target

    @property
    def url(self) -> str:
        return f"sqlite:///{self.target}" if self.kind == "sqlite" else self.target

    def store(self, clock: ManualClock | None = None) -> Catalog:
        now = None if clock is None else clock.now
        if self.kind == "sqlite":
            return Catalog(SqliteDriver(self.target, clock=now, patience=PATIENCE))
        return Catalog(PostgresDriver(self.target, clock=now, connections=3, patience=PATIENCE))

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """What another client sees: `sys` is the schema on PostgreSQL, the attached file on SQLite."""
        if self.kind == "sqlite":
            connection = apsw.Connection(":memory:")
            try:
                connection.set_busy_timeout(int(PATIENCE * 1000))
                connection.execute("ATTACH ? AS sys", (self.target,))
                return connection.execute(text).fetchall()
            finally:
                connection.close()
        with psycopg.connect(self.target, autocommit=True) as session:
            cursor = session.execute(text.encode())
            return cursor.fetchall() if cursor.description is not None else []


def sqlite_place(folder: Path) -> Place:
    return Place("sqlite", str(folder / "horae.db"))


async def opened(place: Place, clock: ManualClock | None, body: Callable[[Store], Awaitable[None]]) -> None:
    """Runs `body` with an open store."""
    store = place.store(clock)
    await store.open()
    try:
        await body(store)
    finally:
        await store.close()


def minutely(name: str = "a", schedule: Schedule | None = None, **settings: Any) -> JobSpec:
    return JobSpec(name, schedule or Cron("* * * * *"), (TaskSpec("t"),), settings)
