"""Job files by example: what each form says, and how a definition is laid out for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae import Cron, Every, Iso8601, Once, Queue, Retry, Window
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import NO_RETRY, Bounded
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Union
from horae.core.window.distribution import Distribution
from horae.errors import InvalidDefinition
from horae.formats.toml.job_file import job_file_toml, job_table, job_toml, read_job_file, read_job_table

EVE = datetime(2026, 12, 24, 18, tzinfo=UTC)


def job(text: str) -> JobSpec:
    (spec,) = read_job_file(f"[jobs.a]\n{text}", file="jobs.toml").jobs
    return spec


SCHEDULES: list[tuple[str, Any]] = [
    ('cron = "0 2 * * *"', Cron("0 2 * * *")),
    ('cron = "0 2 * * *"\ntimezone = "Europe/Brussels"\ngap = "shift"\nfold = "both"',
     Cron("0 2 * * *", "Europe/Brussels", gap="shift", fold="both")),
    ('cron = "0 2 * * 1"\ndialect = "posix"', Cron("0 2 * * 1", dialect="posix")),
    ('cron = "@daily"\nstart = 2026-12-24T18:00:00Z', Cron("@daily", start=EVE)),
    ('cron = "@daily"\ntimezone = "Europe/Brussels"\nend = 2026-12-24T19:00:00',
     Cron("@daily", "Europe/Brussels", end=EVE)),
    ('every = "1h30m"', Every("90m")),
    ("every = 90", Every("90s")),
    ('every = "1h"\nstart = "2026-12-24T19:00:00+01:00"\nend = 2027-01-01T00:00:00Z',
     Every("1h", EVE, datetime(2027, 1, 1, tzinfo=UTC))),
    ('every = "1h"\ntimezone = "Europe/Brussels"\nstart = 2026-12-24T19:00:00', Every("1h", EVE)),
    ('every = "1h"\nanchor = 2026-12-24T18:00:00Z', Every("1h", anchor=EVE)),
    ('iso8601 = "R/P1M"\ntimezone = "Asia/Kathmandu"', Iso8601("R/P1M", "Asia/Kathmandu")),
    ("at = 2026-12-24T18:00:00Z", Once(EVE)),
    ('at = 2026-12-24 19:00:00\ntimezone = "Europe/Brussels"\ndrop = true', Once(EVE, drop=True)),
    ('schedules = [{ cron = "0 2 * * *" }, { every = "1h" }]', Union((Cron("0 2 * * *"), Every("1h")))),
    ('timezone = "Europe/Brussels"\nschedules = [{ cron = "0 2 * * *" }, { iso8601 = "P1M", timezone = "UTC" }]',
     Union((Cron("0 2 * * *", "Europe/Brussels"), Iso8601("P1M")))),
    ('schedules = [{ every = "1h" }]', Every("1h")),
    ('schedule = "none"', None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "schedule"), SCHEDULES, ids=[text.replace("\n", "; ") for text, _ in SCHEDULES])
def test_a_schedule_is_said_in_one_of_these_forms(text: str, schedule: Any) -> None:
    assert job(f'{text}\nsql = "SELECT 1"').schedule == schedule


SETTINGS: list[tuple[str, str, Any]] = [
    ("retry", '{ max_retries = 3, interval = "30s", factor = 2 }', Retry(3, "30s", 2.0)),
    ("retry", '{ max_retries = "unlimited", interval = 5 }', Retry(None, 5)),
    ("retry", '"none"', NO_RETRY),
    ("overlap", '"queue"', Queue()),
    ("overlap", "{ queue = 10 }", Queue(10)),
    ("overlap", '"replace"', "replace"),
    ("recovery", '"none"', "none"),
    ("recovery", '{ bounded = { max_occurrences = 5, max_age = "1d" } }', Bounded(5, "1d")),
    ("deadline", '"10m"', timedelta(minutes=10)),
    ("deadline", '"none"', None),
    ("execution_timeout", '"none"', None),
    ("max_lost", '"none"', None),
    ("max_concurrent", "2", 2),
    ("pool", '"database"', "database"),
    ("pool", '"none"', None),
    ("pool", '{ name = "none" }', "none"),
    ("window", '"none"', None),
    ("window", '{ mode = "after", duration = "2h" }', Window.after("2h")),
    ("window", '{ mode = "around", duration = "2h", distribution = "skewLate", seed = "daily", salt = "x" }',
     Window.around("2h", "skewLate", "daily", "x")),
    ("window", '{ mode = "before", duration = 60, distribution = { name = "normal", mu = "mid", sigma = "10s" } }',
     Window.before(60, Distribution("normal", {"mu": "mid", "sigma": "10s"}))),
    ("window", '{ mode = "after", duration = "2h", only = { hours = [8, 9], dow = "mon-fri" } }',
     Window.after("2h", only={"hours": [8, 9], "dow": "1-5"})),
    ("window", '{ mode = "after", duration = "2h", avoid = [{ dates = [2026-12-24] }, { between = ["22:00-02:00"] }] }',
     Window.after("2h", avoid=[{"dates": "2026-12-24"}, {"between": "22:00-02:00"}])),
    ("window", '{ mode = "after", duration = "2h", avoid = { all = { dow = "fri", hours = "18-23" } } }',
     Window.after("2h", avoid={"all": {"dow": 5, "hours": "18-23"}})),
    ("window", '{ mode = "after", duration = "2h", exact = true, only = { hours = 9 } }',
     Window.after("2h", only={"hours": 9}, exact=True)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "value"), SETTINGS, ids=[f"{name} = {text}" for name, text, _ in SETTINGS])
def test_a_setting_is_said_in_one_of_these_forms(name: str, text: str, value: Any) -> None:
    assert job(f'every = "1h"\nsql = "SELECT 1"\n{name} = {text}').settings == {name: value}


WORK: list[tuple[str, TaskSpec]] = [
    ('python = "reports.nightly"', TaskSpec("nightly", "reports.nightly")),
    ('python = "shop.reports:Nightly.run"', TaskSpec("run", "shop.reports:Nightly.run")),
    ('sql = "SELECT 1"\nconnection = "warehouse"',
     TaskSpec("a", "SELECT 1", "SQL", options={"connection": "warehouse"})),
    ('procedure = "tidy"\narguments = [1, "x", true, 1.5]',
     TaskSpec("a", "tidy", "PROCEDURE", options={"arguments": [1, "x", True, 1.5]})),
    ("procedure = \"tidy\"\narguments_json = '[null, 1]'\ndatabase = true",
     TaskSpec("a", "tidy", "PROCEDURE", options={"arguments": [None, 1], "database": True})),
]  # fmt: skip


@pytest.mark.parametrize(("text", "task"), WORK, ids=[text.split(" ")[0] for text, _ in WORK])
def test_work_is_said_beside_the_schedule_with_what_it_needs(text: str, task: TaskSpec) -> None:
    assert job(f'every = "1h"\n{text}').tasks == (task,)


def test_a_program_is_given_its_surroundings() -> None:
    text = """
        command = "/bin/echo hi"
        shell = true
        umask = 0o027
        env = { A = "1" }
        cwd = "/srv"
        user = "www"
        group = "web"
        stdout = "out"
        stderr = "err"
        secrets = ["api-key", { name = "token", variable = "T", as = "file" }]
    """
    (task,) = job(f'every = "1h"\n{text}').tasks
    assert (task.name, task.handler, task.kind) == ("a", "/bin/echo hi", "EXTERNAL")
    assert task.options == {
        "shell": True,
        "umask": 0o027,
        "env": {"A": "1"},
        "cwd": "/srv",
        "user": "www",
        "group": "web",
        "stdout": "out",
        "stderr": "err",
        "secrets": [
            {"name": "api-key", "variable": "API_KEY", "as": "env"},
            {"name": "token", "variable": "T", "as": "file"},
        ],
    }


WHOLE = """\
namespace = "shop"

