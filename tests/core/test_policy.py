"""Policies as values: waits between tries, lines that fill up, catching up with a bound; and what is refused."""

from __future__ import annotations

import pickle
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae import Bounded, Queue, Retry
from horae.core.job.policies import (
    COMPLETIONS,
    DELIVERIES,
    FAILURE_STRATEGIES,
    ISOLATIONS,
    MODES,
    NO_RETRY,
    OVERLAPS,
    RECOVERIES,
    UPDATE_POLICIES,
    checked_choice,
    parse_overlap,
    parse_recovery,
    parse_retry,
)
from horae.errors import InvalidDuration, InvalidInput, InvalidPolicy

ATTEMPT = "attempt_5f3c1f0e-0000-5000-8000-000000000001"
A_YEAR = timedelta(days=366)

law = settings(derandomize=True, deadline=None, max_examples=examples(150))
intervals = st.integers(1, 7 * 86_400).map(lambda seconds: timedelta(seconds=seconds))
factors = st.floats(1.0, 10.0, allow_nan=False)
attempt_ids = st.uuids().map(lambda uuid: f"attempt_{uuid}")


def waits(retry: Retry, count: int) -> list[str]:
    return [str(retry.delay(number, ATTEMPT)) for number in range(count)]


def test_one_minute_with_factor_two_waits_one_two_and_four_minutes() -> None:
    assert waits(Retry(3, "1m", factor=2.0), 3) == ["0:01:00", "0:02:00", "0:04:00"]


def test_thirty_seconds_with_factor_two_waits_up_to_eight_minutes_before_the_fifth_retry() -> None:
    assert waits(Retry(5, "30s", 2.0), 5) == ["0:00:30", "0:01:00", "0:02:00", "0:04:00", "0:08:00"]


def test_without_a_factor_every_wait_is_the_interval() -> None:
    assert waits(Retry(3, "30s"), 4) == ["0:00:30"] * 4


def test_a_fractional_factor_is_kept_exactly() -> None:
    assert waits(Retry(3, 60, factor=1.5), 3) == ["0:01:00", "0:01:30", "0:02:15"]


def test_the_longest_wait_is_a_ceiling_that_is_reached_and_kept() -> None:
    assert waits(Retry(9, "1m", 2.0, max_interval="5m"), 5) == ["0:01:00", "0:02:00", "0:04:00", "0:05:00", "0:05:00"]


def test_a_ceiling_below_the_interval_holds_from_the_first_retry() -> None:
    assert waits(Retry(2, "10m", max_interval="1m"), 2) == ["0:01:00", "0:01:00"]


def test_an_interval_of_nothing_retries_at_once_however_often() -> None:
    assert waits(Retry(None, 0, factor=2.0), 3) == ["0:00:00"] * 3
    assert Retry(None, 0, factor=2.0, jitter=1.0).delay(10**9, ATTEMPT) == timedelta(0)


@law
@given(intervals, factors, st.integers(0, 12))
def test_the_wait_before_retry_n_is_the_interval_times_the_factor_to_the_n(
    interval: timedelta, factor: float, number: int
) -> None:
    expected = min(interval.total_seconds() * factor**number, A_YEAR.total_seconds())
    waited = Retry(None, interval, factor).delay(number, ATTEMPT).total_seconds()
    assert waited == pytest.approx(expected, rel=1e-9, abs=1e-5)


@law
@given(intervals, factors, intervals, st.floats(0.0, 1.0), st.integers(0, 40), attempt_ids)
def test_jitter_stays_within_its_share_of_the_wait_and_below_the_ceiling(
    interval: timedelta, factor: float, longest: timedelta, jitter: float, number: int, attempt_id: str
) -> None:
    plain = Retry(None, interval, factor, longest).delay(number, attempt_id)
    waited = Retry(None, interval, factor, longest, jitter).delay(number, attempt_id)
    slack = timedelta(microseconds=1)
    assert plain * (1 - jitter) - slack <= waited <= plain * (1 + jitter) + slack
    assert timedelta(0) <= waited <= longest


@law
@given(st.floats(0.01, 1.0), attempt_ids, st.integers(0, 10))
def test_jitter_is_the_same_every_time_for_the_same_attempt(jitter: float, attempt_id: str, number: int) -> None:
    first, second = (Retry(None, "1h", 1.5, jitter=jitter).delay(number, attempt_id) for _ in range(2))
    assert first == second


