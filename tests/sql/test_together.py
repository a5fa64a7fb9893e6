"""Several statements are one transaction; what only reads stands before it, after it, or shows what is so far."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.sql.stage import Stage

from horae import Cron, Horae, Retry
from horae.errors import AlreadyExists, HoraeError, InvalidStatement, JobNotFound, StoreConflict, VersionConflict
from horae.services.service import Service
from horae.services.sql.session import SqlSession

WORK = "SCHEDULE = NONE AS 'SELECT 1'"


@pytest.mark.parametrize(
    "fault",
    [
        "DROP JOB nothing",
        f"CREATE JOB kept {WORK}",
        "CREATE USER ann",
        "ALTER SYSTEM SET scheduler.nonsense = 1",
        "CANCEL JOB RUN occ_00000000-0000-5000-8000-000000000000",
        "ALTER JOB kept SET DEPENDS ON nothing",
        "GRANT crew TO nobody-at-all",
        "DROP USER owner",
        "CREATE JOB late SCHEDULE = AT '2020-01-01 00:00' AS 'SELECT 1'",
        "CREATE JOB wrong SCHEDULE = CRON 'x' AS 'SELECT 1'",
        "DROP SECRET nothing",
        "nonsense",
    ],
)
def test_a_fault_in_the_last_undoes_the_first(stage: Stage, fault: str) -> None:
    stage.sql(f"CREATE USER ann; CREATE USER owner; CREATE ROLE crew; CREATE JOB kept OWNER = owner {WORK}")
    everything = f"""
        CREATE JOB a {WORK}; CREATE USER bob; CREATE ROLE other; GRANT other TO bob; GRANT CREATE JOB TO bob;
        ALTER JOB kept SET TIMEOUT = 5m; EXECUTE JOB kept; CREATE SECRET s = 'x'; DROP JOB a;
        ALTER SYSTEM SET scheduler.catch_up = NONE; {fault}
    """
    before, last = stage.behind.everything(), stage.behind.last_audit()
    with pytest.raises(HoraeError) as told:
        stage.sql(everything)
    assert stage.behind.everything() == before
    assert stage.behind.audit(last) == []
    assert told.value.details["line"] == 4


def test_each_statement_sees_those_before_it(stage: Stage) -> None:
    result = stage.sql(f"""
        CREATE USER ann; GRANT CREATE JOB TO ann;
        CREATE JOB a OWNER = ann {WORK};
        CREATE JOB b DEPENDS ON a {WORK};
        SHOW JOBS;
        SHOW CREATE JOB b;
        ALTER JOB b SET DEPENDS ON NONE;
        RECREATE JOB a OWNER = ann SCHEDULE = EVERY 1h AS 'SELECT 2';
        ALTER JOB a SET TIMEOUT = 5m SET OWNER = local DISABLE;
        EXECUTE JOB a KEY 'k';
        DROP USER IF EXISTS ann, nobody
    """)
    assert result.message == "dropped 1 user"
    shown = {each.statement: each for each in result.results}
    assert [row[0] for row in shown["SHOW JOBS"]] == ["a", "b"]
    assert "DEPENDS ON a" in shown["SHOW CREATE JOB"][0][1]
    assert [(row[0], row[1], row[4]) for row in stage.sql("SHOW JOBS")] == [
        ("a", "DISABLED", "local"),
        ("b", "ENABLED", "local"),
    ]


def test_a_select_sees_what_was_before_the_first_change_and_what_is_after_the_last(stage: Stage) -> None:
    counted = "SELECT count(*) FROM sys.jobs"
    result = stage.sql(f"{counted}; CREATE JOB a {WORK}; SHOW JOBS; CREATE JOB b {WORK}; {counted}; SELECT 7")
    assert [list(each) for each in result.results if each.statement == "SELECT"] == [[(0,)], [(2,)], [(7,)]]
    assert result == [(7,)]


def test_a_select_between_changes_is_refused_before_anything_is_done(stage: Stage) -> None:
    text = f"CREATE JOB a {WORK};\n SELECT 1; CREATE JOB b {WORK}"
    error = stage.fails(text, InvalidStatement)
    assert (error.details["line"], error.details["column"]) == (2, 2)
    assert "--each" in str(error.hint)


def test_nothing_is_done_where_one_of_them_cannot_be_understood(stage: Stage) -> None:
    stage.fails(f"CREATE JOB a {WORK}; CREATE JOB b SHEDULE = NONE", InvalidStatement)
    for nothing in ("", "  ;; ", "-- only a comment"):
        stage.fails(nothing, InvalidStatement)


def test_one_by_one_what_was_done_before_a_fault_stays(stage: Stage) -> None:
    async def each(service: Service) -> list[str]:
        found = []
        text = f"CREATE JOB a {WORK}; SELECT 1; CREATE JOB b {WORK}; DROP JOB nothing; CREATE JOB c {WORK}"
        results = SqlSession(service).results(text, each=True)
        found += [(await anext(results)).statement for _ in range(3)]
        with pytest.raises(JobNotFound):
            await anext(results)
        return found

    async def there() -> list[str]:
        app = Horae(stage.place.url)
        try:
            return await app.serve(each)
        finally:
            await app.close()

    assert asyncio.run(there()) == ["CREATE JOB", "SELECT", "CREATE JOB"]
    assert [row[0] for row in stage.sql("SHOW JOBS")] == ["a", "b"]


def test_alter_keeps_the_scheduler_s_defaults_of_a_job_from_code(stage: Stage) -> None:
    app = Horae(stage.place.url, defaults={"execution_timeout": "7m", "overlap": "queue", "retry": Retry(2, "5s")})

    @app.task("work")
    def work() -> None: ...

    app.sync.schedule("a", Cron("*/5 * * * *"), task="work", deadline="3m")
    app.sync.close()
    stage.sql("ALTER JOB a SET DESCRIPTION = 'by hand'; ALTER JOB a SET TIMEZONE = 'Europe/Brussels'")
    stage.sql("CREATE USER ann; ALTER JOB a SET OWNER = ann DISABLE")
    settings = stage.app.sync.get_job("a").definition.settings
    assert settings.execution_timeout.total_seconds() == 420
    assert (type(settings.overlap).__name__, settings.retry.max_retries) == ("Queue", 2)
    assert settings.deadline.total_seconds() == 180
    stage.sql("ALTER JOB a SET TIMEOUT = 8m")
    assert stage.app.sync.get_job("a").definition.settings.execution_timeout.total_seconds() == 480
    assert stage.app.sync.get_job("a").definition.settings.retry.max_retries == 2


def test_of_two_who_change_a_job_at_once_one_wins_and_the_other_is_told(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}")

    async def both() -> list[object]:
        apps = [Horae(stage.place.url) for _ in range(4)]
        try:
            return list(
                await asyncio.gather(
                    *(app.sql(f"ALTER JOB a SET MAX_RETRIES = {index}") for index, app in enumerate(apps, 11)),
                    return_exceptions=True,
                )
            )
        finally:
            for app in apps:
                await app.close()

    outcomes = asyncio.run(both())
    lost = [each for each in outcomes if isinstance(each, VersionConflict)]
    won = [each for each in outcomes if not isinstance(each, Exception)]
    assert len(lost) + len(won) == 4
    assert len(won) >= 1
    assert stage.app.sync.get_job("a").version == 1 + len(won)


def test_what_lost_against_another_transaction_is_done_again_as_a_whole(stage: Stage) -> None:
    tries: list[int] = []

    async def work(service: Service) -> None:
        (spec,) = [job.definition.spec for job in await service.queries.jobs()]
        await service.commands.define([replace(spec, name="b")], source="sql", expected={"b": 0})
        tries.append(len(await service.queries.jobs()))
        if len(tries) < 3:
            raise StoreConflict("somebody was faster")

    stage.sql(f"CREATE JOB a {WORK}")
    last = stage.behind.last_audit()
    stage.app.home.call_blocking(lambda _: stage.app.serve(lambda service: service.as_one(work)))
    assert tries == [2, 2, 2]
    assert [row["event"] for row in stage.behind.audit(last)] == ["JOB_CREATED"]


def test_of_two_who_create_a_job_at_once_one_does(stage: Stage) -> None:
    async def both() -> list[object]:
        apps = [Horae(stage.place.url) for _ in range(4)]
        try:
            return list(
                await asyncio.gather(*(app.sql(f"CREATE JOB a {WORK}") for app in apps), return_exceptions=True)
            )
        finally:
            for app in apps:
                await app.close()

    outcomes = asyncio.run(both())
    lost = [each for each in outcomes if isinstance(each, AlreadyExists)]
    assert len(lost) == 3, outcomes
    assert stage.app.sync.get_job("a").created_at <= datetime.now(UTC)
