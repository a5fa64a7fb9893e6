"""The schema: the same on both stores, its states from the lifecycle tables, its keys the last word."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import apsw
import pytest
from tests.store.catalogs import Place, minutely, opened, sqlite_place
from tests.store.databases import Databases
from tools.generate import SCHEMAS, schema_file

from horae.core.run.lifecycle import ATTEMPTS, RUNS, TASK_RUNS, JobState, StateMachine
from horae.store.driver import statements
from horae.store.protocols.store import Store
from horae.store.schema import migrations
from horae.testing.clock import ManualClock

SOURCE = Path(__file__).parents[2] / "src" / "horae" / "store"
CANONICAL = {
    "jobs": "job_uuid job_name description job_class job_type job_sql procedure_uuid external_command schedule_kind "
    "cron_expression interval_seconds starts_at ends_at schedule_tz next_run_time on_completion partition_strategy "
    "partition_shard_uuid partition_expression max_retries retry_backoff_seconds timeout_seconds created_by_user_uuid "
    "run_as_role_uuid created_at state",
    "job_runs": "job_run_uuid job_uuid assigned_node_uuid shard_uuid scheduled_time started_at completed_at state "
    "retry_count result_message rows_affected result_data error_code",
    "job_dependencies": "job_uuid depends_on_job_uuid",
    "job_secrets": "job_uuid secret_key secret_value",
    "cb_schedules": "id name kind cron_spec next_run_at last_run_at last_enqueued_at enabled created_at updated_at",
}
ONLY_SQLITE = {"counters", "sqlite_sequence"}


async def _nothing(store: Store) -> None:
    return None


def columns(place: Place) -> dict[str, set[str]]:
    asyncio.run(opened(place, None, _nothing))
    if place.kind == "sqlite":
        names = [row[0] for row in place.sql("SELECT name FROM sys.sqlite_schema WHERE type IN ('table', 'view')")]
        return {name: {row[1] for row in place.sql(f"PRAGMA sys.table_info({name})")} for name in names}
    found: dict[str, set[str]] = {}
    for table, column in place.sql(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'sys'"
    ):
        found.setdefault(table, set()).add(column)
    return found


def test_the_tables_and_columns_of_the_published_catalog_are_there_under_their_names(place: Place) -> None:
    found = columns(place)
    for table, names in CANONICAL.items():
        assert set(names.split()) <= found[table], table


def test_both_stores_have_the_same_tables_and_columns(databases_18: Databases, tmp_path: Path) -> None:
    found = columns(sqlite_place(tmp_path))
    other = columns(Place("postgres", databases_18.emptied()))
    assert {name: each for name, each in found.items() if name not in ONLY_SQLITE} == other


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("table", "machine"), [("job_runs", RUNS), ("task_runs", TASK_RUNS), ("task_attempts", ATTEMPTS)]
)
def test_states_are_checked_from_the_lifecycle_tables(dialect: str, table: str, machine: StateMachine) -> None:
    text = migrations(dialect)[0].text
    body = text[text.index(f"CREATE TABLE sys.{table} (") :]
    check = body[body.index("state ") : body.index("),\n" if dialect == "sqlite" else ")),\n")]
    assert set(re.findall(r"'([A-Z_]+)'", check)) == set(machine.states)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_job_has_no_state_but_the_three(dialect: str) -> None:
    text = migrations(dialect)[0].text
    body = text[
        text.index("CREATE TABLE sys.jobs (") : text.index("CREATE INDEX", text.index("CREATE TABLE sys.jobs ("))
    ]
    assert set(re.findall(r"'([A-Z]+)'", body[body.index("    state ") : body.index("namespace")])) == set(JobState)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_schema_sql_is_the_sum_of_the_migrations(dialect: str) -> None:
    assert SCHEMAS[dialect].read_text() == schema_file(dialect), "run make golden"


def test_a_catalog_made_from_schema_sql_is_the_one_the_migrations_make(tmp_path: Path) -> None:
    place = Place("sqlite", str(tmp_path / "migrated.db"))
    asyncio.run(opened(place, None, _nothing))
    by_hand = apsw.Connection(":memory:")
    by_hand.execute("ATTACH ? AS sys", (str(tmp_path / "schema.db"),))
    by_hand.execute(SCHEMAS["sqlite"].read_text()).fetchall()
    query = "SELECT type, name, sql FROM sys.sqlite_schema ORDER BY type, name"
    assert by_hand.execute(query).fetchall() == place.sql(query)
    by_hand.close()


def test_both_dialects_have_the_same_statements_with_the_same_rows() -> None:
    sqlite, postgres = statements("sqlite"), statements("postgres")
    assert {name: each.columns for name, each in sqlite.items()} == {
        name: each.columns for name, each in postgres.items()
    }


def test_every_statement_is_used() -> None:
    code = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    unused = [name for name in (*statements("sqlite"), *statements("postgres", "alone")) if f'"{name}"' not in code]
    assert not unused


def test_the_documented_query_works_word_for_word(place: Place) -> None:
    async def body(store: Store) -> None:
        await store.define([minutely("b"), minutely("a")])

    asyncio.run(opened(place, ManualClock(), body))
    rows = place.sql("SELECT job_name, state, next_run_time FROM sys.jobs ORDER BY next_run_time")
    assert sorted(row[:2] for row in rows) == [("a", "ENABLED"), ("b", "ENABLED")]
    assert all(row[2] == 1_767_225_660_000 for row in rows)
    job = place.sql("SELECT job_uuid FROM sys.jobs WHERE job_name = 'a'")[0][0]
    assert place.sql(f"SELECT * FROM sys.job_runs WHERE job_uuid = '{job}'") == []


def test_a_second_run_of_one_slot_is_refused_by_the_keys(place: Place) -> None:
    async def body(store: Store) -> None:
        clock.advance("1m")
        await store.define([minutely()])
        clock.advance("1m")
        assert (await store.create_due_runs()).born == 1

    clock = ManualClock()
    asyncio.run(opened(place, clock, body))
    copied = "job_uuid, scheduled_time, state, idempotency_key, version, chosen_time, fence, not_before, created_at"
    other = "'00000000-0000-4000-8000-000000000001'"
    for uuid, key in ((other, "idempotency_key"), ("job_run_uuid", "'another'")):
        values = copied.replace("idempotency_key", key)
        with pytest.raises((apsw.ConstraintError, Exception), match=r"(?i)unique"):
            place.sql(
                f"INSERT INTO sys.job_runs (run_no, job_run_uuid, {copied})"
                f" SELECT 9, {uuid}, {values} FROM sys.job_runs"
            )
    assert place.sql("SELECT count(*) FROM sys.job_runs") == [(1,)]


def test_a_cursor_set_back_by_hand_runs_no_slot_again(place: Place) -> None:
    async def body(store: Store) -> None:
        await store.define([minutely(misfire_grace="1h", recovery="all")])
        clock.advance("3m")
        await store.create_due_runs()
        before = await store.runs()
        place.sql("UPDATE sys.jobs SET planned_until = planned_until - 180000, wake_at = 0")
        planned = await store.create_due_runs()
        assert planned.born == 0
        assert await store.runs() == before

    clock = ManualClock()
    asyncio.run(opened(place, clock, body))


def test_a_state_that_is_none_is_refused_by_the_table(place: Place) -> None:
    async def body(store: Store) -> None:
        await store.define([minutely()])
        clock.advance("1m")
        await store.create_due_runs()

    clock = ManualClock()
    asyncio.run(opened(place, clock, body))
    with pytest.raises((apsw.ConstraintError, Exception), match=r"(?i)check"):
        place.sql("UPDATE sys.job_runs SET state = 'HALFWAY'")
    with pytest.raises((apsw.ConstraintError, Exception), match=r"(?i)check"):
        place.sql("UPDATE sys.job_runs SET state = 'COMPLETED'")


def test_text_that_is_hard_to_quote_comes_back_as_it_was(place: Place) -> None:
    hard = "quote \" backslash \\ brace {} comma , NULL null % ' é 漢 \t newline \n end"

    async def body(store: Store) -> None:
        spec = minutely("tags").to_dict() | {"description": hard, "payload": {"text": hard, "empty": "", "none": None}}
        await store.define([type(minutely()).from_dict(spec)])
        await store.set_state("tags", JobState.PAUSED, note=hard)
        (record,) = await store.jobs()
        assert record.definition.spec.description == hard
        assert record.definition.spec.payload == {"text": hard, "empty": "", "none": None}
        assert record.pause_note == hard

    asyncio.run(opened(place, ManualClock(), body))
