"""Each statement does what it says, which the catalog shows, and leaves one row in the trail that says who did it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.sql.stage import Stage

from horae.errors import (
    AlreadyExists,
    Conflict,
    DependencyCycle,
    InUse,
    InvalidDefinition,
    InvalidInput,
    InvalidPolicy,
    InvalidStatement,
    JobNotFound,
    NamespaceConflict,
    PrincipalNotFound,
    SecretNotFound,
)

WORK = "SCHEDULE = NONE AS 'SELECT 1'"


def job(stage: Stage, name: str, *columns: str) -> tuple[object, ...]:
    """Columns of a job as a SELECT sees them."""
    (row,) = stage.sql(f"SELECT {', '.join(columns)} FROM sys.jobs WHERE job_name = '{name}'")
    return row


def said(stage: Stage, text: str, user: str | None = None) -> list[tuple[str, str, object]]:
    """What the statement left in the trail: event, actor, name."""
    return [(row["event"], row["actor"], row.get("name")) for row in stage.noted(text, user)]


def test_create_job_defines_it_for_whoever_says_it(stage: Stage) -> None:
    stage.sql("CREATE USER ann; GRANT CREATE JOB TO ann")
    text = "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Brussels' MAX_RETRIES = 1 AS 'SELECT 1'"
    assert said(stage, text, "ann") == [("JOB_CREATED", "ann", "nightly")]
    columns = ("job_type", "job_sql", "schedule_kind", "cron_expression", "schedule_tz", "max_retries", "state")
    assert job(stage, "nightly", *columns) == (
        "SQL", "SELECT 1", "CRON", "0 2 * * *", "Europe/Brussels", 1, "ENABLED",
    )  # fmt: skip
    assert stage.sql("SHOW JOBS", "ann")[0][4] == "ann"


def test_a_job_cannot_be_created_twice(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}")
    error = stage.fails("CREATE JOB a SCHEDULE = NONE AS 'SELECT 2'", AlreadyExists)
    assert error.hint == "Write CREATE OR ALTER JOB, or RECREATE JOB."
    assert error.details["line"] == 1
    stage.fails(f"CREATE JOB b {WORK}; CREATE JOB b {WORK}", AlreadyExists)


def test_create_or_alter_keeps_the_state_and_the_history(stage: Stage) -> None:
    stage.sql(f"CREATE OR ALTER JOB a {WORK}; EXECUTE JOB a KEY 'k'; ALTER JOB a PAUSE 'a moment'")
    before = stage.sql("SHOW JOB RUNS FOR a")
    assert len(before) == 1
    text = "CREATE OR ALTER JOB a SCHEDULE = EVERY 1h TIMEOUT = 5m AS 'SELECT 2'"
    assert said(stage, text) == [("JOB_MODIFIED", "local", "a")]
    assert job(stage, "a", "job_sql", "interval_seconds", "timeout_seconds", "version", "state") == (
        "SELECT 2", 3600, 300, 2, "PAUSED",
    )  # fmt: skip
    assert stage.sql("SHOW JOB RUNS FOR a") == before
    assert stage.sql(text).message == "unchanged job a"
    stage.sql(f"{text} DISABLED")
    assert job(stage, "a", "state", "version") == ("DISABLED", 2)


def test_resume_ends_a_pause_and_leaves_a_disabled_job_alone(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}; ALTER JOB a PAUSE; ALTER JOB a RESUME")
    assert job(stage, "a", "state") == ("ENABLED",)
    stage.sql("ALTER JOB a RESUME; ALTER JOB a DISABLE")
    error = stage.fails("ALTER JOB a RESUME", Conflict)
    assert (error.message, error.hint) == ('Job "a" is disabled, not paused', "Enable it instead.")
    # What else the statement asks for is not done either.
    stage.fails("ALTER JOB a SET TIMEOUT = 5m RESUME", Conflict)
    stage.fails("ALTER JOB a PAUSE 'why'", Conflict)
    stage.fails("ALTER JOB a SET TIMEOUT = 5m SET STATE = PAUSED", Conflict)
    stage.sql("ALTER JOB a ENABLE")
    assert job(stage, "a", "state") == ("ENABLED",)


def test_create_or_alter_takes_back_what_it_does_not_say(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a TIMEOUT = 5m MAX_RETRIES = 0 DESCRIPTION = 'x' TAGS = (t) {WORK}")
    stage.sql(f"CREATE OR ALTER JOB a {WORK}")
    text = stage.sql("SHOW CREATE JOB a")[0][1]
    assert not any(word in text for word in ("TIMEOUT", "MAX_RETRIES", "DESCRIPTION", "TAGS"))


def test_recreate_drops_the_history_and_never_runs_a_slot_twice(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}; EXECUTE JOB a; CREATE SECRET s FOR JOB a = 'x'")
    cursor = job(stage, "a", "planned_until")[0]
    rows = stage.noted("RECREATE JOB a SCHEDULE = EVERY 1h AS 'SELECT 2'")
    assert [row["event"] for row in rows] in (
        ["JOB_DELETED", "JOB_CREATED"],
        ["RUNS_FORGOTTEN", "JOB_DELETED", "JOB_CREATED"],
        ["JOB_DELETED", "RUNS_FORGOTTEN", "JOB_CREATED"],
    )
    assert stage.sql("SHOW JOB RUNS FOR a") == []
    assert stage.behind.rows("SELECT count(*) FROM sys.job_secrets") == [(0,)]
    after = job(stage, "a", "planned_until", "version", "job_sql")
    assert after[1:] == (2, "SELECT 2")
    assert int(str(after[0])) >= int(str(cursor))
    assert stage.sql(f"RECREATE JOB b {WORK}").message == "created job b"
    stage.sql(f"CREATE JOB c DEPENDS ON b {WORK}")
    error = stage.fails(f"RECREATE JOB b {WORK}", InvalidDefinition)
    assert error.message == 'Job "b" cannot be dropped: job "c" depends on it'


CHANGES = [
    ("SET SCHEDULE = CRON '5 4 * * *'", "cron_expression", "5 4 * * *"),
    ("SET SCHEDULE = EVERY 90 minutes", "interval_seconds", 5400),
    ("SET SCHEDULE = ISO8601 'R5/2030-01-01T00:00:00Z/P1M'", "schedule_kind", "ISO8601"),
    ("SET SCHEDULE = AT '2040-01-15 10:00:00'", "schedule_kind", "AT"),
    ("SET STATE = DISABLED", "state", "DISABLED"),
    ("SET STATE = PAUSED", "state", "PAUSED"),
    ("DISABLE", "state", "DISABLED"),
    ("PAUSE", "state", "PAUSED"),
    ("SET MAX_RETRIES = 7", "max_retries", 7),
    ("SET RETRY_BACKOFF = 5s", "retry_backoff_seconds", 5),
    ("SET TIMEOUT = INTERVAL '2' HOUR", "timeout_seconds", 7200),
    ("SET DESCRIPTION = 'it''s'", "description", "it's"),
    ("SET ON COMPLETION DROP", "on_completion", "DROP"),
    ("SET CLASS = LEADER_ONLY", "job_class", "LEADER_ONLY"),
    ("SET PARTITION BY ALL_SHARDS", "partition_strategy", "ALL_SHARDS"),
    ("SET AS 'SELECT 2'", "job_sql", "SELECT 2"),
    ("SET CALL refresh('x', 1)", "job_type", "PROCEDURE"),
    ("SET EXEC '/bin/true'", "external_command", "/bin/true"),
    ("SET PYTHON shop.remind", "job_type", "PYTHON"),
    ("SET TASKS (x AS 'SELECT 1', y AS 'SELECT 2')", "job_type", "TASKS"),
]


@pytest.mark.parametrize(("change", "column", "value"), CHANGES, ids=[each[0] for each in CHANGES])
def test_alter_changes_what_it_names_and_nothing_else(stage: Stage, change: str, column: str, value: object) -> None:
    stage.sql(f"CREATE JOB other {WORK}; CREATE JOB a DESCRIPTION = 'kept' TAGS = (kept) {WORK}")
    before = {row[0]: row for row in stage.behind.rows("SELECT job_name, tags, version FROM sys.jobs")}
    assert said(stage, f"ALTER JOB a {change}") == [("JOB_MODIFIED", "local", "a")]
    assert job(stage, "a", column) == (value,)
    after = {row[0]: row for row in stage.behind.rows("SELECT job_name, tags, version FROM sys.jobs")}
    assert after["other"] == before["other"]
    assert after["a"][1] == before["a"][1]
    assert after["a"][2] == before["a"][2] + (0 if column == "state" else 1)


def test_one_alter_may_change_definition_owner_and_state_at_once(stage: Stage) -> None:
    stage.sql(f"CREATE USER ann; CREATE JOB a {WORK}")
    text = "ALTER JOB a SET TIMEOUT = 5m SET OWNER = ann PAUSE UNTIL '2040-01-01' 'on holiday'"
    assert {row["event"] for row in stage.noted(text)} == {"JOB_MODIFIED"}
    assert job(stage, "a", "timeout_seconds", "state", "pause_note") == (300, "PAUSED", "on holiday")
    assert stage.sql("SHOW JOBS", "ann")[0][4] == "ann"
    stage.fails("ALTER JOB a SET TIMEOUT = 6m SET OWNER = nobody-at-all", PrincipalNotFound)
    stage.sql("ALTER JOB a DISABLE")
    stage.fails("ALTER JOB a SET TIMEOUT = 6m PAUSE", Conflict)


def test_alter_after_alter_never_conflicts_for_one_who_is_alone(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}")
    for minutes in range(1, 21):
        stage.sql(f"ALTER JOB a SET TIMEOUT = {minutes}m")
        stage.sql(f"ALTER JOB a SET TIMEOUT = {minutes + 100}m; ALTER JOB a SET MAX_RETRIES = {minutes}; SHOW JOBS")
    assert job(stage, "a", "version", "max_retries", "timeout_seconds") == (61, 20, 120 * 60)


def test_drop_job_takes_the_history_along_unless_it_is_to_be_kept(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}; CREATE JOB b {WORK}; EXECUTE JOB a; EXECUTE JOB b")
    assert ("JOB_DELETED", "local", "a") in said(stage, "DROP JOB a KEEP HISTORY")
    assert ("JOB_DELETED", "local", "b") in said(stage, "DROP JOB b")
    runs = stage.behind.rows("SELECT job_uuid FROM sys.job_runs")
    assert len(runs) == 1
    assert stage.sql("SHOW JOBS") == []
    stage.fails("DROP JOB a", JobNotFound)
    assert stage.sql("DROP JOB IF EXISTS a, b").message == "dropped 0 jobs"


def test_of_several_jobs_to_drop_all_go_or_none(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}; CREATE JOB b {WORK}")
    stage.fails("DROP JOB a, nothing, b", JobNotFound)
    assert stage.sql("DROP JOB IF EXISTS a, nothing, b").rowcount == 2


def test_execute_gives_one_run_for_each_key(stage: Stage) -> None:
    stage.sql("CREATE USER ann; GRANT CREATE JOB TO ann")
    stage.sql(f"CREATE JOB a PAYLOAD = '1' {WORK}", "ann")
    first = stage.sql("EXECUTE JOB a WITH PAYLOAD = '{\"x\": [1, null]}' KEY 'k'", "ann")
    again = stage.sql("EXECUTE JOB a WITH PAYLOAD = '2' KEY 'k'", "ann")
    assert first.columns == ("run_id", "state")
    assert first == again
    assert first[0][1] == "PENDING"
    ((payload, actor),) = stage.behind.rows("SELECT payload, requested_by FROM sys.job_runs")
    assert (json.loads(payload) if isinstance(payload, str) else payload) == {"x": [1, None]}
    assert actor == "ann"
    assert stage.sql("EXECUTE JOB a")[0][0] != first[0][0]
    stage.fails("EXECUTE JOB nothing", JobNotFound)


def test_cancel_ends_a_run_that_has_not_started_and_says_who_did_it(stage: Stage) -> None:
    stage.sql(f"CREATE USER ann; GRANT EXECUTE JOB TO ann; CREATE JOB a {WORK}")
    run_id = stage.sql("EXECUTE JOB a")[0][0]
    rows = stage.noted(f"CANCEL JOB RUN {run_id}", "ann")
    assert [(row["event"], row["actor"]) for row in rows] == [("JOB_CANCELLED", "ann")]
    assert stage.sql("SHOW JOB RUNS FOR a")[0][2] == "CANCELLED"


def test_show_and_explain_tell_and_leave_nothing_in_the_trail(stage: Stage) -> None:
    stage.sql("CREATE JOB a SCHEDULE = CRON '0 2 * * *' WINDOW = AFTER 10m AS 'SELECT 1'; EXECUTE JOB a")
    assert stage.sql("SHOW JOBS").columns[:2] == ("job_name", "state")
    assert stage.sql("SHOW JOB RUNS")[0][1:3] == ("a", "PENDING")
    steps: dict[str, str] = dict(stage.sql("EXPLAIN JOB a AT '2040-01-01 02:00'"))
    assert {"schedule", "window", "seed", "candidate 1", "verdict"} <= steps.keys()
    assert steps["verdict"].startswith("does not start at 2040-01-01T02:0")
    for text in ("SHOW JOBS", "SHOW JOB RUNS FOR a", "EXPLAIN JOB a", "SHOW CREATE JOB a", "SELECT * FROM sys.jobs"):
        assert stage.noted(text) == []
    for text in ("EXPLAIN JOB nothing", "SHOW CREATE JOB nothing", "ALTER JOB nothing ENABLE"):
        stage.fails(text, JobNotFound)


def test_people_come_get_rights_lose_them_and_go(stage: Stage) -> None:
    stage.sql("CREATE USER root ADMIN")
    story = [
        ("CREATE USER ann PASSWORD 'correct horse'", "USER_CREATED", "ann"),
        ("CREATE ROLE crew DESCRIPTION = 'some'", "ROLE_CREATED", "crew"),
        ("GRANT crew TO ann", "ROLE_GRANTED", "ann"),
        ("GRANT CREATE JOB, EXECUTE JOB TO ann", "PRIVILEGE_GRANTED", "ann"),
        ("GRANT ALTER JOB ON JOB a TO crew", "PRIVILEGE_GRANTED", "crew"),
        ("REVOKE ALTER JOB ON JOB a FROM crew", "PRIVILEGE_REVOKED", "crew"),
        ("REVOKE CREATE JOB FROM ann", "PRIVILEGE_REVOKED", "ann"),
        ("REVOKE crew FROM ann", "ROLE_REVOKED", "ann"),
        ("ALTER USER ann PASSWORD 'another' ADMIN", "USER_MODIFIED", "ann"),
        ("ALTER USER ann DISABLED NOT ADMIN", "USER_MODIFIED", "ann"),
        ("ALTER USER ann SET MAX_JOBS = 5 SET MAX_STORAGE = '1MiB'", "USER_MODIFIED", "ann"),
        ("ALTER USER ann SET MAX_JOBS = NONE SET MAX_STORAGE = DEFAULT", "USER_MODIFIED", "ann"),
        ("DROP ROLE crew", "ROLE_DROPPED", "crew"),
        ("DROP USER ann", "USER_DROPPED", "ann"),
    ]
    for text, event, name in story:
        assert said(stage, text, "root") == [(event, "root", name)]
    trail = str(stage.behind.audit())
    assert "correct horse" not in trail
    assert "argon2" not in trail
    assert [row[0] for row in stage.sql("SELECT user_name FROM sys.users ORDER BY user_name")] == ["local", "root"]
    assert stage.behind.rows("SELECT count(*) FROM sys.grants") == [(0,)]


def test_several_users_are_dropped_together_or_not_at_all(stage: Stage) -> None:
    stage.sql(f"CREATE USER ann; CREATE USER bob; CREATE ROLE crew; CREATE JOB a OWNER = bob RUN AS crew {WORK}")
    stage.fails("DROP USER ann, bob", InUse)
    stage.fails("DROP USER ann, nobody-at-all", PrincipalNotFound)
    stage.fails("DROP ROLE crew", InUse)
    stage.sql("CREATE ROLE empty")
    stage.fails("DROP ROLE empty, crew", InUse)
    assert stage.sql("DROP USER IF EXISTS nobody-at-all, ann").message == "dropped 1 user"
    assert stage.sql("DROP ROLE IF EXISTS nothing, empty").rowcount == 1


def test_if_exists_does_not_spoil_the_statements_beside_it(stage: Stage) -> None:
    stage.sql(f"""
        DROP USER IF EXISTS ann; CREATE USER ann;
        DROP ROLE IF EXISTS crew; CREATE ROLE crew;
        DROP SECRET IF EXISTS token; CREATE SECRET token = 'x';
        DROP JOB IF EXISTS a; CREATE JOB a {WORK};
        DROP SECRET IF EXISTS token FOR JOB a
    """)
    assert stage.behind.rows("SELECT count(*) FROM sys.secrets") == [(1,)]
    assert [row[0] for row in stage.sql("SHOW JOBS")] == ["a"]


def test_secrets_are_kept_replaced_and_dropped_and_never_told(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}")
    story = [
        ("CREATE SECRET token = 'hunter2'", "SECRET_CREATED"),
        ("CREATE OR ALTER SECRET token = 'hunter2-b'", "SECRET_CHANGED"),
        ("CREATE OR ALTER SECRET other AS 'hunter2-c'", "SECRET_CREATED"),
        ("CREATE SECRET token FOR JOB a = 'hunter2-d'", "SECRET_CREATED"),
        ("DROP SECRET token FOR JOB a", "SECRET_DROPPED"),
        ("DROP SECRET other", "SECRET_DROPPED"),
    ]
    for text, event in story:
        assert [row["event"] for row in stage.noted(text)] == [event]
    error = stage.fails("CREATE SECRET token = 'hunter2-e'", AlreadyExists)
    stage.fails("DROP SECRET token FOR JOB a", SecretNotFound)
    stage.fails("DROP SECRET other", SecretNotFound)
    assert stage.sql("DROP SECRET IF EXISTS other").message == "secret other is gone"
    assert "hunter2" not in f"{error} {error.hint} {error.details}"
    kept = str(stage.behind.audit()) + str(stage.behind.everything())
    assert "hunter2" not in kept
    assert b"hunter2".hex() not in kept
    with pytest.raises(InvalidInput):
        stage.sql("SELECT * FROM sys.secrets")


def test_settings_of_the_system_are_checked_kept_and_taken_back(stage: Stage) -> None:
    name = "scheduler.max_concurrent_jobs"
    rows = stage.noted(f"ALTER SYSTEM SET {name} = 20")
    assert [(row["event"], row["name"], row["value"]) for row in rows] == [("SETTING_CHANGED", name, 20)]
    stage.sql("ALTER SYSTEM SET scheduler.catch_up = ALL; ALTER SYSTEM SET scheduler.heartbeat = 2 seconds")
    kept: dict[str, object] = dict(stage.sql("SELECT setting_name, value FROM sys.settings"))
    assert {key: json.loads(value) if isinstance(value, str) else value for key, value in kept.items()} == {
        name: 20, "scheduler.catch_up": "all", "scheduler.heartbeat": 2.0,
    }  # fmt: skip
    stage.sql(f"ALTER SYSTEM SET {name} = DEFAULT")
    assert stage.behind.rows("SELECT count(*) FROM sys.settings") == [(2,)]
    for wrong in ("max_concurrent_jobs = 0", "catch_up = SOMETIMES", "nonsense = 1", "modules = (a)"):
        stage.fails(f"ALTER SYSTEM SET scheduler.{wrong}", InvalidPolicy)


def test_the_system_s_catch_up_is_what_new_jobs_have_that_say_nothing_of_it(stage: Stage) -> None:
    stage.sql(f"CREATE JOB before {WORK}; ALTER SYSTEM SET scheduler.catch_up = ALL")
    stage.sql(
        f"CREATE JOB silent {WORK}; CREATE JOB saying CATCH_UP = NONE {WORK}; CREATE JOB more RECOVERY = LAST {WORK}"
    )
    stage.sql("ALTER JOB before SET TIMEOUT = 1m")
    text = {name: stage.sql(f"SHOW CREATE JOB {name}")[0][1] for name in ("before", "silent", "saying", "more")}
    assert "RECOVERY = ALL" in text["silent"]
    assert "RECOVERY = NONE" in text["saying"]
    assert "ALL" not in text["before"] + text["more"]


def test_a_time_that_has_passed_is_refused(stage: Stage) -> None:
    gone = datetime.now(UTC) - timedelta(minutes=1)
    error = stage.fails(f"CREATE JOB a SCHEDULE = AT '{gone:%Y-%m-%d %H:%M:%S}' AS 'SELECT 1'", InvalidStatement)
    assert "past" in error.message
    stage.sql(f"CREATE JOB a {WORK}")
    stage.fails("ALTER JOB a SET SCHEDULE = AT '2020-01-01 00:00'", InvalidStatement)
    ahead = datetime.now(UTC) + timedelta(days=1)
    stage.sql(f"ALTER JOB a SET SCHEDULE = AT '{ahead:%Y-%m-%d %H:%M:%S}'")


def test_a_cycle_is_refused_and_named(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a {WORK}; CREATE JOB b DEPENDS ON a {WORK}; CREATE JOB c DEPENDS ON b {WORK}")
    error = stage.fails("ALTER JOB a SET DEPENDS ON c", DependencyCycle)
    assert error.message == "Dependencies form a cycle: a -> c -> b -> a"
    stage.fails("ALTER JOB a SET DEPENDS ON a", DependencyCycle)
    stage.fails("CREATE OR ALTER JOB a DEPENDS ON b SCHEDULE = NONE AS 'SELECT 1'", DependencyCycle)
    stage.fails("ALTER JOB c SET DEPENDS ON NONE; ALTER JOB a SET DEPENDS ON b", DependencyCycle)
    stage.sql("ALTER JOB b SET DEPENDS ON NONE; ALTER JOB a SET DEPENDS ON c")


def test_a_job_stays_in_its_namespace(stage: Stage) -> None:
    stage.sql(f"CREATE JOB a NAMESPACE = billing {WORK}")
    stage.fails(f"CREATE OR ALTER JOB a {WORK}", NamespaceConflict)
    stage.fails("ALTER JOB a SET NAMESPACE = other", NamespaceConflict)
    stage.sql("ALTER JOB a SET TIMEOUT = 1m")
