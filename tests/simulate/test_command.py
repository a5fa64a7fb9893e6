"""`horae simulate` as a process: files alone, catalogs, servers; nothing is run and nothing is written."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.cli.terminal import Terminal
from tests.serving.served import served
from tests.simulate.test_casts import FILE, lived, rows

from horae.cli.commands import simulate
from horae.cli.screen.screen import Screen

SPAN = ("--from", "2027-03-01", "--to", "6h")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of jobs whose program would leave a trace, if it were run."""
    monkeypatch.chdir(tmp_path)
    trace = tmp_path / "trace"
    (tmp_path / "jobs.toml").write_text(FILE.replace("/bin/false", f"/usr/bin/touch {trace}"))
    return tmp_path


def test_a_program_that_simulates_hears_what_horae_logs_afterwards(here: Path) -> None:
    log = logging.getLogger("horae")
    before = (log.handlers[:], log.propagate)
    assert horae("simulate", "jobs.toml", *SPAN).code == 0
    assert (log.handlers, log.propagate) == before


def test_a_file_alone_is_simulated_without_a_catalog_and_without_running_anything(here: Path) -> None:
    done = horae("simulate", "jobs.toml", *SPAN)
    assert (done.code, done.errors) == (0, "")
    assert "12 COMPLETED" in done.out
    assert "Without history" in done.out
    assert sorted(each.name for each in here.iterdir()) == ["jobs.toml"]


def test_the_same_question_has_the_same_answer_byte_for_byte(here: Path) -> None:
    asked = ("simulate", "jobs.toml", *SPAN, "--json", "--seed", "7")
    first = horae(*asked, environment={"PYTHONHASHSEED": "1"})
    again = horae(*asked, environment={"PYTHONHASHSEED": "2"})
    assert first.code == 0
    assert first.out == again.out
    answer = json.loads(first.out)
    assert (answer["from"], answer["to"], answer["seed"]) == ("2027-03-01T00:00:00Z", "2027-03-01T06:00:00Z", 7)
    assert answer["runs"] == {"COMPLETED": 12}


def test_a_catalog_is_simulated_with_its_history_and_not_one_row_of_it_changes(here: Path) -> None:
    lived(f"sqlite:///{here / 'horae.db'}")
    before = rows(here / "horae.db")
    done = horae("simulate", *SPAN, "--json", "--failures", "from-history")
    assert done.code == 0, done.errors
    answer = json.loads(done.out)
    assert answer["assumed"]["jobs"] == []
    assert {job["job"]: job["longest_seconds"] for job in answer["jobs"]} == {"hourly": 90.0, "shaky": 30.0}
    assert 0 < answer["runs"]["FAILED"] < 6
    over = json.loads(horae("simulate", "jobs.toml", "--over", *SPAN, "--json").out)
    assert {job["job"] for job in over["jobs"]} == {"fresh", "hourly", "shaky"}
    alone = json.loads(horae("simulate", "jobs.toml", *SPAN, "--json").out)
    assert alone["assumed"]["jobs"] == ["fresh"], "the catalog beside it knows how long hourly takes"
    assert rows(here / "horae.db") == before


def test_a_server_is_asked_for_its_jobs_and_answers_as_its_store_would(here: Path) -> None:
    lived(f"sqlite:///{here / 'horae.db'}")
    # Far away, so that the version before still has its slots whenever this is run, and the server runs none of them.
    begins = 'start = "2099-01-01T00:00:00Z"'
    for minute, policy in (("45", "immediate"), ("15", "graceful=2099-03-01T03:00:00Z")):
        (here / "changing.toml").write_text(f'[jobs.changing]\ncron = "{minute} * * * *"\n{begins}\nsql = "SELECT 1"\n')
        done = inside("apply", "changing.toml", "--policy", policy, "--yes")
        assert done.code == 0, done.errors
    far = ("simulate", "--from", "2099-03-01", "--to", "6h", "--json", "--jobs")
    with served(here, "--http", "127.0.0.1:0") as server:
        there = horae("simulate", *SPAN, "--json", "--server", server.said["address"])
        changing = horae(*far, "changing", "--server", server.said["address"])
        assert server.stop() == 0
    store = f"sqlite:///{here / 'horae.db'}"
    own = horae("simulate", *SPAN, "--json", "--store", store)
    own_changing = horae(*far, "changing", "--store", store)
    assert there.code == own.code == changing.code == 0, there.errors + own.errors + changing.errors
    assert json.loads(there.out) == json.loads(own.out)
    assert json.loads(changing.out) == json.loads(own_changing.out)
    hours = json.loads(changing.out)["heat"]["hours"]
    assert [row.index(1) for row in hours[:6]] == [45, 45, 45, 15, 15, 15], "the version before speaks up to 03:00"


