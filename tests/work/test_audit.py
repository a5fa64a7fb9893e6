"""The trail of what jobs did: each thing once, with who, which job, which run and what became of it; and no later edit
of a run or of a row goes unseen."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place, sqlite_place
from tests.work.world import at_work, configured, executed, make, prepared, until

from horae import Every, Horae, Retry, Run
from horae.core.job import ids
from horae.security.audit.verification import TrailVerification
from horae.testing.simulation import Simulation

NAMED = (
    "'JOB_CREATED', 'JOB_MODIFIED', 'JOB_DELETED', 'JOB_EXECUTED', 'JOB_FAILED', 'JOB_CANCELLED', 'CANCEL_REQUESTED'"
)


async def trail(app: Horae, job: str) -> list[dict[str, Any]]:
    """The rows of one job, of the kinds that the design names, oldest first."""
    rows = await app.sql(
        "SELECT event, actor, outcome, job_run_uuid AS run, details FROM sys.audit"
        f" WHERE job_uuid = '{ids.job_uuid(job)}' AND event IN ({NAMED}) ORDER BY audit_no"
    )
    found = [dict(zip(rows.columns, each, strict=True)) for each in rows]
    for each in found:
        each["details"] = json.loads(each["details"] or "null")
    return found


def test_every_event_of_the_design_is_told_once_with_who_what_and_how_it_ended(place: Place) -> None:
    prepared(place)
    app = make(place)

    @app.task("slow")
    async def slow() -> None:
        await asyncio.sleep(60)

    async def body() -> None:
        await app.sql("CREATE USER alice; GRANT CREATE JOB TO alice")
        await app.sql("CREATE JOB a SCHEDULE = NONE RETRY = NONE AS 'SELECT 1'", user="alice")
        good = (await executed(app, "a", "alice")).run.run_id
        await app.sql("ALTER JOB a SET AS 'SELECT nowhere'", user="alice")
        bad = (await executed(app, "a", "alice")).run.run_id
        await app.sql("ALTER JOB a SET PYTHON slow", user="alice")
        ((long, _),) = await app.sql("EXECUTE JOB a", user="alice")
        await until(lambda: is_running(app, long))
        await app.sql(f"CANCEL JOB RUN {long}", user="alice")
        await ended(app, long)
        await app.sql("DROP JOB a KEEP HISTORY", user="alice")
        assert app.engine is not None
        node = str(app.engine.node)
        rows = await trail(app, "a")
        assert [(row["event"], row["actor"], row["outcome"], row["run"]) for row in rows] == [
            ("JOB_CREATED", "alice", "OK", None),
            ("JOB_EXECUTED", node, "OK", good.removeprefix("occ_")),
            ("JOB_MODIFIED", "alice", "OK", None),
            ("JOB_FAILED", node, "FAILED", bad.removeprefix("occ_")),
            ("JOB_MODIFIED", "alice", "OK", None),
            ("CANCEL_REQUESTED", "alice", "OK", long.removeprefix("occ_")),
            ("JOB_CANCELLED", node, "CANCELLED", long.removeprefix("occ_")),
            ("JOB_DELETED", "alice", "OK", None),
        ]
        # Whose rights they had is told where a node is who ended them.
        assert [row["details"]["user"] for row in rows if row["event"] in ("JOB_FAILED", "JOB_CANCELLED")] == [
            "alice"
        ] * 2
        await app.sql("CREATE JOB b SCHEDULE = EVERY 1d ENABLED AS 'SELECT 1'", user="alice")
        ((waiting, _),) = await app.sql("EXECUTE JOB b", user="alice")
        await ended(app, waiting)
        assert [row["event"] for row in await trail(app, "b")] == ["JOB_CREATED", "JOB_EXECUTED"]

    at_work(app, body)


async def is_running(app: Horae, run_id: str) -> bool:
    return (await app.report(run_id)).run.state == "RUNNING"


def busy(app: Horae) -> None:
    """Jobs of every kind of end."""

    @app.job("often", Every("30m"))
    async def often() -> None: ...

    @app.job("flaky", Every("2h"), retry=Retry(1, "5m"))
    async def flaky(run: Run) -> None:
        if run.attempt == 1 or run.scheduled_time.hour % 4 == 0:
            raise ValueError("not this time")

    @app.job("slow", Every("3h"), overlap="replace", cancel_grace="1s")
    async def slow() -> None:
        await asyncio.sleep(4 * 3600)

    @app.job("timed", Every("6h"), execution_timeout="10m", recovery="all")
    async def timed() -> None:
        await asyncio.sleep(3600)


def lived(folder: Path) -> tuple[Place, Horae]:
    """A catalog after a busy simulated day: people, jobs, failures, cancellations, a crash, dropped history."""
    place = sqlite_place(folder)
    app = make(place, configured(folder))
    busy(app)

    async def main() -> None:
        async with Simulation(app, settings={"sweep_every": 1800}) as sim:
            await app.sql("CREATE USER alice; CREATE ROLE crew; GRANT crew TO alice; GRANT CREATE JOB TO alice")
            await app.sql("CREATE JOB hers SCHEDULE = EVERY 90m RUN AS crew AS 'SELECT 1'", user="alice")
            await app.sql("CREATE JOB gone SCHEDULE = EVERY 1h AS 'SELECT 1'", user="alice")
            await sim.advance("7h")
            await app.sql("DROP JOB gone; CREATE SECRET token = 'some value'")
            await sim.advance("2h10m")
            await sim.crash()
            await sim.advance("8h")
            await app.sql("ALTER USER alice DISABLED; ALTER SYSTEM SET scheduler.plan_batch = 100")
            await sim.advance("7h")

    asyncio.run(main())
    return place, app


def verified(app: Horae) -> TrailVerification:
    async def main() -> TrailVerification:
        try:
            return await app.serve(lambda service: service.people.verify_audit())
        finally:
            await app.close()

    return asyncio.run(main())


def test_a_busy_day_s_trail_is_whole_and_any_edit_of_a_row_or_a_run_is_found(tmp_path: Path) -> None:
    place, app = lived(tmp_path)
    found = verified(app)
    assert found.findings == ()
    assert found.rows > 80
    states = Counter(state for (state,) in place.sql("SELECT state FROM sys.job_runs"))
    assert states["COMPLETED"] > 50
    assert states["FAILED"] > 5
    assert states["CANCELLED"] > 5
    numbers = [number for (number,) in place.sql("SELECT audit_no FROM sys.audit WHERE position IS NOT NULL")]
    edits = {
        "event": "event || 'X'",
        "actor": "'mallory'",
        "outcome": "outcome || 'X'",
        "at": "at + 1",
        "details": "'{}'",
        "digest": "coalesce(digest, '') || '0'",
        "job_uuid": "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'",
        "job_run_uuid": "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'",
    }
    for index, number in enumerate(numbers[:: len(numbers) // 24]):
        column, value = list(edits.items())[index % len(edits)]
        changed(place, app, "audit", f"audit_no = {number}", f"{column} = {value}")
    for index, number in enumerate(numbers[3 :: len(numbers) // 5]):
        assert index < 10
        removed(place, app, "audit", f"audit_no = {number}")
    assert verified(app).ok


RUN_EDITS = (
    "state = CASE state WHEN 'COMPLETED' THEN 'FAILED' ELSE 'COMPLETED' END",
    "completed_at = completed_at + 1",
)


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_run_that_is_edited_or_deleted_after_a_busy_day_is_missed(tmp_path: Path, state: str) -> None:
    place, app = lived(tmp_path)
    assert verified(app).ok
    runs = [number for (number,) in place.sql(f"SELECT run_no FROM sys.job_runs WHERE state = '{state}'")]
    for index, number in enumerate(runs[:: max(1, len(runs) // 6)]):
        changed(place, app, "job_runs", f"run_no = {number}", RUN_EDITS[index % 2])
        removed(place, app, "job_runs", f"run_no = {number}")
    assert verified(app).ok


def changed(place: Place, app: Horae, table: str, which: str, change: str) -> None:
    """Edits one row as another client would, expects it to be found, and puts the row back."""
    with_row(place, app, table, which, f"UPDATE sys.{table} SET {change} WHERE {which}")


def removed(place: Place, app: Horae, table: str, which: str) -> None:
    with_row(place, app, table, which, f"DELETE FROM sys.{table} WHERE {which}")


def with_row(place: Place, app: Horae, table: str, which: str, statement: str) -> None:
    place.sql(f"CREATE TABLE sys.before AS SELECT * FROM sys.{table} WHERE {which}")
    place.sql(statement)
    try:
        assert not verified(app).ok, statement
    finally:
        place.sql(f"DELETE FROM sys.{table} WHERE {which}")
        place.sql(f"INSERT INTO sys.{table} SELECT * FROM sys.before")
        place.sql("DROP TABLE sys.before")