def test_jitter_spreads_different_attempts_over_the_whole_range() -> None:
    retry = Retry(3, 1000, jitter=0.1)
    spread = [retry.delay(0, f"attempt {number}").total_seconds() for number in range(400)]
    assert len(set(spread)) == 400
    assert 900 <= min(spread) < 910
    assert 1090 < max(spread) <= 1100
    assert sum(spread) / 400 == pytest.approx(1000, abs=15)


def test_jitter_also_spreads_the_waits_that_have_reached_the_ceiling() -> None:
    retry = Retry(9, "1m", 2.0, max_interval="5m", jitter=0.1)
    spread = {retry.delay(3, f"attempt {number}") for number in range(20)}
    assert len(spread) > 5
    assert all(timedelta(minutes=4.5) <= waited <= timedelta(minutes=5) for waited in spread)


@pytest.mark.parametrize("number", [64, 1023, 10_000, 10**9, 10**300])
@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 1000.0])
def test_a_huge_number_of_retries_neither_overflows_nor_takes_long(number: int, factor: float) -> None:
    waited = Retry(None, "1s", factor, jitter=0.5).delay(number, ATTEMPT)
    assert timedelta(milliseconds=500) <= waited <= A_YEAR
    assert Retry(None, "1s", factor, max_interval="1h").delay(number, ATTEMPT) <= timedelta(hours=1)


class CountingFactor(float):
    """A factor that knows how often it was multiplied with, and has enough of it at some point."""

    times: int = 0

    def __rmul__(self, other: float) -> float:
        type(self).times += 1
        assert type(self).times < 100_000, "multiplied for every retry there ever was"
        return float(self) * other


def test_a_factor_close_to_one_does_not_make_a_late_retry_slow() -> None:
    waited = Retry(None, "1s", CountingFactor(1.0000001)).delay(10_000_000, ATTEMPT)
    assert waited.total_seconds() == pytest.approx(2.718281828, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"max_retries": -1}, 'max_retries "-1"'),
        ({"max_retries": 1.5}, "max_retries"),
        ({"max_retries": True}, 'max_retries "True"'),
        ({"max_retries": "3"}, "max_retries"),
        ({"factor": 0.5}, 'factor "0.5"'),
        ({"factor": 0}, "factor"),
        ({"factor": -2.0}, "factor"),
        ({"factor": 1000.1}, "factor"),
        ({"factor": inf}, 'factor "inf"'),
        ({"factor": nan}, 'factor "nan"'),
        ({"factor": "2"}, "factor"),
        ({"factor": True}, "factor"),
        ({"jitter": -0.1}, 'jitter "-0.1"'),
        ({"jitter": 1.01}, "jitter"),
        ({"jitter": nan}, "jitter"),
        ({"jitter": None}, "jitter"),
        ({"interval": -1}, "retry interval"),
        ({"interval": "soon"}, "retry interval"),
        ({"interval": None}, "retry interval"),
        ({"interval": inf}, "retry interval"),
        ({"max_interval": "-5s"}, "retry max_interval"),
        ({"max_interval": timedelta(seconds=-1)}, "retry max_interval"),
    ],
)
def test_a_retry_that_makes_no_sense_is_refused_by_the_name_of_its_part(
    arguments: dict[str, Any], complaint: str
) -> None:
    usual: dict[str, Any] = {"max_retries": 3, "interval": "1m"}
    with pytest.raises(InvalidInput, match=complaint) as caught:
        Retry(**(usual | arguments))
    assert isinstance(caught.value, InvalidDuration if "interval" in complaint else InvalidPolicy)


def test_the_ways_to_write_an_interval_mean_the_same() -> None:
    written = [Retry(3, value) for value in ("90s", "1m30s", "PT1M30S", 90, 90.0, timedelta(seconds=90))]
    assert len(set(written)) == 1
    assert written[0].interval == timedelta(seconds=90)


@law
@given(
    st.none() | st.integers(0, 100),
    st.integers(0, 10**9).map(lambda micro: timedelta(microseconds=micro)),
    st.integers(1, 1000) | st.floats(1.0, 1000.0),
    st.none() | intervals,
    st.floats(0.0, 1.0),
)
def test_a_retry_is_read_back_as_it_was_written(
    count: int | None, interval: timedelta, factor: float, longest: timedelta | None, jitter: float
) -> None:
    retry = Retry(count, interval, factor, longest, jitter)
    assert parse_retry(retry.to_dict()) == retry
    assert pickle.loads(pickle.dumps(retry)) == retry


