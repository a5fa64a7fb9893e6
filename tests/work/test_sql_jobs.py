"""SQL jobs through the engine: what they answer, what they know of their run, how they fail, and what is kept."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.engine.world import ended, simulate
from tests.store.catalogs import Place
from tests.work.world import at_work, error_of, executed, here, make, prepared, ran, row_of, until

from horae import Horae
from horae.testing.simulation import Simulation

ORDERS = "CREATE TABLE {t}orders (id INTEGER PRIMARY KEY, amount INTEGER)"
FILLED = "INSERT INTO {t}orders VALUES (1, 10), (2, 20), (3, 30)"


async def create(app: Horae, name: str, text: str, clauses: str = "") -> None:
    quoted = text.replace("'", "''")
    await app.sql(f"CREATE JOB {name} SCHEDULE = NONE {clauses} AS '{quoted}'")


def test_a_job_s_rows_are_counted_and_those_it_answers_are_kept(place: Place) -> None:
    prepared(place, ORDERS, FILLED)
    app = make(place)

    async def body() -> None:
        await create(app, "raise", here(place, "UPDATE {t}orders SET amount = amount + 1 WHERE id > 1"))
        await create(app, "read", here(place, "SELECT id, amount FROM {t}orders ORDER BY id"))
        await create(app, "nothing", here(place, "DELETE FROM {t}orders WHERE id = 99"))
        raised = await ran(app, "raise")
        assert (raised["rows_affected"], raised["result_data"], raised["error_code"]) == (2, None, None)
        read = await ran(app, "read")
        assert read["result_data"] == {"columns": ["id", "amount"], "rows": [[1, 10], [2, 21], [3, 31]]}
        assert read["rows_affected"] == 3
        assert (await ran(app, "nothing"))["rows_affected"] == 0

    at_work(app, body)


def test_several_statements_are_one_and_the_last_answer_is_kept(place: Place) -> None:
    prepared(place, ORDERS, FILLED)
    app = make(place)
    text = "INSERT INTO {t}orders VALUES (4, 40); UPDATE {t}orders SET amount = 0; SELECT sum(id) AS ids FROM {t}orders"

    async def body() -> None:
        await create(app, "several", here(place, text))
        row = await ran(app, "several")
        assert row["rows_affected"] == 1 + 4
        assert row["result_data"] == {"columns": ["ids"], "rows": [[10]]}

    at_work(app, body)


def test_an_answer_that_is_too_large_is_kept_as_far_as_there_is_room_and_says_so(place: Place) -> None:
    prepared(place, ORDERS)
    app = make(place, settings={"result_limit": 2000})
    text = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i FROM n"

    async def body() -> None:
        await create(app, "long", text)
        row = await ran(app, "long")
        kept = row["result_data"]
        assert kept["cut"] is True
        assert 10 < len(kept["rows"]) < 1000
        assert kept["rows"][:3] == [[1], [2], [3]]
        assert row["rows_affected"] == 5000

    at_work(app, body)


@pytest.mark.parametrize("letter", ["x", "é", "𝄞", '"'])
def test_an_answer_up_to_the_limit_is_kept_whatever_its_letters_take(place: Place, letter: str) -> None:
    prepared(place)
    app = make(place, settings={"result_limit": 1000})
    text = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT '{}' AS a FROM n"

    async def body() -> None:
        await create(app, "letters", text.format(letter))
        row = await ran(app, "letters")
        assert row["rows_affected"] == 300
        assert row["result_data"]["cut"] is True
        assert row["result_data"]["rows"][:20] == [[letter]] * 20

    at_work(app, body)


def test_the_text_knows_its_job_and_its_run(place: Place) -> None:
    prepared(place)
    app = make(place)

    async def body() -> None:
        names = ("job_name", "job_uuid", "job_run_uuid")
        settings = ", ".join(f"current_setting('horae.{name}') AS {name}" for name in names)
        await create(app, "knowing", f"SELECT {settings}")
        row = await ran(app, "knowing")
        (values,) = row["result_data"]["rows"]
        assert values == ["knowing", row["job_uuid"], row["job_run_uuid"]]

    at_work(app, body)


def test_a_statement_that_fails_keeps_nothing_of_those_before_it(place: Place) -> None:
    prepared(place, ORDERS, FILLED)
    app = make(place)

    async def body() -> None:
        text = "INSERT INTO {t}orders VALUES (7, 70); INSERT INTO {t}orders VALUES (1, 1)"
        await create(app, "twice", here(place, text), "RETRY = NONE")
        report = await executed(app, "twice")
        row = await row_of(app, report.run.run_id)
        assert (row["state"], row["error_code"], row["rows_affected"]) == ("FAILED", 1605, None)
        assert error_of(report).startswith("StatementFailed: ")
        if place.kind == "postgres":
            assert "SQLSTATE 23505" in error_of(report)
        else:
            assert "UNIQUE constraint failed" in error_of(report)

    at_work(app, body)
    assert place.sql(here(place, "SELECT count(*) FROM {t}orders")) == [(3,)]


def test_a_failing_statement_is_tried_again_as_the_sql_default_says() -> None:
    app = Horae("sqlite://")

    async def body(sim: Simulation) -> None:
        await app.sql("CREATE JOB broken SCHEDULE = EVERY 1d AS 'SELECT * FROM sys.nowhere'")
        await sim.advance("25h")
        (run,) = await app.runs("broken")
        report = await app.report(run.run_id)
        assert report.outcome == "FAILED"
        starts = [each.started_at for each in report.tasks[0].attempts]
        waits = [(b - a).total_seconds() for a, b in pairwise(starts) if a and b]
        assert waits == [60, 120, 240]

    simulate(app, body)


def test_a_text_that_says_commit_is_refused_and_leaves_nothing(place: Place) -> None:
    prepared(place, ORDERS)
    app = make(place)

    async def body() -> None:
        text = here(place, "INSERT INTO {t}orders VALUES (1, 1); COMMIT")
        await create(app, "leaving", text, "RETRY = NONE")
        report = await executed(app, "leaving")
        assert report.outcome == "FAILED"
        assert "COMMIT" in error_of(report)

    at_work(app, body)
    assert place.sql(here(place, "SELECT count(*) FROM {t}orders")) == [(0,)]


def test_a_statement_that_takes_too_long_is_stopped_and_undone_on_sqlite(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = Place("sqlite", str(tmp_path_factory.mktemp("slow") / "horae.db"))
    prepared(place, ORDERS)
    app = make(place, settings={"transaction_limit": "200ms"})
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

    async def body() -> None:
        await create(app, "endless", f"INSERT INTO sys.orders VALUES (1, 1); {endless}", "RETRY = NONE")
        report = await executed(app, "endless")
        row = await row_of(app, report.run.run_id)
        assert (row["state"], row["error_code"]) == ("FAILED", 1604)

    at_work(app, body)
    assert place.sql("SELECT count(*) FROM sys.orders") == [(0,)]


SLEEPING = "INSERT INTO public.orders VALUES (1, 1); SELECT pg_sleep(60)"


def sleepers(place: Place) -> int:
    """How many sessions of this database are in pg_sleep at this moment."""
    found = place.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event = 'PgSleep' AND pid <> pg_backend_pid()"
    )
    return int(found[0][0])


@pytest.mark.parametrize(
    ("clauses", "outcome", "state", "code"),
    [
        ("TASK_TIMEOUT = 300ms RETRY = NONE", "FAILED", "TIMEOUT", 1602),
        ("TIMEOUT = 1s", "CANCELLED", "CANCELLED", None),
    ],
)
def test_a_time_limit_cancels_the_statement_on_the_server(
    server: Place, clauses: str, outcome: str, state: str, code: int | None
) -> None:
    prepared(server, ORDERS)
    app = make(server)

    async def body() -> None:
        await create(app, "slow", SLEEPING, clauses)
        report = await executed(app, "slow")
        assert (report.outcome, report.tasks[0].state) == (outcome, state)
        assert (await row_of(app, report.run.run_id))["error_code"] == code
        await until(lambda: sleepers(server) == 0)

    at_work(app, body)
    assert server.sql("SELECT count(*) FROM public.orders") == [(0,)]


def test_cancel_job_run_stops_the_statement_on_the_server(server: Place) -> None:
    prepared(server, ORDERS)
    app = make(server)

    async def body() -> None:
        await create(app, "slow", SLEEPING)
        ((run_id, _),) = await app.sql("EXECUTE JOB slow")
        await until(lambda: sleepers(server) == 1)
        await app.sql(f"CANCEL JOB RUN {run_id}")
        report = await ended(app, run_id)
        assert (report.outcome, report.run.cancelled_by) == ("CANCELLED", "local")
        await until(lambda: sleepers(server) == 0)
        await create(app, "next", "SELECT 1")
        await ran(app, "next")

    at_work(app, body)
    assert server.sql("SELECT count(*) FROM public.orders") == [(0,)]
