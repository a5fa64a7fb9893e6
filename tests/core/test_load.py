"""Load: peaks and meetings, against a clock that ticks every second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.change.load import LoadCounter, run_intervals
from horae.core.job.policies import Queue

BEGIN = datetime(2027, 3, 1, tzinfo=UTC)
law = settings(derandomize=True, deadline=None, max_examples=examples(200))
STARTS = st.lists(st.integers(0, 90), max_size=12, unique=True).map(sorted)


def ticked(due: list[int], seconds: int, overlap: object) -> tuple[list[tuple[int, int]], int]:
    """One job's runs and how many met, by a clock that ticks: whoever runs, runs; whoever waits, waits."""
    runs: list[tuple[int, int]] = []
    going: list[list[int]] = []
    line = met = 0
    for now in range(91 + 14 * 40):
        going = [each for each in going if each[1] > now]
        if line and not going:
            line -= 1
            going.append([now, now + seconds])
            runs.append((now, now + seconds))
        if now not in due:
            continue
        if not going:
            going.append([now, now + seconds])
            runs.append((now, now + seconds))
            continue
        met += 1
        if overlap == "allow":
            going.append([now, now + seconds])
            runs.append((now, now + seconds))
        elif overlap == "replace":
            runs[-1] = (runs[-1][0], now)
            going = [[now, now + seconds]]
            runs.append((now, now + seconds))
        elif overlap == "coalesce":
            line = 1
        elif isinstance(overlap, Queue) and (overlap.limit is None or line < overlap.limit):
            line += 1
    return runs, met


@law
@given(
    STARTS,
    st.integers(1, 40),
    st.sampled_from(["skip", "allow", "coalesce", "replace", Queue(), Queue(1), Queue(3)]),
)
def test_runs_of_one_job_go_as_its_overlap_policy_lets_them(due: list[int], seconds: int, overlap: object) -> None:
    found = list(run_intervals(due, seconds, overlap))  # type: ignore[arg-type]  # drawn from what it takes
    runs, met = ticked(due, seconds, overlap)
    assert sorted((begin, end) for begin, end, _ in found if end > begin) == sorted(runs)
    assert sum(is_met for _, _, is_met in found) == met


@law
@given(st.lists(st.tuples(STARTS, st.integers(1, 40), st.integers(1, 3)), max_size=5), st.integers(1, 7))
def test_the_peak_and_the_busiest_minute_are_those_that_a_clock_sees(
    jobs: list[tuple[list[int], int, int]], steps: int
) -> None:
    gauge, more = LoadCounter(120), LoadCounter(120)
    for place, (due, seconds, count) in enumerate(jobs):
        (more if place % 2 else gauge).add(due, seconds, "allow", count)
    load = gauge.with_more(more).load(BEGIN, steps)
    running = [
        sum(count for due, seconds, count in jobs for at in due if at <= now < at + seconds) for now in range(121)
    ]
    minutes = [sum(count for due, _, count in jobs for at in due if at // 60 == minute) for minute in range(3)]
    assert (load.peak, load.busiest) == (max(running), max(minutes))
    assert max(load.peaks) == load.peak
    if load.peak:
        assert load.peak_at == BEGIN + timedelta(seconds=running.index(max(running)))
        assert load.busiest_at == BEGIN + timedelta(minutes=minutes.index(max(minutes)))
    assert load.starts == sum(len(due) * count for due, _, count in jobs)


@pytest.mark.parametrize("at", [-1, 121, 5_000])
def test_what_starts_outside_the_span_is_not_counted(at: int) -> None:
    gauge = LoadCounter(120)
    gauge.add([at], 30)
    assert gauge.load(BEGIN).peak == 0
    assert gauge.starts == 0
