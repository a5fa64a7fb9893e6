"""A run of the suite has an order that can be repeated, and an end that says what it did and what it left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.tier import ROOT, SEEDS_VARIABLE, VARIABLE

SAMPLE = """
import pytest

def test_passes(): pass
def test_fails(): assert 1 == 2
@pytest.mark.parametrize("text", ["it's", "b"])
def test_fails_for(text): assert not text
@pytest.mark.skip(reason="there is no sea here")
def test_swims(): pass
@pytest.mark.torture("again on another server")
def test_again(): pass
@pytest.mark.parametrize("number", range(20))
def test_number(number): pass
"""


HANGING = """
import threading

def test_hangs(): threading.Event().wait()
def test_passes(): pass
"""


def run(folder: Path, *options: str, tier: str | None = None, sample: str = SAMPLE) -> str:
    (folder / "test_sample.py").write_text(sample)
    environment = {name: value for name, value in os.environ.items() if name not in (VARIABLE, SEEDS_VARIABLE)}
    # Other plugins would take most of the time, and have nothing to do with it.
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment |= {} if tier is None else {VARIABLE: tier}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-p",
        "tests.conduct",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    ]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", *options, "test_sample.py"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def order(output: str) -> list[str]:
    return re.findall(r"^test_sample\.py::(\S+) ", output, re.MULTILINE)


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_the_end_says_what_failed_was_skipped_and_was_left_out(processes: str, tmp_path: Path) -> None:
    said = run(tmp_path, processes)
    alone = f"{Path(sys.executable).with_name('pytest')} 'test_sample.py::test_fails_for[it'\"'\"'s]'"
    alone = alone.replace(f"{ROOT}/", "")
    assert said.count(f"\n{alone}\n") == 2, "beside its traceback and at the end"
    assert "\n    1  there is no sea here (test_sample.py::test_swims)\n" in said
    assert "\n    1  again on another server\n" in said
    assert re.search(r"^test +25 tests +\d+\.\d s of work$", said, re.MULTILINE)
    assert "test_again" not in said
    assert "3 failed, 21 passed, 1 skipped" in said.splitlines()[-1]


def test_the_last_tier_leaves_nothing_out(tmp_path: Path) -> None:
    said = run(tmp_path, "-v", tier="torture")
    assert "test_again" in order(said)
    assert "left to" not in said
    assert f"{VARIABLE}=torture " in said, "the same tier is needed to run one alone"


def test_an_order_is_drawn_and_can_be_repeated(tmp_path: Path) -> None:
    first, again, other = (order(run(tmp_path, "-v", "--order-seed", seed)) for seed in ("1", "1", "2"))
    assert first == again
    assert first != other
    assert sorted(first) == sorted(other)
    drawn = run(tmp_path, "-v", "--order-seed", "random")
    (seed,) = set(re.findall(r"order seed:? (\d+)", drawn))
    assert order(run(tmp_path, "-v", "--order-seed", seed)) == order(drawn)


def test_a_tier_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    assert "HORAE_TIER=slow is no tier; the tiers are quick, test, torture" in run(tmp_path, tier="slow")


def test_a_test_that_hangs_is_named_with_its_stack_and_the_others_go_on(tmp_path: Path) -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert configured["faulthandler_timeout"] > 0
    assert configured["faulthandler_exit_on_timeout"]
    # Of the test that passes too, and of what comes before the one that hangs is in its call.
    limit = ("-o", "faulthandler_timeout=10", "-o", "faulthandler_exit_on_timeout=true")
    said = run(tmp_path, "-n1", *limit, sample=HANGING)
    assert "crashed while running 'test_sample.py::test_hangs'" in said
    assert "in test_hangs" in said, "the stack says where it hangs"
    assert "1 failed, 1 passed" in said.splitlines()[-1]


def test_tests_are_interrupted_though_a_shell_had_the_run_ignore_it(tmp_path: Path) -> None:
    (tmp_path / "test_signals.py").write_text(
        "import signal, subprocess, sys\n"
        "def test_a_child_heeds_ctrl_c():\n"
        "    code = 'import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)'\n"
        "    assert subprocess.check_output([sys.executable, '-c', code]) == b'False\\n'\n"
    )
    command = f"{sys.executable} -m pytest -p tests.conduct -p no:cacheprovider -c {os.devnull} test_signals.py"
    done = subprocess.run(
        ["/bin/sh", "-c", f"trap '' INT QUIT HUP; exec {command}"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
