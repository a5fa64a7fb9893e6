"""On SQLite the hot statements use their indexes, with the statistics of a million jobs and with none at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.store.plan_guards import GUARDS, JOBS, RUNS, UNDER_WAY, Guard, faults_of_sqlite_plan

from horae.store.catalog.catalog import Catalog
from horae.store.driver import statements
from horae.store.sqlite import read_connections
from horae.store.sqlite.driver import SqliteDriver

_EACH = pytest.mark.parametrize(
    "guard",
    GUARDS,
    ids=str,
)

_PLANTED = [
    # Rows in the index, then rows for each value of its first column, of its first two, and so on.
    ("jobs", "jobs", f"{JOBS} 1"),
    ("jobs", "sqlite_autoindex_jobs_2", f"{JOBS} 1"),
    ("jobs", "jobs_wake", f"{JOBS} 500 1"),
    ("job_runs", "sqlite_autoindex_job_runs_1", f"{RUNS} 1"),
    ("job_runs", "sqlite_autoindex_job_runs_2", f"{RUNS} 5 1"),
    ("job_runs", "job_runs_manual", f"{RUNS // 100} 5 1"),
    ("job_runs", "job_runs_active", f"{UNDER_WAY} 1"),
    ("job_runs", "job_runs_claim", f"{UNDER_WAY // 2} 5"),
    ("job_runs", "job_runs_deadline", f"{UNDER_WAY // 2} 5"),
    ("job_runs", "job_runs_completed", f"{RUNS - UNDER_WAY} 10"),
    ("task_runs", "task_runs", f"{RUNS} 1 1"),
    ("task_attempts", "task_attempts", f"{RUNS} 1 1 1"),
    ("job_versions", "job_versions", f"{JOBS} 1 1"),
    ("job_dependencies", "job_dependencies", f"{JOBS // 100} 1 1"),
    ("job_dependencies", "job_dependencies_on", f"{JOBS // 100} 2"),
]


async def _created(path: Path) -> None:
    store = Catalog(SqliteDriver(str(path)))
    await store.open()
    await store.close()


def _opened(path: Path) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute("ATTACH ? AS sys", (str(path),))
    read_connections.register(connection)
    return connection


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, apsw.Connection]]:
    """Connections to a catalog with planted statistics and to one that was never analysed, which is the usual one."""
    folder = tmp_path_factory.mktemp("plans")
    found = {}
    for name in ("planted", "never analysed"):
        path = folder / f"{name}.db"
        asyncio.run(_created(path))
        if name == "planted":
            connection = _opened(path)
            connection.execute("ANALYZE sys")
            connection.execute("DELETE FROM sys.sqlite_stat1")
            connection.executemany("INSERT INTO sys.sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)", _PLANTED)
            connection.close()
        # Statistics are read when a schema is loaded, so by a connection opened after they were written.
        found[name] = _opened(path)
    yield found
    for connection in found.values():
        connection.close()


def _steps(connection: apsw.Connection, guard: Guard) -> list[str]:
    statement = statements("sqlite")[guard.name]
    if statement.columns is None:
        given = {name: json.dumps(value) if isinstance(value, list) else value for name, value in guard.parameters}
        return _explained(connection, statement.text, given)
    order = {name: f"?{index}" for index, name in enumerate(statement.columns, 1)}
    return _explained(connection, statement.with_parameters(lambda name: order[name]), (None,) * len(order))


def _explained(connection: apsw.Connection, text: str, given: Any) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", given)]


@_EACH
def test_a_hot_statement_uses_its_index_at_a_million_jobs(guard: Guard, catalogs: dict[str, apsw.Connection]) -> None:
    steps = _steps(catalogs["planted"], guard)
    assert not faults_of_sqlite_plan(guard, steps), steps


@_EACH
def test_a_hot_statement_uses_its_index_in_a_catalog_nobody_analysed(
    guard: Guard, catalogs: dict[str, apsw.Connection]
) -> None:
    steps = _steps(catalogs["never analysed"], guard)
    assert not faults_of_sqlite_plan(guard, steps), steps


def test_the_planted_statistics_name_indexes_that_exist(catalogs: dict[str, apsw.Connection]) -> None:
    schema = list(catalogs["planted"].execute("SELECT type, tbl_name, name FROM sys.sqlite_schema"))
    indexes = {(table, name) for kind, table, name in schema if kind == "index"}
    keys = {(table, table) for kind, table, _ in schema if kind == "table"}
    assert {(table, index) for table, index, _ in _PLANTED} <= indexes | keys


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ("jobs_wake", "lock_due_jobs"),
        ("job_runs_claim", "claimable_runs"),
        ("job_runs_active", "active_runs"),
        ("job_runs_deadline", "lock_late_runs"),
        ("job_runs_manual", "latest_in_window"),
    ],
)
def test_without_its_index_a_hot_statement_is_refused_and_would_be_found_out(
    index: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "dropped.db"
    asyncio.run(_created(path))
    guard = next(each for each in GUARDS if each.name == name)
    connection = _opened(path)
    connection.execute(f"DROP INDEX sys.{index}")
    with pytest.raises(apsw.SQLError, match=f"no such index: {index}"):
        _steps(connection, guard)
    text = statements("sqlite")[name].text.replace(f"INDEXED BY {index}", "")
    given = {key: json.dumps(value) if isinstance(value, list) else value for key, value in guard.parameters}
    assert f"does not use {index}" in faults_of_sqlite_plan(guard, _explained(connection, text, given))
    connection.close()
