"""ON CONNECTION: SQL on other databases, with a login of their own, seen from the engine."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import apsw
import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place, sqlite_place
from tests.store.databases import Databases
from tests.store.test_text_apart import ONE_STEP
from tests.work.world import (
    PATIENCE,
    at_work,
    configured,
    error_of,
    executed,
    make,
    prepared,
    ran,
    row_of,
    until,
    waiting,
)

from horae import Horae
from horae.store.sqlite.text import named_connection
from horae.testing.simulation import Simulation

PASSWORD = "hunter2-and-more"  # noqa: S105 - it opens nothing


@pytest.fixture(params=["sqlite", "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Another database, with a table."""
    if request.param == "sqlite":
        file = tmp_path / "other.db"
        connection = apsw.Connection(str(file))
        connection.execute("CREATE TABLE facts (a INTEGER PRIMARY KEY, b TEXT)")
        connection.close()
        return Place("sqlite", str(file))
    databases: Databases = request.getfixturevalue("databases_18")
    place = Place("postgres", databases.server.create_database())
    place.sql("CREATE TABLE facts (a INTEGER PRIMARY KEY, b TEXT)")
    return place


def reaching(tmp_path: Path, other: Place | str) -> Horae:
    url = other if isinstance(other, str) else other.url
    configuration = configured(tmp_path, f'[connections.other]\nurl = "{url}"\n')
    return make(sqlite_place(tmp_path), configuration)


async def create(app: Horae, text: str, clauses: str = "RETRY = NONE") -> None:
    quoted = text.replace("'", "''")
    await app.sql(f"CREATE OR ALTER JOB there SCHEDULE = NONE {clauses} AS '{quoted}' ON CONNECTION other")


def facts(other: Place) -> list[tuple[object, ...]]:
    schema = "sys." if other.kind == "sqlite" else ""
    return other.sql(f"SELECT a, b FROM {schema}facts ORDER BY a")


def test_what_is_done_on_another_database_is_counted_and_its_answer_kept(tmp_path: Path, other: Place) -> None:
    app = reaching(tmp_path, other)

    async def body() -> None:
        await create(app, "INSERT INTO facts VALUES (1, 'x'), (2, 'y'); UPDATE facts SET b = 'z' WHERE a = 2")
        assert (await ran(app, "there"))["rows_affected"] == 3
        await create(app, "SELECT a, b FROM facts ORDER BY a")
        row = await ran(app, "there")
        assert row["result_data"] == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "z"]]}
        assert row["rows_affected"] == 2
        await create(app, "WITH gone AS (SELECT 1 AS a) DELETE FROM facts WHERE a IN (SELECT a FROM gone)")
        assert (await ran(app, "there"))["rows_affected"] == 1
        await create(
            app, "SELECT current_setting('horae.job_name') AS job, current_setting('horae.job_run_uuid') AS run"
        )
        row = await ran(app, "there")
        assert row["result_data"]["rows"] == [["there", row["job_run_uuid"]]]
        await create(
            app, "SELECT current_setting('horae.job_name', true) AS job, current_setting('horae.no', true) AS none"
        )
        assert (await ran(app, "there"))["result_data"]["rows"] == [["there", None]]

    at_work(app, body)
    assert facts(other) == [(2, "z")]


def test_a_large_answer_of_another_database_is_cut(tmp_path: Path, other: Place) -> None:
    app = reaching(tmp_path, other)

    async def body() -> None:
        await create(
            app, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) SELECT i FROM n"
        )
        row = await ran(app, "there")
        assert (row["rows_affected"], row["result_data"]["cut"]) == (50_000, True)
        assert row["result_data"]["rows"][:2] == [[1], [2]]

    at_work(app, body)


def test_a_text_that_fails_there_leaves_nothing_of_it(tmp_path: Path, other: Place) -> None:
    app = reaching(tmp_path, other)

    async def body() -> None:
        await create(app, "INSERT INTO facts VALUES (1, 'x'); INSERT INTO facts VALUES (1, 'again')")
        report = await executed(app, "there")
        row = await row_of(app, report.run.run_id)
        assert (row["state"], row["error_code"]) == ("FAILED", 1605)
        assert 'On the connection "other"' in error_of(report)
        if other.kind == "postgres":
            assert "SQLSTATE 23505" in error_of(report)

    at_work(app, body)
    assert facts(other) == []


