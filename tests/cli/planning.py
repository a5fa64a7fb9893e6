"""A folder with a file of jobs and a catalog, for tests of `horae plan` and `horae apply`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from time import time_ns

import pytest
from tests.cli.inside import inside

_SECOND = 1_000_000_000


def at_midday(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogs of this process, and what is typed here, go by a clock on which it is ten past twelve now, today or the
    day before: no slot of an hour or of a night passes in the middle of a test."""
    late = (time_ns() - (12 * 3600 + 600) * _SECOND) % (86_400 * _SECOND)
    monkeypatch.setattr("horae.store.sqlite.driver.time_ns", lambda: time_ns() - late)
    monkeypatch.setattr("horae.cli.files.now", lambda: datetime.fromtimestamp((time_ns() - late) / _SECOND, UTC))


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch, jobs: str) -> None:
    """The test goes on in the folder, where `jobs.toml` and an empty `horae.db` are."""
    at_midday(monkeypatch)
    monkeypatch.chdir(folder)
    Path("jobs.toml").write_text(jobs)
    inside("migrate", "--store", "sqlite:///horae.db")


def rewritten(before: str, after: str) -> None:
    text = Path("jobs.toml").read_text()
    assert before in text
    Path("jobs.toml").write_text(text.replace(before, after))
