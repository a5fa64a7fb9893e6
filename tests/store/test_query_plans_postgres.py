"""On PostgreSQL the hot statements use their indexes at a million jobs and five million runs, however they are planned.

A few thousand representative rows are analysed for real; then the planner is told that there are many more. It takes
the number of rows from pg_class but looks up the number of pages itself, so tables seem dense here, and reading them
whole seems cheaper than it is: what avoids that here avoids it at full size too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.store.databases import Databases
from tests.store.plan_guards import ALONE, GUARDS, JOBS, NOW, RUNS, Guard, faults_of_postgres_plan, rows_for
from tests.tier import ON_16

from horae.store.driver import statements
from horae.store.postgres.arrays import array_literal, column_literal

_EACH = pytest.mark.parametrize(
    ("guard", "times"),
    [
        pytest.param(
            guard,
            times,
            id=f"{guard}-{'at first' if times == 1 else 'in the long run'}",
        )
        for guard in (*GUARDS, *ALONE)
        for times in (1, 6)
    ],
)
"""The first five times the server plans for the parameters given; then it may settle on one plan for all of them."""

_SAMPLE = 20_000
"""Runs really there: the last 40 are under way, a hundredth of the rest were asked for by people."""

_ROWS = f"""
ALTER TABLE sys.jobs SET (autovacuum_enabled = false);
ALTER TABLE sys.job_runs SET (autovacuum_enabled = false);
ALTER TABLE sys.task_runs SET (autovacuum_enabled = false);
ALTER TABLE sys.task_attempts SET (autovacuum_enabled = false);
ALTER TABLE sys.job_versions SET (autovacuum_enabled = false);
INSERT INTO sys.jobs (
    job_no, job_uuid, job_name, job_type, schedule_kind, created_by_user_uuid, created_at, namespace, version,
    schedule_text, planned_until, next_run_time, wake_at, updated_at
)
SELECT n, md5('job' || n)::uuid, 'job-' || lpad((n * 250)::text, 7, '0'), 'PYTHON', 'CRON',
    (SELECT user_uuid FROM sys.users), {NOW}, 'default', 1, '* * * * *', {NOW}, wakes, wakes, {NOW}