[defaults]
retry = { max_retries = 3, interval = "30s" }
pool = "database"

[pools]
database = 4

[jobs.nightly-report]
description = "What was sold, for whoever opens the shop"
tags = ["reports", "daily"]
owner = "ada"
run_as = "reporting"
cron = "0 2 * * *"
timezone = "Europe/Brussels"
state = "PAUSED"
python = "reports.nightly"
window = { mode = "after", duration = "2h", only = { dow = "1-5" } }
payload = { shop = 7, to = ["ada@example.org"] }

[jobs."month's end"]
iso8601 = "R/P1M"
depends_on = ["nightly-report"]
class = "LEADER_ONLY"
partition = { strategy = "ALL_SHARDS" }
pool = "none"

[[jobs."month's end".tasks]]
name = "extract"
sql = \"\"\"
INSERT INTO months
SELECT 'x' FROM days;
\"\"\"

[[jobs."month's end".tasks]]
name = "clean up"
command = "rm -r /tmp/months"
failure = "continue"
"""


def test_a_whole_file_is_read_and_printed_as_it_was_written() -> None:
    file = read_job_file(WHOLE, file="jobs.toml")
    assert (file.namespace, dict(file.pools)) == ("shop", {"database": 4})
    report, month = file.jobs
    assert (report.state, report.owner, report.run_as) == (JobState.PAUSED, "ada", "reporting")
    assert report.payload == {"shop": 7, "to": ["ada@example.org"]}
    assert (month.job_class, month.partition) == ("LEADER_ONLY", {"strategy": "ALL_SHARDS"})
    assert [task.name for task in month.tasks] == ["extract", "clean up"]
    assert month.tasks[0].handler == "INSERT INTO months\nSELECT 'x' FROM days;\n"
    assert job_file_toml(file) == WHOLE


def test_the_file_s_defaults_lie_under_what_each_job_says() -> None:
    report, month = read_job_file(WHOLE, file="jobs.toml").specs()
    assert report.settings["pool"] == "database"
    assert month.settings["pool"] is None
    assert month.settings["retry"] == Retry(3, "30s")


def test_one_job_s_text_is_a_file_of_its_own() -> None:
    spec = read_job_file(WHOLE, file="jobs.toml").jobs[0]
    text = job_toml(spec, state="ENABLED")
    assert text.startswith('namespace = "shop"\n\n[jobs.nightly-report]\n')
    assert "state" not in text
    (again,) = read_job_file(text, file="x").jobs
    assert again == read_job_table("nightly-report", job_table(spec, state="ENABLED"))


def test_a_namespace_is_the_file_s_or_the_one_that_is_given() -> None:
    text = '[jobs.a]\nevery = 60\nsql = "SELECT 1"\n'
    assert read_job_file(text, file="x", namespace="mail").jobs[0].namespace == "mail"
    assert read_job_file(f'namespace = "shop"\n{text}', file="x", namespace="mail").jobs[0].namespace == "shop"
    assert read_job_table("a", {"every": 60, "sql": "x", "namespace": "shop"}).namespace == "shop"
    assert read_job_table("a", {"every": 60, "sql": "x"}, namespace="mail").namespace == "mail"


def test_an_empty_file_has_no_jobs() -> None:
    assert read_job_file("# nothing yet\n", file="x").jobs == ()


def test_long_values_stand_on_several_lines_and_long_tables_under_a_header() -> None:
    payload = {"to": [f"person-{number}@example.org" for number in range(6)], "text": "one\ntwo\\n"}
    spec = JobSpec("a", Cron("@daily") | Every("1h"), (TaskSpec("a", "x", "SQL"),), payload=payload)
    text = job_toml(spec)
    assert 'schedules = [\n  { cron = "@daily" },\n  { every = "1h" },\n]\n' in text
    assert "[jobs.a.payload]\nto = [\n" in text
    assert "text = '''\none\ntwo\\n'''\n" in text
    assert read_job_file(text, file="x").jobs == (spec,)


def test_what_toml_cannot_say_stands_there_as_json() -> None:
    spec = JobSpec("a", None, (TaskSpec("a", "p", "PROCEDURE", options={"arguments": [None]}),), payload={"x": None})
    assert job_table(spec)["payload"] == {"x": None}
    text = job_toml(spec)
    assert 'payload_json = "{\\"x\\": null}"' in text
    assert 'arguments_json = "[null]"' in text
    assert read_job_file(text, file="x").jobs == (spec,)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"payload": {1: 2}}, "reads back to something else"),
        ({"payload": float("nan")}, "is not JSON"),
        ({"payload": {"a": object}}, "is not JSON"),
        ({"tasks": ()}, "has no task"),
        ({"tasks": (TaskSpec("t", "", "SQL"),)}, "has nothing to do"),
        ({"tasks": (TaskSpec("t", "p", "PROCEDURE", options={"arguments": [float("inf")]}),)}, "are not JSON"),
    ],
)
def test_what_no_table_can_say_is_refused_with_that_reason(changed: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {"tasks": (TaskSpec("t", "SELECT 1", "SQL"),), **changed}
    with pytest.raises(InvalidDefinition, match=reason):
        job_table(JobSpec("a", None, **given))
