"""What `horae doctor` measures around a catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horae.app.process.checkup import _skew

BEFORE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("theirs", "answered", "skew"),
    [(0.5, 1, 0), (4, 4.5, 0), (0.1, 9, 0), (3, 1, 2), (-2, 1, -2), (0, 0, 0)],
)
def test_a_clock_differs_by_what_a_slow_answer_cannot_explain(theirs: float, answered: float, skew: float) -> None:
    moments = [BEFORE + timedelta(seconds=each) for each in (0, theirs, answered)]
    assert _skew(*moments) == skew
