"""PROCEDURE jobs: registered Python procedures on both stores, and PostgreSQL's own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place
from tests.work.world import at_work, error_of, executed, make, prepared, ran, row_of, until, waiting

from horae import Horae, Run
from horae.core.report.report import RunReport

AWKWARD = ["it's", 'a "quote"', "back\\slash", "$$; DROP TABLE notes; --", "né", "%s {0} :x", ""]


def literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return str(value) if isinstance(value, int | float) else "'" + value.replace("'", "''") + "'"


async def called(app: Horae, call: str, clauses: str = "RETRY = NONE") -> RunReport:
    await app.sql(f"CREATE OR ALTER JOB calls SCHEDULE = NONE {clauses} CALL {call}")
    return await executed(app, "calls")


def test_a_python_procedure_is_called_with_the_arguments_of_the_job(place: Place) -> None:
    prepared(place)
    app = make(place)
    seen: list[Any] = []
    arguments = [*AWKWARD, 7, -2.5, True, False, None]

    @app.procedure
    def plain(*given: Any) -> int:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(list(given))
        return len(given)

    @app.procedure("shop.later")
    async def later(*given: Any, run: Run) -> str:
        await asyncio.sleep(0)
        seen.append([run.job_name, *given])
        return run.task_name

    @app.procedure("with_run")
    def with_run(first: str, run: Run, second: int = 2) -> None:
        seen.append([first, second, run.payload])

    @app.procedure("nothing")
    async def nothing() -> None:
        seen.append([])

    async def body() -> None:
        report = await called(app, f"plain({', '.join(map(literal, arguments))})")
        assert (report.outcome, report.tasks[0].result) == ("COMPLETED", len(arguments)), str(report)
        report = await called(app, "shop.later('x', 1)")
        assert (report.outcome, report.tasks[0].result) == ("COMPLETED", "calls"), str(report)
        assert (await called(app, "with_run('y')", "PAYLOAD = '{\"a\": 1}'")).outcome == "COMPLETED"
        assert (await called(app, "nothing()")).outcome == "COMPLETED"
        report = await called(app, "nothing(1)")
        assert (report.outcome, (await row_of(app, report.run.run_id))["error_code"]) == ("FAILED", 1601)
        assert "TypeError" in error_of(report)

    at_work(app, body)
    assert seen == [arguments, ["calls", "x", 1], ["y", 2, {"a": 1}], []]


def test_a_procedure_in_a_transaction_of_its_run_has_its_effects_once(place: Place) -> None:
    prepared(place, "CREATE TABLE {t}notes (text TEXT)")
    app = make(place)
    insert = "INSERT INTO sys.notes VALUES (?)" if place.kind == "sqlite" else "INSERT INTO notes VALUES (%s)"

    @app.procedure("note")
    def note(text: str, run: Run) -> None:
        run.transaction.execute(insert, (f"{text} {run.attempt}",))
        if run.attempt == 1:
            raise ValueError("not yet")

    async def body() -> None:
        report = await called(app, "note('kept')", "MAX_RETRIES = 1 RETRY_BACKOFF = 20ms")
        assert [str(each.state) for each in report.tasks[0].attempts] == ["FAILED", "SUCCESS"]

    at_work(app, body)
    table = "sys.notes" if place.kind == "sqlite" else "notes"
    assert place.sql(f"SELECT text FROM {table}") == [("kept 2",)]


def test_a_procedure_that_no_node_has_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = Place("sqlite", str(tmp_path_factory.mktemp("waits") / "horae.db"))
    first = make(place)

    async def body() -> None:
        await first.sql("CREATE JOB calls SCHEDULE = NONE CALL elsewhere(1); EXECUTE JOB calls")
        finding = await until(lambda: waiting(place, "calls"))
        assert finding.message == 'No live node has the procedure "elsewhere"; 1 of its runs wait for that'
        (run,) = await first.runs("calls")
        second = make(place)
        second.procedure("elsewhere")(lambda number: number + 1)
        async with second:
            report = await ended(second, run.run_id)
        assert (report.outcome, report.tasks[0].result) == ("COMPLETED", 2)

    at_work(first, body)


def test_the_database_s_own_procedure_is_called_with_every_argument_as_it_is(server: Place) -> None:
    prepared(
        server,
        "CREATE TABLE notes (id SERIAL, text TEXT)",
        "CREATE PROCEDURE note(given TEXT) LANGUAGE SQL AS 'INSERT INTO notes (text) VALUES (given)'",
        "CREATE SCHEMA shop",
        'CREATE PROCEDURE shop."Sum up"(a INT, b NUMERIC, c BOOLEAN, INOUT d TEXT) LANGUAGE plpgsql'
        " AS $$ BEGIN d := format('%s %s %s %s', a, b, c, d IS NULL); END $$",
    )
    app = make(server)

    async def body() -> None:
        for text in AWKWARD:
            report = await called(app, f"note({literal(text)})")
            assert report.outcome == "COMPLETED", str(report)
        report = await called(app, 'shop."Sum up"(1, -2.5, TRUE, NULL)')
        row = await row_of(app, report.run.run_id)
        assert row["result_data"] == {"columns": ["d"], "rows": [["1 -2.5 t t"]]}, str(report)

    at_work(app, body)
    assert server.sql("SELECT text FROM notes ORDER BY id") == [(text,) for text in AWKWARD]


def test_a_database_procedure_that_commits_is_refused_and_leaves_nothing(server: Place) -> None:
    prepared(
        server,
        "CREATE TABLE notes (text TEXT)",
        "CREATE PROCEDURE leaves() LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO notes VALUES ('half'); COMMIT; INSERT INTO notes VALUES ('rest'); END $$",
    )
    app = make(server)

    async def body() -> None:
        report = await called(app, "leaves()")
        row = await row_of(app, report.run.run_id)
        assert (row["state"], row["error_code"]) == ("FAILED", 1605)
        assert "invalid transaction termination" in error_of(report)
        assert "SQLSTATE 2D000" in error_of(report)

    at_work(app, body)
    assert server.sql("SELECT * FROM notes") == []


def test_a_user_s_call_needs_the_right_to_what_the_procedure_touches(server: Place) -> None:
    prepared(
        server,
        "CREATE TABLE notes (text TEXT)",
        "CREATE PROCEDURE note() LANGUAGE SQL AS 'INSERT INTO notes VALUES (''x'')'",
    )
    app = make(server)

    async def body() -> None:
        await app.sql("CREATE USER alice; GRANT CREATE JOB TO alice")
        await app.sql("CREATE JOB calls SCHEDULE = NONE RETRY = NONE CALL note()", user="alice")
        row = await ran(app, "calls", "FAILED")
        assert (row["error_code"], "SQLSTATE 42501" in row["result_message"]) == (1605, True)
        await app.sql("GRANT INSERT ON TABLE notes TO alice")
        await ran(app, "calls")

    at_work(app, body)
    assert server.sql("SELECT * FROM notes") == [("x",)]
