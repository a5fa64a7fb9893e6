"""A folder with a file of jobs and a catalog, for tests of `horae plan` and `horae apply`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.inside import inside


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch, jobs: str) -> None:
    """The test goes on in the folder, where `jobs.toml` and an empty `horae.db` are."""
    monkeypatch.chdir(folder)
    Path("jobs.toml").write_text(jobs)
    inside("migrate", "--store", "sqlite:///horae.db")


def rewritten(before: str, after: str) -> None:
    text = Path("jobs.toml").read_text()
    assert before in text
    Path("jobs.toml").write_text(text.replace(before, after))
