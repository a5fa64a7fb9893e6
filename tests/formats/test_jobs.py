"""What CREATE JOB defines: every clause by example, beside what Python would have made of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.formats.drawn import NOW
from tests.formats.reading import OTHER, UUID, bound, one

from horae import Bounded, Cron, Every, Iso8601, Once, Queue, Retry, Window
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import NO_RETRY
from horae.core.run.lifecycle import JobState
from horae.core.window.distribution import Distribution
from horae.formats.sql.binder import create_definition, explain_time, pause_until

SQL_RETRY = Retry(3, "60s", factor=2.0)
SQL_DEFAULTS = {"retry": SQL_RETRY, "execution_timeout": timedelta(hours=1)}


@pytest.mark.parametrize("verb", ["CREATE JOB", "CREATE OR ALTER JOB", "RECREATE JOB"])
def test_the_whole_of_create_job(verb: str) -> None:
    statement = one(
        f"""{verb} nightly
          CLASS = LEADER_ONLY
          PARTITION BY SINGLE_SHARD '{UUID}'
          SCHEDULE = CRON '0 2 * * *'
          DEPENDS ON extract, "trans form"
          MAX_RETRIES = 5
          RETRY_BACKOFF = 30s
          TIMEOUT = 2 hours
          ON COMPLETION PRESERVE
          RUN AS reporting
          DESCRIPTION = 'What was sold'
          DISABLED
          AS 'INSERT INTO t VALUES (''x'')';"""
    )
    assert (statement.verb, statement.name) == (verb, "nightly")
    assert create_definition(statement, now=NOW) == JobSpec(
        "nightly",
        Cron("0 2 * * *", fold="once"),
        (TaskSpec("nightly", "INSERT INTO t VALUES ('x')", "SQL"),),
        {"retry": Retry(5, "30s", 2.0), "execution_timeout": "2h", "on_completion": "preserve"},
        description="What was sold",
        state=JobState.DISABLED,
        depends_on=("extract", "trans form"),
        run_as="reporting",
        job_class="LEADER_ONLY",
        partition={"strategy": "SINGLE_SHARD", "shards": [UUID]},
    )


def test_clauses_may_stand_in_any_order_and_the_body_first() -> None:
    one_way = bound("MAX_RETRIES = 1 TIMEOUT = 60s ENABLED")
    other = bound(
        "ENABLED TIMEOUT = 1 minute MAX_RETRIES = 1", body="", schedule="AS 'SELECT 1' SCHEDULE = EVERY 1 hour"
    )
    assert one_way == other


def test_what_is_not_said_has_the_sql_defaults_and_nothing_else_is_written() -> None:
    spec = bound("", schedule="SCHEDULE = CRON '30 1 * * *' TIMEZONE = 'Europe/Brussels'")
    assert spec.settings == SQL_DEFAULTS
    assert isinstance(spec.schedule, Cron)
    assert (spec.schedule.fold, spec.schedule.gap, spec.namespace) == ("once", "skip", "default")
    effective = spec.effective()
    assert effective.execution_timeout == timedelta(hours=1)
    assert (effective.recovery, effective.retry.delay(2, "x")) == ("last", timedelta(seconds=240))


def at(*given: int) -> datetime:
    return datetime(*given, tzinfo=UTC)  # type: ignore[misc, arg-type]  # numbers, in order


SCHEDULES: list[tuple[str, Any]] = [
    ("CRON '*/5 * * * *'", Cron("*/5 * * * *", fold="once")),
    ("CRON '0 9 * * 1-5' DIALECT POSIX", Cron("0 9 * * 1-5", dialect="posix", fold="once")),
    (
        "CRON '0 9 * * *' STARTS '2026-02-01' ENDS '2026-03-01 09:00:00'",
        Cron("0 9 * * *", fold="once", start=at(2026, 2, 1), end=at(2026, 3, 1, 9)),
    ),
    (
        "CRON '0 9 * * *' STARTS '2026-07-01 00:00' TIMEZONE = 'Europe/Brussels' FOLD = BOTH GAP = SHIFT",
        Cron("0 9 * * *", "Europe/Brussels", gap="shift", fold="both", start=at(2026, 6, 30, 22)),
    ),
    ("CRON '0 2 * * *' DST = SHIFT, AUTO TIMEZONE = 'Asia/Tokyo'", Cron("0 2 * * *", "Asia/Tokyo", gap="shift")),
    ("CRON '0 2 * * *' IN 'Asia/Tokyo' ON FOLD BOTH", Cron("0 2 * * *", "Asia/Tokyo", fold="both")),
    ("AT '2026-01-15 10:00:00'", Once(at(2026, 1, 15, 10))),
    ("AT '2026-01-15 10:00' TIMEZONE = 'Europe/Brussels'", Once(at(2026, 1, 15, 9))),
    ("AT '2026-01-15T10:00:00+05:30'", Once(at(2026, 1, 15, 4, 30))),
    ("AT '2026-01-15T10:00:00Z' TIMEZONE = 'Europe/Brussels' ON COMPLETION DROP", Once(at(2026, 1, 15, 10), drop=True)),
    ("EVERY 60s", Every(60)),
    ("EVERY 5 minutes", Every(300)),
    ("EVERY INTERVAL '1' HOUR", Every(3600)),
    ("EVERY INTERVAL '5 minutes'", Every(300)),
    ("EVERY '1 day'", Every(86_400)),
    ("EVERY 90", Every(90)),
    ("EVERY 1 hour 30 minutes", Every(5400)),
    ("EVERY 1h30m STARTS '2026-01-02' ENDS '2026-01-03'", Every(5400, at(2026, 1, 2), at(2026, 1, 3))),
    ("EVERY 1h ENDS '2026-01-03' STARTS '2026-01-02'", Every(3600, at(2026, 1, 2), at(2026, 1, 3))),
    ("EVERY 1h ANCHOR '2026-01-02'", Every(3600, anchor=at(2026, 1, 2))),
    ("ISO8601 'R5/2026-02-01T00:00:00Z/P1M'", Iso8601("R5/2026-02-01T00:00:00Z/P1M")),
    ("ISO8601 'P1M' TIMEZONE = 'Europe/Brussels'", Iso8601("P1M", "Europe/Brussels")),
    ("CRON '0 9 * * *' OR EVERY 7h OR AT '2026-05-01'", Cron("0 9 * * *") | Every("7h") | Once(at(2026, 5, 1))),
    ("NONE", None),
]


@pytest.mark.parametrize(("text", "schedule"), SCHEDULES, ids=[text for text, _ in SCHEDULES])
def test_a_schedule_is_the_one_that_python_would_make(text: str, schedule: Any) -> None:
    spec = bound("", schedule=f"SCHEDULE = {text}")
    assert spec.schedule == schedule
    assert "on_completion" not in spec.settings


def test_the_end_of_a_schedule_is_a_time_of_it() -> None:
    spec = bound("", schedule="SCHEDULE = EVERY 1h STARTS '2026-01-02 00:00' ENDS '2026-01-02 02:00'")
    assert spec.schedule is not None
    assert list(spec.schedule.between(NOW, at(2026, 1, 3))) == [at(2026, 1, 2, hour) for hour in (0, 1, 2)]


CLAUSES: list[tuple[str, dict[str, Any]]] = [
    ("WINDOW = AFTER 10m", {"window": Window.after("10m")}),
    ("WINDOW = AFTER 1d EXACT ONLY (hours = 3)", {"window": Window.after("1d", only={"hours": 3}, exact=True)}),
    ("WINDOW = CENTER 10m SEED weekly", {"window": Window.around("10m", seed="weekly")}),
    (
        (
            "WINDOW = BEFORE 2 hours DISTRIBUTION skewearly(shape=3) SEED DAILY SALT 'x'"
            " ONLY (hours = '8-10', dow = '1-5') ONLY (between = '08:00-20:00')"
            " AVOID (dates = '2026-12-24..2026-12-26') AVOID (dom = 13) AVOID ALL (hours = 9, dow = 'mon')"
        ),
        {
            "window": Window.before(
                "2h",
                Distribution("skewEarly", {"shape": 3}),
                "daily",
                "x",
                [{"hours": "8-10", "dow": "1-5"}, {"between": "08:00-20:00"}],
                [{"dates": "2026-12-24..2026-12-26"}, {"dom": 13}, {"all": {"hours": 9, "dow": 1}}],
            )
        },
    ),
    (
        "WINDOW = AROUND 1h DISTRIBUTION normal(mu = mid, sigma = 5 minutes)",
        {"window": Window.around("1h", Distribution("normal", {"mu": "mid", "sigma": "5 minutes"}))},
    ),
    (
        "WINDOW = AFTER 1h DISTRIBUTION exponential(lambda = 0.5, dir = late)",
        {"window": Window.after("1h", Distribution("exponential", {"lambda": 0.5, "dir": "late"}))},
    ),
    ("WINDOW = NONE", {"window": None}),
    ("OVERLAP = SKIP", {"overlap": "skip"}),
    ("OVERLAP = ALLOW", {"overlap": "allow"}),
    ("OVERLAP = QUEUE", {"overlap": Queue()}),
    ("OVERLAP = QUEUE(5)", {"overlap": Queue(5)}),
    ("OVERLAP = COALESCE", {"overlap": "coalesce"}),
    ("OVERLAP = REPLACE", {"overlap": "replace"}),
    ("RECOVERY = LAST", {"recovery": "last"}),
    ("RECOVERY = ALL", {"recovery": "all"}),
    ("RECOVERY = NONE", {"recovery": "none"}),
    ("RECOVERY = COMPRESSED", {"recovery": "compressed"}),
    ("RECOVERY = BOUNDED(max_occurrences = 3, max_age = 1 day)", {"recovery": Bounded(3, "1d")}),
    ("RECOVERY = BOUNDED(max_age = 1h)", {"recovery": Bounded(None, "1h")}),
    ("CATCH_UP = ALL", {"recovery": "all"}),
    ("CATCH_UP = NONE", {"recovery": "none"}),
    ("MISFIRE_GRACE = 5m", {"misfire_grace": timedelta(minutes=5)}),
    ("DEADLINE = 1h", {"deadline": timedelta(hours=1)}),
    ("DEADLINE = NONE", {"deadline": None}),
    ("TIMEOUT = 3600", {"execution_timeout": timedelta(hours=1)}),
    ("TIMEOUT = NONE", {"execution_timeout": None}),
    ("TIMEOUT = DEFAULT", {}),
    ("TASK_TIMEOUT = 30s", {"task_timeout": timedelta(seconds=30)}),
    ("CANCEL_GRACE = 1.5", {"cancel_grace": timedelta(seconds=1.5)}),
    ("MODE = PARALLEL", {"mode": "parallel"}),
    ("FAILURE = CONTINUE", {"failure": "continue"}),
    ("DELIVERY = AT_MOST_ONCE", {"delivery": "at_most_once"}),
    ("ISOLATION = PROCESS", {"isolation": "process"}),
    ("POOL = reports", {"pool": "reports"}),
    ('POOL = "none"', {"pool": "none"}),
    ("POOL = NONE", {"pool": None}),
    ("MAX_CONCURRENT = 2", {"max_concurrent": 2}),
    ("MAX_LOST = NONE", {"max_lost": None}),
    ("ON COMPLETION DROP", {"on_completion": "drop"}),
    ("MAX_RETRIES = 0", {"retry": Retry(0, "60s", 2.0)}),
    ("MAX_RETRIES = NONE RETRY_FACTOR = 1", {"retry": Retry(None, "60s")}),
    (
        "RETRY_BACKOFF = 5s RETRY_FACTOR = 1.5 MAX_BACKOFF = 10 minutes JITTER = 0.1",
        {"retry": Retry(3, "5s", 1.5, "10m", 0.1)},
    ),
    ("RETRY = NONE", {"retry": NO_RETRY}),
]


@pytest.mark.parametrize(("text", "settings"), CLAUSES, ids=[text[:50] for text, _ in CLAUSES])
def test_a_clause_is_the_setting_that_python_would_make(text: str, settings: dict[str, Any]) -> None:
    expected = SQL_DEFAULTS | settings
    if text == "TIMEOUT = DEFAULT":
        del expected["execution_timeout"]
    assert bound(text).settings == expected


def test_retry_default_leaves_retries_to_the_scheduler_s_settings() -> None:
    assert bound("RETRY = DEFAULT TIMEOUT = DEFAULT").settings == {}


FIELDS: list[tuple[str, str, Any]] = [
    ('PAYLOAD = \'{"a": [1, 2.5, "x"]}\'', "payload", {"a": [1, 2.5, "x"]}),
    ("PAYLOAD = NULL", "payload", None),
    ('TAGS = (nightly, \'two words\', "a""b")', "tags", ("nightly", "two words", 'a"b')),
    ("TAGS = ()", "tags", ()),
    ("NAMESPACE = shop", "namespace", "shop"),
    ("OWNER = bob", "owner", "bob"),
    ("DEPENDS ON NONE", "depends_on", ()),
    ("RUN AS NONE", "run_as", None),
    ("CLASS = QUORUM_REQUIRED", "job_class", "QUORUM_REQUIRED"),
    ("PAUSED", "state", JobState.PAUSED),
    ("PARTITION BY ALL_SHARDS", "partition", {"strategy": "ALL_SHARDS"}),
    (f"PARTITION BY SHARD_SET ('{UUID}', {OTHER})", "partition", {"strategy": "SHARD_SET", "shards": [UUID, OTHER]}),
    ("PARTITION BY DYNAMIC 'f(x)'", "partition", {"strategy": "DYNAMIC", "expression": "f(x)"}),
    (
        "PARTITION BY DYNAMIC shop.f(x, (y + 1))",
        "partition",
        {"strategy": "DYNAMIC", "expression": "shop.f(x, (y + 1))"},
    ),
    ("PARTITION BY DYNAMIC ( a || ')' )", "partition", {"strategy": "DYNAMIC", "expression": "a || ')'"}),
]


@pytest.mark.parametrize(("text", "name", "value"), FIELDS, ids=[text for text, _, _ in FIELDS])
def test_a_clause_is_a_field_of_the_definition(text: str, name: str, value: Any) -> None:
    assert getattr(bound(text), name) == value


BODIES: list[tuple[str, TaskSpec]] = [
    ("AS 'SELECT 1' ON CONNECTION warehouse", TaskSpec("x", "SELECT 1", "SQL", options={"connection": "warehouse"})),
    ("AS $$SELECT 'it''s'; SELECT 2$$", TaskSpec("x", "SELECT 'it''s'; SELECT 2", "SQL")),
    ("CALL refresh()", TaskSpec("x", "refresh", "PROCEDURE", options={"arguments": []})),
    ("CALL shop.refresh", TaskSpec("x", "shop.refresh", "PROCEDURE")),
    ("CALL refresh IN DATABASE", TaskSpec("x", "refresh", "PROCEDURE", options={"database": True})),
    (
        "AS CALL refresh(1, -2.5, 'x', TRUE, false, NULL) ON CONNECTION w",
        TaskSpec(
            "x", "refresh", "PROCEDURE", options={"arguments": [1, -2.5, "x", True, False, None], "connection": "w"}
        ),
    ),
    ("EXEC '/bin/backup --all'", TaskSpec("x", "/bin/backup --all", "EXTERNAL")),
    (
        (
            "AS EXEC 'backup' SHELL WORKING DIRECTORY '/var' ENVIRONMENT (HOME = '/', Path = 'x')"
            " USER nobody GROUP staff UMASK 027 STDOUT 'o' STDERR 'e' SECRETS (db, \"api key\" AS KEY IN FILE)"
        ),
        TaskSpec(
            "x",
            "backup",
            "EXTERNAL",
            options={
                "shell": True,
                "cwd": "/var",
                "env": {"HOME": "/", "Path": "x"},
                "user": "nobody",
                "group": "staff",
                "umask": 0o27,
                "stdout": "o",
                "stderr": "e",
                "secrets": [{"name": "db"}, {"name": "api key", "variable": "KEY", "as": "file"}],
            },
        ),
    ),
    ("PYTHON shop.nightly-report", TaskSpec("nightly-report", "shop.nightly-report")),
    ("AS PYTHON 'any thing.'", TaskSpec("x", "any thing.")),
]


@pytest.mark.parametrize(("text", "task"), BODIES, ids=[text[:50] for text, _ in BODIES])
def test_a_body_is_one_task(text: str, task: TaskSpec) -> None:
    assert bound("", body=text).tasks == (task,)


def test_several_tasks_have_settings_of_their_own() -> None:
    spec = bound(
        "RETRY_BACKOFF = 10s MODE = PARALLEL",
        body="""TASKS (
            extract AS 'SELECT 1' ON CONNECTION w FAILURE = RETRY_ON_FAILURE,
            "load" CALL load(1) MAX_RETRIES = 7 TASK_TIMEOUT = NONE,
            tidy EXEC 'rm x' SHELL RETRY = NONE ISOLATION = PROCESS,
            tell PYTHON shop.tell SECRETS (token))""",
    )
    assert spec.settings == SQL_DEFAULTS | {"mode": "parallel", "retry": Retry(3, "10s", 2.0)}
    assert spec.tasks == (
        TaskSpec("extract", "SELECT 1", "SQL", {"failure": "retry_on_failure"}, {"connection": "w"}),
        TaskSpec(
            "load", "load", "PROCEDURE", {"retry": Retry(7, "10s", 2.0), "task_timeout": None}, {"arguments": [1]}
        ),
        TaskSpec("tidy", "rm x", "EXTERNAL", {"retry": NO_RETRY, "isolation": "process"}, {"shell": True}),
        TaskSpec("tell", "shop.tell", options={"secrets": [{"name": "token"}]}),
    )


def test_words_of_the_grammar_are_names_where_names_stand() -> None:
    text = "CREATE JOB job SCHEDULE = NONE DEPENDS ON as, on, select RUN AS run POOL = pool CALL call()"
    spec = create_definition(one(text), now=NOW)
    assert (spec.name, spec.depends_on, spec.run_as) == ("job", ("as", "on", "select"), "run")
    assert spec.settings["pool"] == "pool"
    assert one("DROP JOB if, exists, keep KEEP HISTORY").names == ("if", "exists", "keep")


def test_names_keep_their_case_and_words_need_none() -> None:
    assert one("drop JOB Nightly-Report").names == ("Nightly-Report",)


def test_times_of_statements_are_read_in_the_job_s_zone() -> None:
    spec = bound("", schedule="SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Brussels'")
    assert pause_until(one("ALTER JOB x PAUSE UNTIL '2026-07-01'"), spec) == at(2026, 6, 30, 22)
    assert pause_until(one("ALTER JOB x PAUSE"), spec) is None
    assert explain_time(one("EXPLAIN JOB x AT '2026-07-01 02:00'"), spec) == at(2026, 7, 1)
    assert explain_time(one("EXPLAIN JOB x"), spec) is None