def test_a_page_is_written_once_more_over_its_own_and_over_nothing_else(here: Path) -> None:
    asked = ("simulate", "jobs.toml", *SPAN, "--html")
    assert horae(*asked, "day.html").code == 0
    first = (here / "day.html").read_bytes()
    assert horae(*asked, "day.html").code == 0
    assert (here / "day.html").read_bytes() == first
    refused = horae(*asked, "jobs.toml")
    assert refused.code == 2
    assert "exists already, and is no page of a simulation" in refused.errors
    assert (here / "jobs.toml").read_text().startswith("\n[defaults]")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jobs.toml", "--to", "yesterday"), "Invalid --to"),
        (("jobs.toml", "--from", "2027-03-01", "--to", "2026-03-01"), "before it begins"),
        (("jobs.toml", "--durations", "long"), "--durations"),
        (("jobs.toml", "--tz", "Mars/Olympus"), "Mars/Olympus"),
        (("jobs.toml", "--jobs", "nobody"), "nobody"),
        (("jobs.toml", "--to", "9999d"), "at most 200,000 can be simulated"),
        (("--over",), "none is named"),
        (("jobs.toml", "--html", "nowhere/day.html"), "mkdir -p nowhere"),
        (("jobs.toml", "--html", "."), "Name a file in it"),
        ((), "horae.db"),
        (("missing.toml",), "missing.toml"),
    ],
)
def test_what_is_asked_wrongly_is_told_and_leaves_nothing(here: Path, words: tuple[str, ...], said: str) -> None:
    done = inside("simulate", *words)
    assert done.code in (1, 2, 3), done.out
    assert said in done.errors
    assert "Traceback" not in done.errors
    assert sorted(each.name for each in here.iterdir()) == ["jobs.toml"]


def test_a_terminal_sees_how_far_simulated_time_has_come(here: Path) -> None:
    with Terminal("simulate", "jobs.toml", *SPAN) as terminal:
        terminal.until("2027-03-01 05:59 UTC")
        terminal.until("COMPLETED")


def test_a_terminal_sees_it_too_where_only_the_answer_goes_to_a_program() -> None:
    class Seen(io.StringIO):
        def isatty(self) -> bool:
            return True

    for as_json, out, expected in (
        (True, io.StringIO(), True), (True, Seen(), False), (False, Seen(), True), (False, io.StringIO(), True),
    ):  # fmt: skip
        errors = Seen()
        Screen(out=out, errors=errors, as_json=as_json).bar(1, 2, "hours")
        assert ("1 of 2 hours" in errors.getvalue()) is expected


def test_where_nobody_sees_a_bar_a_long_simulation_says_how_much_it_is(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "_MANY", 11)
    first, *lines = inside("simulate", "jobs.toml", *SPAN).errors.splitlines()
    assert first == "horae: about 12 runs; this takes a while"
    once = [line for line in lines if "once more" not in line]
    assert [line.split(",")[0] for line in once] == [f"horae: {tenth}0 %" for tenth in range(1, 10)]
    assert once[4] == "horae: 50 %, 2027-03-01 03:00 UTC"
    assert inside("simulate", "jobs.toml", *SPAN, "--json").errors == ""
    monkeypatch.setattr(simulate, "_MANY", 12)
    assert inside("simulate", "jobs.toml", *SPAN).errors == ""


def test_slots_without_a_start_are_told_in_plain_words_and_not_as_missed(here: Path) -> None:
    (here / "picky.toml").write_text(
        '[jobs.picky]\ncron = "0 * * * *"\nsql = "SELECT 1"\n'
        'window = { mode = "after", duration = "10m", only = { hours = [5] } }\n'
    )
    done = inside("simulate", "picky.toml", *SPAN)
    assert done.code == 0
    assert "none of 64 draws in its window is a time that only and avoid allow" in done.out
    assert "MaxAttempts" not in done.out
    lines = done.out.splitlines()
    titles = next(line for line in lines if "without a start" in line)
    row = lines[lines.index(titles) + 1]
    assert row[titles.index("missed")] == "0"
    assert row[titles.index("without a start")] == "5"
    assert "without a start" not in inside("simulate", "jobs.toml", *SPAN).out


def test_no_extra_is_needed(here: Path) -> None:
    (here / "bare.py").write_text(
        "import sys\n"
        "for name in ('jinja2', 'starlette', 'uvicorn', 'psycopg', 'httpx2', 'opentelemetry'):\n"
        "    sys.modules[name] = None\n"
        "from horae.cli import main\n"
        "sys.exit(main(['simulate', 'jobs.toml', '--from', '2027-03-01', '--to', '1h', '--html', 'day.html']))\n"
    )
    done = subprocess.run([sys.executable, "bare.py"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (here / "day.html").exists()
