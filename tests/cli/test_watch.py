"""`--watch`: on a terminal, into a pipe, as JSON; and when the catalog goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.terminal import Terminal
from tests.web.serving import serving

from horae.cli.arguments.parsers import with_watch_values

JOBS = "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' AS 'SELECT 1'; CREATE JOB idle SCHEDULE = NONE AS 'SELECT 2'"


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("sql", JOBS, "--store", url).code == 0
    return url


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`horae ARGUMENTS…` with its output in a pipe."""
    process = subprocess.Popen(
        [sys.executable, "-m", "horae", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def until(process: subprocess.Popen[str], wanted: str) -> None:
    while (found := line(process)) != wanted:
        assert found, "it has ended"


def stopped(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(60)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["job", "show", "--watch", "nightly"], ["job", "show", "--watch=2", "nightly"]),
        (["job", "list", "--watch"], ["job", "list", "--watch=2"]),
        (["job", "list", "--watch", "5"], ["job", "list", "--watch", "5"]),
        (["job", "list", "--watch", ".5", "--json"], ["job", "list", "--watch", ".5", "--json"]),
        (["job", "show", "--", "--watch"], ["job", "show", "--", "--watch"]),
    ],
)
def test_a_name_after_watch_is_not_taken_for_its_seconds(words: list[str], expected: list[str]) -> None:
    assert with_watch_values(words) == expected


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "1e9"])
def test_seconds_that_are_none_are_refused(store: str, seconds: str) -> None:
    assert inside("job", "list", f"--watch={seconds}", "--store", store).code == 2


def test_in_json_each_change_is_one_document_on_a_line(store: str) -> None:
    with watching("job", "list", "--watch", "--json", "--store", store) as process:
        first = json.loads(line(process))
        assert [job["state"] for job in first["jobs"]] == ["ENABLED", "ENABLED"]
        inside("job", "pause", "nightly", "--store", store)
        second = json.loads(line(process))
        assert [job["state"] for job in second["jobs"]] == ["ENABLED", "PAUSED"]
        assert stopped(process) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "", "nothing changed since"


def test_into_a_pipe_each_change_is_a_block_of_its_own(store: str) -> None:
    with watching("run", "list", "--watch", "0.5", "--store", store) as process:
        assert line(process) == "(0 runs)\n"
        inside("job", "trigger", "idle", "--store", store)
        assert line(process) == "\n"
        assert line(process).split()[:2] == ["run", "job"]
        assert line(process).split()[1] == "idle"
        assert line(process) == "(1 run)\n"
        assert stopped(process) == 0


def test_a_job_that_is_gone_ends_it_with_its_error(store: str) -> None:
    with watching("job", "show", "idle", "--watch", "--store", store) as process:
        assert line(process) == "idle\n"
        inside("job", "drop", "--yes", "idle", "--store", store)
        assert process.stderr is not None
        assert 'There is no job "idle"' in process.stderr.read()
        assert process.wait(60) == 1


def test_on_a_terminal_it_is_drawn_in_place_until_ctrl_c(store: str) -> None:
    with Terminal("job", "list", "--watch", "--store", store) as terminal:
        terminal.until("Ctrl-C ends")
        terminal.until("(2 jobs)")
        inside("job", "pause", "nightly", "--store", store)
        terminal.until("PAUSED")
        terminal.send("\x03")
        assert terminal.ended() == 0
        # What was seen last is still there when the terminal's own page is back.
        assert terminal.transcript.rstrip().endswith("(2 jobs)")


def test_what_a_terminal_has_no_room_for_is_counted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    many = ";".join(f"CREATE JOB job{number} SCHEDULE = NONE AS 'SELECT 1'" for number in range(60))
    assert inside("sql", many, "--store", url).code == 0
    with Terminal("job", "list", "--watch", "--store", url) as terminal:
        terminal.until("more lines, for which there is no room")
        terminal.send("\x03")
        assert terminal.ended() == 0


def test_a_server_is_asked_again_and_waited_for_when_it_is_away(tmp_path: Path) -> None:
    with ExitStack() as ended:
        with serving(f"sqlite:///{tmp_path / 'served.db'}", is_running=False) as server:
            assert inside("sql", JOBS, "--server", server.url).code == 0
            process = ended.enter_context(watching("job", "list", "--watch=0.5", "--server", server.url))
            until(process, "(2 jobs)\n")
            inside("job", "drop", "--yes", "idle", "--server", server.url)
            until(process, "(1 job)\n")
        assert process.stderr is not None
        assert "cannot be asked" in process.stderr.readline()
        assert process.poll() is None, "it waits"
        assert stopped(process) == 0


def test_the_first_look_at_a_server_that_is_away_is_an_error() -> None:
    assert inside("node", "list", "--watch", "--server", "http://127.0.0.1:1").code == 3
