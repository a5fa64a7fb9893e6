"""What the page on changing jobs has somebody type works, in order, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.shell import horae
from tests.examples.pages import ROOT, past_the_hour

PAGE = (ROOT / "docs" / "changing.md").read_text()
_BLOCKS = re.compile(r"^```(toml|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def settled(text: str) -> str:
    """Without what is another every time: moments, and numbers of plans."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    return re.sub(r"plan [0-9a-f]{16}", "plan ID", text)


def test_the_page_on_changing_jobs_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past_the_hour()
    monkeypatch.chdir(tmp_path)
    typed = 0
    for kind, text in _BLOCKS.findall(PAGE):
        if kind == "toml":
            (tmp_path / "jobs.toml").write_text(text)
            continue
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            done = horae(*shlex.split(command)[1:])
            code = 2 if "--exit-code" in command and "nothing to do" not in expected else 0
            assert done.code == code, (command, done.out, done.errors)
            # A line with three dots stands for any number of lines.
            parts = [re.escape(part) for part in re.split(r"^…\n", settled(expected), flags=re.MULTILINE)]
            assert re.fullmatch("(?:.*\n)*?".join(parts), settled(done.out)), (command, done.out)
            typed += 1
    assert typed == 11
