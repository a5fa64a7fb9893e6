"""When a run lasts unusually long: by the clock, by what its job usually takes, by the runs it keeps from running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae import Cron, Every
from horae.core.run.lifecycle import RunState
from horae.core.run.overrun import Overrun, find_overrun, find_skip_cause, may_have_skipped, percentile
from horae.store.records import Origin, RunRecord

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def run(state: RunState, started: timedelta | None, lasted: timedelta | None = None, **more: Any) -> RunRecord:
    """A run that started so long ago, or was created so long ago where it never did."""
    created = NOW - (started if started is not None else more.pop("ago"))
    at = None if started is None else created
    ended = None if at is None or lasted is None else at + lasted
    return RunRecord(
        "occ_1", "a", state, created, created, Origin.SCHEDULE, 1, 1, created, started_at=at, completed_at=ended, **more
    )


def running(lasted: timedelta) -> RunRecord:
    return run(RunState.RUNNING, lasted)


def skipped(ago: timedelta, reason: str = "overlap") -> RunRecord:
    return run(RunState.SKIPPED, None, ago=ago, reason=reason)


def past(*lengths: timedelta) -> list[RunRecord]:
    return [run(RunState.COMPLETED, 30 * HOUR, length) for length in lengths]


def judged(current: RunRecord, others: list[RunRecord]) -> Overrun | None:
    return find_overrun(current, [current, *others], NOW)


def test_an_hour_is_not_long_whatever_is_usual_and_more_is_where_nothing_is_known() -> None:
    assert judged(running(HOUR), past(timedelta(seconds=1))) is None
    found = judged(running(HOUR + timedelta(seconds=1)), [])
    assert found == ("long", timedelta(seconds=3601), "it has been running for 1h1s")


def test_a_backup_that_takes_two_hours_every_night_is_long_after_six() -> None:
    usual = past(*[2 * HOUR] * 20)
    assert judged(running(6 * HOUR), usual) is None
    found = judged(running(6 * HOUR + timedelta(seconds=1)), usual)
    assert found is not None
    assert found.reason == "it has been running for 6h1s; 99 of 100 runs of its job take at most 2h"


def test_a_run_that_three_scheduled_times_in_a_row_were_skipped_for_is_unusual_however_short() -> None:
    minutes = [timedelta(minutes=each) for each in range(1, 5)]
    current = running(timedelta(minutes=5))
    assert judged(current, [skipped(each) for each in minutes[:2]]) is None
    found = judged(current, [skipped(each) for each in minutes[:3]])
    assert found is not None
    assert (found.kind, found.reason) == (
        "skips",
        "3 scheduled times in a row were skipped because of it, in 5m",
    )
    other = [skipped(minutes[0]), skipped(minutes[1], "paused"), skipped(minutes[2]), skipped(minutes[3])]
    assert judged(current, other) is None
    assert judged(current, [skipped(HOUR + each) for each in minutes]) is None


def test_only_a_run_that_is_running_is_judged() -> None:
    assert judged(run(RunState.COMPLETED, 5 * HOUR, 4 * HOUR), []) is None
    assert judged(run(RunState.PENDING, None, ago=5 * HOUR), []) is None


SECOND = timedelta(seconds=1)


def test_a_short_run_that_has_ended_is_named_for_what_was_skipped_while_it_lasted() -> None:
    ended = run(RunState.COMPLETED, 12 * SECOND, 11 * SECOND)
    skips = [skipped(each * SECOND) for each in (9, 6, 3)]
    found = find_skip_cause([ended, *skips], NOW)
    assert found is not None
    assert found.run is ended
    assert found.overrun == (
        "skips",
        11 * SECOND,
        "3 scheduled times in a row were skipped because of it, in 11s",
    )
    assert find_skip_cause([ended, *skips[:2]], NOW) is None
    assert find_skip_cause([ended, *skips[:2], skipped(20 * SECOND)], NOW) is None
    between = run(RunState.COMPLETED, 7 * SECOND, SECOND)
    assert find_skip_cause([ended, *skips[:1], between, *skips[1:]], NOW) is None


def test_a_span_counts_as_the_scheduled_times_that_it_stands_for() -> None:
    ended = run(RunState.COMPLETED, 12 * SECOND, 11 * SECOND)
    assert (
        find_skip_cause([ended, run(RunState.SKIPPED, None, ago=3 * SECOND, reason="overlap", count=3)], NOW)
        is not None
    )


def test_a_job_has_recovered_once_a_later_run_ended_without_skips_and_not_because_one_began() -> None:
    bad = run(RunState.COMPLETED, 42 * SECOND, 11 * SECOND)
    skips = [skipped(each * SECOND) for each in (39, 36, 33)]
    began = running(SECOND)
    found = find_skip_cause([bad, *skips, began], NOW)
    assert found is not None
    assert found.run is bad
    assert find_skip_cause([bad, *skips, run(RunState.COMPLETED, 5 * SECOND, SECOND), began], NOW) is None
    assert find_skip_cause([], NOW) is None


def test_a_run_that_ended_after_the_last_look_is_named_though_later_ones_ended_well() -> None:
    bad = run(RunState.COMPLETED, 42 * SECOND, 11 * SECOND)
    runs = [bad, *(skipped(each * SECOND) for each in (39, 36, 33)), run(RunState.COMPLETED, 5 * SECOND, SECOND)]
    assert find_skip_cause(runs, NOW) is None
    found = find_skip_cause(runs, NOW, since=NOW - 40 * SECOND)
    assert found is not None
    assert found.run is bad
    assert find_skip_cause(runs, NOW, since=NOW - 3 * SECOND) is None


def test_only_runs_in_which_scheduled_times_lie_are_worth_a_look() -> None:
    tight, minutely = Every("3s"), Cron("* * * * *")
    assert may_have_skipped(tight, NOW, 11 * SECOND)
    assert not may_have_skipped(tight, NOW, 5 * SECOND)
    assert not may_have_skipped(Every("1s"), NOW, SECOND)
    assert not may_have_skipped(minutely, NOW, 59 * SECOND)
    assert may_have_skipped(minutely, NOW, timedelta(minutes=3))
    assert not may_have_skipped(None, NOW, HOUR)


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=150))
def test_the_percentile_is_the_least_length_that_99_of_100_do_not_exceed(seconds: list[int]) -> None:
    lengths = [timedelta(seconds=each) for each in seconds]
    within = [each for each in lengths if 100 * sum(other <= each for other in lengths) >= 99 * len(lengths)]
    assert percentile(lengths) == min(within)
    assert percentile([]) is None
