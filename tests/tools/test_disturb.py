"""The disturber stops what the command started, and only that; it hands the command's exit code on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNTS = """
import os, signal, sys
stops = []
signal.signal(signal.SIGCONT, lambda *_: stops.append(1))
if sys.argv[1] == "stopped":
    while len(stops) < 3:
        signal.pause()
    open("over", "w").close()
else:
    while not os.path.exists("over"):
        signal.sigtimedwait([signal.SIGUSR1], 0.01)
    print("stops:", len(stops))
"""


def disturbed(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.disturb", "--loops", "1", "--seed", "7", "--", *command],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_is_stopped_again_and_again_but_not_where_it_asks_to_be_left_alone(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    python = f"{sys.executable} counts.py"
    done = disturbed(tmp_path, "/bin/sh", "-c", f"HORAE_UNDISTURBED=1 {python} spared & {python} stopped; wait")
    assert "stops: 0\n" in done.stdout
    assert done.returncode == 0, done.stderr
    assert "stops, 1 busy loops, seed 7; the command ended with 0" in done.stdout


def test_the_exit_code_is_the_command_s(tmp_path: Path) -> None:
    assert disturbed(tmp_path, "/bin/sh", "-c", "exit 7").returncode == 7


def test_a_command_must_be_named(tmp_path: Path) -> None:
    done = disturbed(tmp_path)
    assert done.returncode == 2
    assert "name a command after --" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads process states from /proc")
def test_nothing_stays_stopped(tmp_path: Path) -> None:
    done = disturbed(tmp_path, "/bin/sh", "-c", "sleep 0.5; echo through")
    assert "through\n" in done.stdout
