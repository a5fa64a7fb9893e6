"""Statements while a node runs: schedules that end, jobs that go when they are done, settings that are taken up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from tests.engine.world import oldest_first, shown
from tests.store.catalogs import Place

from horae import Horae
from horae.errors import JobNotFound
from horae.testing.simulation import Simulation

Answer = TypeVar("Answer")
START = datetime(2026, 3, 1, tzinfo=UTC)
NOTHING = "AS 'SELECT 1'"


def simulated(place: Place, body: Callable[[Horae, Simulation], Awaitable[Answer]]) -> Answer:
    async def whole() -> Answer:
        app = Horae(place.url)
        async with Simulation(app, start=START, settings={"sweep_every": 10}) as sim:
            return await body(app, sim)

    return asyncio.run(whole())


async def outcomes(app: Horae, job: str) -> list[tuple[str, str]]:
    """When each run was to be, counted from the start, and how it ended."""
    return [(str(run.scheduled_time - START), shown(run)) for run in await oldest_first(app, job)]


def test_on_completion_drop_takes_the_job_away_and_preserve_disables_it(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        when = "SCHEDULE = AT '2026-03-01 10:00' TIMEZONE = 'Europe/Brussels'"
        await app.sql(f"CREATE JOB gone {when} ON COMPLETION DROP {NOTHING}; CREATE JOB stays {when} {NOTHING}")
        starts = await sim.advance("1d")
        assert {(each.job, str(each.time - START)) for each in starts} == {("gone", "9:00:00"), ("stays", "9:00:00")}
        assert [(row[0], row[1], row[2]) for row in await app.sql("SHOW JOBS")] == [("stays", "DISABLED", None)]
        assert await outcomes(app, "stays") == [("9:00:00", "COMPLETED")]
        with pytest.raises(JobNotFound):
            await app.sql("SHOW CREATE JOB gone")

    simulated(place, body)


def test_the_audit_names_who_wrote_the_version_that_dropped_its_job_at_the_end(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql("CREATE USER ann; GRANT CREATE JOB TO ann")
        await app.sql(f"CREATE JOB gone SCHEDULE = AT '2026-03-01 10:00' ON COMPLETION DROP {NOTHING}", "ann")
        await sim.advance("1d")
        ((actor, details),) = await app.sql("SELECT actor, details FROM sys.audit WHERE event = 'JOB_DELETED'")
        told = json.loads(details) if isinstance(details, str) else details
        assert (actor, told["version"], told["written_by"]) == ("horae", 1, "ann")

    simulated(place, body)


def test_a_job_that_depends_on_one_that_its_owner_dropped_is_skipped_and_waits_for_nothing(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql("CREATE USER ann; CREATE USER bob; GRANT CREATE JOB TO ann, bob")
        await app.sql(f"CREATE JOB first SCHEDULE = AT '2026-03-02 10:00' {NOTHING}", "ann")
        await app.sql("GRANT VIEW JOB HISTORY ON JOB first TO bob")
        for name, day in (("waits", 1), ("comes", 5)):
            when = f"SCHEDULE = AT '2026-03-0{day} 10:00' ON COMPLETION PRESERVE"
            await app.sql(f"CREATE JOB {name} DEPENDS ON first {when} {NOTHING}", "bob")
        await sim.advance("12h")
        assert await outcomes(app, "waits") == [("10:00:00", "PENDING")]
        await app.sql("DROP JOB first", "ann")
        assert await outcomes(app, "waits") == [("10:00:00", "SKIPPED (dependencies)")]
        await sim.advance("5d")
        assert await outcomes(app, "comes") == [("4 days, 10:00:00", "SKIPPED (dependencies)")]

    simulated(place, body)


def test_on_completion_drop_waits_for_the_last_retry(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql(
            "CREATE JOB gone SCHEDULE = AT '2026-03-01 10:00' ON COMPLETION DROP "
            "MAX_RETRIES = 2 RETRY_BACKOFF = 1h RETRY_FACTOR = 1 AS 'SELECT * FROM not_there'"
        )
        await sim.advance("11h30m")
        assert [row[0] for row in await app.sql("SHOW JOBS")] == ["gone"]
        await sim.advance("1h")
        assert await app.sql("SHOW JOBS") == []

    simulated(place, body)


def test_every_counts_from_starts_which_is_a_time_itself_and_ends_is_the_last_there_may_be(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        span = "STARTS '2026-03-01 01:00' ENDS '2026-03-01 02:30'"
        await app.sql(f"CREATE JOB bounded SCHEDULE = EVERY 30m {span} {NOTHING}")
        await app.sql(f"CREATE JOB open SCHEDULE = EVERY 90 minutes {NOTHING}")
        starts = await sim.advance("4h")
        times = {name: [str(each.time - START) for each in starts if each.job == name] for name in ("bounded", "open")}
        assert times == {
            "bounded": ["1:00:00", "1:30:00", "2:00:00", "2:30:00"],
            "open": ["1:30:00", "3:00:00"],
        }
        await app.sql("ALTER JOB open SET TIMEOUT = 5m")
        assert [str(each.time - START) for each in await sim.advance("1h")] == ["4:30:00"]

    simulated(place, body)


def test_recreate_never_runs_a_slot_that_ran(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        text = f"JOB a SCHEDULE = EVERY 1h STARTS '2026-03-01 00:00' {NOTHING}"
        await app.sql(f"CREATE {text}")
        assert len(await sim.advance("3h")) == 3
        await app.sql(f"RECREATE {text}")
        assert await app.sql("SHOW JOB RUNS FOR a") == []
        assert [str(each.time - START) for each in await sim.advance("59m")] == []
        assert [str(each.time - START) for each in await sim.advance("1h")] == ["4:00:00"]
        await app.sql("DROP JOB a KEEP HISTORY")
        await app.sql(f"CREATE {text}")
        assert len(await outcomes(app, "a")) == 1
        assert await sim.advance("30s") == []

    simulated(place, body)


def test_create_or_alter_keeps_the_rhythm_and_a_disabled_job_stays_so(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql(f"CREATE JOB a SCHEDULE = EVERY 1h {NOTHING}")
        await sim.advance("90m")
        await app.sql("CREATE OR ALTER JOB a SCHEDULE = EVERY 1h TIMEOUT = 5m AS 'SELECT 2'")
        assert [str(each.time - START) for each in await sim.advance("1h")] == ["2:00:00"]
        await app.sql("ALTER JOB a DISABLE; CREATE OR ALTER JOB a SCHEDULE = EVERY 1h AS 'SELECT 3'")
        assert await sim.advance("2h") == []
        await app.sql("ALTER JOB a ENABLE")
        assert [str(each.time - START) for each in await sim.advance("1h")] == ["5:00:00"]

    simulated(place, body)


def test_pausing_records_what_passes_and_ends_by_itself_at_its_time(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql(f"CREATE JOB a SCHEDULE = CRON '0 * * * *' TIMEZONE = 'Europe/Brussels' {NOTHING}")
        await app.sql("ALTER JOB a PAUSE UNTIL '2026-03-01 03:30' 'maintenance'")
        await sim.advance("4h")
        assert await outcomes(app, "a") == [
            ("1:00:00", "SKIPPED (paused)"),
            ("2:00:00", "SKIPPED (paused)"),
            ("3:00:00", "COMPLETED"),
            ("4:00:00", "COMPLETED"),
        ]

    simulated(place, body)


def test_a_running_node_takes_up_how_many_may_run_at_once(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        most = running = 0

        @app.task("slow")
        async def slow() -> None:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await asyncio.sleep(60)
            running -= 1

        for number in range(6):
            await app.sql(f"CREATE JOB j{number} SCHEDULE = CRON '*/30 * * * *' PYTHON slow")
        await sim.advance("20m")
        await sim.advance("15m")
        assert most == 6
        most = 0
        await app.sql("ALTER SYSTEM SET scheduler.max_concurrent_jobs = 2")
        await sim.advance("5m")  # nodes look every ten seconds, here when time stops
        await sim.advance("25m")
        assert most == 2
        most = 0
        await app.sql("ALTER SYSTEM SET scheduler.max_concurrent_jobs = DEFAULT")
        await sim.advance("5m")
        await sim.advance("25m")
        assert most == 6

    simulated(place, body)


@pytest.mark.parametrize(
    ("catch_up", "caught"),
    [
        ("NONE", ["MISSED", "MISSED", "MISSED"]),
        ("LAST", ["MISSED", "MISSED", "COMPLETED"]),
        ("ALL", ["COMPLETED", "COMPLETED", "COMPLETED"]),
    ],
)
def test_what_was_missed_is_caught_up_on_as_the_system_says(place: Place, catch_up: str, caught: list[str]) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql(f"ALTER SYSTEM SET scheduler.catch_up = {catch_up}")
        await app.sql(f"CREATE JOB a SCHEDULE = CRON '0 * * * *' {NOTHING}")
        await sim.advance("30m")
        await sim.jump("3h")
        await sim.advance("5m")
        assert [state.split(" ")[0] for _, state in await outcomes(app, "a")] == caught

    simulated(place, body)


def test_whose_job_it_is_decides_whether_it_still_runs(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql("CREATE USER ann; GRANT CREATE JOB TO ann")
        await app.sql(f"CREATE JOB a SCHEDULE = CRON '0 * * * *' RETRY = NONE {NOTHING}", "ann")
        await sim.advance("1h")
        await app.sql("REVOKE CREATE JOB FROM ann")
        await sim.advance("1h")
        await app.sql("GRANT CREATE JOB TO ann; ALTER USER ann DISABLED")
        await sim.advance("1h")
        await app.sql("ALTER USER ann ENABLED")
        await sim.advance("1h")
        assert [state.split(" ")[0] for _, state in await outcomes(app, "a")] == [
            "COMPLETED", "FAILED", "FAILED", "COMPLETED",
        ]  # fmt: skip
        errors = [run.error for run in await oldest_first(app, "a")]
        assert "CREATE JOB" in str(errors[1])
        assert "disabled" in str(errors[2])

    simulated(place, body)


def test_cancelling_a_run_under_way_stops_it(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        @app.task("slow")
        async def slow() -> None:
            await asyncio.sleep(timedelta(hours=1).total_seconds())

        await app.sql("CREATE JOB a SCHEDULE = NONE PYTHON slow")
        await sim.advance("1s")
        run_id = (await app.sql("EXECUTE JOB a"))[0][0]
        await sim.advance("1m")
        assert (await app.sql("SHOW JOB RUNS"))[0][2] == "RUNNING"
        assert "asked to stop" in (await app.sql(f"CANCEL JOB RUN {run_id}")).message
        await sim.advance("1m")
        assert (await app.sql("SHOW JOB RUNS"))[0][2] == "CANCELLED"

    simulated(place, body)


def test_a_retry_that_waits_goes_on_with_the_text_and_the_rights_of_the_present_version_together(place: Place) -> None:
    async def body(app: Horae, sim: Simulation) -> None:
        await app.sql("CREATE USER bob; GRANT CREATE JOB TO bob")
        work = "AS 'SELECT user_name FROM sys.users'"  # which bob may not read, and an administrator may
        await app.sql(f"CREATE JOB a SCHEDULE = NONE MAX_RETRIES = 2 RETRY_BACKOFF = 60s {work}", user="bob")
        await app.sql("EXECUTE JOB a")
        await sim.advance("1s")
        assert (await app.sql("SHOW JOB RUNS"))[0][2] == "PENDING"
        await app.sql("ALTER JOB a SET AS 'SELECT 1' SET OWNER = local")
        await sim.advance("10m")
        (run,) = await app.sql("SHOW JOB RUNS")
        assert run[2] == "COMPLETED"

    simulated(place, body)
