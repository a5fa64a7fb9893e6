"""Every statement by example."""

from __future__ import annotations

from typing import Any

import pytest
from tests.formats.reading import OTHER, UUID, one

from horae.core.access import Grant, ObjectKind, Privilege
from horae.core.run.lifecycle import JobState
from horae.formats.sql import statements as ddl

STATEMENTS: list[tuple[str, Any]] = [
    ("DROP JOB x", ddl.DropJob(("x",))),
    ("drop job x keep history;", ddl.DropJob(("x",), keep_history=True)),
    ('DROP JOB IF EXISTS x, "y z"', ddl.DropJob(("x", "y z"), if_exists=True)),
    ("EXECUTE JOB x", ddl.ExecuteJob("x")),
    (
        """EXECUTE JOB nightly-report WITH PAYLOAD = '{"user": [1, null]}' KEY 'k'""",
        ddl.ExecuteJob("nightly-report", {"user": [1, None]}, has_payload=True, key="k"),
    ),
    (f"CANCEL JOB RUN {UUID}", ddl.CancelRun(f"occ_{UUID}")),
    (f"CANCEL JOB RUN '{OTHER.upper()}'", ddl.CancelRun(f"occ_{OTHER}")),
    (f"CANCEL JOB RUN {OTHER}", ddl.CancelRun(f"occ_{OTHER}")),
    (f"CANCEL JOB RUN occ_{UUID}", ddl.CancelRun(f"occ_{UUID}")),
    (f'CANCEL JOB RUN "occ_{UUID}"', ddl.CancelRun(f"occ_{UUID}")),
    ("SHOW CREATE JOB x", ddl.ShowCreateJob("x")),
    ("SHOW JOBS", ddl.ShowJobs()),
    ("SHOW JOB RUNS", ddl.ShowRuns()),
    ("SHOW JOB RUNS FOR x", ddl.ShowRuns("x")),
    ("EXPLAIN JOB x", ddl.ExplainJob("x")),
    ("EXPLAIN JOB x AT '2026-01-15 10:00'", ddl.ExplainJob("x", "2026-01-15 10:00")),
    ("GRANT CREATE JOB TO bob", ddl.GrantPrivileges((Privilege.CREATE_JOB,), ("bob",))),
    (
        "GRANT EXECUTE JOB, VIEW JOB HISTORY ON JOB x TO bob, ops",
        ddl.GrantPrivileges((Privilege.EXECUTE_JOB, Privilege.VIEW_JOB_HISTORY), ("bob", "ops"), "x"),
    ),
    ("GRANT USE SECRET ON db TO bob", ddl.GrantPrivileges((Privilege.USE_SECRET,), ("bob",), "db")),
    (
        "GRANT SELECT, DELETE ON TABLE shop.orders TO bob",
        ddl.GrantPrivileges((Privilege.SELECT, Privilege.DELETE), ("bob",), "shop.orders"),
    ),
    ("GRANT analyst, ops TO bob, eve", ddl.GrantRoles(("analyst", "ops"), ("bob", "eve"))),
    ("REVOKE EXECUTE EXTERNAL JOB FROM bob", ddl.RevokePrivileges((Privilege.EXECUTE_EXTERNAL_JOB,), ("bob",))),
    ("REVOKE ops FROM bob", ddl.RevokeRoles(("ops",), ("bob",))),
    ("CREATE USER bob", ddl.CreateUser("bob")),
    ("CREATE USER bob PASSWORD 'it''s' ADMIN", ddl.CreateUser("bob", "it's", is_admin=True)),
    ("ALTER USER bob SET PASSWORD = 'x'", ddl.AlterUser("bob", "x")),
    (
        "ALTER USER bob PASSWORD 'x' OLD PASSWORD = 'y' REVOKE TOKENS",
        ddl.AlterUser("bob", "x", None, None, (), "y", revoke_tokens=True),
    ),
    ("ALTER USER bob NOT ADMIN DISABLED", ddl.AlterUser("bob", is_admin=False, is_enabled=False)),
    ("ALTER USER bob SET ADMIN SET ENABLED", ddl.AlterUser("bob", is_admin=True, is_enabled=True)),
    ("DROP USER bob", ddl.DropUser(("bob",))),
    ("CREATE ROLE ops", ddl.CreateRole("ops")),
    ("CREATE ROLE ops DESCRIPTION = 'on call'", ddl.CreateRole("ops", "on call")),
    ("DROP ROLE IF EXISTS ops", ddl.DropRole(("ops",), if_exists=True)),
    ("ALTER SYSTEM SET scheduler.max_concurrent_jobs = 20", ddl.AlterSystem("max_concurrent_jobs", 20)),
    ("ALTER SYSTEM SET Scheduler.Catch_Up = last", ddl.AlterSystem("catch_up", "last")),
    ("ALTER SYSTEM SET scheduler.external.enabled = TRUE", ddl.AlterSystem("external.enabled", True)),
    ("ALTER SYSTEM SET scheduler.grace = 5 minutes", ddl.AlterSystem("grace", "5 minutes")),
    ("ALTER SYSTEM SET scheduler.grace = 1h30m", ddl.AlterSystem("grace", "1h30m")),
    ("ALTER SYSTEM SET scheduler.offset = -1.5", ddl.AlterSystem("offset", -1.5)),
    ("ALTER SYSTEM SET scheduler.dirs = ('/a', '/b')", ddl.AlterSystem("dirs", ("/a", "/b"))),
    ("ALTER SYSTEM SET scheduler.grace = DEFAULT", ddl.AlterSystem("grace", None)),
    ("CREATE SECRET db = 'pw'", ddl.CreateSecret("db", "pw")),
    ("CREATE OR ALTER SECRET db FOR JOB x AS 'pw'", ddl.CreateSecret("db", "pw", "x", or_alter=True)),
    ("DROP SECRET db", ddl.DropSecret("db")),
    ("DROP SECRET IF EXISTS db FOR JOB x", ddl.DropSecret("db", "x", if_exists=True)),
    ("ALTER JOB x SET STATE = PAUSED", ddl.AlterJob("x", state=JobState.PAUSED)),
    ("ALTER JOB x ENABLE", ddl.AlterJob("x", state=JobState.ENABLED)),
    ("ALTER JOB x RESUME", ddl.AlterJob("x", state=JobState.ENABLED, resumes=True)),
    ("ALTER JOB x DISABLE", ddl.AlterJob("x", state=JobState.DISABLED)),
    ("ALTER JOB x PAUSE", ddl.AlterJob("x", state=JobState.PAUSED)),
    ("ALTER JOB x ROLLBACK TO VERSION 3", ddl.RollBackJob("x", 3)),
    ("alter job x rollback to version 3 'too late'", ddl.RollBackJob("x", 3, "too late")),
    ("ALTER JOB x PAUSE 'why'", ddl.AlterJob("x", state=JobState.PAUSED, note="why")),
    (
        "ALTER JOB x PAUSE UNTIL '2026-02-01' 'why' SET OWNER = bob",
        ddl.AlterJob("x", state=JobState.PAUSED, until="2026-02-01", note="why", owner="bob"),
    ),
    ("SELECT job_name FROM sys.jobs WHERE a <> 'x;y'", ddl.Select("SELECT job_name FROM sys.jobs WHERE a <> 'x;y'")),
    ("-- first\nwith a AS (SELECT 1) select * from a -- last", ddl.Select("with a AS (SELECT 1) select * from a")),
    ("VALUES (1), (2) /* x */;", ddl.Select("VALUES (1), (2)")),
    ("SELECT $$a;b$$ || E'x' || \"c;d\"", ddl.Select("SELECT $$a;b$$ || E'x' || \"c;d\"")),
]


@pytest.mark.parametrize(("text", "statement"), STATEMENTS, ids=[text[:50] for text, _ in STATEMENTS])
def test_a_statement_says_what_it_says(text: str, statement: Any) -> None:
    assert one(text) == statement


def test_a_grant_knows_its_kind_and_its_grants() -> None:
    statement = one("GRANT EXECUTE JOB, ALTER JOB ON x TO bob")
    assert statement.kind is ObjectKind.JOB
    assert statement.grants == (Grant(Privilege.EXECUTE_JOB, "x"), Grant(Privilege.ALTER_JOB, "x"))
