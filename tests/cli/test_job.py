"""`horae job` and `horae run` on a real catalog."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.inside import inside
from tests.cli.planning import at_midday
from tests.cli.shell import horae
from tests.store.databases import Databases

from horae import Horae, Retry

NIGHTLY = (
    "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Berlin' TAGS = (etl) DESCRIPTION = 'cleans up'"
    " AS 'SELECT 1'"
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    at_midday(monkeypatch)
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", url)
    assert inside("sql", f"{NIGHTLY}; CREATE JOB idle SCHEDULE = NONE AS 'SELECT 2'", "--store", url).code == 0
    return url


def asked(*arguments: str, store: str) -> Any:
    done = inside(*arguments, "--store", store, "--json")
    assert done.code == 0, done.errors
    return json.loads(done.out)


def test_jobs_are_listed_by_tag_and_state(store: str) -> None:
    lines = inside("job", "list", "--store", store).out.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["idle", "ENABLED"], ["nightly", "ENABLED"]]
    assert lines[3] == "(2 jobs)"
    assert [job["name"] for job in asked("job", "list", "--tag", "etl", store=store)["jobs"]] == ["nightly"]
    assert asked("job", "list", "--state", "paused", store=store) == {"jobs": []}
    assert inside("job", "list", "--state", "nonsense", "--store", store).code == 2
    before = inside("job", "--json", "list", "--store", store)
    assert len(json.loads(before.out)["jobs"]) == 2


def test_a_job_is_shown_with_its_schedule_its_work_and_its_sql(store: str) -> None:
    shown = inside("job", "show", "nightly", "--store", store).out
    assert "cleans up" in shown
    assert "Europe/Berlin" in shown
    assert "CREATE JOB nightly\n  SCHEDULE = CRON '0 2 * * *'\n" in shown
    job = asked("job", "show", "nightly", store=store)
    assert job["definition"]["sql"] == "SELECT 1"
    assert job["sql"].startswith("CREATE JOB nightly")
    missing = inside("job", "show", "nope", "--store", store)
    assert (missing.code, missing.errors.splitlines()[0]) == (1, 'horae: There is no job "nope"')


def test_a_job_is_paused_until_a_time_on_its_own_clocks_and_resumed(store: str) -> None:
    done = inside("job", "pause", "nightly", "--until", "2099-07-01T00:00", "--note", "moving", "--store", store)
    assert done.out == "paused nightly until 2099-06-30T22:00:00Z\n"
    job = asked("job", "show", "nightly", store=store)
    assert (job["state"], job["pause_note"]) == ("PAUSED", "moving")
    assert inside("job", "resume", "nightly", "--store", store).out == "resumed nightly\n"
    assert asked("job", "show", "nightly", store=store)["state"] == "ENABLED"
    assert inside("job", "pause", "nightly", "--until", "soon", "--store", store).code == 2


def test_a_job_is_turned_off_and_on(store: str) -> None:
    assert inside("job", "disable", "nightly", "--store", store).out == "disabled nightly\n"
    assert asked("job", "show", "nightly", store=store)["state"] == "DISABLED"
    assert inside("job", "pause", "nightly", "--store", store).code == 1
    assert inside("job", "enable", "nightly", "--store", store).out == "enabled nightly\n"
    assert asked("job", "show", "nightly", store=store)["state"] == "ENABLED"


def test_the_same_key_is_answered_with_the_same_run(store: str) -> None:
    first = asked("job", "trigger", "idle", "--key", "k1", "--payload", '{"day": 1}', store=store)
    again = asked("job", "trigger", "idle", "--key", "k1", store=store)
    assert (first["fresh"], again["fresh"], again["run_id"]) == (True, False, first["run_id"])
    assert inside("job", "trigger", "idle", "--payload", "{day}", "--store", store).code == 2
    (run,) = asked("job", "runs", "idle", store=store)["runs"]
    assert (run["run_id"], run["origin"]) == (first["run_id"], "TRIGGER")


def test_the_next_run_is_moved_and_past_ones_are_caught_up_on(store: str) -> None:
    slot = asked("job", "show", "nightly", store=store)["next_run_time"]
    moved = asked("job", "reschedule", "nightly", "2099-01-01T12:00:00+01:00", store=store)
    assert (moved["slot"], moved["at"]) == (slot, "2099-01-01T11:00:00Z")
    caught_up = asked("job", "backfill", "nightly", "2026-01-01", "2026-01-03T12:00", store=store)
    assert len(caught_up["runs"]) == 3
    assert inside("job", "backfill", "nightly", "2026-01-03", "2026-01-01", "--store", store).code == 2
    listed = asked("run", "list", "--job", "nightly", "--limit", "2", store=store)["runs"]
    assert [run["origin"] for run in listed] == ["BACKFILL", "BACKFILL"]


def test_a_dropped_job_leaves_its_history_where_that_is_asked_for(store: str) -> None:
    inside("job", "trigger", "idle", "--store", store)
    assert inside("job", "drop", "--yes", "idle", "--keep-history", "--store", store).code == 0
    assert len(asked("job", "runs", "idle", store=store)["runs"]) == 1
    assert inside("job", "drop", "--yes", "idle", "--store", store).code == 1
    assert inside("job", "runs", "nope", "--store", store).code == 1


def test_a_run_is_cancelled_and_done_again_for_a_reason(store: str) -> None:
    run = asked("job", "trigger", "idle", store=store)["run_id"]
    assert asked("run", "cancel", run, store=store)["state"] == "CANCELLED"
    assert inside("run", "replay", run, "--store", store).code == 2, "without a reason"
    again = asked("run", "replay", run, "--reason", "it was cancelled", store=store)
    assert again["replay_of"] == run
    report = asked("run", "show", again["run_id"], store=store)
    assert (report["origin"], report["reason"], report["replay_reason"]) == ("REPLAY", None, "it was cancelled")
    assert f"It is a replay of {run}: it was cancelled." in inside("run", "show", again["run_id"], "--store", store).out
    assert "replay: it was cancelled" in inside("run", "list", "--store", store).out
    missing = inside("run", "show", run[:-4] + "0000", "--store", store)
    assert missing.code == 1
    assert inside("run", "show", "nonsense", "--store", store).code == 2


def test_a_run_that_failed_is_shown_with_its_last_error_its_story_and_its_tracebacks(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"

    async def ran() -> str:
        app = Horae(store)
        tries: list[int] = []

        @app.task("fail")
        def fail() -> None:
            tries.append(1)
            raise ValueError("no such table" if len(tries) < 3 else "still no table")

        async with app:
            await app.schedule("bad", None, task="fail", retry=Retry(2, "1ms"))
            run = await app.trigger("bad")
            while (await app.report(run)).outcome != "FAILED":
                await asyncio.sleep(0.01)
        return str(run)

    run = asyncio.run(ran())
    told = asked("run", "show", run, store=store)
    assert told["reason"] == "ValueError: still no table (after 3 attempts)"
    attempts = told["tasks"][0]["attempts"]
    assert all("raise ValueError(" in each["traceback"] for each in attempts)
    assert told["duration_seconds"] >= told["working_seconds"] >= 0
    assert told["lag_seconds"] >= 0
    shown = inside("run", "show", run, "--store", store).out
    assert told["summary"] in shown
    assert "fail failed 3 times" in told["summary"]
    assert "== fail, attempts 1, 2 ==" in shown
    assert "== fail, attempt 3 ==" in shown
    assert shown.count("raise ValueError(") == 2
    (listed,) = asked("run", "list", store=store)["runs"]
    assert listed["reason"] == told["reason"]
    assert "(after 3 attempts)" in inside("run", "list", "--store", store).out


def test_what_attempts_printed_is_shown_by_run_task_and_attempt(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"

    async def ran() -> str:
        app = Horae(store)

        @app.task("speak")
        def speak() -> None:
            print("first \x1b[31mline\nsecond line")

        async with app:
            await app.schedule("talk", None, task="speak")
            run = await app.trigger("talk")
            while (await app.report(run)).outcome != "COMPLETED":
                await asyncio.sleep(0.01)
        return str(run)

    run = asyncio.run(ran())
    assert inside("run", "output", run, "--store", store).out == "first \x1b[31mline\nsecond line\n"
    (printed,) = asked("run", "output", run, store=store)["output"]
    assert printed["text"] == "first \x1b[31mline\nsecond line\n"
    by_attempt = asked("run", "output", printed["attempt_id"], store=store)["output"]
    assert by_attempt[0]["text"] == printed["text"]
    assert inside("run", "output", run, "--task", "nope", "--store", store).code == 1
    shown = inside("run", "show", run, "--store", store).out
    assert "COMPLETED" in shown
    assert "attempt 1: SUCCESS" in shown
    completed = asked("run", "list", "--state", "completed", store=store)["runs"]
    assert [each["run_id"] for each in completed] == [run]


def test_a_user_without_rights_is_refused_with_exit_code_1(store: str) -> None:
    inside("user", "create", "ann", "--store", store)
    for words in (("pause", "nightly"), ("trigger", "nightly"), ("drop", "nightly", "--yes"), ("show", "nightly")):
        refused = inside("job", *words, "--store", store, "--user", "ann")
        assert refused.code == 1, words
        assert "GRANT " in refused.errors
    assert inside("job", "runs", "nightly", "--store", store, "--user", "ann").code == 1
    assert inside("job", "runs", "--store", store, "--user", "ann").out == "(0 runs)\n"
    assert inside("job", "list", "--store", store, "--user", "ann").out == "(0 jobs)\n"


def test_a_catalog_that_is_not_there_is_exit_code_3_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    for words in (("job", "list"), ("run", "list"), ("user", "list"), ("secret", "list"), ("audit", "verify")):
        assert inside(*words, "--store", f"sqlite:///{path}").code == 3
    assert not path.exists()


def test_it_works_on_a_server_and_as_a_process(databases_18: Databases) -> None:
    url = databases_18.emptied()
    inside("sql", NIGHTLY, "--store", url)
    assert "(1 job)" in horae("job", "list", environment={"HORAE_STORE": url}).out
    run = asked("job", "trigger", "nightly", store=url)["run_id"]
    assert [each["run_id"] for each in asked("job", "runs", store=url)["runs"]] == [run]
    assert inside("job", "drop", "--yes", "nightly", "--store", url).code == 0
