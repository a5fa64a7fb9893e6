"""What the page on simulations shows is what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.shell import horae
from tests.examples.pages import ROOT

PAGE = (ROOT / "docs" / "simulate.md").read_text()


def test_the_page_on_simulations_shows_what_its_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole, shop = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "jobs.toml").write_text(whole)
    (tmp_path / "shops.toml").write_text(
        "\n".join(re.sub(r"\b1$|1(?=[\]\"])", str(n), shop, flags=re.M) for n in range(1, 9))
    )
    shown = [
        (command, expected)
        for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        for command, _, expected in [block.partition("\n")]
        if not expected.startswith("$")
    ]
    assert len(shown) == 2
    for command, expected in shown:
        done = horae(*shlex.split(command)[2:])
        assert (done.code, done.out) == (0, expected), command
