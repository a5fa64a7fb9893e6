"""Texts that never end: those of one user keep nobody else from the places that texts, tasks and SELECTs need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place
from tests.work.world import at_work, make, prepared, ran, until

from horae import Horae

Begun = Callable[[Horae, str], Awaitable[list[str]]]
ENDLESS = {
    "sqlite": "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(3600)",
}
MANY = 12
"""More than there are places for the texts of all."""
PEOPLE = "CREATE USER mal; CREATE USER bob; GRANT CREATE JOB TO mal; GRANT CREATE JOB TO bob"


async def hogs(app: Horae, text: str) -> list[str]:
    """As many runs, each of a job of its own."""
    found = []
    for number in range(MANY):
        await app.sql(f"CREATE JOB hog{number} SCHEDULE = NONE RETRY = NONE AS '{text}'", user="mal")
        ((run_id, _),) = await app.sql(f"EXECUTE JOB hog{number}", user="mal")
        found.append(run_id)
    return found


async def one_run(app: Horae, text: str) -> list[str]:
    """One run of as many tasks, which all begin at once."""
    tasks = ", ".join(f"t{number} AS '{text}'" for number in range(MANY))
    await app.sql(f"CREATE JOB hog SCHEDULE = NONE MODE = PARALLEL RETRY = NONE TASKS ({tasks})", user="mal")
    ((run_id, _),) = await app.sql("EXECUTE JOB hog", user="mal")
    return [run_id]


@pytest.mark.parametrize("begun", [hogs, one_run])
def test_texts_of_one_user_that_never_end_keep_nobody_else_from_theirs(every_place: Place, begun: Begun) -> None:
    prepared(every_place)
    app = make(every_place, grace_period="0s")

    async def body() -> None:
        await app.sql(PEOPLE)
        runs = await begun(app, ENDLESS[every_place.kind])

        async def are_at_work() -> bool:
            ((count,),) = await app.sql("SELECT count(*) FROM sys.task_runs WHERE state = 'RUNNING'")
            return bool(count == MANY)

        await until(are_at_work)
        await app.sql("CREATE JOB beat SCHEDULE = NONE RETRY = NONE AS 'SELECT 1'", user="bob")
        await app.sql("CREATE JOB ours SCHEDULE = NONE RETRY = NONE AS 'SELECT 2'")
        for job in ("beat", "ours"):
            await ran(app, job)
        # Who waits for a turn is stopped as who has one.
        await app.sql(f"CANCEL JOB RUN {runs[-1]}")
        report = await ended(app, runs[-1])
        assert report.outcome == "CANCELLED"
        lost = await app.sql("SELECT count(*) FROM sys.task_attempts WHERE state = 'LOST'")
        assert list(lost) == [(0,)]

    at_work(app, body)


def test_a_text_that_catches_its_cancel_ends_with_its_attempt(server: Place) -> None:
    prepared(server)
    app = make(server)
    stubborn = (
        "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$"
    )
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%as\\_%'"
        " AND state = 'active' AND pid <> pg_backend_pid()"
    )

    async def body() -> None:
        await app.sql(PEOPLE)
        await app.sql(f"CREATE JOB bad SCHEDULE = NONE TASK_TIMEOUT = 500ms RETRY = NONE AS '{stubborn}'", user="mal")
        for _ in range(2):
            ((run_id, _),) = await app.sql("EXECUTE JOB bad", user="mal")
            report = await ended(app, run_id)
            assert report.tasks[0].attempts[0].state == "TIMEOUT"
        await until(lambda: server.sql(asked) == [(0,)])

    at_work(app, body)
