"""Runs a page of documentation from top to bottom, as somebody would who types it in."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep, time
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCKS = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One block of code: the line it begins at, and, where one follows directly, the output the page shows for it."""

    line: int
    source: str
    output: str | None


def blocks_of(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for found in _BLOCKS.finditer(text):
        yield Block(text[: found.start(1)].count("\n"), found.group(1), found.group(2))


def past_the_hour() -> None:
    """Where the hour is about to turn, waits until it has: no job comes due that a page counts on as still to come."""
    left = 3600 - time() % 3600
    if left < 60:
        sleep(left)


async def run_page(page: str, printed: Callable[[], str]) -> dict[str, Any]:
    """Runs every block in one namespace, `await` at the top level included, and compares what it printed.

    `printed` gives what was printed since it was last asked. Returns the names that are left.
    """
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page):
        # So that a traceback names the page's own line.
        source = "\n" * block.line + block.source
        code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        answer = eval(code, names)  # noqa: S307 - the page is our own text
        if inspect.isawaitable(answer):
            await answer
        said = printed()
        assert block.output is None or said == block.output, f"{page}:{block.line}: printed\n{said}"
    return names
