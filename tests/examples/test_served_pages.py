"""What README and quick start say about serving: their programs are served, and each command is given to them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.examples.pages import ROOT, blocks_of
from tests.serving.served import served, until

from horae.cli import main


def section(page: str, title: str) -> str:
    return (ROOT / page).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands_of(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("page", "title"),
    [("README.md", "Served"), ("docs/index.md", "Run it, and look at it")],
    ids=["readme", "quick-start"],
)
def test_the_program_is_served_and_asked_as_the_page_says(
    page: str, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = section(page, title)
    assert "`horae serve jobs:app`" in text or "$ horae serve jobs:app" in text
    (tmp_path / "jobs.py").write_text(next(iter(blocks_of(page))).source)
    with served(tmp_path, "jobs:app", "--http", "127.0.0.1:0") as server:
        monkeypatch.setenv("HORAE_SERVER", server.said["address"])
        asked = [words for words in commands_of(text) if words[:2] != ["horae", "serve"]]
        assert len(asked) >= 4
        for words in asked:
            if words[0] == "curl":
                status, answer = server.ask("/api/v1/jobs/nightly-report/trigger", method="POST")
                assert (status, answer["job"]) == (202, "nightly-report"), words
            else:
                assert main([word for word in words[1:] if word != "--watch"]) == 0, words
        said = capsys.readouterr().out
        assert "hello" in said
        assert "nightly-report" in said
        until(lambda: server.run_of("nightly-report") == "COMPLETED", "the run that was asked for")
        assert _job(server, "hello")["pause_note"] == "too chatty"
        assert server.stop() == 0


def _job(server: Any, name: str) -> dict[str, Any]:
    status, answer = server.ask(f"/api/v1/jobs/{name}")
    assert status == 200
    found: dict[str, Any] = answer
    return found
