"""Every code block of the guides runs, in order, and prints what the page says it prints."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.examples.pages import blocks_of, past_the_hour, run_page


@pytest.mark.parametrize(
    ("page", "blocks", "outputs"),
    [
        ("docs/jobs.md", 7, 3),
        ("docs/how-to.md", 21, 8),
        ("docs/exactly-once.md", 2, 1),
        ("docs/declarative.md", 3, 2),
    ],
)
def test_a_guide_runs_from_top_to_bottom(
    page: str,
    blocks: int,
    outputs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(blocks_of(page))
    # So that a block whose fence is broken is missed here, rather than never run.
    assert (len(found), sum(block.output is not None for block in found)) == (blocks, outputs)
    past_the_hour()
    asyncio.run(run_page(page, lambda: capsys.readouterr().out))
    assert (tmp_path / "horae.db").exists() or page == "docs/declarative.md"  # whose catalog is in memory


@pytest.mark.parametrize(("page", "blocks", "outputs"), [("docs/testing.md", 4, 3), ("docs/ticker.md", 1, 1)])
def test_a_page_on_simulated_time_runs_from_top_to_bottom(
    page: str, blocks: int, outputs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(blocks_of(page))
    assert (len(found), sum(block.output is not None for block in found)) == (blocks, outputs)
    # Its blocks start event loops of their own, as tests do.
    running = run_page(page, lambda: capsys.readouterr().out)
    with pytest.raises(StopIteration):
        running.send(None)
