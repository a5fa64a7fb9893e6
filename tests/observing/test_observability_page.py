"""The page on observability names every event and every metric, with what they carry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from horae import logs
from horae.events import EVENTS
from horae.metrics import FAMILIES, MOST_JOBS, MOST_TASKS, Family

PAGE = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
ROWS = {match[1]: match[2] for match in re.finditer(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)}


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_the_page_lists_every_event_with_its_fields(kind: Any) -> None:
    assert ROWS[kind.__name__].endswith(f"| `{', '.join(kind._fields)}`")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_page_lists_every_metric_with_its_kind_labels_and_meaning(family: Family) -> None:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    assert ROWS[family.name].startswith(f"{family.kind} | {labels} | {family.meaning}")


def test_the_page_lists_no_event_and_no_metric_that_does_not_exist() -> None:
    assert set(ROWS) == {kind.__name__ for kind in EVENTS} | {family.name for family in FAMILIES}


def test_the_page_names_the_limits_and_the_loggers() -> None:
    assert f"{MOST_JOBS:,} jobs" in PAGE
    assert f"{MOST_TASKS:,} tasks" in PAGE
    assert all(f"`{each.name}`" in PAGE for each in (logs._RUNS, logs._ENGINE, logs._STORE))