def test_values_of_every_kind_are_told_as_the_catalog_s_own_database_tells_them(
    tmp_path: Path, databases_18: Databases
) -> None:
    """The same text, by `ON CONNECTION` and without it."""
    url = databases_18.fresh()
    app = make(Place("postgres", url), configured(tmp_path, f'[connections.other]\nurl = "{url}"\n'))
    text = (
        "SELECT 1 AS a, 2.5::numeric AS b, 'NaN'::float8 AS c, '\\x00ff'::bytea AS d, TRUE AS e, NULL AS f,"
        " '2026-01-02 03:04:05'::timestamp AS g, '2026-01-02'::date AS h, ARRAY[1, 2] AS i, '{\"a\": [1]}'::jsonb AS j,"
        " '6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid AS k, 'é' AS l"
    )

    async def body() -> None:
        await create(app, text)
        there = await ran(app, "there")
        quoted = text.replace("'", "''")
        await app.sql(f"CREATE JOB here SCHEDULE = NONE AS '{quoted}'")
        here = await ran(app, "here")
        assert there["result_data"] == here["result_data"]
        assert there["result_data"]["rows"][0][:6] == [1, 2.5, "NaN", "\\x00ff", True, None]

    at_work(app, body)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.mark.parametrize("how", ["cancel", "TASK_TIMEOUT = 300ms RETRY = NONE"])
def test_a_statement_there_is_stopped_by_a_cancel_and_by_a_time_limit(tmp_path: Path, other: Place, how: str) -> None:
    app = reaching(tmp_path, other)
    text = f"INSERT INTO facts VALUES (1, 'x'); {ENDLESS if other.kind == 'sqlite' else 'SELECT pg_sleep(60)'}"

    async def body() -> None:
        await create(app, text, "RETRY = NONE" if how == "cancel" else how)
        ((run_id, _),) = await app.sql("EXECUTE JOB there")
        if how == "cancel":
            await until(lambda: is_running(app, run_id))
            await app.sql(f"CANCEL JOB RUN {run_id}")
        report = await ended(app, run_id)
        assert str(report.tasks[0].state) == ("CANCELLED" if how == "cancel" else "TIMEOUT")
        if other.kind == "postgres":
            await until(lambda: not busy(other))

    at_work(app, body)
    assert facts(other) == []


async def is_running(app: Horae, run_id: str) -> bool:
    return (await app.report(run_id)).run.state == "RUNNING"


def busy(other: Place) -> bool:
    found = other.sql(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND state = 'active'"
    )
    return bool(found)


def test_what_cannot_be_in_a_transaction_can_be_said_there(tmp_path: Path, other: Place) -> None:
    app = reaching(tmp_path, other)

    async def body() -> None:
        await create(app, "VACUUM")
        await ran(app, "there")
        await create(app, "ANALYZE facts")
        await ran(app, "there")
        if other.kind == "sqlite":
            await create(app, f"VACUUM INTO '{tmp_path / 'stolen.db'}'")
            await ran(app, "there", "FAILED")
            assert not (tmp_path / "stolen.db").exists()

    at_work(app, body)


@pytest.mark.parametrize(
    "spoiled",
    [
        "postgresql://etl:{password}@127.0.0.1:1/nowhere",
        "postgresql://etl:{password}@127.0.0.1:1/nowhere?password={password}",
        "postgresql://etl:{password}%zz@127.0.0.1:1/nowhere",
        "postgresql://etl:x@{password}@127.0.0.1:1/nowhere",
        "postgresql://etl:x/{password}@127.0.0.1/nowhere",
        "postgresql://etl:x@127.0.0.1:1/nowhere?{password}",
    ],
)
def test_a_login_is_in_no_error_output_or_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoiled: str
) -> None:
    app = reaching(tmp_path, spoiled.format(password=PASSWORD))

    async def body() -> None:
        await create(app, "SELECT 1")
        report = await executed(app, "there")
        assert report.outcome == "FAILED"
        assert 'Cannot reach the connection "other"' in error_of(report)
        told = str(report) + str(report.to_dict()) + await app.output(report.tasks[0].attempts[0].attempt_id)
        assert PASSWORD not in told
        assert PASSWORD not in repr(vars(app)) + repr(app.configuration)

    at_work(app, body)
    assert PASSWORD not in caplog.text
    assert PASSWORD.encode() not in (tmp_path / "horae.db").read_bytes()


def test_a_wrong_password_is_said_without_it(tmp_path: Path, databases_18: Databases) -> None:
    parts = urlsplit(databases_18.server.create_database())
    wrong = urlunsplit(parts._replace(netloc=f"{parts.username}:{PASSWORD}@{parts.hostname}:{parts.port}"))
    app = reaching(tmp_path, wrong)

    async def body() -> None:
        await create(app, "SELECT 1")
        report = await executed(app, "there")
        assert "password authentication failed" in error_of(report)
        assert PASSWORD not in str(report) + await app.output(report.tasks[0].attempts[0].attempt_id)

    at_work(app, body)


def test_a_file_that_is_not_there_is_said_and_not_made(tmp_path: Path) -> None:
    app = reaching(tmp_path, f"sqlite:///{tmp_path / 'absent.db'}")

    async def body() -> None:
        await create(app, "CREATE TABLE a (b INTEGER)")
        report = await executed(app, "there")
        assert "names a file that is not there" in error_of(report)

    at_work(app, body)
    assert not (tmp_path / "absent.db").exists()


