"""The page on job types and the example of SQL jobs do what they say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.examples.scripts import played
from tests.store.databases import Databases

PAGE = Path(__file__).parents[2] / "docs" / "job-types.md"
MORNING = "0 6 * * *"
_BLOCKS = re.compile(r"^```(python|sql)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def test_the_page_on_job_types_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [found.groups() for found in _BLOCKS.finditer(PAGE.read_text())]
    assert [kind for kind, _, _ in blocks] == ["python", "sql", "python"]

    async def main() -> None:
        names: dict[str, Any] = {"__name__": "page"}
        for kind, source, output in blocks:
            if kind == "sql":
                # Its slot is not to come just now, when the page runs the job itself.
                assert MORNING in source
                await names["app"].sql(source.replace(MORNING, f"0 {(datetime.now(UTC).hour + 12) % 24} * * *"))
                continue
            answer = eval(compile(source, PAGE, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307 - the page is our own text
            if inspect.isawaitable(answer):
                await answer
            said = capsys.readouterr().out
            assert output is None or said == output
        await names["app"].close()

    asyncio.run(main())


def test_the_example_of_sql_jobs_reports_what_its_owner_may_see_on_sqlite(tmp_path: Path) -> None:
    check_example(played("sql_jobs.py", folder=tmp_path))


def test_the_example_of_sql_jobs_reports_what_its_owner_may_see_on_postgresql(
    tmp_path: Path, databases_18: Databases
) -> None:
    check_example(played("sql_jobs.py", databases_18.fresh(), folder=tmp_path))


def check_example(said: str) -> None:
    assert "order: 24 x COMPLETED" in said
    assert "nightly-report: 1 x COMPLETED\n   [['north', 50], ['south', 100]]" in said
    assert re.search(r"^curious: 1 x FAILED\n   StatementFailed: .*wages", said, re.MULTILINE)
    assert "rows written by all jobs together: 50" in said
