"""Coverage, against a set of slots that were carried by completed runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from horae.core.run.coverage import SlotSpan, carried_span, covered_by, open_span
from horae.core.schedule.interval import Every

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
HOURLY = Every("1h", start=BEGIN + timedelta(hours=1))
hours = st.integers(0, 12)


def at(hour: int) -> datetime:
    return BEGIN + timedelta(hours=hour)


@given(st.lists(st.tuples(hours, hours).filter(lambda pair: pair[0] < pair[1]), max_size=6))
def test_coverage_ends_before_the_first_slot_that_no_completed_run_carries(pairs: list[tuple[int, int]]) -> None:
    carried = {hour for begin, end in pairs for hour in range(begin + 1, end + 1)}
    first_owed = next(hour for hour in range(1, 14) if hour not in carried)
    assert covered_by(at(0), [SlotSpan(at(begin), at(end)) for begin, end in pairs]) == at(first_owed - 1)


@given(hours, st.integers(1, 13), st.lists(hours, max_size=4), st.booleans())
def test_an_ordinary_run_carries_what_is_owed_since_the_coverage_and_the_runs_under_way(
    covered: int, slot: int, others: list[int], triggered: bool
) -> None:
    beside = [at(hour) for hour in others] + ([at(slot) - timedelta(seconds=7)] if triggered else [])
    newest = max([covered, *(hour for hour in others if 0 < hour < slot)])
    found = open_span(HOURLY, at(covered), at(slot), beside)
    assert found == (SlotSpan(at(newest), at(slot)) if newest + 1 < slot else None)


def test_a_run_carries_its_own_slot_or_the_span_of_its_row() -> None:
    assert carried_span(HOURLY, at(5), None, None) == SlotSpan(at(4), at(5))
    assert carried_span(HOURLY, at(1), None, None) == SlotSpan(None, at(1))
    assert carried_span(None, at(5), None, None) == SlotSpan(None, at(5))
    assert carried_span(HOURLY, at(5), at(2), at(5)) == SlotSpan(at(2), at(5))
    assert covered_by(None, [SlotSpan(at(2), at(3))]) == at(3)
    assert covered_by(at(4), []) == at(4)
