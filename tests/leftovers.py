"""What a test must leave as it found it: state of the whole process, which a test that comes later would meet.

Without this, such a test fails only in an order of tests that brings the two together in one process.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import horae.executors.run  # noqa: F401 - sets the level of its logger once, when it is first imported
from horae.executors import output
from horae.security.concealment import forget_taken, is_concealed, reveal

LOGGERS = ("", "asyncio", "uvicorn", "horae", "horae.engine", "horae.runs", "horae.store", "horae.task")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)
OWN = "PYTEST_CURRENT_TEST"


def state() -> dict[str, object]:
    """The process as it is now, by the names that a failure shows."""
    mask = os.umask(0o077)
    os.umask(mask)
    found: dict[str, object] = {"the umask": oct(mask), "the working directory": _folder()}
    for name in LOGGERS:
        log = logging.getLogger(name)
        shown = f"logger {name or 'root'}"
        found[f"{shown}, handlers"] = log.handlers[:]
        found[f"{shown}, level"] = log.level
        found[f"{shown}, propagate"] = log.propagate
        found[f"{shown}, disabled"] = log.disabled
    found["whether what is printed goes to the log"] = vars(output._state).get("in_log", False)
    found["the handler of last resort"] = logging.lastResort
    for number in SIGNALS:
        found[f"the handler of {number.name}"] = signal.getsignal(number)
    for name, value in os.environ.items():
        if name != OWN:
            found[f"variable {name}"] = value
    return found


def _folder() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return [
        f"{name}: {before.get(name)!r} before, {after.get(name)!r} after"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


@pytest.fixture(autouse=True)
def the_process_is_left_as_it_was() -> Iterator[None]:
    """Set up after the fixtures of modules and sessions, and before the test's own: it sees what the test does."""
    before = state()
    yield
    # An app that holds a key closes its process for good, and takes the key out of the environment: here it has ended.
    forget_taken()
    if is_concealed():
        reveal()
    left = differences(before, state())
    if left:
        pytest.fail("\n".join(["The test leaves the process changed for those after it:", *left]), pytrace=False)
