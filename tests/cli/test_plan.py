"""`horae plan` and `horae apply`: on a store, on a server, from code, on a terminal."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.cli.inside import inside
from tests.cli.planning import prepare, rewritten
from tests.cli.terminal import Terminal
from tests.web.serving import Served

from horae import Cron, Horae
from horae.core.job.definition import JobSpec, TaskSpec
from horae.errors import PlanMoved

FILE = """
[pools]
db = 4

[jobs.hourly]
cron = "0 * * * *"
sql = "SELECT 1"

[jobs.nightly]
cron = "0 2 * * *"
timezone = "Europe/Berlin"
sql = "SELECT 2"
pool = "db"
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch, FILE)


def planned(*arguments: str) -> dict[str, Any]:
    done = inside("plan", *arguments, "--json")
    assert done.code == 0, done.errors
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_plan_is_shown_applied_by_its_number_and_then_there_is_nothing_to_do() -> None:
    shown = inside("plan", "jobs.toml")
    assert shown.code == 0
    assert "  + hourly  cron 0 * * * *" in shown.out
    assert "occurrences: +168  -0  ~0 moved  =0 kept" in shown.out
    assert "  + pool db: 4 runs at once" in shown.out
    assert shown.out.endswith("2 to create, 0 to change, 0 to remove, 1 pool to set\n")
    assert inside("plan", "jobs.toml", "--exit-code").code == 2
    number = re.findall(r"plan ([0-9a-f]{16})", shown.out)[0]
    done = inside("apply", "jobs.toml", "--plan", number, "--reason", "first")
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "applied: created 2, changed 0, removed 0, set 1 pool; 0 unchanged",
    )
    again = inside("plan", "jobs.toml", "--exit-code")
    assert (again.code, again.out.splitlines()[-1]) == (0, "nothing to do")
    assert "first" in inside("job", "versions", "nightly").out
    assert inside("apply", "jobs.toml", "--yes").code == 0


def test_a_change_is_shown_with_both_values_and_a_graceful_one_with_when_it_takes_over() -> None:
    inside("apply", "jobs.toml", "--yes")
    rewritten('"0 * * * *"', '"30 * * * *"')
    shown = inside("plan", "jobs.toml", "--policy", "graceful").out
    assert "  ~ hourly  version 1, graceful, the new schedule speaks after" in shown
    assert "      schedule: cron 0 * * * * -> cron 30 * * * *" in shown
    # Whether the week ends before or after half past depends on when it begins.
    assert re.search(r"\+16[78]  -167  ~0 moved  =1 kept", shown)
    assert "  = 1 job unchanged" in shown
    assert shown.endswith("0 to create, 1 to change, 0 to remove\n")


def test_errors_have_codes_of_their_own_and_name_the_place() -> None:
    nothing = inside("plan")
    assert (nothing.code, nothing.errors.splitlines()[0]) == (2, "horae: Nothing says what is wanted")
    unasked = inside("apply", "jobs.toml")
    assert (unasked.code, "--plan ID, or --yes" in unasked.errors) == (2, True)
    stale = inside("apply", "jobs.toml", "--plan", "0123456789abcdef")
    assert (stale.code, "0123456789abcdef" in stale.errors) == (1, True)
    rewritten('pool = "db"', 'pool = "nowhere"')
    wrong = inside("plan", "jobs.toml", "--exit-code")
    assert (wrong.code, 'There is no pool "nowhere"' in wrong.out) == (1, True)
    assert inside("apply", "jobs.toml", "--yes").code == 1
    rewritten('cron = "0 2 * * *"', 'cron = "99 2 * * *"')
    faulty = inside("plan", "jobs.toml")
    assert (faulty.code, faulty.errors.startswith("horae: jobs.toml:10: jobs.nightly.cron")) == (2, True)
    assert inside("plan", "jobs.toml", "--exit-code").code == 1
    assert json.loads(inside("job", "list", "--json").out) == {"jobs": []}