def test_a_file_s_job_reaches_no_other_file(tmp_path: Path) -> None:
    app = reaching(tmp_path, f"sqlite:///{tmp_path / 'other.db'}")
    (tmp_path / "other.db").touch()

    async def body() -> None:
        await create(app, f"ATTACH '{tmp_path / 'horae.db'}' AS catalog")
        report = await executed(app, "there")
        assert "not authorized" in error_of(report)

    at_work(app, body)


def test_a_run_waits_for_a_node_that_has_its_connection(tmp_path: Path, other: Place) -> None:
    place = sqlite_place(tmp_path)
    first = make(place)

    async def body() -> None:
        await create(first, "INSERT INTO facts VALUES (1, 'x')")
        await first.sql("EXECUTE JOB there")
        finding = await until(lambda: waiting(place, "there"))
        assert finding.message == 'No live node has the connection "other"; 1 of its runs wait for that'
        (run,) = await first.runs("there")
        second = reaching(tmp_path, other)
        async with second:
            assert (await ended(second, run.run_id)).outcome == "COMPLETED"

    at_work(first, body)
    assert facts(other) == [(1, "x")]


def test_a_simulation_reaches_no_other_database(tmp_path: Path, other: Place) -> None:
    configuration = configured(tmp_path, f'[connections.other]\nurl = "{other.url}"\n')
    app = Horae("sqlite://", settings={"configuration": configuration})

    async def main() -> None:
        async with Simulation(app) as sim:
            await app.sql(
                "CREATE JOB there SCHEDULE = EVERY 1h AS 'INSERT INTO facts VALUES (1, ''x'')' ON CONNECTION other"
            )
            await sim.advance("1h")
            (run,) = await app.runs("there")
            assert (run.state, run.owner) == ("PENDING", None)

    asyncio.run(main())
    assert facts(other) == []


def test_a_statement_that_waits_for_another_writer_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "other.db"
    holder = apsw.Connection(str(file))
    holder.execute("CREATE TABLE facts (a INTEGER); BEGIN IMMEDIATE")
    app = reaching(tmp_path, f"sqlite:///{file}")

    async def body() -> None:
        await create(app, "INSERT INTO facts VALUES (1)", "TASK_TIMEOUT = 200ms RETRY = NONE")
        report = await executed(app, "there")
        assert report.tasks[0].state == "TIMEOUT"

    monkeypatch.setattr(named_connection, "PATIENCE", 10 * PATIENCE)
    at_work(app, body)
    holder.execute("COMMIT")
    assert holder.execute("SELECT count(*) FROM facts").fetchall() == [(0,)]
    holder.close()


@pytest.mark.parametrize(
    "text", ["PRAGMA hard_heap_limit = 8192", "SELECT length(printf('%.*c', 1500000000, 'a') || 'b')"]
)
def test_what_a_text_on_a_file_takes_or_sets_reaches_no_other(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.db").touch()
    app = reaching(tmp_path, f"sqlite:///{tmp_path / 'other.db'}")

    async def body() -> None:
        await create(app, text)
        await executed(app, "there")
        # The node's own SQLite has the memory that it needs.
        await app.sql("CREATE JOB here SCHEDULE = NONE AS 'SELECT length(hex(zeroblob(100000)))'")
        assert (await ran(app, "here"))["result_data"]["rows"] == [[200_000]]
        await create(app, "SELECT 7 AS a")
        assert (await ran(app, "there"))["result_data"]["rows"] == [[7]]

    at_work(app, body)


def test_a_statement_on_a_file_that_is_one_step_is_stopped_and_keeps_nobody_from_reading(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("CREATE TABLE facts (a INTEGER)")
    app = reaching(tmp_path, f"sqlite:///{file}")

    async def body() -> None:
        await create(app, f"INSERT INTO facts VALUES (1); {ONE_STEP}")
        ((run_id, _),) = await app.sql("EXECUTE JOB there")
        await until(lambda: is_running(app, run_id))
        await app.sql("CREATE JOB reads SCHEDULE = NONE AS 'SELECT count(*) FROM facts' ON CONNECTION other")
        assert (await ran(app, "reads"))["result_data"]["rows"] == [[0]]
        await app.cancel(run_id)
        assert str((await ended(app, run_id)).tasks[0].state) == "CANCELLED"

    at_work(app, body)


def test_the_catalog_is_not_in_a_transaction_while_another_database_is_at_work(tmp_path: Path, server: Place) -> None:
    """Long work elsewhere keeps nobody from the catalog."""
    prepared(server)
    configuration = configured(tmp_path, f'[connections.other]\nurl = "{server.url}"\n')
    app = make(sqlite_place(tmp_path), configuration)

    async def body() -> None:
        await create(app, "SELECT pg_sleep(60)")
        ((run_id, _),) = await app.sql("EXECUTE JOB there")
        await until(lambda: busy(server))
        await app.sql("CREATE JOB meanwhile SCHEDULE = NONE AS 'SELECT 1'")
        await ran(app, "meanwhile")
        await app.cancel(run_id)
        await ended(app, run_id)

    at_work(app, body)
