"""Random lives of a scheduler, some hundreds at full depth: every start was owed, and every debt was met.

`python -m tests.declarative.trace_lives` does the same with thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from tests.declarative.trace_lives import explained, lived
from tests.declarative.trace_recorder import record
from tests.tier import examples

from horae.core import declarative
from horae.core.declarative import RegistrationStatus
from horae.core.run import due
from horae.core.schedule.schedules import Cron
from horae.declarative import registrations
from horae.store.catalog.jobs import declarations

LIVES = 25
"""In one chunk."""
SEEN = (
    "due",
    "late",
    "make-up",
    "retry",
    "restart",
    "pre-empted",
    "overridden",
    "crash",
    "jump",
    "clock changes",
    "store failures",
)


@pytest.mark.parametrize("chunk", range(examples(8)))
def test_in_every_life_what_is_started_is_owed_and_what_is_owed_is_started(chunk: int) -> None:
    tally: Counter[str] = Counter()
    for number in range(chunk * LIVES, (chunk + 1) * LIVES):
        trace, verdict = lived(number)
        assert not verdict.violations, explained(number, trace, verdict)
        tally += verdict.tally
    assert [name for name in SEEN if not tally[name]] == []  # lives that see nothing of the world prove nothing


def test_a_life_is_the_same_whenever_it_is_lived() -> None:
    for number in (0, 1, 3, 13):
        assert record(number) == record(number)


def _never_run_made_up(
    standing: RegistrationStatus, cursor: datetime | None, attempted: datetime | None, now: datetime
) -> Any:
    if attempted is None and cursor is not None:
        return cursor
    return declarative.catch_up_cursor(standing, cursor, attempted, now)


def _nothing_made_up(
    standing: RegistrationStatus, cursor: datetime | None, attempted: datetime | None, now: datetime
) -> Any:
    if standing is RegistrationStatus.PRESERVED:
        return now.replace(microsecond=0)
    return declarative.catch_up_cursor(standing, cursor, attempted, now)


def _repeated_minutes_once(expression: str, **values: Any) -> Cron:
    return Cron(expression, **{**values, "fold": "once"})


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        (declarations, "catch_up_cursor", _never_run_made_up),
        (declarations, "catch_up_cursor", _nothing_made_up),
        (due, "superseded", lambda active, retry: ()),
        (registrations, "Cron", _repeated_minutes_once),
    ],
    ids=["never run, made up", "nothing made up", "retries beside due minutes", "repeated minutes once"],
)
def test_a_scheduler_with_a_rule_broken_is_found_out_within_a_few_lives(
    module: Any, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert any(lived(number)[1].violations for number in range(2 * LIVES))