def test_only_what_differs_is_written() -> None:
    assert Retry(3, "30s").to_dict() == {"max_retries": 3, "interval": "30s"}
    assert Retry(None, "1h30m", 2.0, "5h", 0.1).to_dict() == {
        "max_retries": None,
        "interval": "1h30m",
        "factor": 2.0,
        "max_interval": "5h",
        "jitter": 0.1,
    }


def test_no_retry_at_all_is_what_none_means() -> None:
    assert parse_retry(None) == NO_RETRY == Retry(0, 0)
    assert parse_retry(NO_RETRY) is NO_RETRY


@pytest.mark.parametrize(
    "value", [3, "3", True, {}, {"max_retries": 3}, {"interval": "1s"}, {"max_retries": 1, "interval": 1, "extra": 1}]
)
def test_what_is_no_retry_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(InvalidPolicy, match="Invalid retry") as caught:
        parse_retry(value)
    assert caught.value.hint == 'For example Retry(3, "30s").'


def test_a_queue_has_a_limit_from_one_or_none() -> None:
    assert Queue().limit is None
    assert Queue(1).limit == 1
    for wrong in (0, -1, True, 1.0, "3"):
        with pytest.raises(InvalidPolicy, match="queue limit"):
            Queue(wrong)  # type: ignore[arg-type]  # given all the same, to see what becomes of it


def test_bounds_are_a_count_an_age_or_both_but_not_neither() -> None:
    assert Bounded(100).max_age is None
    assert Bounded(max_age="24h") == Bounded(max_age=timedelta(days=1))
    assert Bounded(5, "1h") == Bounded(max_occurrences=5, max_age=3600)
    with pytest.raises(InvalidPolicy, match="give max_occurrences, max_age, or both"):
        Bounded()
    for wrong in (0, -1, False, 2.0, "2"):
        with pytest.raises(InvalidPolicy, match="max_occurrences"):
            Bounded(wrong)  # type: ignore[arg-type]  # given all the same, to see what becomes of it
    with pytest.raises(InvalidDuration, match="max_age"):
        Bounded(max_age="-1h")


@pytest.mark.parametrize("name", OVERLAPS)
def test_every_overlap_policy_is_read_by_its_name(name: str) -> None:
    assert parse_overlap(name) == (Queue() if name == "queue" else name)


@pytest.mark.parametrize("queue", [Queue(), Queue(1), Queue(50)])
def test_a_queue_is_read_back_as_it_was_written(queue: Queue) -> None:
    assert parse_overlap(queue) is queue
    assert parse_overlap(queue.to_dict()) == queue


@pytest.mark.parametrize("value", ["SKIP", "", None, 1, {"queue": 0}, {"limit": 3}, {}, {"queue": 1, "other": 2}])
def test_an_unknown_overlap_is_refused(value: object) -> None:
    with pytest.raises(InvalidPolicy):
        parse_overlap(value)


@pytest.mark.parametrize("name", [name for name in RECOVERIES if name != "bounded"])
def test_every_recovery_policy_is_read_by_its_name(name: str) -> None:
    assert parse_recovery(name) == name


@pytest.mark.parametrize("bounded", [Bounded(3), Bounded(max_age="1h"), Bounded(3, "1d")])
def test_bounded_recovery_is_read_back_as_it_was_written(bounded: Bounded) -> None:
    assert parse_recovery(bounded) is bounded
    assert parse_recovery(bounded.to_dict()) == bounded


def test_bounded_recovery_without_bounds_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(InvalidPolicy, match="needs bounds") as caught:
        parse_recovery("bounded")
    assert caught.value.hint == "Write Bounded(max_occurrences=100)."


@pytest.mark.parametrize("value", ["everything", None, 1, {}, {"max_age": None}, {"max_occurrences": 1, "x": 1}])
def test_an_unknown_recovery_is_refused(value: object) -> None:
    with pytest.raises(InvalidPolicy):
        parse_recovery(value)


def test_a_choice_outside_the_known_ones_is_answered_with_the_list() -> None:
    assert checked_choice("parallel", MODES, "mode") == "parallel"
    with pytest.raises(InvalidPolicy, match='Invalid mode "both"') as caught:
        checked_choice("both", MODES, "mode")
    assert caught.value.hint == "Choose one of: sequential, parallel."


def test_the_first_value_of_every_policy_is_its_default() -> None:
    first = [each[0] for each in (OVERLAPS, RECOVERIES, FAILURE_STRATEGIES, MODES, DELIVERIES, ISOLATIONS, COMPLETIONS)]
    assert first == ["skip", "last", "fail_fast", "sequential", "at_least_once", "auto", "preserve"]
    assert UPDATE_POLICIES == ("immediate", "graceful", "windowed")
