"""The pages on observability and on events name every event and every metric, with what they carry."""

from __future__ import annotations

import re
from pathlib import Path

import yaml  # type: ignore[import-untyped]  # it has no types

from horae import logs
from horae.events import EVENTS
from horae.metrics import FAMILIES, LABEL_VALUES, MOST_JOBS, MOST_TASKS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "observability.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)
ROWS = dict(_ROW.findall(PAGE))
EVENT_ROWS = dict(_ROW.findall((DOCS / "events.md").read_text()))


def test_the_page_lists_every_event_with_its_fields() -> None:
    for kind in EVENTS:
        fields = EVENT_ROWS[kind.__name__].rpartition("| ")[2].strip("`").split(", ")
        assert [field.partition(": ")[0] for field in fields] == list(kind._fields), kind.__name__


def test_the_page_lists_every_metric_with_its_kind_labels_and_meaning() -> None:
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        assert ROWS[family.name].startswith(f"{family.kind} | {labels} | {family.meaning}"), family.name


def test_the_page_lists_every_value_of_every_label_and_no_other() -> None:
    for (metric, label), values in LABEL_VALUES.items():
        (listed,) = re.findall(rf"`{label}`: ((?:`[^`]+`(?:, )?)+)", ROWS[metric])
        assert re.findall(r"`([^`]+)`", listed) == list(values), metric


def test_the_page_lists_no_event_and_no_metric_that_does_not_exist() -> None:
    assert set(ROWS) == {family.name for family in FAMILIES}
    assert set(EVENT_ROWS) == {kind.__name__ for kind in EVENTS}


def test_the_alerts_ask_for_metrics_labels_and_states_that_there_are() -> None:
    known = {family.name: family for family in FAMILIES}
    rules = [rule["expr"] for rule in yaml.safe_load(_block("groups:"))["groups"][0]["rules"]]
    assert len(rules) == 8
    for asked in rules:
        names = re.findall(r"\b(?:scheduler|jobs|job)_[a-z_]+", asked)
        assert names, asked
        for name in names:
            family = known[re.sub("_(bucket|count|sum)$", "", name)]
            assert name == family.name or family.kind == "histogram", name
        for labels in re.findall(r"([a-z_]+){(.*?)}", asked):
            assert set(re.findall(r"(\w+)=", labels[1])) <= set(known[labels[0]].labels), asked
        for statuses in re.findall(r'status=~"(.*?)"', asked):
            assert set(statuses.split("|")) <= set(re.findall(r"`(\w+)`", ROWS["scheduler_job_occurrences_total"]))


def _block(begins: str) -> str:
    (found,) = re.findall(rf"^```yaml\n({begins}.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_page_names_the_limits_and_the_loggers() -> None:
    assert f"{MOST_JOBS:,} jobs" in PAGE
    assert f"{MOST_TASKS:,} tasks" in PAGE
    assert all(f"`{each.name}`" in PAGE for each in (logs._RUNS, logs._ENGINE, logs._STORE))
