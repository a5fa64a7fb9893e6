"""The README is true: its program runs as it says, its blocks run in order, its output is what comes out."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from tests.examples.pages import ROOT, blocks_of, run_page
from tools.disturb import UNDISTURBED

README = (ROOT / "README.md").read_text()
PATIENCE = 60.0
_PART = r"\d+(?:\.\d+)? ?(?:min|ms|us|[dhms])"


def test_every_block_of_the_readme_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []

    def printed() -> str:
        said.append(capsys.readouterr().out)
        return said[-1]

    names = asyncio.run(run_page("README.md", printed))
    assert len(said) == 5
    (shown,) = re.findall(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    # The job of the first block may come due meanwhile, and says so.
    reports = [re.sub(r"^hello .*\n", "", each, flags=re.MULTILINE) for each in said if "etl" in each]
    assert [without_figures(each) for each in reports] == [without_figures(shown)]
    assert names["weekdays"].describe() in README
    assert names["decision"].chosen_time is not None


def without_figures(text: str) -> str:
    """The text with times, durations and ids left out: those are other ones every time."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", "TIME", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", text)
    text = re.sub(rf"\b{_PART}( ?{_PART})*\b", "DURATION", text)
    return text.rstrip()


def test_the_day_one_program_prints_what_the_readme_shows(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(next(iter(blocks_of("README.md"))).source)
    (shown,) = re.findall(r"^```console\n\$ python jobs\.py\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    lines = shown.splitlines()
    with started(tmp_path) as program:
        said = [line_of(program) for _ in lines]
        program.send_signal(signal.SIGINT)
        rest, _ = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0
    # What tasks print and what is logged come on two streams here made one, so their order may differ.
    assert sorted(map(without_figures, said)) == sorted(map(without_figures, lines))
    assert "stopped, 0 runs handed back" in rest


def test_two_of_the_day_one_program_say_every_hello_once_and_one_goes_on_when_the_other_is_killed(
    tmp_path: Path,
) -> None:
    source = next(iter(blocks_of("README.md"))).source.replace('Every("2s")', 'Every("1s")')
    (tmp_path / "jobs.py").write_text(source)
    said = [tmp_path / "first.txt", tmp_path / "second.txt"]
    with (
        said[0].open("w") as one,
        said[1].open("w") as other,
        started(tmp_path, one, is_stopped=True) as first,
        started(tmp_path, other) as second,
    ):
        try:
            until(lambda: len(hellos(*said)) >= 3)
            until(lambda: is_killed_between_two_runs(first, said[0]))
            until(lambda: hellos(said[1])[-1:] > hellos(said[0])[-1:] and len(hellos(*said)) >= 5)
            second.send_signal(signal.SIGINT)
            assert second.wait(PATIENCE) == 0
        finally:
            first.kill()
            second.kill()
    assert len(set(hellos(*said))) == len(hellos(*said))


def is_killed_between_two_runs(program: subprocess.Popen[str], said: Path) -> bool:
    """Kills a program unless it is in the middle of something: a run that is killed after its print and before its end
    would be tried again. It stands still while that is looked at."""
    program.send_signal(signal.SIGSTOP)
    until(lambda: Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    text = said.read_text()
    if not text.count("hello started") == text.count("hello COMPLETED") == len(hellos(said)):
        program.send_signal(signal.SIGCONT)
        return False
    program.kill()
    program.wait()
    return True


def hellos(*said: Path) -> list[str]:
    return [slot for path in said for slot in re.findall(r"^hello (\d{4}-.*)$", path.read_text(), re.MULTILINE)]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def started(
    folder: Path, output: IO[str] | int = subprocess.PIPE, *, is_stopped: bool = False
) -> subprocess.Popen[str]:
    """`is_stopped`: the test itself will have it stand still, and nobody else is to let it go on."""
    return subprocess.Popen(
        [sys.executable, "-u", "jobs.py"],
        cwd=folder,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, UNDISTURBED: "1"} if is_stopped else None,
    )


def line_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, "the program has ended"
    return line.rstrip("\n")
