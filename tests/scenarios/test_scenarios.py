"""Stories in plain text: commands with the exact output beneath; `--rewrite` writes that output anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.stage import Stage

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
RULE = "----"


def commands(text: str) -> Iterator[tuple[list[str], str | None]]:
    """The story's parts: comments and blank lines as they stand, then a command; its old output is left out."""
    kept: list[str] = []
    lines = iter(text.splitlines())
    expects = False
    for line in lines:
        if line == RULE:
            expects = True
        elif expects:
            expects = bool(line.strip())
            if not expects:
                kept.append(line)
        elif line.startswith("#") or not line.strip():
            kept.append(line)
        else:
            yield kept, line
            kept = []
    yield kept, None


async def told(text: str) -> str:
    """The story as it really goes."""
    stage, written = Stage(), list[str]()
    try:
        for kept, command in commands(text):
            written += kept
            if command is not None:
                written.append(command)
                output = await stage.perform(command)
                if output:
                    written += [RULE, *output.splitlines()]
    finally:
        await stage.close()
    return "\n".join(written) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text()
    found = asyncio.run(told(written))
    if request.config.getoption("--rewrite"):
        path.write_text(found)
    else:
        assert found.splitlines() == written.splitlines(), "pytest tests/scenarios --rewrite shows what has changed"


def test_there_is_a_story_for_every_policy() -> None:
    names = {path.stem for path in STORIES}
    wanted = {"overlap_skip", "overlap_allow", "overlap_queue", "overlap_coalesce", "overlap_replace"}
    wanted |= {"recovery_last", "recovery_all", "recovery_none", "recovery_bounded", "recovery_compressed"}
    wanted |= {"retry_with_crash", "fail_fast_with_cleanup", "windows", "dependencies", "pools", "pause", "deadline"}
    assert wanted | {"replay", "backfill"} <= names


def test_a_story_that_goes_differently_is_noticed() -> None:
    story = "job a every 1h task=ok\n\nadvance 1h\n----\n01:00:00 start somebody else\n"
    assert asyncio.run(told(story)) != story
