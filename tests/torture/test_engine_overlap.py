"""Overlaps that tortures ran into: runs that have been judged stand before others, whatever slot or clock says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from horae.core.job.policies import NO_RETRY
from horae.core.run.lifecycle import RunState
from horae.core.run.overlap import ActiveRun, hand_over, judge_overlap

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_a_run_whose_time_in_a_window_comes_minds_a_later_one_that_may_start_any_moment() -> None:
    triggered = ActiveRun("triggered", RunState.PENDING, NOW - SECOND, NOW - SECOND, judged=True)
    verdict = judge_overlap("skip", [triggered], NOW, NO_RETRY, slot=NOW - 2 * SECOND)
    assert verdict.state is RunState.SKIPPED


def test_a_judged_run_is_before_those_in_line_also_by_a_clock_that_was_read_before_its_time() -> None:
    due = ActiveRun("due", RunState.PENDING, NOW + SECOND, NOW + SECOND, judged=True)
    queued = ActiveRun("queued", RunState.QUEUED, NOW + 2 * SECOND, NOW + 2 * SECOND)
    assert hand_over([due, queued], NOW, NO_RETRY, "queue") is None
