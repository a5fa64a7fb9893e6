"""Statements of a task's own on SQLite: what would touch the catalog's one connection for good is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest
from tests.store.catalogs import Place, sqlite_place
from tests.store.joining import Worker, with_worker

from horae.errors import InvalidInput
from horae.store.foreign_statements import head, is_blank
from horae.store.records import SettlementVerdict

THINGS = "CREATE TABLE sys.things (name TEXT PRIMARY KEY)"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return sqlite_place(tmp_path)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ATTACH 'other.db' AS other", "attached as sys"),
        ("DETACH sys", "Leave it out"),
        ("PRAGMA foreign_keys = OFF", "the catalog's own"),
        ("SELECT * FROM pragma_table_info('things')", "the catalog's own"),
        ("VACUUM", "nothing else has the file open"),
        ("EXPLAIN COMMIT", "rolled back"),
        ("EXPLAIN SAVEPOINT here", "rolled back"),
        ("CREATE TABLE mine (a)", "CREATE TABLE sys.name …."),
        ("CREATE TABLE main.mine (a)", "CREATE TABLE sys.name …."),
        ("CREATE TABLE mine AS SELECT 1 AS a", "CREATE TABLE sys.name …."),
        ("CREATE TEMP TABLE mine (a)", "CREATE TABLE sys.name …."),
        ("CREATE VIEW mine AS SELECT 1", "CREATE VIEW sys.name …."),
        (
            "CREATE TEMP TRIGGER mine AFTER INSERT ON sys.jobs BEGIN SELECT 1; END",
            "CREATE TRIGGER sys.name ON table ….",
        ),
    ],
)
def test_what_would_not_stay_in_the_transaction_is_refused_with_a_hint(place: Place, text: str, hint: str) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('kept')")
            with pytest.raises(InvalidInput) as refused:
                await joined.execute(text)
            assert hint in str(refused.value.hint)
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql("SELECT name FROM sys.things") == [("kept",)]


def test_things_can_be_created_and_dropped_in_the_catalogs_file(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            for text in (
                "CREATE TABLE sys.mine (a INTEGER)",
                "CREATE INDEX sys.mine_a ON mine (a)",
                "CREATE VIEW sys.theirs AS SELECT a FROM mine",
                "DROP VIEW theirs",
                "ALTER TABLE sys.mine RENAME TO ours",
            ):
                await joined.execute(text)
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body))
    assert place.sql("SELECT name FROM sys.sqlite_schema WHERE tbl_name = 'ours' AND sql <> ''") == [
        ("ours",),
        ("mine_a",),
    ]


def test_a_statement_the_catalog_has_run_itself_is_refused_all_the_same(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            # The words the driver uses, which its connection may still have compiled.
            for text in ("COMMIT", "ROLLBACK", "BEGIN IMMEDIATE", "EXPLAIN COMMIT"):
                with pytest.raises(InvalidInput):
                    await joined.execute(text)
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body))


def test_the_authorizer_is_there_only_while_a_statement_runs(place: Place) -> None:
    async def body(worker: Worker) -> None:
        connection = worker.store.driver.connection  # type: ignore[attr-defined] # of SQLite's driver alone
        async with worker.joins() as joined:
            await joined.execute("SELECT 1")
            assert connection.authorizer is None
            with pytest.raises(apsw.SQLError):
                await joined.execute("SELECT nothing")
            assert connection.authorizer is None

    asyncio.run(with_worker(place, body))


def test_a_failed_statement_undoes_itself_and_the_task_may_go_on(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('one')")
            with pytest.raises(apsw.ConstraintError):
                await joined.execute("INSERT INTO things VALUES ('two'), ('one')")
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql("SELECT name FROM sys.things") == [("one",)]


def test_a_statement_that_rolls_everything_back_leaves_nothing_to_commit(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('one')")
            with pytest.raises(apsw.ConstraintError):
                await joined.execute("INSERT OR ROLLBACK INTO things VALUES ('one')")
            for late in (joined.execute("INSERT INTO things VALUES ('two')"), joined.settle(worker.word(0))):
                with pytest.raises(InvalidInput, match="nothing of it can be kept"):
                    await late
        [answer] = await worker.store.settle(worker.node, [worker.word(0)])
        assert answer.verdict is SettlementVerdict.SETTLED

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql("SELECT name FROM sys.things") == []


def test_a_reference_that_was_left_open_is_found_before_the_run_is_settled(place: Place) -> None:
    setup = "CREATE TABLE sys.parts (thing TEXT REFERENCES things (name) DEFERRABLE INITIALLY DEFERRED)"

    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute(THINGS)
            await joined.execute("INSERT INTO parts VALUES ('nobody')")
            with pytest.raises(apsw.ConstraintError):
                await joined.settle(worker.word(0))
            await joined.execute("INSERT INTO things VALUES ('nobody')")
            assert (await joined.settle(worker.word(0))).verdict is SettlementVerdict.SETTLED

    asyncio.run(with_worker(place, body, setup=setup))
    assert place.sql("SELECT thing FROM sys.parts") == [("nobody",)]


def test_other_verbs_wait_until_the_transaction_is_over(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            other = asyncio.ensure_future(worker.store.runs())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not other.done()
            await joined.settle(worker.word(0))
        [run] = await other
        assert run.state == "COMPLETED"

    asyncio.run(with_worker(place, body))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("commit", ("COMMIT", "")),
        (" ;; -- x\n/* y */Prepare  transaction 'a'", ("PREPARE", "TRANSACTION")),
        ("/* /* */ */ COMMIT", ("COMMIT", "")),
        ("/* -- */ END", ("END", "")),
        ("SELECT 'COMMIT'", ("SELECT", "")),
        ("/* never closed", ("", "")),
    ],
)
def test_the_first_words_of_a_statement_are_found_past_comments(text: str, words: tuple[str, str]) -> None:
    assert head(text, nested=True) == words


def test_comments_within_comments_end_where_the_database_says() -> None:
    assert is_blank("/* /* */ */", nested=True)
    assert not is_blank("/* /* */ */", nested=False)
    assert head("/* /* */ COMMIT", nested=False) == ("COMMIT", "")
