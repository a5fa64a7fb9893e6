"""`horae plan` and `horae apply`: options that do nothing, policies as people type them, codes, faults, wording."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.planning import prepare, rewritten
from tests.web.serving import Served

from horae import Horae

FILE = """
[jobs.hourly]
cron = "0 * * * *"
sql = "SELECT 1"
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch, FILE)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--from", "now"), "--from goes with --tzdata only"),
        (("--horizon", ""), "Invalid --horizon"),
        (("--tzdata", "here", "--prune"), "--prune does not go with --tzdata"),
        (("--tzdata", "here", "--policy", "graceful"), "--policy does not go with --tzdata"),
        (("--tzdata", "here", "--durations", "5s"), "--durations does not go with --tzdata"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options: tuple[str, ...], told: str) -> None:
    done = inside("plan", "jobs.toml", *options)
    assert (done.code, told in done.errors) == (2, True)
    assert inside("plan", "jobs.toml", *options, "--exit-code").code == 1


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("sometime", 'Invalid --policy "sometime"\n'),
        ("immediate=1d", "takes nothing more"),
        ("windowed=0s", "more than nothing"),
        ("windowed=soon", "has no number with a unit"),
        ("graceful=soon", '"soon" is not a date or time'),
        ("graceful=2020-01-01", "that moment has passed"),
    ],
)
@pytest.mark.parametrize("command", [("plan", "jobs.toml"), ("apply", "jobs.toml", "--yes")], ids=("plan", "apply"))
def test_a_policy_that_is_none_names_the_option_and_the_forms(command: tuple[str, ...], policy: str, told: str) -> None:
    done = inside(*command, "--policy", policy)
    assert done.code == 2
    assert done.errors.startswith("horae: Invalid --policy ")
    assert told in done.errors
    assert "graceful=TIME" in done.errors
    assert "windowed=7d" in done.errors


def test_a_moment_of_a_policy_is_read_as_everywhere_and_told_as_when_the_new_schedule_speaks() -> None:
    inside("apply", "jobs.toml", "--yes")
    rewritten('"0 * * * *"', '"30 * * * *"')
    day = (datetime.now(UTC) + timedelta(days=400)).date().isoformat()
    for typed in (day, f"{day}T00:00", f"{day}T01:00+01:00"):
        shown = inside("plan", "jobs.toml", "--policy", f"graceful={typed}").out
        assert f"  ~ hourly  version 1, graceful, the new schedule speaks from {day}T00:00:00Z on\n" in shown
    shown = inside("plan", "jobs.toml", "--policy", "graceful=now").out
    assert "  ~ hourly  version 1\n" in shown
    done = inside("apply", "jobs.toml", "--policy", "graceful=now", "--yes")
    assert (done.code, "changed 1" in done.out) == (0, True), done.errors
    back = inside("job", "rollback", "hourly", "1", "--policy", "graceful=2020-01-01")
    assert (back.code, "that moment has passed" in back.errors) == (2, True)


def test_with_exit_code_a_word_that_is_no_option_is_in_the_way_and_a_store_keeps_its_own_code() -> None:
    assert inside("plan", "jobs.toml", "--exit-code", "--bogus").code == 1
    assert inside("plan", "jobs.toml", "--bogus").code == 2
    missing = inside("plan", "jobs.toml", "--exit-code", "--store", "sqlite:///nowhere/horae.db")
    assert (missing.code, missing.out) == (3, "")


def test_all_faults_of_a_file_are_told_each_with_its_line() -> None:
    bad = "\n".join(f'[jobs.job-{number}]\nevry = "5m"\nsql = "x"' for number in range(12))
    Path("jobs.toml").write_text(bad)
    for command in (("plan", "jobs.toml"), ("apply", "jobs.toml", "--yes")):
        done = inside(*command)
        told = [line for line in done.errors.splitlines() if "there is no such key" in line]
        assert (done.code, len(told)) == (2, 10)
        assert told[0] == "horae: jobs.toml:2: jobs.job-0.evry: there is no such key"
        assert told[9].startswith("horae: jobs.toml:29: jobs.job-9.evry")
        assert "2 more after these" in done.errors
    error = json.loads(inside("plan", "jobs.toml", "--json").errors)["error"]
    assert error["details"]["faults"].count("there is no such key") == 10