def test_whoever_sits_at_a_terminal_is_asked_and_may_say_no() -> None:
    with Terminal("apply", "jobs.toml") as terminal:
        terminal.until("Apply this?")
        terminal.send("n\n")
        assert terminal.ended() == 1
    assert json.loads(inside("job", "list", "--json").out) == {"jobs": []}
    with Terminal("apply", "jobs.toml") as terminal:
        terminal.until("Apply this?")
        terminal.send("y\n")
        terminal.until("applied: created 2")
        assert terminal.ended() == 0


def test_a_server_plans_and_applies_what_the_command_line_has_read(server: Served) -> None:
    there = ("--server", server.url)
    here, plan = planned("jobs.toml"), planned("jobs.toml", *there)
    assert [(each["name"], each["change"], each["occurrences"]["added"]) for each in plan["jobs"]] == [
        (each["name"], each["change"], each["occurrences"]["added"]) for each in here["jobs"]
    ]
    done = inside("apply", "jobs.toml", "--plan", plan["plan"], "--json", *there)
    assert (done.code, json.loads(done.out)["created"]) == (0, 2), done.errors
    assert not planned("jobs.toml", *there)["has_changes"]


def test_a_file_of_ten_thousand_jobs_fits_through_a_server_s_door(server: Served) -> None:
    jobs = "\n".join(
        f'[jobs.job-{number:05}]\ncron = "{number % 60} 4 * * *"\nsql = "SELECT {number}"\ndescription = "{"x" * 150}"'
        for number in range(10_000)
    )
    Path("many.toml").write_text(jobs)
    assert planned("many.toml", "--server", server.url, "--horizon", "1d")["created"] == 10_000


def test_an_app_s_code_is_planned_under_its_own_defaults_and_running_it_changes_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("planned_shop.py").write_text(
        "from horae import Cron, Horae\n"
        "app = Horae('sqlite:///horae.db', namespace='shop', defaults={'misfire_grace': '5m'})\n"
        "app.pool('db', 2)\n"
        "@app.job('sweep', Cron('0 5 * * *'), pool='db')\n"
        "def sweep(): ...\n"
    )
    monkeypatch.syspath_prepend(".")
    plan = planned("planned_shop:app")
    assert [(each["name"], each["namespace"]) for each in plan["jobs"]] == [("sweep", "shop")]
    assert inside("apply", "planned_shop:app", "--plan", plan["plan"]).code == 0
    assert not planned("planned_shop:app")["has_changes"]
    app = import_module("planned_shop").app
    app.start()
    app.stop()
    record = Horae("sqlite:///horae.db").sync.get_job("sweep")
    assert (record.version, record.definition.settings.misfire_grace) == (1, timedelta(minutes=5))


def test_programs_plan_and_apply_files_tables_and_definitions() -> None:
    app = Horae("sqlite:///horae.db")
    plan = app.sync.plan("jobs.toml", horizon="1d")
    assert [each.name for each in plan.jobs] == ["hourly", "nightly"]
    assert app.sync.apply("jobs.toml", plan=plan.id, reason="code").counted("created") == 2
    assert not app.sync.plan("jobs.toml").has_changes
    with pytest.raises(PlanMoved):
        app.sync.apply("jobs.toml", plan=plan.id)
    table = {"jobs": {"hourly": {"cron": "15 * * * *", "sql": "SELECT 1"}}}
    spec = JobSpec("hourly", Cron("15 * * * *"), (TaskSpec("hourly", "SELECT 1", "SQL"),))
    for definitions in (table, [spec], spec):
        found = app.sync.plan(definitions, "graceful")
        assert [(each.name, each.forecast.kept) for each in found.jobs] == [("hourly", 1)]
    asyncio.run(app.apply(table, "graceful", prune=True))
    assert [job.name for job in app.sync.jobs()] == ["hourly"]
    assert app.sync.plan(table, prune=True).to_dict()["has_changes"] is False
    app.sync.close()
