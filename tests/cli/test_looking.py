"""Lists that are searched, sorted and paged; a job as text, explained, over a year; a run that is followed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.store.catalogs import minutely, opened, sqlite_place
from tests.web.serving import Served, serving

from horae import Every, Horae, Run
from horae.core.run.lifecycle import JobState
from horae.store.protocols.store import Store
from horae.testing.clock import ManualClock

JOBS = """
CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Berlin' TAGS = (etl) DESCRIPTION = 'cleans up'
  AS 'SELECT 1';
CREATE JOB hourly SCHEDULE = CRON '0 * * * *' AS 'SELECT 1';
CREATE JOB idle SCHEDULE = NONE AS 'SELECT 2';
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('looking') / 'horae.db'}"
    assert inside("sql", "--store", url, stdin=JOBS).code == 0
    assert inside("job", "backfill", "nightly", "2026-01-01", "2026-01-05", "--store", url).code == 0
    assert inside("job", "trigger", "idle", "--key", "k", "--store", url).code == 0
    return url


GO_ON = threading.Event()
"""What the job that is followed waits for in the middle."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    def define(app: Horae) -> None:
        talk = app.job("talk", Every("1d"))

        @talk.task(failure="continue")
        def first(run: Run) -> None:
            # Said through its log: what is printed in this very process is pytest's.
            run.log.info("one")
            GO_ON.wait(60)
            raise ValueError("no luck")

        @talk.task
        def second(run: Run) -> None:
            run.log.info("two")

    folder = tmp_path_factory.mktemp("served")
    with serving(f"sqlite:///{folder / 'served.db'}", define=define) as served:
        yield served


def asked(*arguments: str, store: str) -> Any:
    done = inside(*arguments, "--store", store, "--json")
    assert done.code == 0, done.errors
    return json.loads(done.out)


def names(*arguments: str, store: str) -> list[str]:
    return [job["name"] for job in asked("job", "list", *arguments, store=store)["jobs"]]


def test_jobs_are_searched_and_sorted(store: str) -> None:
    assert names("--search", "CLEANS", store=store) == ["nightly"]
    assert names("--search", "ly", store=store) == ["hourly", "nightly"]
    assert names("--sort", "name", "--descending", store=store) == ["nightly", "idle", "hourly"]
    assert names("--sort", "next_run_time", store=store)[-1] == "idle", "those that have none come last"
    assert names("--owner", "ann", store=store) == []
    assert inside("job", "list", "--sort", "colour", "--store", store).code == 2


def test_all_pages_are_listed_unless_some_are_asked_for(store: str, tmp_path: Path) -> None:
    page = asked("job", "list", "--limit", "2", store=store)
    assert ([job["name"] for job in page["jobs"]], page["total"], page["next_offset"]) == (["hourly", "idle"], 3, 2)
    assert asked("job", "list", "--offset", "2", store=store)["next_offset"] is None
    assert inside("job", "list", "--limit", "1", "--store", store).out.endswith("(1 job of 3)\n")
    for wrong in ("0", "-1", "many"):
        assert inside("job", "list", f"--limit={wrong}", "--store", store).code == 2
    many = f"sqlite:///{tmp_path / 'many.db'}"
    statements = ";".join(f"CREATE JOB job{number:04} SCHEDULE = NONE AS 'SELECT 1'" for number in range(501))
    assert inside("sql", "--store", many, stdin=statements).code == 0
    assert len(names(store=many)) == 501


def test_runs_are_chosen_by_slot_state_and_origin(store: str) -> None:
    def slots(*words: str) -> list[str]:
        return [run["scheduled_time"] for run in asked("run", "list", "--job", "nightly", *words, store=store)["runs"]]

    assert len(slots()) == 4
    # Times without an offset are read on the job's own clocks: two in Berlin is one in UTC.
    assert slots("--since", "2026-01-03T02:00", "--until", "2026-01-04T02:00") == ["2026-01-03T01:00:00Z"]
    assert slots("--origin", "schedule") == []
    assert len(slots("--origin", "backfill", "--state", "pending,queued,failed")) == 4
    assert len(slots("--state", "active", "--limit", "3")) == 3
    assert [run["job"] for run in asked("job", "runs", "--origin", "trigger", store=store)["runs"]] == ["idle"]
    for wrong in (("--since", "soon"), ("--origin", "nowhere"), ("--state", "fine")):
        assert inside("run", "list", *wrong, "--store", store).code == 2


def test_a_job_is_printed_as_text_that_makes_it_again(store: str, tmp_path: Path) -> None:
    assert inside("job", "show", "idle", "--sql", "--store", store).out == (
        "CREATE JOB idle\n  SCHEDULE = NONE\n  AS 'SELECT 2';\n"
    )
    table = tomllib.loads(inside("job", "show", "nightly", "--toml", "--store", store).out)
    assert table["jobs"]["nightly"]["cron"] == "0 2 * * *"
    refused = inside("job", "show", "idle", "--krontab", "--store", store)
    assert (refused.code, "cannot be said as a krontab line" in refused.errors) == (1, True)
    assert asked("job", "show", "idle", "--sql", store=store)["sql"].startswith("CREATE JOB idle")
    assert inside("job", "show", "idle", "--sql", "--toml", "--store", store).code == 2


def test_a_job_is_explained_and_drawn_over_a_year(store: str) -> None:
    explained = inside("job", "explain", "nightly", "--at", "2099-01-01T02:00", "--store", store).out
    assert "2099-01-01T01:00:00Z, Thu 2099-01-01 02:00 +01:00 on its own clocks" in explained
    year = inside("job", "calendar", "nightly", "--year", "2026", "--store", store).out
    assert "2026 Europe/Berlin: " in year
    assert "clocks change: 2026-03-29, 2026-10-25" in year
    assert inside("job", "calendar", "nightly", "--year", "1", "--store", store).code == 2


def test_a_job_is_shown_as_it_was(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("sql", "--store", store, stdin=JOBS).code == 0
    inside("sql", "ALTER JOB idle SET DESCRIPTION = 'rests'", "--store", store)
    newest, oldest = asked("job", "versions", "idle", store=store)["versions"]
    assert (newest["version"], oldest["version"], newest["author"]) == (2, 1, "local")
    assert "description" in " ".join(newest["changes"])
    assert len(asked("job", "versions", "idle", "--limit", "1", store=store)["versions"]) == 1
    assert inside("job", "versions", "nope", "--store", store).code == 1


def test_the_trail_is_filtered(store: str) -> None:
    rows = asked("audit", "list", "--event", "job_created", "--job", "idle", store=store)["audit"]
    assert [(row["event"], row["job"], row["run"]) for row in rows] == [("JOB_CREATED", "idle", None)]
    assert asked("audit", "list", "--actor", "ann", store=store)["audit"] == []
    before = asked("audit", "list", "--before", "3", store=store)["audit"]
    assert [row["number"] for row in before] == [2, 1]


def test_a_run_is_followed_until_it_has_ended(server: Served) -> None:
    GO_ON.clear()
    with server.client() as client:
        run = client.post("/api/v1/jobs/talk/trigger").json()["run_id"]
    words = ("run", "output", run, "--follow", "--server", server.url)
    with subprocess.Popen([sys.executable, "-m", "horae", *words], stdout=subprocess.PIPE, text=True) as followed:
        assert followed.stdout is not None
        assert followed.stdout.readline().endswith("one\n"), "while it runs"
        GO_ON.set()
        rest = followed.stdout.read().splitlines()
    assert followed.returncode == 0
    assert rest[-2] == "== second, attempt 1 ==", "whose it is, where it is another's"
    assert rest[-1].endswith("two")
    parts = [json.loads(line) for line in inside(*words, "--json").out.splitlines()]
    assert [(part["task"], part["attempt"]) for part in parts] == [("first", 1), ("second", 1)]
    assert inside(*words, "--task", "second").out == f"{rest[-1]}\n"
    shown = inside("run", "show", run, "--server", server.url).out
    assert "  first   1  " in shown
    picture, _, traceback = shown.partition("\n\n== first, attempt 1 ==\n")
    assert picture.splitlines()[-2].endswith(" SUCCESS")
    assert traceback.splitlines()[-1] == "ValueError: no luck"
    assert inside("run", "output", "attempt_" + run[4:], "--follow", "--server", server.url).code == 2


def test_latest_outcomes_and_nodes_are_listed(server: Served) -> None:
    GO_ON.set()
    server.run("talk")
    listed = inside("job", "list", "--server", server.url).out
    assert "▲" in listed
    nodes = inside("node", "list", "--server", server.url).out
    assert "ALIVE" in nodes
    assert nodes.endswith("(1 node, 1 alive)\n")


def test_a_fault_of_our_own_is_exit_code_4(monkeypatch: pytest.MonkeyPatch) -> None:
    from horae.cli.commands import completion

    def broken() -> None:
        raise RuntimeError("not meant to be")

    monkeypatch.setattr(completion, "places", broken)
    done = inside("completion", "bash")
    assert (done.code, "not meant to be" in done.errors) == (4, True)
    assert "a fault of Horae's own" in done.errors


def test_previews_need_neither_a_desk_nor_an_engine() -> None:
    program = (
        "import sys; from horae.cli import main; main(['next', '0 9 * * *']);"
        "print({'asyncio', 'msgspec', 'http.client', 'horae.app', 'horae.api', 'horae.web'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "set()"
    assert horae("next", "0 9 * * *", "--count", "1").code == 0


def test_a_span_of_a_pause_says_how_many_slots_it_stands_for_and_up_to_when(tmp_path: Path) -> None:
    place, clock = sqlite_place(tmp_path), ManualClock()

    async def paused(store: Store) -> None:
        await store.define([minutely()])
        await store.set_state("a", JobState.PAUSED)
        clock.advance("1d")
        await store.create_due_runs()

    asyncio.run(opened(place, clock, paused))
    url = place.url
    last = clock.now().replace(second=0, microsecond=0)
    done = inside("run", "list", "--store", url)
    assert done.code == 0, done.errors
    listed = done.out
    assert f"paused; 1,439 slots, the last at {last:%Y-%m-%d}" in listed
    span, first = asked("run", "list", store=url)["runs"]
    assert (first["count"], span["count"]) == (1, 1439)
    assert (span["covers_from"], span["covers_to"]) == (first["scheduled_time"], f"{last:%Y-%m-%dT%H:%M:%SZ}")
    shown = inside("run", "show", span["run_id"], "--store", url).out
    assert f"stands for 1,439 slots, the last at {last:%Y-%m-%d}" in shown
