"""A test that changes the process for those after it is told so itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tier import ROOT

SAMPLE = """
import logging, os, signal, pytest

@pytest.fixture(scope="module", autouse=True)
def module(): os.environ["OF_THE_MODULE"] = "1"

def test_logger(): logging.getLogger("horae").propagate = False
def test_folder(): os.chdir("/")
def test_mask(): os.umask(0)
def test_signal(): signal.signal(signal.SIGUSR1, signal.SIG_IGN)
def test_variable(): os.environ["SET"] = "by a test"
def test_careful(monkeypatch):
    monkeypatch.setenv("SET", "by another")
    monkeypatch.chdir("/tmp")
"""


def test_a_test_that_leaves_the_process_changed_fails_and_one_that_puts_it_back_does_not(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.leftovers", "-p", "no:cacheprovider", "-q", "test_sample.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "6 passed, 5 errors" in done.stdout, done.stdout
    for left in (
        "logger horae, propagate: True before, False after",
        "the working directory: ",
        "the umask: ",
        "the handler of SIGUSR1: ",
        "variable SET: None before, 'by a test' after",
    ):
        assert left in done.stdout
    assert "OF_THE_MODULE" not in done.stdout
