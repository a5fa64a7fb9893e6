"""Suggests windows that flatten peaks, by arithmetic, among the jobs that may have one.

A second simulation decides whether they help. Jobs that start together get the same small window, up to the limit of
each job: half an hour, a quarter of the shortest time between two of its scheduled times, a quarter of its deadline;
and a job that others depend on must still end within a quarter of their shortest interval. Of the lengths that are
tried, the shortest is taken that brings most of what the longest would.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from horae.core.run.lifecycle import JobState
from horae.core.schedule.slot_distance import shortest_gap
from horae.core.window.decision import decide
from horae.core.window.window import Window
from horae.simulate.engine import SimulatedRun, SimulatedSpan, SimulationRecord, moment
from horae.simulate.jobs import SimulatedJob, SimulatedJobs
from horae.simulate.measurement import RunWait, levels, peak_overlap

LENGTHS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 20, 30))
_LONGEST = LENGTHS[-1]
_MOST_OF_IT = 0.8
"""A length suffices if it brings this share of what the longest windows bring."""
_LEAST_PEAK = 5
"""Fewer runs at once are not worth flattening."""
_PATIENCE = 500_000
"""Runs that may be laid over each other, in all, to find out which single windows are needed."""
_MINUTE = 60_000
_MILLISECOND = timedelta(milliseconds=1)


def suggest_windows(
    happened: SimulationRecord, waits: Sequence[RunWait], cast: SimulatedJobs, span: SimulatedSpan
) -> dict[str, Window]:
    """Windows by job, in the order of names; empty if none would help."""
    limits = _limits(happened, cast, span)
    if not limits:
        return {}
    demand = _UnlimitedLoad(happened.ran, waits, cast)
    before = demand.peak({})
    tried = {length: demand.peak(_capped(limits, length)) for length in LENGTHS}
    best = min(tried.values())
    if before < _LEAST_PEAK or best >= before:
        return {}
    enough = before - _MOST_OF_IT * (before - best)
    length = next(each for each in LENGTHS if tried[each] <= enough)
    lengths = demand.needed(_capped(limits, length), tried[length])
    return {name: Window.after(lengths[name]) for name in sorted(lengths)}


def with_windows(cast: SimulatedJobs, windows: Mapping[str, Window]) -> SimulatedJobs:
    """The same jobs, some of them with windows."""

    def dressed(part: SimulatedJob) -> SimulatedJob:
        window = windows.get(part.name)
        if window is None:
            return part
        return replace(part, spec=replace(part.spec, settings={**part.spec.settings, "window": window}))

    return replace(cast, parts=tuple(dressed(part) for part in cast.parts))


# ---- how long a job's window may be ----------------------------------------------------------------------------------


def _limits(happened: SimulationRecord, cast: SimulatedJobs, span: SimulatedSpan) -> dict[str, timedelta]:
    """The longest window that each job may get, for jobs that start together with others."""
    minutes = Counter(run.chosen // _MINUTE for run in happened.ran)
    together = {run.job for run in happened.ran if minutes[run.chosen // _MINUTE] > 1}
    longest: Counter[str] = Counter()
    for run in happened.ran:
        longest[run.job] = max(longest[run.job], sum(end - begin for begin, end in run.stretches))
    gaps = {part.name: shortest_gap(part.spec.schedule, span.start) for part in cast.parts}
    followers: dict[str, list[str]] = {}
    for part in cast.parts:
        for other in part.spec.depends_on:
            followers.setdefault(other, []).append(part.name)
    found: dict[str, timedelta] = {}
    for part in cast.parts:
        if part.name not in together or not _is_free(part):
            continue
        most = [_LONGEST, _quarter(gaps[part.name]), _quarter(part.spec.effective().deadline, _LONGEST)]
        took = timedelta(milliseconds=longest[part.name])
        most += [_quarter(gaps[follower]) - took for follower in followers.get(part.name, ())]
        fitting = [length for length in LENGTHS if length <= min(most)]
        if fitting:
            found[part.name] = fitting[-1]
    return found


def _is_free(part: SimulatedJob) -> bool:
    spec = part.spec
    return (
        spec.state is JobState.ENABLED
        and spec.schedule is not None
        and spec.settings.get("window") is None
        and part.moved is None
        and not part.earlier
    )


def _quarter(length: timedelta | None, otherwise: timedelta = timedelta(0)) -> timedelta:
    return otherwise if length is None else length / 4


def _capped(limits: Mapping[str, timedelta], length: timedelta) -> dict[str, timedelta]:
    return {name: min(length, limit) for name, limit in limits.items()}


# ---- what windows would bring ----------------------------------------------------------------------------------------


class _UnlimitedLoad:
    """The runs as they would overlap with unlimited capacity."""

    def __init__(self, ran: Sequence[SimulatedRun], waits: Sequence[RunWait], cast: SimulatedJobs) -> None:
        self._zones = {part.name: part.spec.schedule.timezone for part in cast.parts if part.spec.schedule is not None}
        self._stretches = [
            (run.job, run.nominal, tuple((begin - wait.room, end - wait.room) for begin, end in run.stretches))
            for run, wait in zip(ran, waits, strict=True)
        ]
        self._drawn: dict[tuple[str, int], int] = {}

    def peak(self, lengths: Mapping[str, timedelta]) -> int:
        """The peak concurrency, ignoring limits, if jobs had windows of these lengths."""
        return peak_overlap(self._laid(lengths))

    def _laid(self, lengths: Mapping[str, timedelta]) -> Iterable[tuple[int, int]]:
        for job, nominal, stretches in self._stretches:
            length = lengths.get(job)
            shift = 0 if length is None else self._shift(job, nominal, length)
            for begin, end in stretches:
                yield begin + shift, end + shift

    def _shift(self, job: str, nominal: int, length: timedelta) -> int:
        """How much later a scheduled time would start, in milliseconds.

        It is drawn by `decide` once, for the longest window, and has the same relative place in a shorter one, to the
        second.
        """
        drawn = self._drawn.get((job, nominal))
        if drawn is None:
            at = moment(nominal)
            decision = decide(Window.after(_LONGEST).request(job, at, self._zones[job]))
            chosen = at if decision.chosen_time is None else decision.chosen_time
            drawn = self._drawn[job, nominal] = (chosen - at) // _MILLISECOND
        return int(drawn * (length / _LONGEST)) // 1000 * 1000

    def needed(self, lengths: Mapping[str, timedelta], reached: int) -> dict[str, timedelta]:
        """Those of the windows without which the peak would be higher than `reached`."""
        high = [level for level in levels(self._laid({})) if level.runs > reached]
        ends = [level.end for level in high]
        kept = dict(lengths)
        near: set[str] = set()
        for job, _, stretches in self._stretches:
            for begin, end in stretches:
                place = bisect_right(ends, begin)
                if place < len(high) and high[place].begin < end:
                    near.add(job)
        fewer = {name: length for name, length in kept.items() if name in near}
        if self.peak(fewer) <= reached:
            kept = fewer
        if len(kept) * len(self._stretches) <= _PATIENCE:
            for name in sorted(kept):
                without = {other: length for other, length in kept.items() if other != name}
                if self.peak(without) <= reached:
                    kept = without
        return kept
