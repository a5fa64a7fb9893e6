"""A change of another's job that amounts to running or dropping it takes the right to do that, on every surface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.sql.stage import Stage

from horae import Once
from horae.core.job.definition import JobSpec
from horae.core.window.window import Window
from horae.errors import AccessDenied, HoraeError
from horae.services.plan.desired_state import DesiredState
from horae.services.plan.planner import parse_plan_options, plan_changes
from horae.services.service import Service
from horae.services.versions import roll_back

AT = datetime(2090, 1, 1, tzinfo=UTC)
SAME = "PAYLOAD = '{\"amount\": 1}' AS 'SELECT 1'"


@pytest.fixture
def town(stage: Stage) -> Stage:
    """ann has a job every day and one that runs once, and mallory may alter both, no more."""
    stage.sql(
        "CREATE USER ann; CREATE USER mallory; GRANT CREATE JOB TO ann, mallory;"
        f"CREATE JOB pay OWNER = ann SCHEDULE = EVERY 1d {SAME};"
        f"CREATE JOB once OWNER = ann SCHEDULE = AT '2080-01-01T00:00:00Z' ON COMPLETION DROP {SAME};"
        "GRANT ALTER JOB TO mallory"
    )
    return stage


def serve(stage: Stage, asked: Callable[[Service], Awaitable[object]], user: str) -> object:
    return stage.app.home.call_blocking(lambda _: stage.app.serve(asked, user))


async def again(service: Service) -> JobSpec:
    (job,) = await service.store.jobs(["pay"])
    return job.definition.spec


WHEN = (
    "ALTER JOB pay SET SCHEDULE = AT '2090-01-01T00:00:00Z'",
    "ALTER JOB pay SET SCHEDULE = EVERY 1s",
    "ALTER JOB pay SET SCHEDULE = CRON '* * * * *'",
    "ALTER JOB pay SET WINDOW = BEFORE 23h",
    f"CREATE OR ALTER JOB pay SCHEDULE = EVERY 1s {SAME}",
    "UPDATE cb_schedules SET cron_spec = '* * * * *' WHERE name = 'pay'",
    "UPDATE cb_schedules SET next_run_at = '2090-01-01T00:00:00Z' WHERE name = 'pay'",
)


@pytest.mark.parametrize("text", WHEN)
def test_to_say_when_another_s_job_runs_takes_the_right_to_run_it(town: Stage, text: str) -> None:
    refusal = town.refused(text, "mallory")
    assert "EXECUTE JOB ON JOB pay is missing" in refusal.message
    assert refusal.hint == "An administrator can give it: GRANT EXECUTE JOB ON JOB pay TO mallory"
    town.sql("GRANT EXECUTE JOB ON JOB pay TO mallory")
    assert {row["actor"] for row in town.noted(text, "mallory")} == {"mallory"}


@pytest.mark.parametrize(
    "text",
    [
        "ALTER JOB pay SET SCHEDULE = AT '2090-01-01T00:00:00Z' SET ON COMPLETION DROP",
        "ALTER JOB pay SET ON COMPLETION DROP",
        "ALTER JOB once SET SCHEDULE = AT '2070-01-01T00:00:00Z'",
    ],
)
def test_to_have_another_s_job_dropped_at_its_end_takes_the_right_to_drop_it(town: Stage, text: str) -> None:
    town.sql("GRANT EXECUTE JOB TO mallory")
    assert "DROP JOB ON JOB" in town.refused(text, "mallory").message
    town.sql("GRANT DROP JOB TO mallory")
    town.sql(text, "mallory")


def test_what_changes_neither_takes_alter_job_alone_also_where_the_same_schedule_is_said_again(town: Stage) -> None:
    town.sql("ALTER JOB pay SET TIMEOUT = 5m", "mallory")
    town.sql(f"CREATE OR ALTER JOB pay SCHEDULE = EVERY 1d TIMEOUT = 6m {SAME}", "mallory")
    town.sql("ALTER JOB once SET TIMEOUT = 5m; ALTER JOB pay PAUSE; ALTER JOB pay RESUME", "mallory")
    town.sql("ALTER JOB pay SET SCHEDULE = EVERY 1s SET ON COMPLETION DROP", "ann")


async def _moves(service: Service) -> object:
    return await service.commands.reschedule("pay", AT)


async def _defines(service: Service) -> object:
    return await service.commands.define([replace(await again(service), schedule=Once(AT))])


async def _defaults(service: Service) -> object:
    """What holds for the job may also come from the defaults that are sent with it."""
    return await service.commands.define([await again(service)], defaults={"on_completion": "drop"})


async def _window(service: Service) -> object:
    window = Window("before", timedelta(hours=20))
    return await service.commands.define([await again(service)], defaults={"window": window})


async def _rolls_back(service: Service) -> object:
    return await roll_back(service, "pay", 1)


OTHERWISE = {"reschedule": _moves, "define": _defines, "defaults": _defaults, "window": _window}


@pytest.mark.parametrize("asked", list(OTHERWISE))
def test_the_same_holds_without_a_statement(town: Stage, asked: str) -> None:
    before = town.behind.everything()
    with pytest.raises(AccessDenied, match=r"(EXECUTE|DROP) JOB ON JOB pay is missing"):
        serve(town, OTHERWISE[asked], "mallory")
    assert town.behind.everything() == before
    town.sql("GRANT EXECUTE JOB, DROP JOB TO mallory")
    serve(town, OTHERWISE[asked], "mallory")


def test_to_go_back_to_another_schedule_takes_the_right_to_run_it(town: Stage) -> None:
    town.sql("ALTER JOB pay SET SCHEDULE = EVERY 2d", "ann")
    town.sql("GRANT VIEW JOB HISTORY TO mallory")
    with pytest.raises(AccessDenied, match="EXECUTE JOB ON JOB pay is missing"):
        serve(town, _rolls_back, "mallory")


def test_a_plan_tells_it_before_anything_is_applied(town: Stage) -> None:
    async def planned(service: Service) -> list[str]:
        wanted = DesiredState((replace(await again(service), schedule=Once(AT)),))
        return [each.message for each in (await plan_changes(service, wanted, parse_plan_options())).findings]

    town.sql("GRANT VIEW JOB HISTORY TO mallory")
    told = serve(town, planned, "mallory")
    assert isinstance(told, list)
    assert any("EXECUTE JOB ON JOB pay is missing" in each for each in told)


# ---- dependencies ----------------------------------------------------------------------------------------------------


AFTER = "CREATE JOB after DEPENDS ON pay SCHEDULE = EVERY 1d AS 'SELECT 1'"


def test_to_depend_on_another_s_job_takes_the_right_to_look_at_it(town: Stage) -> None:
    refusal = town.refused(AFTER, "mallory")
    assert refusal.hint == "An administrator can give it: GRANT VIEW JOB HISTORY ON JOB pay TO mallory"
    town.sql("CREATE JOB after SCHEDULE = EVERY 1d AS 'SELECT 1'", "mallory")
    town.refused("ALTER JOB after SET DEPENDS ON pay", "mallory")
    town.sql("GRANT VIEW JOB HISTORY ON JOB pay TO mallory; GRANT ALTER JOB TO ann")
    town.sql("ALTER JOB after SET DEPENDS ON pay", "mallory")
    town.sql("REVOKE VIEW JOB HISTORY ON JOB pay FROM mallory")
    town.sql("ALTER JOB after SET TIMEOUT = 5m", "mallory")
    with pytest.raises(HoraeError, match="does not exist"):
        town.sql("ALTER JOB after SET DEPENDS ON no-such-job", "mallory")


FEWER = (
    "ALTER JOB late SET DEPENDS ON NONE",
    "ALTER JOB late SET DEPENDS ON once",
    "CREATE OR ALTER JOB late SCHEDULE = EVERY 1d AS 'SELECT 1'",
)


@pytest.mark.parametrize("text", FEWER)
def test_to_have_another_s_job_wait_for_fewer_jobs_takes_the_right_to_run_it(town: Stage, text: str) -> None:
    town.sql("CREATE JOB late DEPENDS ON pay SCHEDULE = EVERY 1d AS 'SELECT 1'", "ann")
    town.sql("GRANT VIEW JOB HISTORY TO mallory")
    town.sql("ALTER JOB late SET DEPENDS ON pay, once", "mallory")
    assert "EXECUTE JOB ON JOB late is missing" in town.refused(text, "mallory").message
    town.sql("GRANT EXECUTE JOB ON JOB late TO mallory")
    town.sql(text, "mallory")


def test_jobs_of_others_that_depend_on_a_job_do_not_hold_its_drop_up_and_those_of_its_owner_do(town: Stage) -> None:
    town.sql("GRANT VIEW JOB HISTORY ON JOB pay TO mallory")
    town.sql(AFTER, "mallory")
    town.sql("CREATE JOB own DEPENDS ON pay SCHEDULE = EVERY 1d AS 'SELECT 1'", "ann")
    with pytest.raises(HoraeError, match="own"):
        town.sql("DROP JOB pay", "ann")
    town.sql("DROP JOB own; DROP JOB pay", "ann")
    assert [row[0] for row in town.sql("SHOW JOBS")] == ["after", "once"]
