"""Job text on SQLite: the authorizer lets it do what was granted, and keeps it from the catalog and its connection."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest
from tests.store.catalogs import Place, sqlite_place
from tests.store.joining import Worker
from tests.store.running import LOCAL, MOST, fails, ran, somebody, with_people

from horae.core.access import Grant, Privilege
from horae.errors import InvalidInput, StatementFailed, TransactionExpired
from horae.store.protocols.people import Identity
from horae.store.schema import migrations
from horae.store.sqlite.text.authorizer import catalog_names
from horae.store.sqlite.text.sql_text import split

SETUP = """
CREATE TABLE sys.sales (id INTEGER PRIMARY KEY AUTOINCREMENT, amount INTEGER);
CREATE TABLE sys.wages (who TEXT, amount INTEGER);
CREATE TABLE sys.log (line TEXT);
CREATE VIEW sys.totals AS SELECT sum(amount) AS total FROM sales;
CREATE VIEW sys.peeking AS SELECT amount FROM sales UNION ALL SELECT amount FROM wages;
CREATE VIEW sys.joining AS SELECT 1 FROM sales NATURAL JOIN wages;
CREATE TABLE sys.blind (a INTEGER);
CREATE TABLE sys.spied (a INTEGER);
CREATE TRIGGER sys.spying AFTER INSERT ON spied BEGIN INSERT INTO log SELECT who FROM wages; END;
CREATE TABLE sys.parents (id INTEGER PRIMARY KEY);
CREATE TABLE sys.children (parent INTEGER REFERENCES parents (id) ON DELETE CASCADE);
CREATE TABLE sys.prices (item TEXT UNIQUE, price INTEGER);
CREATE TABLE sys.yielding (item TEXT UNIQUE ON CONFLICT REPLACE, price INTEGER);
CREATE TABLE sys.queue (item TEXT);
CREATE TRIGGER sys.queued AFTER INSERT ON queue BEGIN INSERT OR /* */ REPLACE INTO prices VALUES (new.item, 0); END;
CREATE TABLE sys.feed (item TEXT PRIMARY KEY);
CREATE TRIGGER sys.fed AFTER INSERT ON feed BEGIN INSERT INTO prices VALUES (new.item, 0); END;
INSERT INTO sys.prices VALUES ('tea', 3), ('soup', 5);
INSERT INTO sys.yielding VALUES ('tea', 3), ('soup', 5);
INSERT INTO sys.sales (amount) VALUES (1), (2);
INSERT INTO sys.wages VALUES ('ann', 7);
INSERT INTO sys.parents VALUES (1);
INSERT INTO sys.children VALUES (1);
"""
RIGHTS = (
    ("SELECT", "sales"),
    ("INSERT", "SYS.Sales"),
    ("UPDATE", '"sys"."sales"'),
    ("SELECT", "totals"),
    ("SELECT", "peeking"),
    ("INSERT", "spied"),
    ("SELECT", "joining"),
    ("INSERT", "blind"),
    ("DELETE", "blind"),
    ("SELECT", "parents"),
    ("DELETE", "parents"),
    ("SELECT", "prices"),
    ("INSERT", "prices"),
    ("SELECT", "yielding"),
    ("INSERT", "yielding"),
    ("UPDATE", "yielding"),
    ("SELECT", "queue"),
    ("INSERT", "queue"),
    ("SELECT", "feed"),
    ("INSERT", "feed"),
    ("DELETE", "feed"),
    # Rights that somebody wrote into the catalog in some way: they count for nothing.
    ("SELECT", "jobs"),
    ("UPDATE", "users"),
    ("SELECT", "sqlite_master"),
)
ALICE = somebody("alice", *RIGHTS)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return sqlite_place(tmp_path)


def state_of(place: Place) -> list[tuple[object, ...]]:
    tables = "SELECT type, name, tbl_name, sql FROM sys.sqlite_schema ORDER BY 1, 2"
    return [*place.sql(tables), *place.sql("SELECT * FROM sys.sales"), *place.sql("SELECT * FROM sys.users")]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT amount FROM sales ORDER BY 1", [(1,), (2,)]),
        ("SELECT amount FROM SYS.SALES WHERE ID = 2", [(2,)]),
        ("SELECT count(*) FROM sales", [(2,)]),
        ("WITH made AS (SELECT 1) SELECT count(*) FROM made, (SELECT 1 UNION ALL SELECT 2)", [(2,)]),
        ("SELECT total FROM totals", [(3,)]),
        ("INSERT INTO sales (amount) VALUES (3) RETURNING id", [(3,)]),
        ("UPDATE sales SET amount = amount + 1; SELECT sum(amount) FROM sales", [(5,)]),
        ("SELECT value FROM json_each('[1, 2]')", [(1,), (2,)]),
        (
            "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 3) SELECT * FROM n",
            [(1,), (2,), (3,)],
        ),
        (
            "SELECT job_uuid(), job_run_uuid(), job_name(), current_setting('horae.job_name')",
            [("7a3e", "91bc", "nightly", "nightly")],
        ),
        ("SELECT current_setting('horae.other', 1)", [(None,)]),
        ("SELECT x'00ff' AS a, 9e999 AS b, -9e999 AS c", [("\\x00ff", "inf", "-inf")]),
        ("SELECT count(*) FROM sales a JOIN sales b USING (id)", [(2,)]),
        ("INSERT INTO blind VALUES (7); DELETE FROM blind; SELECT 'natural' AS a", [("natural",)]),
        ("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
    ],
)
def test_a_text_does_what_was_granted(place: Place, text: str, rows: list[tuple[object, ...]]) -> None:
    async def body(worker: Worker) -> None:
        assert await ran(worker, text, ALICE) == rows

    with_people(place, body, setup=SETUP)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT who FROM wages", "alice may not SELECT from sys.wages"),
        ("SELECT count(*) FROM wages", "alice may not SELECT from sys.wages"),
        ("INSERT INTO wages VALUES ('x', 1)", "alice may not INSERT into sys.wages"),
        ("INSERT INTO sales (amount) SELECT amount FROM wages", "alice may not SELECT from sys.wages"),
        ("UPDATE wages SET amount = 1", "alice may not UPDATE sys.wages"),
        ("DELETE FROM sales", "alice may not DELETE from sys.sales"),
        ("UPDATE sales SET amount = (SELECT max(amount) FROM wages)", "alice may not SELECT from sys.wages"),
        ("SELECT * FROM sales WHERE amount IN wages", "alice may not SELECT from sys.wages"),
        ("WITH gone AS (SELECT 1) DELETE FROM wages", "alice may not DELETE from sys.wages"),
        # SQLite's authorizer is not asked for columns that joins compare.
        ("SELECT 1 FROM (SELECT 'ann' AS who) JOIN wages USING (who)", "alice may not SELECT from sys.wages"),
        ("SELECT count(*) FROM sales NATURAL JOIN wages", "alice may not SELECT from sys.wages"),
        ("SELECT count(*) FROM sales JOIN sys.jobs /* */ usInG (rowid)", "."),
        ("SELECT a.user_uuid FROM sales NATURAL JOIN users a, users NATURAL JOIN tokens", "alice may not SELECT from"),
        ("SELECT * FROM joining", "alice may not SELECT from sys.wages"),
        ("DELETE FROM blind WHERE EXISTS (SELECT 1 FROM blind NATURAL JOIN (SELECT 7 AS a))", "SELECT from sys.blind"),
        ("INSERT INTO blind SELECT 1 FROM blind NATURAL JOIN (SELECT 7 AS a)", "SELECT from sys.blind"),
        # Views, triggers and foreign keys reach no further than whoever uses them.
        ("SELECT * FROM peeking", "alice may not SELECT from sys.wages"),
        ("INSERT INTO spied VALUES (1)", "alice may not INSERT into sys.log"),
        ("DELETE FROM parents", "alice may not (SELECT|DELETE) from sys.children"),
        # The catalog is nobody's, whatever is granted.
        ("SELECT job_name FROM sys.jobs", "alice may not SELECT from sys.jobs"),
        ("SELECT password_hash FROM users", "alice may not SELECT from sys.users"),
        ("UPDATE users SET is_admin = 1", "alice may not UPDATE sys.users"),
        ("INSERT INTO grants VALUES ('a', 'b', '', '', 1, 'c')", "alice may not INSERT into sys.grants"),
        ("DELETE FROM audit", "alice may not DELETE from sys.audit"),
        ("UPDATE cb_schedules SET enabled = 0", "alice may not"),
        ("INSERT INTO cb_schedules (name, cron_spec) VALUES ('x', '@daily')", "alice may not"),
        ("DELETE FROM sys.cb_schedules", "alice may not"),
        ("SELECT * FROM performance", "alice may not SELECT from sys"),
        ("SELECT sql FROM sys.sqlite_master", "alice may not SELECT from sys.sqlite_master"),
        ("SELECT * FROM sqlite_master", "alice may not SELECT from"),
        ("SELECT * FROM sqlite_sequence", "alice may not SELECT from sys.sqlite_sequence"),
        ("SELECT count(*) FROM dbstat", "alice may not SELECT from"),
        ("SELECT count(*) FROM sqlite_schema", "alice may not SELECT from"),
        ("WITH wages AS (SELECT 1) SELECT count(*) FROM sys.wages", "alice may not SELECT from sys.wages"),
        ("SELECT * FROM dbstat", "alice may not SELECT from main.dbstat"),
        ("CREATE TABLE sys.mine (a)", "alice may not CREATE TABLE"),
        ("CREATE TEMP TABLE mine (a)", "alice may not CREATE TEMP"),
        ("CREATE TABLE mine AS SELECT * FROM sales", "alice may not CREATE TABLE"),
        ("CREATE VIEW sys.v AS SELECT * FROM wages", "alice may not CREATE VIEW"),
        ("CREATE TRIGGER sys.t AFTER INSERT ON sales BEGIN SELECT 1; END", "alice may not CREATE TRIGGER"),
        ("CREATE INDEX sys.i ON sales (amount)", "alice may not CREATE INDEX"),
        ("DROP TABLE sales", "alice may not DROP TABLE"),
        ("ALTER TABLE sales ADD COLUMN b", "alice may not ALTER TABLE"),
        ("EXPLAIN CREATE TABLE sys.mine (a)", "alice may not"),
        ("REINDEX", "alice may not REINDEX"),
        ("UPDATE sqlite_master SET sql = ''", "may not"),
        ("SELECT current_setting('horae.other')", "unrecognized configuration parameter"),
        ("SELECT readfile('/etc/hostname')", "no such function"),
        ("SELECT zeroblob(100000000)", "too big"),
    ],
)
def test_a_text_is_told_what_it_lacks(place: Place, text: str, message: str) -> None:
    async def body(worker: Worker) -> None:
        before = state_of(place)
        error = await fails(worker, f"INSERT INTO sales (amount) VALUES (9); {text}", ALICE)
        assert isinstance(error, StatementFailed)
        assert re.search(message, error.message), error.message
        assert state_of(place) == before
        await ran(worker, "SELECT amount FROM sales", ALICE)

    with_people(place, body, setup=SETUP)


def test_the_hint_says_how_the_right_is_given(place: Place) -> None:
    async def body(worker: Worker) -> None:
        error = await fails(worker, "DELETE FROM wages", ALICE)
        assert error.hint == "GRANT DELETE ON TABLE wages TO alice"

    with_people(place, body, setup=SETUP)


def test_a_grant_that_names_no_table_is_on_none(place: Place) -> None:
    nowhere = Identity("eve", grants=frozenset({Grant(Privilege.SELECT), Grant(Privilege.SELECT, "sys.")}))

    async def body(worker: Worker) -> None:
        for table in ("jobs", "wages"):
            assert f"sys.{table}" in (await fails(worker, f"SELECT * FROM {table}", nowhere)).message

    with_people(place, body, setup=SETUP)


REPLACING = [
    "INSERT OR REPLACE INTO prices VALUES ('tea', 0)",
    "REPLACE INTO prices VALUES ('tea', 0)",
    "replace\tinto sys.prices VALUES ('tea', 0)",
    "WITH w (a, b) AS (VALUES ('tea', 0)) REPLACE INTO prices SELECT a, b FROM w",
    "INSERT/* ' */OR--\nREPLACE INTO prices VALUES ('tea', 0)",
    "INSERT OR \ufeffREPLACE INTO prices VALUES ('tea', 0)",
    "UPDATE OR REPLACE sales SET id = 1 WHERE id = 2",
    "INSERT OR REPLACE INTO sales (id, amount) VALUES (1, 0)",
    # A table may say so itself, and a trigger; and what a statement says holds in the triggers it sets off.
    "INSERT INTO yielding VALUES ('tea', 0)",
    "UPDATE yielding SET item = 'tea' WHERE item = 'soup'",
    "INSERT INTO queue VALUES ('tea')",
    "INSERT OR REPLACE INTO feed VALUES ('tea')",
    # To overwrite is to update.
    "INSERT INTO prices VALUES ('tea', 0) ON CONFLICT (item) DO UPDATE SET price = excluded.price",
]


@pytest.mark.parametrize("text", REPLACING)
def test_a_right_to_insert_or_update_deletes_and_overwrites_no_row(place: Place, text: str) -> None:
    kept = [f"SELECT * FROM sys.{table} ORDER BY 1" for table in ("prices", "yielding", "sales")]

    async def body(worker: Worker) -> None:
        before = [place.sql(each) for each in kept]
        error = await fails(worker, text, ALICE)
        assert isinstance(error, StatementFailed)
        assert re.search("alice may not (REPLACE rows, which deletes them, in|UPDATE) sys", error.message)
        assert re.search("GRANT (DELETE|UPDATE) ON TABLE [a-z]+ TO alice", str(error.hint))
        assert [place.sql(each) for each in kept] == before

    with_people(place, body, setup=SETUP)


def test_whoever_may_delete_may_replace_and_other_words_for_it_are_no_replacing(place: Place) -> None:
    bob = somebody("bob", ("SELECT", "prices"), ("INSERT", "prices"), ("DELETE", "prices"))

    async def body(worker: Worker) -> None:
        await ran(worker, "REPLACE INTO prices VALUES ('tea', 4)", bob)
        await ran(worker, "INSERT OR IGNORE INTO prices VALUES ('tea', 9)", ALICE)
        await ran(
            worker, "INSERT INTO prices SELECT 'or replace into', replace('1', '1', '7') /* REPLACE INTO */", ALICE
        )
        await ran(worker, """INSERT INTO prices SELECT "replace", 1 FROM (SELECT 'x' AS "replace")""", ALICE)
        rows = await ran(worker, "SELECT item, price FROM prices ORDER BY item", ALICE)
        assert rows == [("or replace into", 7), ("soup", 5), ("tea", 4), ("x", 1)]

    with_people(place, body, setup=SETUP)


REFUSED = [
    ("ATTACH 'other.db' AS other", "attached as sys"),
    ("DETACH sys", "Leave it out"),
    ("PRAGMA writable_schema = ON", "the catalog's own"),
    ("PRAGMA foreign_keys", "the catalog's own"),
    ("SELECT * FROM pragma_table_info('sales')", "(?i)the catalog's own|of their own"),
    ("EXPLAIN PRAGMA user_version = 7", "the catalog's own"),
    ("VACUUM", "nothing else has the file open"),
    ("VACUUM INTO '/tmp/copy.db'", "nothing else has the file open"),
    ("ANALYZE", "how the catalog's own statements"),
    ("EXPLAIN COMMIT", "rolled back"),
    ("EXPLAIN SAVEPOINT here", "rolled back"),
    ("SELECT load_extension('mine')", "Leave it out"),
    ("SELECT (SELECT load_extension('mine', 'entry'))", "Leave it out"),
]


@pytest.mark.parametrize(("text", "hint"), REFUSED)
@pytest.mark.parametrize("who", [ALICE, LOCAL], ids=["user", "administrator"])
def test_what_would_change_the_connection_or_leave_the_file_is_refused(
    place: Place, who: Identity, text: str, hint: str
) -> None:
    async def body(worker: Worker) -> None:
        error = await fails(worker, f"SELECT 1; {text}; SELECT 2", who)
        assert isinstance(error, InvalidInput | StatementFailed)
        assert re.search(hint, str(error.hint)), error.hint
        await ran(worker, "SELECT 1", who)

    with_people(place, body, setup=SETUP)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE mine (a)",
        "CREATE TABLE main.mine (a)",
        "CREATE TEMP TABLE mine (a)",
        "CREATE TEMP TRIGGER t AFTER INSERT ON sys.sales BEGIN SELECT 1; END",
        "CREATE TEMP VIEW jobs AS SELECT 1",
    ],
)
def test_nothing_is_created_outside_the_file(place: Place, text: str) -> None:
    async def body(worker: Worker) -> None:
        error = await fails(worker, text, LOCAL)
        assert isinstance(error, InvalidInput)
        assert "in the catalog's file" in str(error.hint)

    with_people(place, body, setup=SETUP)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE sys.users SET is_admin = 0",
        "INSERT INTO users SELECT * FROM users",
        "DELETE FROM audit",
        "REPLACE INTO counters VALUES ('run', 0)",
        "DROP TABLE audit",
        "DROP VIEW cb_schedules",
        "DROP INDEX sys.jobs_wake",
        "DROP TRIGGER sys.cb_schedules_update",
        "ALTER TABLE jobs RENAME TO works",
        "ALTER TABLE job_runs ADD COLUMN mine",
        "CREATE INDEX sys.mine ON jobs (state)",
        "CREATE TRIGGER sys.mine AFTER UPDATE ON job_runs BEGIN SELECT 1; END",
        "CREATE TRIGGER sys.mine AFTER INSERT ON log BEGIN DELETE FROM audit; END; INSERT INTO log VALUES ('x')",
        "UPDATE sqlite_sequence SET seq = 0",
        "DELETE FROM sys.sqlite_sequence WHERE name = 'audit'",
        "INSERT INTO sys.sqlite_master VALUES ('table', 'x', 'x', 0, '')",
    ],
)
def test_an_administrators_text_never_writes_the_catalog(place: Place, text: str) -> None:
    async def body(worker: Worker) -> None:
        before = state_of(place)
        error = await fails(worker, text, LOCAL)
        assert isinstance(error, StatementFailed)
        assert "may not" in error.message
        assert state_of(place) == before
        assert (await ran(worker, "SELECT count(*) FROM sys.jobs", LOCAL)) == [(1,)]

    with_people(place, body, setup=SETUP)


def test_an_administrators_text_does_what_it_likes_with_other_tables(place: Place) -> None:
    async def body(worker: Worker) -> None:
        rows = await ran(
            worker,
            """
            CREATE TABLE sys.mine (id INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT);
            CREATE INDEX sys.mine_a ON mine (a);
            CREATE TRIGGER sys.mine_t AFTER INSERT ON mine BEGIN INSERT INTO log VALUES (new.a); SELECT 1; END;
            INSERT INTO mine (a) SELECT job_name FROM jobs;
            ALTER TABLE sys.mine RENAME TO ours;
            CREATE VIEW sys.both AS SELECT a FROM ours UNION ALL SELECT line FROM log;
            SELECT a FROM both;
            DROP VIEW both;
            DROP TABLE sys.wages;
            REINDEX mine_a;
            """,
            LOCAL,
        )
        assert rows == [("a",), ("a",)]

    with_people(place, body, setup=SETUP)
    assert place.sql("SELECT a FROM sys.ours") == [("a",)]


@pytest.mark.parametrize(
    "text",
    [
        "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) INSERT INTO sales (amount) SELECT a FROM n",
    ],
)
def test_a_text_without_end_is_stopped(place: Place, text: str) -> None:
    async def body(worker: Worker) -> None:
        run = (worker.node, worker.claim.run_id, worker.claim.run_no, worker.claim.fence)
        async with worker.store.transact(*run, limit=0.1) as joined:
            with pytest.raises(TransactionExpired):
                await joined.run_text(text, ALICE, MOST)
            with pytest.raises(InvalidInput):
                await joined.settle(worker.word(0))
        await ran(worker, "SELECT 1", ALICE)

    with_people(place, body, setup=SETUP)
    assert place.sql("SELECT count(*) FROM sys.sales") == [(2,)]


def test_nothing_of_a_text_stays_on_the_connection(place: Place) -> None:
    async def body(worker: Worker) -> None:
        connection: apsw.Connection = worker.store.driver.connection  # type: ignore[attr-defined] # of SQLite's driver
        largest = connection.limit(apsw.SQLITE_LIMIT_LENGTH)
        for text in ("SELECT job_name()", "SELECT * FROM wages", "SELECT nothing"):
            async with worker.joins() as joined:
                try:
                    await joined.run_text(text, ALICE, MOST)
                except StatementFailed:
                    assert "job_name" not in text
                assert connection.authorizer is None
                assert connection.limit(apsw.SQLITE_LIMIT_LENGTH) == largest
        async with worker.joins() as joined:
            with pytest.raises(apsw.SQLError, match="no such function: job_name"):
                await joined.execute("SELECT job_name()")

    with_people(place, body, setup=SETUP)


def test_a_reference_left_open_fails_the_text(place: Place) -> None:
    setup = SETUP + "CREATE TABLE sys.parts (s INTEGER REFERENCES sales (id) DEFERRABLE INITIALLY DEFERRED)"

    async def body(worker: Worker) -> None:
        error = await fails(worker, "INSERT INTO parts VALUES (99)", LOCAL)
        assert "FOREIGN KEY" in error.message

    with_people(place, body, setup=setup)


def test_the_catalogs_own_names_are_those_of_its_schema(place: Place) -> None:
    async def body(worker: Worker) -> None:
        found = place.sql(
            "SELECT name FROM sys.sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        )
        assert {name for (name,) in found} == catalog_names()

    with_people(place, body)
    assert {"users", "performance"} <= catalog_names()
    assert migrations("sqlite")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT ';'; SELECT 2 -- ; \n;", ["SELECT ';';", " SELECT 2 -- ; \n;"]),
        ("CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; SELECT 2; END; SELECT 3", 2),
        (";; /* ; */ ;", []),
        ('SELECT "a;b", [c;d], `e;f`; SELECT 2', 2),
    ],
)
def test_a_text_is_cut_where_sqlite_ends_a_statement(text: str, pieces: list[str] | int) -> None:
    found = split(text)
    assert found == pieces if isinstance(pieces, list) else len(found) == pieces
