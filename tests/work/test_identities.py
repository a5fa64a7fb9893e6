"""A job runs with its owner's rights and no others, and only while its owner could still make it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.catalogs import Place
from tests.work.world import at_work, configured, error_of, executed, external, here, make, prepared, ran, row_of

from horae import Horae, Run
from horae.core.report.report import RunReport
from horae.errors import AccessDenied

TABLES = ("CREATE TABLE {t}sales (amount INTEGER)", "CREATE TABLE {t}wages (amount INTEGER)")
PEOPLE = """
CREATE USER alice;
CREATE ROLE reporters;
GRANT CREATE JOB TO alice;
GRANT SELECT ON TABLE sales TO alice;
"""


async def fails(app: Horae, job: str, code: int) -> RunReport:
    report = await executed(app, job)
    row = await row_of(app, report.run.run_id)
    assert (row["state"], row["error_code"]) == ("FAILED", code), str(report)
    return report


def test_a_user_s_job_has_the_user_s_rights_and_no_others(every_place: Place) -> None:
    place = every_place
    prepared(place, *TABLES, "INSERT INTO {t}sales VALUES (5)", "INSERT INTO {t}wages VALUES (9)")
    app = make(place)

    async def body() -> None:
        await app.sql(PEOPLE)
        for job, text in (
            ("reads", "SELECT amount FROM {t}sales"),
            ("pries", "SELECT amount FROM {t}wages"),
            ("writes", "INSERT INTO {t}sales VALUES (6)"),
            ("digs", "SELECT job_name FROM sys.jobs"),
            ("builds", "CREATE TABLE {t}mine (a INTEGER)"),
        ):
            await app.sql(f"CREATE JOB {job} SCHEDULE = NONE RETRY = NONE AS '{here(place, text)}'", user="alice")
        assert (await ran(app, "reads"))["result_data"]["rows"] == [[5]]
        for job in ("pries", "writes", "digs", "builds"):
            await fails(app, job, 1605)
        await app.sql("GRANT INSERT ON TABLE sales TO alice")
        assert (await ran(app, "writes"))["rows_affected"] == 1
        await app.sql("REVOKE INSERT ON TABLE sales FROM alice")
        await fails(app, "writes", 1605)
        # What is nobody's but the administrator's goes on.
        await app.sql(here(place, "CREATE JOB ours SCHEDULE = NONE AS 'SELECT amount FROM {t}wages'"))
        assert (await ran(app, "ours"))["result_data"]["rows"] == [[9]]

    at_work(app, body)


def test_a_job_that_runs_as_a_role_has_the_role_s_rights_and_not_its_owner_s(every_place: Place) -> None:
    place = every_place
    prepared(place, *TABLES, "INSERT INTO {t}sales VALUES (5)", "INSERT INTO {t}wages VALUES (9)")
    app = make(place)

    async def body() -> None:
        await app.sql(PEOPLE + "GRANT SELECT ON TABLE wages TO reporters; GRANT reporters TO alice")
        for job, table in (("theirs", "wages"), ("hers", "sales")):
            await app.sql(
                f"CREATE JOB {job} SCHEDULE = NONE RUN AS reporters RETRY = NONE"
                f" AS '{here(place, f'SELECT amount FROM {{t}}{table}')}'",
                user="alice",
            )
        assert (await ran(app, "theirs"))["result_data"]["rows"] == [[9]]
        await fails(app, "hers", 1605)
        await app.sql("REVOKE reporters FROM alice")
        report = await fails(app, "theirs", 1608)
        assert error_of(report).startswith("IdentityRevoked: ")
        assert "is no member of the role reporters" in error_of(report)
        await app.sql("GRANT reporters TO alice")
        await ran(app, "theirs")

    at_work(app, body)


def test_a_member_of_a_role_has_its_rights_in_their_own_jobs_too(every_place: Place) -> None:
    place = every_place
    prepared(place, *TABLES, "INSERT INTO {t}wages VALUES (9)")
    app = make(place)

    async def body() -> None:
        await app.sql(PEOPLE + "GRANT SELECT ON TABLE wages TO reporters; GRANT reporters TO alice")
        text = here(place, "SELECT amount FROM {t}wages")
        await app.sql(f"CREATE JOB mine SCHEDULE = NONE RETRY = NONE AS '{text}'", user="alice")
        assert (await ran(app, "mine"))["result_data"]["rows"] == [[9]]
        await app.sql("REVOKE reporters FROM alice")
        await fails(app, "mine", 1605)

    at_work(app, body)


TAKEN_AWAY = [
    ("", "ALTER USER alice DISABLED", "is disabled"),
    ("", "REVOKE CREATE JOB FROM alice", "does not hold CREATE JOB"),
    ("RUN AS reporters", "REVOKE reporters FROM alice", "is no member of the role reporters"),
]


@pytest.mark.parametrize(("clause", "change", "told"), TAKEN_AWAY)
@pytest.mark.parametrize("work", ["AS 'SELECT 1'", "PYTHON hers", "CALL tidy()"])
def test_a_job_fails_by_name_of_what_was_taken_from_its_owner(
    place: Place, work: str, clause: str, change: str, told: str
) -> None:
    prepared(place, *TABLES)
    app = make(place)
    called: list[str] = []

    @app.task("hers")
    def hers() -> None:
        called.append("hers")

    @app.procedure("tidy")
    async def tidy() -> None:
        called.append("tidy")

    @app.job("ours", None)
    def ours() -> None:
        called.append("ours")

    async def body() -> None:
        await app.sql(PEOPLE + "GRANT reporters TO alice")
        await app.sql(f"CREATE JOB work SCHEDULE = NONE RETRY = NONE {clause} {work}", user="alice")
        await ran(app, "work")
        before = list(called)
        await app.sql(change)
        report = await fails(app, "work", 1608)
        assert f'"alice" {told}' in error_of(report)
        assert called == before
        # Whoever opens the store is the administrator: nothing can be taken from them.
        await ran(app, "ours")

    at_work(app, body)


@pytest.mark.parametrize(
    ("privilege", "work"),
    [
        ("EXECUTE EXTERNAL JOB", "EXEC '/bin/echo hello'"),
        ("USE SECRET ON SECRET token", "EXEC '/bin/echo hello' SECRETS (token AS TOKEN)"),
        ("USE SECRET ON SECRET token", "PYTHON hers SECRETS (token)"),
        ("USE CONNECTION ON CONNECTION other", "AS 'SELECT 1' ON CONNECTION other"),
    ],
)
def test_a_job_fails_once_what_its_work_needs_is_revoked(tmp_path: Path, privilege: str, work: str) -> None:
    place = Place("sqlite", str(tmp_path / "horae.db"))
    other = tmp_path / "other.db"
    other.touch()
    app = make(
        place,
        configured(
            tmp_path,
            external(sandbox="namespaces", environment=["TOKEN"]) + f'[connections.other]\nurl = "sqlite:///{other}"\n',
        ),
    )
    called: list[str] = []

    @app.task("hers")
    async def hers(run: Run) -> None:
        called.append(await run.secret("token"))

    async def body() -> None:
        await app.sql(PEOPLE.replace("GRANT SELECT ON TABLE sales TO alice;", "") + "CREATE SECRET token = 'a value'")
        if privilege != "EXECUTE EXTERNAL JOB":
            await app.sql("GRANT EXECUTE EXTERNAL JOB TO alice")
        create = f"CREATE JOB work SCHEDULE = NONE RETRY = NONE {work}"
        with pytest.raises(AccessDenied, match=privilege.partition(" ON")[0]):
            await app.sql(create, user="alice")
        await app.sql(f"GRANT {privilege} TO alice")
        await app.sql(create, user="alice")
        await ran(app, "work")
        assert called in ([], ["a value"])
        await app.sql(f"REVOKE {privilege} FROM alice")
        report = await fails(app, "work", 1608)
        assert f'"alice" does not hold {privilege}' in error_of(report)
        assert len(called) < 2

    at_work(app, body)


def test_a_secret_that_only_the_task_s_code_names_is_asked_about_when_it_does(tmp_path: Path) -> None:
    place = Place("sqlite", str(tmp_path / "horae.db"))
    app = make(place, configured(tmp_path))

    @app.task("hers")
    def hers(run: Run) -> int:
        return len(run.secret("token"))

    async def body() -> None:
        await app.sql("CREATE USER alice; GRANT CREATE JOB TO alice; CREATE SECRET token = 'a value'")
        await app.sql("CREATE JOB work SCHEDULE = NONE RETRY = NONE PYTHON hers", user="alice")
        report = await fails(app, "work", 1800)
        assert "USE SECRET ON SECRET token is missing" in error_of(report)
        # A job's own secret is its owner's to set, and to be had without a grant.
        await app.sql("CREATE SECRET token FOR JOB work = 'another'", user="alice")
        assert (await executed(app, "work")).tasks[0].result == len("another")
        (denied,) = await app.sql("SELECT actor, outcome FROM sys.audit WHERE event = 'ACCESS_DENIED'")
        assert denied == ("alice", "REFUSED")

    at_work(app, body)


def test_a_job_given_to_another_runs_with_the_other_s_rights(every_place: Place) -> None:
    place = every_place
    prepared(place, *TABLES, "INSERT INTO {t}wages VALUES (9)")
    app = make(place)

    async def body() -> None:
        await app.sql(PEOPLE + "CREATE USER bob; GRANT CREATE JOB TO bob; GRANT SELECT ON TABLE wages TO bob")
        text = here(place, "SELECT amount FROM {t}wages")
        await app.sql(f"CREATE JOB work SCHEDULE = NONE RETRY = NONE AS '{text}'", user="alice")
        await fails(app, "work", 1605)
        await app.sql("ALTER JOB work SET OWNER = bob")
        assert (await ran(app, "work"))["result_data"]["rows"] == [[9]]
        await app.sql("ALTER USER bob DISABLED")
        await fails(app, "work", 1608)

    at_work(app, body)
