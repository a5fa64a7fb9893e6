"""What somebody tries who wants more than they were given. Each is refused, noted, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from unicodedata import normalize

import pytest
from tests.sql.stage import Stage

from horae.core.job import ids
from horae.errors import (
    AccessDenied,
    AlreadyExists,
    HoraeError,
    InUse,
    InvalidStatement,
    JobNotFound,
    LoginFailed,
    PrincipalNotFound,
    RunNotFound,
)
from horae.services.service import Service

EVERY_JOB_RIGHT = "CREATE JOB, ALTER JOB, DROP JOB, EXECUTE JOB, VIEW JOB HISTORY"


TOWN = """
        CREATE USER ann; CREATE USER mallory; CREATE USER root ADMIN;
        CREATE ROLE vault; CREATE ROLE crew;
        GRANT CREATE JOB TO ann, mallory; GRANT crew TO mallory; GRANT vault TO ann;
        CREATE SECRET shared = 'kept';
        CREATE JOB pay OWNER = ann SCHEDULE = CRON '0 1 * * *' PAYLOAD = '{"amount": 1}' AS 'SELECT 1';
        CREATE SECRET token FOR JOB pay = 'anns';
        EXECUTE JOB pay KEY 'first'
"""


@pytest.fixture
def town(stage: Stage) -> Stage:
    """ann has a job, mallory wants it; root and vault are more than either."""
    stage.sql(TOWN)
    return stage


@pytest.fixture(scope="module")
def quiet_town(ground: Stage) -> Stage:
    """The same for all whose every attempt is refused. trusted holds every right on jobs there is, and then some."""
    ground.sql(TOWN)
    ground.sql(f"CREATE USER trusted; GRANT crew TO trusted; GRANT {EVERY_JOB_RIGHT} TO trusted")
    for right in ("EXECUTE EXTERNAL JOB", "USE SECRET", "USE CONNECTION"):
        ground.sql(f"GRANT {right} TO trusted")
    return ground


RUN = ids.keyed_run_id(ids.job_uuid("pay"), ids.trigger_key("first"))


@pytest.mark.parametrize(
    "text",
    [
        "CREATE JOB mine RUN AS vault SCHEDULE = NONE AS 'SELECT 1'",
        "CREATE JOB mine OWNER = ann SCHEDULE = NONE AS 'SELECT 1'",
        "CREATE JOB mine OWNER = root SCHEDULE = NONE AS 'SELECT 1'",
        "CREATE JOB mine OWNER = local SCHEDULE = NONE AS 'SELECT 1'",
        "CREATE JOB mine SCHEDULE = NONE AS 'SELECT 1' SECRETS (shared)",
        "CREATE JOB mine SCHEDULE = NONE TASKS (a AS 'SELECT 1', b AS 'SELECT 2' SECRETS (shared IN FILE))",
        "CREATE JOB mine SCHEDULE = NONE TASKS (a AS 'SELECT 1', b EXEC '/bin/true')",
        "CREATE JOB mine SCHEDULE = NONE AS 'SELECT 1' ON CONNECTION crm",
        "CREATE JOB mine SCHEDULE = NONE CALL refresh() ON CONNECTION crm",
        "CREATE OR ALTER JOB mine RUN AS vault SCHEDULE = NONE AS 'SELECT 1'",
        "RECREATE JOB mine RUN AS vault SCHEDULE = NONE AS 'SELECT 1'",
        "CREATE OR ALTER JOB pay SCHEDULE = NONE AS 'SELECT 2'",
        "RECREATE JOB pay SCHEDULE = NONE AS 'SELECT 2'",
        "ALTER JOB pay SET TIMEOUT = 5m",
        "ALTER JOB pay SET OWNER = mallory",
        "ALTER JOB pay DISABLE",
        "DROP JOB pay",
        "DROP JOB IF EXISTS nothing, pay",
        "EXECUTE JOB pay",
        "EXECUTE JOB pay WITH PAYLOAD = '{\"amount\": 1000}'",
        "EXECUTE JOB pay KEY 'first'",
        f"CANCEL JOB RUN {RUN}",
        f"CANCEL JOB RUN '{RUN.removeprefix('occ_')}'",
        "SHOW CREATE JOB pay",
        "SHOW JOB RUNS FOR pay",
        "SHOW JOB RUNS",
        "EXPLAIN JOB pay",
        "EXPLAIN JOB pay AT '2030-01-01 01:00'",
        "SELECT * FROM sys.jobs",
        "WITH a AS (SELECT * FROM sys.jobs) SELECT * FROM a",
        "VALUES (1)",
        "CREATE SECRET token2 FOR JOB pay = 'mine'",
        "CREATE OR ALTER SECRET token FOR JOB pay = 'mine'",
        "DROP SECRET token FOR JOB pay",
        "DROP SECRET IF EXISTS token FOR JOB pay",
        "DROP SECRET IF EXISTS nothing FOR JOB pay",
        "CREATE SECRET mine = 'mine'",
        "CREATE OR ALTER SECRET shared = 'mine'",
        "DROP SECRET IF EXISTS nothing",
        "GRANT ALTER JOB ON JOB pay TO mallory",
        "GRANT vault TO mallory",
        "REVOKE CREATE JOB FROM ann",
        "REVOKE vault FROM ann",
        "CREATE USER helper",
        "CREATE USER helper ADMIN",
        "CREATE ROLE helper",
        "DROP USER IF EXISTS nothing",
        "DROP ROLE IF EXISTS nothing",
        "DROP USER ann",
        "DROP ROLE vault",
        "ALTER USER mallory ADMIN",
        "ALTER USER mallory ENABLED",
        "ALTER USER mallory SET MAX_JOBS = NONE",
        "ALTER USER mallory PASSWORD 'x' ADMIN",
        "ALTER USER ann PASSWORD 'taken'",
        "ALTER USER local PASSWORD 'taken'",
        "ALTER USER local NOT ADMIN",
        "ALTER SYSTEM SET scheduler.max_concurrent_jobs = 1",
        "ALTER SYSTEM SET scheduler.nonsense = 1",
    ],
)
def test_whoever_may_only_create_jobs_may_not(quiet_town: Stage, text: str) -> None:
    quiet_town.refused(text, "mallory")


WHAT_IT_DOES = (
    "SET AS 'SELECT 2'",
    "SET EXEC '/bin/true'",
    "SET CALL other()",
    "SET PYTHON other",
    "SET TASKS (a AS 'SELECT 1', b AS 'SELECT 2')",
    "SET TASKS ()",
    "SET PAYLOAD = NULL",
    "SET PAYLOAD = '{\"amount\": 2}'",
    "SET RUN AS crew",
    "SET RUN AS vault",
    "SET AS 'SELECT 1' SECRETS (token)",
    "SET AS 'SELECT 1' ON CONNECTION crm",
    "SET TIMEOUT = 5m SET AS 'SELECT 2'",
    "SET TIMEOUT = 5m SET OWNER = mallory",
    "SET OWNER = mallory",
    "SET OWNER = mallory SET STATE = DISABLED",
    "SET STATE = PAUSED SET OWNER = mallory",
)


@pytest.mark.parametrize("change", WHAT_IT_DOES)
def test_every_right_on_another_s_job_does_not_let_anybody_change_what_it_does(quiet_town: Stage, change: str) -> None:
    quiet_town.refused(f"ALTER JOB pay {change}", "trusted")


@pytest.mark.parametrize(
    "clauses",
    [
        "PAYLOAD = '{\"amount\": 1}' AS 'SELECT 2'",
        "AS 'SELECT 1'",
        "PAYLOAD = '{\"amount\": 1}' RUN AS crew AS 'SELECT 1'",
        "PAYLOAD = '{\"amount\": 1}' OWNER = mallory AS 'SELECT 1'",
        "PAYLOAD = '{\"amount\": 1}' AS 'SELECT 1' SECRETS (token)",
        "PAYLOAD = '{\"amount\": 1}' TASKS (pay AS 'SELECT 1' MAX_RETRIES = 0)",
    ],
)
def test_nor_by_saying_it_anew(quiet_town: Stage, clauses: str) -> None:
    quiet_town.refused(f"CREATE OR ALTER JOB pay SCHEDULE = CRON '0 1 * * *' {clauses}", "trusted")


def test_with_alter_and_execute_job_policies_and_times_may_be_changed_and_the_owner_stays(town: Stage) -> None:
    town.sql("GRANT ALTER JOB, EXECUTE JOB ON JOB pay TO mallory")
    town.sql("ALTER JOB pay SET TIMEOUT = 5m SET SCHEDULE = CRON '0 2 * * *' PAUSE 'later'", "mallory")
    same = "PAYLOAD = '{\"amount\": 1}' AS 'SELECT 1'"
    town.sql(f"CREATE OR ALTER JOB pay SCHEDULE = CRON '0 3 * * *' {same}", "mallory")
    ((_, state, _, schedule, owner, version),) = town.sql("SHOW JOBS")
    assert (state, schedule, owner, version) == ("PAUSED", "cron 0 3 * * *", "ann", 3)


def test_another_s_job_is_recreated_by_administrators_only_and_has_nothing_of_the_old_one(town: Stage) -> None:
    town.sql("GRANT DROP JOB ON JOB pay TO mallory; GRANT VIEW JOB HISTORY ON JOB pay TO root")
    town.refused("RECREATE JOB pay SCHEDULE = NONE AS 'SELECT 2'", "mallory")
    town.sql("RECREATE JOB pay OWNER = mallory SCHEDULE = NONE AS 'SELECT 2' SECRETS (token)", "root")
    assert town.sql("SHOW JOBS")[0][4] == "mallory"
    assert town.sql("SHOW JOB RUNS FOR pay") == []
    for table in ("job_secrets", "job_runs"):
        assert town.behind.rows(f"SELECT count(*) FROM sys.{table}") == [(0,)]
    assert town.behind.rows("SELECT count(*) FROM sys.grants WHERE object_name = 'pay'") == [(0,)]
    town.refused("DROP JOB pay", "ann")


@pytest.mark.parametrize("verb", ["CREATE JOB", "CREATE OR ALTER JOB", "RECREATE JOB"])
def test_the_name_of_a_dropped_job_is_its_last_owner_s(town: Stage, verb: str) -> None:
    anew = f"{verb} pay SCHEDULE = NONE AS 'SELECT 2'"
    town.sql("DROP JOB pay KEEP HISTORY", "ann")
    assert "somebody else's" in town.refused(anew, "mallory").message
    town.sql(f"{anew}; ALTER JOB pay SET OWNER = mallory; DROP JOB pay KEEP HISTORY", "root")
    town.refused(anew, "ann")
    town.sql(anew, "mallory")
    town.sql("DROP JOB pay", "mallory")
    town.sql(f"{verb} pay OWNER = ann SCHEDULE = NONE AS 'SELECT 2'", "root")
    assert town.sql("SHOW JOBS")[0][4] == "ann"
    # What is there is told as that, also to those who may not touch it.
    town.fails("CREATE JOB pay SCHEDULE = NONE AS 'SELECT 2'", AlreadyExists, "mallory")


def test_a_right_on_a_job_that_is_dropped_is_none_on_the_next_of_that_name(town: Stage) -> None:
    town.sql("GRANT ALTER JOB, EXECUTE JOB ON JOB pay TO mallory; DROP JOB pay")
    town.sql("CREATE JOB pay SCHEDULE = NONE AS 'SELECT 1'", "ann")
    town.refused("EXECUTE JOB pay", "mallory")
    town.refused("ALTER JOB pay SET TIMEOUT = 1m", "mallory")


def test_a_job_is_given_away_by_administrators_only_and_then_is_the_other_s(town: Stage) -> None:
    town.refused("ALTER JOB pay SET OWNER = mallory", "ann")
    town.sql("ALTER JOB pay SET OWNER = mallory", "root")
    town.refused("ALTER JOB pay SET AS 'SELECT 3'", "ann")
    town.refused("CREATE SECRET x FOR JOB pay = 'y'", "ann")
    town.sql("ALTER JOB pay SET AS 'SELECT 3'", "mallory")
    assert town.sql("SHOW JOBS")[0][4] == "mallory"
    town.fails("ALTER JOB pay SET OWNER = nobody-at-all", PrincipalNotFound, "root")
    town.fails("ALTER JOB pay SET OWNER = crew", PrincipalNotFound, "root")


def test_an_owner_may_give_their_job_only_roles_and_work_that_they_hold(town: Stage) -> None:
    town.sql("ALTER JOB pay SET RUN AS vault", "ann")
    town.refused("ALTER JOB pay SET RUN AS crew", "ann")
    town.refused("ALTER JOB pay SET EXEC '/bin/true'", "ann")
    town.refused("ALTER JOB pay SET AS 'SELECT 1' SECRETS (shared)", "ann")
    town.sql("ALTER JOB pay SET AS 'SELECT 1' SECRETS (token)", "ann")


def test_a_role_that_is_not_there_is_told_as_such_to_users_and_to_administrators(town: Stage) -> None:
    text = "CREATE JOB mine RUN AS ghost SCHEDULE = NONE AS 'SELECT 1'"
    assert "no such role" in town.refused(text, "ann").message
    with pytest.raises(HoraeError, match="does not exist"):
        town.sql(text, "root")
    assert "no such role" in town.refused("CREATE JOB x RUN AS ann SCHEDULE = NONE AS 'SELECT 1'", "mallory").message


def test_there_always_is_an_administrator(town: Stage) -> None:
    for text in (
        "ALTER USER local DISABLED",
        "ALTER USER local NOT ADMIN",
        "ALTER USER local PASSWORD 'taken'",
        "DROP USER local",
    ):
        town.fails(text, InUse, "root")
        town.fails(text, InUse)
    for text in ("CREATE USER local", "CREATE ROLE local", "CREATE USER system", "CREATE ROLE keeper"):
        town.fails(text, AlreadyExists, "root")
    town.sql("ALTER USER root NOT ADMIN", "root")
    town.refused("ALTER USER root ADMIN", "root")
    town.sql("ALTER USER root ADMIN")


def test_what_was_taken_away_counts_from_the_next_statement_on(town: Stage) -> None:
    town.sql("ALTER JOB pay SET TIMEOUT = 1m", "ann")
    town.sql("ALTER USER ann DISABLED")
    with pytest.raises(LoginFailed, match="disabled"):
        town.sql("ALTER JOB pay SET TIMEOUT = 2m", "ann")
    town.sql("ALTER USER ann ENABLED; REVOKE CREATE JOB FROM ann")
    town.sql("ALTER JOB pay SET TIMEOUT = 2m", "ann")
    town.refused("CREATE JOB another SCHEDULE = NONE AS 'SELECT 1'", "ann")


@pytest.mark.parametrize(
    "name", ["Ann", "ANN", "\u0430nn", "\uff41nn", "an\u0144", '"ann"', "ann;", "ann' --", "ann\u2024"]
)
def test_a_name_that_looks_like_another_s_is_another_name(town: Stage, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    town.sql(f"CREATE USER {quoted}; GRANT CREATE JOB TO {quoted}")
    town.refused("ALTER JOB pay SET AS 'SELECT 2'", name)
    town.refused("EXECUTE JOB pay", name)
    town.sql(f"CREATE JOB \"{name.replace(chr(34), chr(34) * 2)}\" SCHEDULE = NONE AS 'SELECT 1'", name)
    assert {row[0]: row[4] for row in town.sql("SHOW JOBS")} == {"pay": "ann", name: name}
    with pytest.raises(JobNotFound):
        town.sql("EXECUTE JOB PAY", "ann")


@pytest.mark.parametrize(
    "name",
    [
        *("Local", "LOCAL", "loc\u0430l", "\u04cfocal", "\uff4cocal", "Iocal", "l0cal", "loca1", "lo\u0301cal"),
        *("System", "\u0455ystem", "5ystem", "k\u0435eper", "Keeper", "hor\u03b1e", "HORAE"),
        *(
            "loc\u0251l",
            "\u01c0ocal",
            "\ua4e1ocal",
            "\u0142ocal",
            "\u13de\u13be\u13df\u13aa\u13de",
            "\uab8borae",
            "systern",
        ),
        *("\uff29ocal", "\u0397\u039fR\u0391\u0395", "\u041dorae", "s\u03a5stem", "syste\u039c", "l\u00f8cal"),
    ],
)
def test_nobody_is_called_by_a_name_that_looks_like_one_that_horae_goes_by(quiet_town: Stage, name: str) -> None:
    for what in ("USER", "ROLE"):
        error = quiet_town.fails(f'CREATE {what} "{name}"', AlreadyExists, "root")
        assert "looks like" in error.message


def test_a_user_s_name_is_kept_in_one_form_and_found_in_every_and_a_job_s_is_never_changed(town: Stage) -> None:
    decomposed, composed = "rene\u0301", "ren\u00e9"
    town.sql(f'CREATE USER "{decomposed}"; GRANT CREATE JOB TO "{composed}"')
    town.fails(f'CREATE USER "{composed}"', AlreadyExists)
    town.fails(f'CREATE ROLE "{decomposed}"', AlreadyExists)
    for name in (decomposed, composed):
        town.sql(f"CREATE JOB \"{name}\" SCHEDULE = NONE AS 'SELECT 1'", name)
    assert {row[0]: row[4] for row in town.sql("SHOW JOBS", composed)} == {decomposed: composed, composed: composed}


def test_every_statement_finds_users_and_roles_however_the_letters_of_their_names_are_written(town: Stage) -> None:
    user, role = "jose\u0301", "caf\u00e9"
    other = normalize("NFD", role)
    town.sql(f'CREATE USER "{user}"; CREATE ROLE "{role}"')
    for statement in (
        f'GRANT CREATE JOB TO "{user}"',
        f'GRANT "{other}" TO "{user}"',
        f'GRANT EXECUTE JOB ON JOB pay TO "{other}"',
        f'CREATE JOB his OWNER = "{user}" SCHEDULE = NONE RUN AS "{other}" AS \'SELECT 1\'',
        f'ALTER USER "{user}" DISABLED',
        f'ALTER USER "{user}" ENABLED',
        f'ALTER USER "{user}" SET max_jobs = 7',
    ):
        town.sql(statement)
    assert {row[0]: row[4] for row in town.sql("SHOW JOBS")}["his"] == normalize("NFC", user)
    for statement in (
        f'REVOKE EXECUTE JOB ON JOB pay FROM "{other}"',
        f'REVOKE "{other}" FROM "{user}"',
        f'REVOKE CREATE JOB FROM "{user}"',
        "DROP JOB his",
        f'DROP ROLE IF EXISTS "{other}"',
        f'DROP USER IF EXISTS "{user}"',
    ):
        town.sql(statement)
    assert (normalize("NFC", user),) not in town.behind.rows("SELECT user_name FROM sys.users")
    assert (role,) not in town.behind.rows("SELECT role_name FROM sys.roles")


@pytest.mark.parametrize("name", ["ann\n", " ann", "ann\u200b", "ann\x00", "\u202eann", ""])
def test_a_name_that_cannot_be_told_from_another_by_its_letters_is_refused(quiet_town: Stage, name: str) -> None:
    before = quiet_town.behind.everything()
    for what in (f'CREATE USER "{name}"', f'CREATE ROLE "{name}"', f"CREATE JOB \"{name}\" SCHEDULE = NONE AS 'x'"):
        with pytest.raises(HoraeError):
            quiet_town.sql(what)
    with pytest.raises(HoraeError):
        quiet_town.sql("SHOW JOBS", name)
    assert quiet_town.behind.everything() == before


def test_a_job_that_is_there_is_not_created_whoever_s_it_is(town: Stage) -> None:
    town.fails("CREATE JOB pay SCHEDULE = NONE AS 'SELECT 2'", AlreadyExists, "mallory")
    town.fails("CREATE JOB pay SCHEDULE = NONE AS 'SELECT 2'", AlreadyExists, "ann")


def test_faults_in_what_is_said_of_another_s_job_are_not_told_before_the_right_is_asked(town: Stage) -> None:
    town.sql("ALTER JOB pay SET TASKS (a AS 'SELECT 1', b AS 'SELECT 2')")
    town.refused("ALTER JOB pay SET AS 'SELECT 3'", "mallory")
    town.fails("ALTER JOB pay SET AS 'SELECT 3'", InvalidStatement, "ann")


def test_runs_that_are_not_there_are_not_there_for_anybody(town: Stage) -> None:
    nowhere = "CANCEL JOB RUN occ_00000000-0000-5000-8000-000000000000"
    for user in ("mallory", "ann", "root"):
        town.fails(nowhere, RunNotFound, user)


def test_a_definition_from_code_is_nobody_s_but_local_s(town: Stage) -> None:
    town.app.task("handler")(print)
    town.app.sync.schedule("from-code", None, task="handler")
    town.sql(f"GRANT {EVERY_JOB_RIGHT} TO mallory")
    town.refused("ALTER JOB from-code SET PYTHON other", "mallory")
    assert {row[0]: row[4] for row in town.sql("SHOW JOBS")}["from-code"] == "local"


LATER = datetime(2030, 2, 1, tzinfo=UTC)
WITHOUT_STATEMENT: dict[str, Callable[[Service], Awaitable[object]]] = {
    "replay": lambda service: service.commands.replay(RUN, "I want to"),
    "reschedule": lambda service: service.commands.reschedule("pay", datetime(2040, 1, 1, tzinfo=UTC)),
    "backfill": lambda service: service.commands.backfill("pay", datetime(2030, 1, 1, tzinfo=UTC), LATER),
    "resume": lambda service: service.commands.resume("pay"),
    "report": lambda service: service.queries.report(RUN),
    "last_run": lambda service: service.queries.last_run("pay"),
    "next_run": lambda service: service.queries.next_run("pay"),
    "active": lambda service: service.queries.active("pay"),
    "is_running": lambda service: service.queries.is_running("pay"),
    "users": lambda service: service.people.users(),
    "roles": lambda service: service.people.roles(),
    "secrets": lambda service: service.people.secrets(),
    "rotate_secrets": lambda service: service.people.rotate_secrets(),
    "verify_audit": lambda service: service.people.verify_audit(),
}


@pytest.mark.parametrize("asked", list(WITHOUT_STATEMENT))
def test_the_same_gate_stands_before_what_has_no_statement(quiet_town: Stage, asked: str) -> None:
    before, last = quiet_town.behind.everything(), quiet_town.behind.last_audit()
    with pytest.raises(AccessDenied):
        quiet_town.app.home.call_blocking(lambda _: quiet_town.app.serve(WITHOUT_STATEMENT[asked], "mallory"))
    assert quiet_town.behind.everything() == before
    (row,) = quiet_town.behind.audit(last)
    assert (row["event"], row["actor"], bool(row["action"])) == ("ACCESS_DENIED", "mallory", True)


@pytest.mark.parametrize(
    "middle",
    [
        "GRANT CREATE JOB TO mallory",
        "ALTER JOB pay SET AS 'SELECT 2'",
        "DROP JOB pay",
        "RECREATE JOB pay SCHEDULE = NONE AS 'SELECT 2'",
        "ALTER USER mallory ADMIN",
        "SHOW CREATE JOB pay",
        "CREATE OR ALTER JOB b RUN AS vault SCHEDULE = NONE AS 'SELECT 1'",
    ],
)
def test_of_statements_one_of_which_is_refused_nothing_stays_but_the_refusal(quiet_town: Stage, middle: str) -> None:
    first, last = (f"CREATE JOB {name} SCHEDULE = NONE AS 'SELECT 1'" for name in ("a", "z"))
    quiet_town.refused(f"{first}; {middle}; {last}", "mallory")
