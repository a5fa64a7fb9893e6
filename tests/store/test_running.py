"""A SQL job's text inside its run's own transaction, on both kinds of store."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.store.catalogs import Place
from tests.store.joining import Worker
from tests.store.running import LOCAL, MOST, fails, introduced, ran, somebody, with_people

from horae.core.run.lifecycle import RunState
from horae.errors import InvalidInput, StatementFailed

ALICE = somebody("alice", ("SELECT", "things"), ("INSERT", "things"), ("UPDATE", "things"), ("DELETE", "things"))
BOB = somebody("bob", ("SELECT", "things"))
NAMES = "SELECT name FROM things ORDER BY name"


@pytest.fixture
def runs(place: Place) -> Callable[..., None]:
    """Runs a body on a catalog that has a table of users, empty, and people with rights on it."""
    table = "sys.things" if place.kind == "sqlite" else "things"

    def run(body: Callable[[Worker], object]) -> None:
        setup = f"DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (name TEXT PRIMARY KEY, size INTEGER)"
        with_people(place, body, ALICE, BOB, setup=setup)  # type: ignore[arg-type] # an async body

    return run


def named(place: Place) -> list[str]:
    table = "sys.things" if place.kind == "sqlite" else "things"
    return [name for (name,) in place.sql(f"SELECT name FROM {table} ORDER BY name")]


def test_a_text_and_its_runs_end_are_committed_together(place: Place, runs: Callable[..., None]) -> None:
    async def body(worker: Worker) -> None:
        rows = await ran(worker, "INSERT INTO things VALUES ('a', 1), ('b', 2)", ALICE)
        assert (rows, rows.columns, rows.rowcount, rows.cut) == ([], (), 2, False)
        history = await worker.store.history(worker.claim.run_id)
        assert [task.state for task in history.tasks] == ["SUCCESS", "RUNNING"]

    runs(body)
    assert named(place) == ["a", "b"]


def test_a_text_that_was_not_settled_leaves_nothing(place: Place, runs: Callable[..., None]) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.run_text("INSERT INTO things VALUES ('a', 1)", ALICE, MOST)
        [run] = await worker.store.runs()
        assert run.state is RunState.RUNNING

    runs(body)
    assert named(place) == []


def test_several_statements_answer_with_the_last_rows_there_are(runs: Callable[..., None]) -> None:
    async def body(worker: Worker) -> None:
        rows = await ran(
            worker,
            """
            INSERT INTO things VALUES ('a;b', 1), ('c', NULL); -- one; two
            SELECT 'not this' AS other;
            SELECT name, size, size + 0.5 AS more FROM things ORDER BY name; /* ; */
            UPDATE things SET size = 3;
            """,
            ALICE,
        )
        assert rows == [("a;b", 1, 1.5), ("c", None, None)]
        assert rows.columns == ("name", "size", "more")
        assert rows.rowcount == 4  # two inserted and two updated

    runs(body)


def test_columns_are_known_where_no_row_was_found_and_may_share_a_name(runs: Callable[..., None]) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            rows = await joined.run_text("SELECT name, size FROM things", ALICE, MOST)
            assert (rows, rows.columns, rows.rowcount) == ([], ("name", "size"), 0)
            rows = await joined.run_text("SELECT 1 AS a, 'x' AS a", ALICE, MOST)
            assert (rows, rows.columns, rows.rowcount) == ([(1, "x")], ("a", "a"), 1)

    runs(body)


def test_rows_are_kept_whole_and_no_more_than_fit(place: Place, runs: Callable[..., None]) -> None:
    async def body(worker: Worker) -> None:
        text = """
            INSERT INTO things SELECT 'thing ' || n, n FROM (
                WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 200)
                SELECT n FROM counted) numbers RETURNING size AS n
        """
        rows = await ran(worker, text, ALICE, most=70)
        # {"n":1} is seven characters, {"n":10} eight: nine of the one, none of the other.
        assert rows == [(n,) for n in range(1, 10)]
        assert (rows.cut, rows.rowcount) == (True, 200)

    runs(body)
    assert len(named(place)) == 200


def test_a_text_that_only_defines_concerns_no_rows(place: Place, runs: Callable[..., None]) -> None:
    table = "sys.fresh" if place.kind == "sqlite" else "fresh"

    async def body(worker: Worker) -> None:
        rows = await ran(worker, f"DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (a INTEGER)", LOCAL)
        assert (rows, rows.columns, rows.rowcount) == ([], (), -1)

    runs(body)


def test_a_text_is_told_of_its_job_while_it_runs(runs: Callable[..., None]) -> None:
    asked = (
        "SELECT current_setting('horae.job_uuid'), current_setting('horae.job_run_uuid'),"
        " current_setting('horae.job_name')"
    )

    async def body(worker: Worker) -> None:
        for who in (ALICE, LOCAL):
            async with worker.joins() as joined:
                assert await joined.run_text(asked, who, MOST) == [("7a3e", "91bc", "nightly")]
                [(left,)] = await joined.execute("SELECT current_setting('horae.job_name', true)")
                assert not left

    runs(body)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO things VALUES ('gone', 1); INSERT INTO things VALUES ('gone', 2)", "(?i)unique"),
        ("INSERT INTO things VALUES ('gone', 1); SELECT nothing FROM things", "nothing"),
        ("SELEC 1", "(?i)syntax error"),
        ("SELECT * FROM nowhere", "nowhere"),
    ],
)
def test_what_the_database_says_ends_the_text_and_nothing_is_kept(
    place: Place, runs: Callable[..., None], text: str, message: str
) -> None:
    async def body(worker: Worker) -> None:
        error = await fails(worker, text, ALICE)
        assert isinstance(error, StatementFailed)
        assert re.search(message, error.message)
        assert error.details
        [run] = await worker.store.runs()
        assert run.state is RunState.RUNNING
        await ran(worker, "INSERT INTO things VALUES ('kept', 1)", ALICE)

    runs(body)
    assert named(place) == ["kept"]


@pytest.mark.parametrize(
    "text",
    [
        "COMMIT",
        "INSERT INTO things VALUES ('gone', 1); COMMIT; SELECT 1",
        "SELECT 1; /* now */ rollback",
        "SAVEPOINT here",
        "BEGIN; SELECT 1; END",
        "",
        " -- nothing\n;;",
        "SELECT '\0'",
        "SELECT '\ud800'",
    ],
)
def test_what_is_no_text_or_would_end_the_transaction_is_refused(
    place: Place, runs: Callable[..., None], text: str
) -> None:
    async def body(worker: Worker) -> None:
        for who in (ALICE, LOCAL):
            assert isinstance(await fails(worker, text, who), InvalidInput)

    runs(body)
    assert named(place) == []


def test_everybody_may_do_what_was_granted_and_no_more(place: Place, runs: Callable[..., None]) -> None:
    async def body(worker: Worker) -> None:
        for text in (
            "INSERT INTO things VALUES ('gone', 1)",
            "UPDATE things SET size = 2",
            "DELETE FROM things",
            "WITH made AS (SELECT 1 AS a) INSERT INTO things SELECT 'gone', a FROM made",
            "CREATE TABLE IF NOT EXISTS more (a INTEGER)",
            "DROP TABLE things",
            "SELECT count(*) FROM sys.users",
            "SELECT * FROM sys.jobs",
            "UPDATE sys.users SET is_admin = is_admin",
            "DELETE FROM sys.audit",
        ):
            error = await fails(worker, text, BOB)
            assert isinstance(error, StatementFailed), text
        assert await ran(worker, NAMES, BOB) == []

    runs(body)
    assert named(place) == []


def test_values_are_plain(runs: Callable[..., None]) -> None:
    async def body(worker: Worker) -> None:
        rows = await ran(worker, "SELECT NULL AS a, 1 AS b, 1.5 AS c, 'ü' AS d, 9007199254740993 AS e", ALICE)
        assert rows == [(None, 1, 1.5, "ü", 9007199254740993)]

    runs(body)


VIEW_CHANGES = [
    ("UPDATE sys.cb_schedules SET enabled = false WHERE name = 'a'", "a", "enabled"),
    ("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('new', '@daily')", "new", "create"),
    ("DELETE FROM sys.cb_schedules WHERE name = 'a'", "a", "drop"),
]


CAROL = somebody("carol", *((privilege, "sys.cb_schedules") for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE")))


@pytest.mark.parametrize(("text", "name", "field"), VIEW_CHANGES)
def test_an_administrators_text_changes_schedules_through_their_view(
    place: Place, runs: Callable[..., None], text: str, name: str, field: str
) -> None:
    async def body(worker: Worker) -> None:
        await ran(worker, text, LOCAL)

    runs(body)
    assert place.sql("SELECT job_name, field FROM sys.schedule_requests") == [(name, field)]


@pytest.mark.parametrize("text", [text for text, _, _ in VIEW_CHANGES])
def test_a_text_of_anyone_else_asks_for_nothing_through_the_view(
    place: Place, runs: Callable[..., None], text: str
) -> None:
    async def body(worker: Worker) -> None:
        assert isinstance(await fails(worker, text, ALICE), StatementFailed)
        if place.kind == "sqlite":
            assert isinstance(await fails(worker, text, CAROL), StatementFailed), "a grant on the catalog gives nothing"
        else:
            with pytest.raises(InvalidInput, match="not to be granted"):
                await introduced(worker.store, CAROL)

    runs(body)
    assert place.sql("SELECT job_name, field FROM sys.schedule_requests") == []