def test_what_is_found_about_a_job_is_told_with_the_line_that_defines_it() -> None:
    Path("jobs.toml").write_text(FILE + 'depends_on = ["hourly-raw"]\n')
    done = inside("plan", "jobs.toml")
    assert '  error jobs.toml:2: Job "hourly" depends on "hourly-raw", which does not exist\n' in done.out


def test_the_words_of_a_plan_say_no_more_than_is_so() -> None:
    month = (datetime.now(UTC) + timedelta(days=180)).month
    Path("jobs.toml").write_text(f'[pools]\ndb = 1\n[jobs.yearly]\ncron = "0 0 1 {month} *"\nsql = "SELECT 1"\n')
    shown = inside("plan", "jobs.toml", "--horizon", "1h").out
    assert "pool db: 1 run at once\n" in shown
    assert "unchanged" not in shown
    assert "occurrences: none within 1h; the next is " in shown
    assert "at once, were there no limits" in shown
    inside("apply", "jobs.toml", "--yes")
    Path("jobs.toml").write_text("[jobs]")
    shown = inside("plan", "jobs.toml", "--prune", "--policy", "graceful").out
    assert "  - yearly  version 1, removed at once, whatever the policy, its history stays\n" in shown


def test_a_long_text_that_changes_is_shown_line_by_line_and_whole_in_json() -> None:
    text = "\n".join(f"SELECT {number};" for number in range(30))
    Path("jobs.toml").write_text(f'[jobs.hourly]\ncron = "0 * * * *"\nsql = """{text}"""\n')
    inside("apply", "jobs.toml", "--yes")
    rewritten("SELECT 17;", "SELECT 71;")
    shown = inside("plan", "jobs.toml").out
    lines = ["      tasks.hourly.handler:", "          SELECT 16;", "        - SELECT 17;", "        + SELECT 71;"]
    assert "\n".join(lines) in shown
    change = json.loads(inside("plan", "jobs.toml", "--json").out)["jobs"][0]["changes"][0]
    assert (change["before"], change["after"]) == (text, text.replace("17;", "71;"))


def test_jobs_of_several_namespaces_in_one_file_are_pruned_in_all_of_them(server: Served) -> None:
    there = ("--server", server.url)
    create = "CREATE JOB {} SCHEDULE = CRON '0 1 * * *' NAMESPACE = {} AS 'SELECT 1';\n"
    both = [create.format(name, space) for name, space in (("a", "one"), ("b", "two"), ("c", "two"))]
    Path("jobs.sql").write_text("".join(both))
    for place in ((), there):
        assert inside("apply", "jobs.sql", "--yes", *place).code == 0
    Path("jobs.sql").write_text("".join(both[:2]))
    plans = [json.loads(inside("plan", "jobs.sql", "--prune", "--json", *place).out) for place in ((), there)]
    assert [[(each["name"], each["change"]) for each in plan["jobs"]] for plan in plans] == [[("c", "removed")]] * 2
    assert plans[0]["plan"] == plans[1]["plan"]


def test_a_plan_and_what_was_applied_are_readable_as_text() -> None:
    app = Horae("sqlite:///horae.db")
    plan = app.sync.plan("jobs.toml")
    assert str(plan).startswith(f"plan {plan.id}, ")
    assert "\n  + hourly  cron 0 * * * *\n" in str(plan)
    assert str(plan).endswith("\n1 to create, 0 to change, 0 to remove")
    assert "\x1b" not in str(plan)
    assert str(app.sync.apply("jobs.toml")) == "applied: created 1, changed 0, removed 0; 0 unchanged"
    assert str(app.sync.apply("jobs.toml")) == "nothing to do"
    app.sync.close()