FROM (SELECT n, {NOW} + (n % 3600 - 60) * 1000::bigint AS wakes FROM generate_series(1, {_SAMPLE // 5}) n) each;
INSERT INTO sys.job_versions (job_uuid, version, definition, source, author, created_at)
SELECT job_uuid, 1, repeat('x', 300), 'code', 'local', {NOW} FROM sys.jobs;
INSERT INTO sys.job_dependencies (job_uuid, depends_on_job_uuid)
SELECT md5('job' || n)::uuid, md5('job' || n + 1)::uuid FROM generate_series(1, {_SAMPLE // 5 - 1}, 100) n;
INSERT INTO sys.job_runs (
    run_no, job_run_uuid, job_uuid, assigned_node_uuid, scheduled_time, started_at, completed_at, state,
    idempotency_key, version, origin, chosen_time, not_before, waiting_for, deadline_at, fence, resumed_at,
    expires_at, limited, requires, created_at
)
SELECT n, md5('run' || n)::uuid, md5('job' || n % {_SAMPLE // 5} + 1)::uuid, md5('node' || n % 20)::uuid, at,
    CASE WHEN n <= {_SAMPLE} - 25 THEN at END, CASE WHEN n <= {_SAMPLE} - 40 THEN at + 50 END,
    CASE WHEN n <= {_SAMPLE} - 40 THEN 'COMPLETED' WHEN n <= {_SAMPLE} - 25 THEN 'RUNNING' ELSE 'PENDING' END,
    CASE WHEN n % 100 = 0 THEN 'trigger:' || n ELSE 'schedule:' || at / 1000 END, 1,
    CASE WHEN n % 100 = 0 THEN 'TRIGGER' ELSE 'SCHEDULE' END, at,
    CASE WHEN n > {_SAMPLE} - 25 THEN at END,
    CASE WHEN n > {_SAMPLE} - 25 AND n % 5 = 0 THEN 'window' WHEN n > {_SAMPLE} - 25 AND n % 5 = 1 THEN 'retry' END,
    CASE WHEN n > {_SAMPLE} - 25 AND n % 2 = 0 THEN at + 60000 END, 1,
    CASE WHEN n > {_SAMPLE} - 40 AND n <= {_SAMPLE} - 25 THEN at END, at + 3600000, n % 50 = 0,
    CASE WHEN n % 2 = 0 THEN '["handler"]' END, at
FROM (SELECT n, {NOW} - ({_SAMPLE} - n) * 1000::bigint AS at FROM generate_series(1, {_SAMPLE}) n) each;
INSERT INTO sys.task_runs (run_no, position, task_name, state, attempts, started_at, completed_at)
SELECT n, 0, 'task', 'SUCCESS', 1, {NOW}, {NOW} FROM generate_series(1, {_SAMPLE}) n;
INSERT INTO sys.task_attempts (run_no, position, attempt_no, state, fence, started_at, ended_at)
SELECT n, 0, 1, 'SUCCESS', 1, {NOW}, {NOW} FROM generate_series(1, {_SAMPLE}) n;
INSERT INTO sys.audit (at, event, actor, outcome, position)
SELECT {NOW}, 'JOB_EXECUTED', 'node', 'OK', CASE WHEN n <= {_SAMPLE} - 40 THEN n END
FROM generate_series(1, {_SAMPLE}) n;
ANALYZE;
"""

_PLANT = f"""
UPDATE pg_class c SET
    reltuples = c.reltuples * CASE WHEN t.relname IN ('jobs', 'job_versions', 'job_dependencies')
        THEN {JOBS}::real / {_SAMPLE // 5} ELSE {RUNS}::real / {_SAMPLE} END,
    relpages = pg_relation_size(c.oid) / current_setting('block_size')::integer
FROM pg_class t
LEFT JOIN pg_index i ON i.indrelid = t.oid
WHERE t.relnamespace = 'sys'::regnamespace AND c.oid IN (t.oid, i.indexrelid) AND t.relname IN (
    'jobs', 'job_versions', 'job_dependencies', 'job_runs', 'task_runs', 'task_attempts'
);
"""


def _planted(databases: Databases) -> psycopg.Connection[Any]:
    connection = psycopg.connect(databases.fresh(), autocommit=True)
    for part in (_ROWS, _PLANT):
        connection.execute(part.encode())
    return connection


@pytest.fixture(scope="module")
def planted_18(databases_18: Databases) -> Iterator[psycopg.Connection[Any]]:
    with _planted(databases_18) as connection:
        yield connection


@pytest.fixture(scope="module")
def planted_16(databases_16: Databases) -> Iterator[psycopg.Connection[Any]]:
    with _planted(databases_16) as connection:
        yield connection


def _plan(connection: psycopg.Connection[Any], guard: Guard, times: int) -> dict[str, Any]:
    """How a statement is carried out when it is prepared, as the driver has it, and run for the nth time."""
    statement = (statements("postgres") | statements("postgres", "alone"))[guard.name]
    if statement.columns is None:
        # A parameter that only the other database needs has no type here.
        asked = [(name, value) for name, value in guard.parameters if f":{name}" in statement.text]
        numbers = {name: f"${number}" for number, (name, _) in enumerate(asked, 1)}
        text = statement.with_parameters(lambda name: numbers[name] + ("::bigint" if name == "now" else ""))
        given = [array_literal(value) if isinstance(value, list) else value for _, value in asked]
    else:
        arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(statement.types, 1))
        text = statement.with_parameters(lambda _: f"unnest({arrays}) AS given ({', '.join(statement.columns or ())})")
        columns = zip(*rows_for(statement), strict=True)
        given = [column_literal(values, kind) for kind, values in zip(statement.types, columns, strict=True)]
    places = f"({', '.join(['%s'] * len(given))})" if given else ""
    plan: dict[str, Any] = {}
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(f"PREPARE guarded AS {text}".encode())
        try:
            for _ in range(times):
                cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE guarded {places}".encode(), given)
                plan = cursor.fetchall()[0][0][0]["Plan"]
        finally:
            cursor.execute("DEALLOCATE guarded")
    return plan


def _believed(connection: psycopg.Connection[Any], table: str) -> int:
    found = connection.execute(f"EXPLAIN (FORMAT JSON) TABLE sys.{table}".encode()).fetchall()
    return int(found[0][0][0]["Plan"]["Plan Rows"])


@_EACH
def test_a_hot_statement_uses_its_index_on_postgres_18(
    guard: Guard, times: int, planted_18: psycopg.Connection[Any]
) -> None:
    plan = _plan(planted_18, guard, times)
    assert not faults_of_postgres_plan(guard, plan), json.dumps(plan, indent=1)


@ON_16
@_EACH
def test_a_hot_statement_uses_its_index_on_postgres_16(
    guard: Guard, times: int, planted_16: psycopg.Connection[Any]
) -> None:
    plan = _plan(planted_16, guard, times)
    assert not faults_of_postgres_plan(guard, plan), json.dumps(plan, indent=1)


def test_the_planner_believes_in_a_million_jobs_and_five_million_runs(planted_18: psycopg.Connection[Any]) -> None:
    believed = [_believed(planted_18, table) for table in ("jobs", "job_runs", "task_runs", "task_attempts")]
    assert believed == [pytest.approx(each, rel=0.01) for each in (JOBS, RUNS, RUNS, RUNS)]


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ("jobs_wake", "lock_due_jobs"),
        ("job_runs_claim", "claimable_runs"),
        ("job_runs_active", "active_runs"),
        ("job_runs_deadline", "lock_late_runs"),
        ("job_runs_manual", "latest_in_window"),
        ("job_runs_number", "finish_plain_runs"),
    ],
)
def test_without_its_index_a_hot_statement_is_found_out(
    index: str, name: str, planted_18: psycopg.Connection[Any]
) -> None:
    guard = next(each for each in GUARDS if each.name == name)
    planted_18.execute("BEGIN")
    try:
        planted_18.execute(f"DROP INDEX sys.{index}".encode())
        faults = faults_of_postgres_plan(guard, _plan(planted_18, guard, 1))
    finally:
        planted_18.execute("ROLLBACK")
    assert f"does not use {index}" in faults
