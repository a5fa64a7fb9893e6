"""Windows that flatten peaks: looked for by arithmetic, among jobs that can bear one.

Whether they help is for a second rehearsal to say. Jobs that start together are given the same small window, as far as
each can bear it: at most half an hour, a quarter of the shortest time between two of its slots and of its deadline, and
for a job that others depend on, only what keeps its end within a quarter of their rhythm. Of the lengths that are
tried, the shortest is taken that brings most of what the longest would.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from horae.core.decision import decide
from horae.core.lifecycle import JobState
from horae.core.rhythm import shortest_gap
from horae.core.window import Window
from horae.rehearsal.cast import Cast, Part
from horae.rehearsal.measuring import Wait, highest, levels
from horae.rehearsal.stage import Happened, Ran, Span, moment

LENGTHS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 20, 30))
_LONGEST = LENGTHS[-1]
_MOST_OF_IT = 0.8
"""Of what the longest windows bring, as much is enough."""
_LEAST_PEAK = 5
"""Fewer at once are no pile."""
_PATIENCE = 500_000
"""Runs laid over each other, in all, while single windows are tried for being needed."""
_MINUTE = 60_000
_MILLISECOND = timedelta(milliseconds=1)


def suggested(happened: Happened, waits: Sequence[Wait], cast: Cast, span: Span) -> dict[str, Window]:
    """Windows by job, in the order of names; empty where none would help."""
    limits = _limits(happened, cast, span)
    if not limits:
        return {}
    demand = _Demand(happened.ran, waits, cast)
    before = demand.peak({})
    tried = {length: demand.peak(_capped(limits, length)) for length in LENGTHS}
    best = min(tried.values())
    if before < _LEAST_PEAK or best >= before:
        return {}
    enough = before - _MOST_OF_IT * (before - best)
    length = next(each for each in LENGTHS if tried[each] <= enough)
    lengths = demand.needed(_capped(limits, length), tried[length])
    return {name: Window.after(lengths[name]) for name in sorted(lengths)}


def with_windows(cast: Cast, windows: Mapping[str, Window]) -> Cast:
    """The same jobs, with windows for some."""

    def dressed(part: Part) -> Part:
        window = windows.get(part.name)
        if window is None:
            return part
        return replace(part, spec=replace(part.spec, settings={**part.spec.settings, "window": window}))

    return replace(cast, parts=tuple(dressed(part) for part in cast.parts))


# ---- how long a job's window may be ----------------------------------------------------------------------------------


def _limits(happened: Happened, cast: Cast, span: Span) -> dict[str, timedelta]:
    """The longest window that each job may be given, of those that start together with others."""
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


def _is_free(part: Part) -> bool:
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


class _Demand:
    """The runs as they would lie over each other if there were room for all of them at once."""

    def __init__(self, ran: Sequence[Ran], waits: Sequence[Wait], cast: Cast) -> None:
        self._zones = {part.name: part.spec.schedule.timezone for part in cast.parts if part.spec.schedule is not None}
        self._stretches = [
            (run.job, run.nominal, tuple((begin - wait.room, end - wait.room) for begin, end in run.stretches))
            for run, wait in zip(ran, waits, strict=True)
        ]
        self._drawn: dict[tuple[str, int], int] = {}

    def peak(self, lengths: Mapping[str, timedelta]) -> int:
        """How many would be under way at once, at most, if jobs had windows of these lengths."""
        return highest(self._laid(lengths))

    def _laid(self, lengths: Mapping[str, timedelta]) -> Iterable[tuple[int, int]]:
        for job, nominal, stretches in self._stretches:
            length = lengths.get(job)
            shift = 0 if length is None else self._shift(job, nominal, length)
            for begin, end in stretches:
                yield begin + shift, end + shift

    def _shift(self, job: str, nominal: int, length: timedelta) -> int:
        """How much later a slot would start. The draw is the decision's own, once for the longest window: it has the
        same place in a shorter one, to the second."""
        drawn = self._drawn.get((job, nominal))
        if drawn is None:
            at = moment(nominal)
            decision = decide(Window.after(_LONGEST).request(job, at, self._zones[job]))
            chosen = at if decision.chosen_time is None else decision.chosen_time
            drawn = self._drawn[job, nominal] = (chosen - at) // _MILLISECOND
        return int(drawn * (length / _LONGEST)) // 1000 * 1000

    def needed(self, lengths: Mapping[str, timedelta], reached: int) -> dict[str, timedelta]:
        """Of these windows, those without which the peak would be higher than what was reached."""
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
