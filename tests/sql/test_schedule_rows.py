"""`cb_schedules` changed through our own SQL: as by a client of the database, but with the caller's rights."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import uuid4

import pytest
from tests.sql.stage import Stage
from tests.store.catalogs import opened

from horae.core.time.instant import rfc3339
from horae.errors import AccessDenied, Conflict, InvalidDefinition, InvalidInput, InvalidStatement
from horae.services.service import Service
from horae.services.sql.session import SqlSession
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store

DESIGN = """
-- Backfill existing schedules from worker registration
-- (This happens during deployment coordinator step)

INSERT INTO cb_schedules (name, kind, cron_spec, next_run_at, enabled)
SELECT 
  task_name, 
  'task', 
  '@hourly',  -- Could be parameterized per task
  now(),      -- Or calculate based on cron_spec
  true
FROM cb_task_handlers
WHERE task_name IN ('email_digest', 'cleanup_old_runs') -- Known scheduled tasks
ON CONFLICT (name) DO NOTHING;
"""  # noqa: W291 - the third design's own text, but for its ellipsis
INSERT = "INSERT INTO sys.cb_schedules (name, cron_spec)"


def rows(stage: Stage, *columns: str) -> list[tuple[object, ...]]:
    """What the view shows, by name; booleans as such."""
    found = stage.behind.rows(f"SELECT {', '.join(columns)} FROM sys.cb_schedules ORDER BY name")
    return [
        tuple(bool(value) if column == "enabled" else value for column, value in zip(columns, row, strict=True))
        for row in found
    ]


def requests(stage: Stage) -> int:
    return int(stage.behind.rows("SELECT count(*) FROM sys.schedule_requests")[0][0])


# ---- INSERT ----------------------------------------------------------------------------------------------------------


def test_the_third_designs_own_text_creates_a_schedule_for_each_handler_that_a_live_node_has(stage: Stage) -> None:
    async def body(store: Store) -> None:
        await store.join(uuid4(), details={"handlers": ["email_digest", "other"], "complete": True})
        result = await asyncio.to_thread(stage.sql, DESIGN)
        assert (result.statement, result.rowcount) == ("INSERT", 1)
        assert rows(stage, "name", "kind", "cron_spec", "enabled") == [("email_digest", "task", "@hourly", True)]
        await store.create_due_runs()
        assert [run.job_name for run in await store.runs()] == ["email_digest"], "now() is its first time"
        result = await asyncio.to_thread(stage.sql, DESIGN)
        assert (result.rowcount, result.message) == (0, "inserted 0 schedules; known already: email_digest")
        every = f"{INSERT} SELECT task_name, '@daily' FROM cb_task_handlers"
        assert (await asyncio.to_thread(stage.sql, every)).rowcount == 1

    assert stage.sql(DESIGN).message == "inserted 0 schedules: no live node has such a handler"
    asyncio.run(opened(stage.place, None, body))
    assert [name for (name,) in rows(stage, "name")] == ["email_digest", "other"]


@pytest.mark.parametrize("table", ["cb_schedules", "sys.cb_schedules", '"sys"."cb_schedules"', "SYS.CB_Schedules"])
@pytest.mark.parametrize("conflict", ["", " ON CONFLICT DO NOTHING", " ON CONFLICT (name) DO NOTHING"])
def test_inserting_defines_new_names_and_leaves_known_ones_alone(stage: Stage, table: str, conflict: str) -> None:
    values = "VALUES ('b', 'task', '@daily'), ('a', DEFAULT, 'every 1m30s')"
    said = stage.noted(f"INSERT INTO {table} (name, kind, cron_spec) {values}{conflict}")
    assert [(row["event"], row["actor"], row["name"]) for row in said] == [
        ("JOB_CREATED", "local", "b"),
        ("JOB_CREATED", "local", "a"),
    ]
    assert rows(stage, "name", "cron_spec", "enabled") == [("a", "every 1m30s", True), ("b", "@daily", True)]
    before = stage.behind.everything()
    again = stage.sql(f"INSERT INTO {table} (cron_spec, name) VALUES ('@weekly', 'a'){conflict}")
    assert (again.rowcount, again.message) == (0, "inserted 0 schedules; known already: a")
    assert stage.behind.everything() == before
    mixed = stage.sql(
        f"INSERT OR IGNORE INTO {table} (cron_spec, name) VALUES ('@weekly', 'a'), ('@weekly', 'c'), ('@daily', 'c')"
    )
    assert mixed.rowcount == 1
    assert rows(stage, "name", "cron_spec")[2] == ("c", "@weekly")
    assert requests(stage) == 0, "our own statements leave no requests: they are carried out at once"


def test_an_inserted_job_is_the_one_that_a_client_of_the_database_would_have_inserted(stage: Stage) -> None:
    stage.sql(f"{INSERT} VALUES ('a', '30 4 * * *')")
    stage.place.sql(f"{INSERT} VALUES ('b', '30 4 * * *')")

    async def body(store: Store) -> None:
        await store.create_due_runs()

    asyncio.run(opened(stage.place, None, body))
    found = {job.name: job for job in stage.app.sync.jobs()}
    ours, theirs = (found[name].definition.spec for name in "ab")
    assert [task.handler for task in ours.tasks] == ["a"]
    assert (ours.schedule, ours.settings, ours.state) == (theirs.schedule, theirs.settings, theirs.state)
    assert found["a"].next_run_time == found["b"].next_run_time


def test_an_insert_may_pause_and_say_when_the_job_first_runs(stage: Stage) -> None:
    columns = "(name, cron_spec, enabled, next_run_at)"
    stage.sql(
        f"INSERT INTO cb_schedules {columns}"
        " VALUES ('off', '@daily', 0, NULL), ('on', '@daily', true, '2040-01-01T00:20:00Z')"
    )
    found = {job.name: job for job in stage.app.sync.jobs()}
    assert found["off"].state == "PAUSED"
    assert rfc3339(found["on"].next_run_time) == "2040-01-01T00:20:00Z"


def test_of_two_that_insert_one_name_at_once_one_is_told_a_row(stage: Stage) -> None:
    async def inserted(store: Catalog, name: str) -> int:
        return (await SqlSession(Service(store)).run(f"{INSERT} VALUES ('{name}', '@daily')")).rowcount

    async def body(first: Store) -> None:
        async def both(second: Store) -> None:
            for number in range(10):
                told = await asyncio.gather(*(inserted(each, f"job_{number}") for each in (first, second)))  # type: ignore[arg-type]  # they are Catalogs
                assert sorted(told) == [0, 1]

        await opened(stage.place, None, both)

    asyncio.run(opened(stage.place, None, body))
    assert len(rows(stage, "name")) == 10


def test_statements_of_one_text_see_the_rows_of_those_before(stage: Stage) -> None:
    result = stage.sql(f"{INSERT} VALUES ('a', '@daily'); UPDATE cb_schedules SET enabled = false WHERE kind = 'task'")
    assert [each.rowcount for each in result.results] == [1, 1]
    assert stage.sql("SELECT name, cron_spec FROM cb_schedules WHERE name = 'a'") == [("a", "@daily")]


# ---- UPDATE ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(stage: Stage) -> Stage:
    stage.sql(f"{INSERT} VALUES ('a', '@daily'), ('b', '@daily'), ('c', '@daily')")
    return stage


@pytest.mark.parametrize(
    ("where", "paused"),
    [
        ("WHERE name = 'b'", "b"),
        ("WHERE name IN ('a', 'c', 'z')", "ac"),
        ("WHERE id = {b}", "b"),
        ("WHERE id IN ({a}, {b}, 4711)", "ab"),
        ("WHERE name IN ('a', 'b') AND id = {b}", "b"),
        ("WHERE kind = 'task' AND enabled = true", "abc"),
        ("WHERE name = 'z'", ""),
        ("", "abc"),
    ],
)
def test_an_update_changes_the_rows_that_its_conditions_find_and_counts_them(
    jobs: Stage, where: str, paused: str
) -> None:
    numbers = {str(name): number for name, number in rows(jobs, "name", "id")}
    result = jobs.sql(f"UPDATE cb_schedules SET enabled = false {where.format(**numbers)}")
    assert (result.statement, result.rowcount) == ("UPDATE", len(paused))
    assert [name for name, enabled in rows(jobs, "name", "enabled") if not enabled] == list(paused)
    assert ("z" in result.message) == ("'z'" in where), "what has no row is named"


def test_an_update_pauses_resumes_moves_and_redefines(jobs: Stage) -> None:
    def job() -> Any:
        return jobs.app.sync.jobs()[0]

    said = jobs.noted("UPDATE sys.cb_schedules SET enabled = FALSE, cron_spec = '*/5 * * * *' WHERE name = 'a'")
    assert {row["event"] for row in said} == {"JOB_MODIFIED"}
    assert (job().state, job().version) == ("PAUSED", 2)
    jobs.sql("UPDATE sys.cb_schedules SET enabled = 1, next_run_at = '2040-03-01T09:00:00Z' WHERE name = 'a'")
    assert (job().state, rfc3339(job().next_run_time)) == ("ENABLED", "2040-03-01T09:00:00Z")
    jobs.sql(
        "ALTER JOB a PAUSE UNTIL '2041-01-01T00:00:00Z' 'a while';"
        " UPDATE cb_schedules SET enabled = false WHERE name = 'a'"
    )
    assert job().pause_note == "a while", "a row that says so already stays as it is"
    jobs.sql("ALTER JOB b DISABLE; UPDATE cb_schedules SET enabled = false WHERE name = 'b'")
    error = jobs.fails("UPDATE cb_schedules SET enabled = true WHERE name = 'b'", Conflict)
    assert "only resumes" in error.message
    assert (error.details["line"], error.details["column"]) == (1, 1)


def test_several_rows_are_changed_together_or_not_at_all(jobs: Stage) -> None:
    jobs.sql("ALTER JOB c DISABLE; ALTER JOB a PAUSE")
    jobs.fails("UPDATE cb_schedules SET enabled = true", Conflict)
    assert rows(jobs, "name", "enabled") == [("a", False), ("b", True), ("c", False)]


# ---- DELETE ----------------------------------------------------------------------------------------------------------


def test_a_delete_drops_the_jobs_as_drop_job_does(jobs: Stage) -> None:
    said = jobs.noted("DELETE FROM cb_schedules WHERE name IN ('a', 'z')")
    assert [(row["event"], row["name"]) for row in said] == [("JOB_DELETED", "a")]
    assert jobs.behind.rows("SELECT job_name FROM sys.job_tombstones") == [("a",)]
    result = jobs.sql("DELETE FROM sys.cb_schedules WHERE name = 'a'")
    assert (result.rowcount, result.message) == (0, "deleted 0 schedules; not found: a")
    jobs.sql("ALTER JOB c SET DEPENDS ON b")
    error = jobs.fails("DELETE FROM cb_schedules WHERE name = 'b'", InvalidDefinition)
    assert "depends on it" in error.message


# ---- rights ----------------------------------------------------------------------------------------------------------


def test_a_user_without_rights_changes_nothing_through_the_rows(jobs: Stage) -> None:
    jobs.sql("CREATE USER bob")
    jobs.refused(f"{INSERT} VALUES ('new', '@daily')", "bob")
    jobs.refused(f"{INSERT} VALUES ('a', '@daily')", "bob")
    jobs.refused("UPDATE cb_schedules SET enabled = false WHERE name = 'a'", "bob")
    jobs.refused("DELETE FROM cb_schedules WHERE name = 'a'", "bob")
    for enabled in ("true", "false"):
        # Whichever it is: a refusal that depended on it would tell it.
        jobs.refused(f"UPDATE cb_schedules SET enabled = true WHERE name = 'a' AND enabled = {enabled}", "bob")
        jobs.refused(f"DELETE FROM cb_schedules WHERE name = 'a' AND enabled = {enabled}", "bob")
    jobs.sql("GRANT CREATE JOB TO bob")
    jobs.refused(DESIGN, "bob")
    number = rows(jobs, "id")[0][0]
    for text in ("UPDATE cb_schedules SET enabled = false", f"DELETE FROM cb_schedules WHERE id = {number}"):
        assert jobs.sql(text, "bob").rowcount == 0, "jobs that one may not see are not found without their names"


def test_a_user_changes_the_rows_of_their_own_and_those_granted(jobs: Stage) -> None:
    jobs.sql(
        "CREATE USER bob; GRANT CREATE JOB TO bob; GRANT ALTER JOB ON JOB a TO bob;"
        " GRANT VIEW JOB HISTORY ON JOB b TO bob"
    )
    (said,) = jobs.noted(f"{INSERT} VALUES ('mine', '@daily')", "bob")
    assert (said["event"], said["actor"]) == ("JOB_CREATED", "bob")
    assert {job.name: job.owner for job in jobs.app.sync.jobs()}["mine"] == "bob"
    assert jobs.sql("UPDATE cb_schedules SET enabled = false WHERE name IN ('a', 'mine')", "bob").rowcount == 2
    error = jobs.refused("UPDATE cb_schedules SET enabled = true", "bob", AccessDenied)
    assert '"b"' in error.message, "a row that one sees and may not change undoes the whole"
    jobs.refused("DELETE FROM cb_schedules WHERE name = 'a'", "bob")
    assert jobs.sql("DELETE FROM cb_schedules WHERE name = 'mine'", "bob").rowcount == 1


def test_a_select_of_what_is_no_table_says_where_it_stands(jobs: Stage) -> None:
    with pytest.raises(InvalidInput) as told:
        jobs.sql("SELECT * FROM cb_task_handlers")
    error = told.value
    assert "cb_task_handlers" in error.message
    assert "INSERT INTO cb_schedules" in str(error.hint)
    assert "sys.nodes" in str(error.hint)
    with pytest.raises(InvalidInput) as told:
        jobs.sql("SELECT * FROM sys.nowhere")
    assert told.value.hint == "docs/catalog.md lists the tables and views of sys."


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "reason", "hint"),
    [
        ("UPDATE sys.jobs SET state = 'PAUSED'", 8, "only sys.cb_schedules", "ALTER"),
        (
            "UPDATE cb_schedules SET last_enqueued_at = now()",
            25,
            "not set by UPDATE",
            "enabled, next_run_at, cron_spec",
        ),
        ("UPDATE cb_schedules SET colour = 'red'", 25, "no column", "enabled, next_run_at, cron_spec"),
        ("UPDATE cb_schedules SET enabled = 'maybe'", 35, "enabled is TRUE or FALSE, not 'maybe'", "pauses"),
        ("UPDATE cb_schedules SET next_run_at = NULL", 39, "next_run_at is a time", "now()"),
        ("UPDATE cb_schedules SET next_run_at = 'soon'", 39, "is not an ISO 8601", "2026-03-01"),
        ("UPDATE cb_schedules SET cron_spec = '61 * * * *'", 37, "61", None),
        ("UPDATE cb_schedules SET enabled = true, enabled = false", 41, "twice", "Leave"),
        ("UPDATE cb_schedules SET enabled = true WHERE next_run_at <= now()", 46, "not asked for in WHERE", "name IN"),
        ("UPDATE cb_schedules SET enabled = true WHERE name LIKE 'a%'", 51, "expected = or IN", None),
        ("UPDATE cb_schedules SET enabled = true WHERE id = 'a'", 46, "id is a whole number", "id = 7"),
        ("UPDATE cb_schedules SET enabled = true WHERE name = 'a' OR 1 = 1", 57, 'found "OR"', None),
        ("DELETE FROM cb_schedules", 1, "would drop every job", "WHERE name ="),
        ("INSERT INTO cb_schedules (name) VALUES ('a')", 1, "needs a cron_spec", "columns"),
        (f"{INSERT} VALUES ('a')", 55, "1 value for 2 columns", "name, cron_spec"),
        (f"{INSERT} VALUES ('a', DEFAULT)", 1, "needs a cron_spec", "no default"),
        (f"{INSERT} VALUES (NULL, '@daily')", 56, "name is a text", None),
        (f"{INSERT} VALUES ('a', '@never')", 61, "@never", None),
        ("INSERT INTO cb_schedules (name, id) VALUES ('a', 7)", 33, "not set by INSERT", "next_run_at"),
        ("INSERT INTO cb_schedules (name, cron_spec, kind) VALUES ('a', '@daily', 'flow')", 73, "flow", "TASKS"),
        (f"{INSERT} SELECT a, b FROM t", 55, "no column", "task_name"),
        (f"{INSERT} SELECT task_name, '@daily' FROM t", 80, "not taken from", "VALUES"),
        (f"{INSERT} VALUES ('a', '@daily') ON CONFLICT (id) DO NOTHING", 84, "not its key", "(name)"),
        (f"{INSERT} VALUES ('a', '@daily') ON CONFLICT (name) DO UPDATE", 93, "NOTHING", None),
    ],
)
def test_a_fault_says_where_it_is_and_what_may_stand_there(
    ground: Stage, text: str, column: int, reason: str, hint: str | None
) -> None:
    ground.sql("INSERT INTO cb_schedules (name, cron_spec) VALUES ('known', '@daily')")
    error = ground.fails(f"\n{text}", InvalidStatement)
    assert isinstance(error, InvalidStatement)
    assert reason in error.message
    assert hint is None or hint in str(error.hint)
    assert (error.line, error.column) == (2, column)
    assert re.search(r"\n +\^|\n\^", error.message), "a caret shows the place"
