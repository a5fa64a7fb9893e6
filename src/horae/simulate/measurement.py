"""Measures a simulation: heat maps, load and its peaks, waits and their causes, and what went wrong."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from horae.core.change.succession import Succession
from horae.core.run.lifecycle import RunState
from horae.core.schedule.clock_changes import daylight_effects
from horae.core.time.zone import Zone, zone
from horae.simulate.engine import SimulatedRun, SimulatedSpan, SimulationRecord, in_span, moment
from horae.simulate.jobs import SimulatedJobs
from horae.simulate.result import (
    ClockChange,
    JobResult,
    Peak,
    SimulatedLoad,
    SimulatedProblem,
    StartHeatmap,
    WaitSummary,
)

_MINUTE = 60_000
_DAY = 86_400
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
_MOST_STEPS = 720
_PEAKS = 5
_NAMED = 8
"""Jobs that are named at a peak at most."""
_FIRST = 3
_EPOCH_DAY = date(1970, 1, 1)
_HARMLESS = frozenset({"COMPLETED", "RUNNING"})


class Level(NamedTuple):
    """A stretch of time in which the number of running runs was constant. Times are milliseconds."""

    begin: int
    end: int
    runs: int


class RunWait(NamedTuple):
    """What a run waited for, in milliseconds: other jobs, earlier runs of its own job, and free capacity or a pool."""

    dependencies: int
    itself: int
    room: int


# ---- load ------------------------------------------------------------------------------------------------------------


def levels(stretches: Iterable[tuple[int, int]]) -> list[Level]:
    """The stretches laid over each other, in order, without times in which nothing runs."""
    found: list[Level] = []
    runs, since = 0, 0
    for at, change in _changes(stretches):
        if runs:
            found.append(Level(since, at, runs))
        runs, since = runs + change, at
    return found


def peak_overlap(stretches: Iterable[tuple[int, int]]) -> int:
    """The highest number of stretches that overlap at once."""
    most = runs = 0
    for _, change in _changes(stretches):
        runs += change
        if runs > most:
            most = runs
    return most


def _changes(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """By how much the number of overlapping stretches changes at each moment."""
    changes: dict[int, int] = {}
    for begin, end in stretches:
        # A stretch of no length counts as one millisecond.
        last = end if end > begin else begin + 1
        changes[begin] = changes.get(begin, 0) + 1
        changes[last] = changes.get(last, 0) - 1
    return sorted((at, change) for at, change in changes.items() if change)


def load_of(ran: Sequence[SimulatedRun], span: SimulatedSpan) -> SimulatedLoad:
    found = levels(stretch for run in ran for stretch in run.stretches)
    seconds = (span.last - span.first) // 1000
    step = next((each for each in _STEPS if seconds <= each * _MOST_STEPS), _STEPS[-1])
    most = [0] * -(-seconds // step)
    for level in found:
        first = (level.begin - span.first) // (step * 1000)
        last = (level.end - 1 - span.first) // (step * 1000)
        for place in range(max(0, first), min(len(most) - 1, last) + 1):
            most[place] = max(most[place], level.runs)
    minutes = Counter(run.started // _MINUTE for run in ran)
    busiest = min(minutes, key=lambda minute: (-minutes[minute], minute)) if minutes else None
    return SimulatedLoad(
        step,
        tuple(most),
        _peaks(found, ran, span),
        0 if busiest is None else minutes[busiest],
        None if busiest is None else moment(busiest * _MINUTE),
    )


def _peaks(found: Sequence[Level], ran: Sequence[SimulatedRun], span: SimulatedSpan) -> tuple[Peak, ...]:
    """The highest levels that lie apart from each other. A single run is no peak."""
    apart = max(15 * _MINUTE, (span.last - span.first) // 48)
    chosen: list[Level] = []
    for level in sorted(found, key=lambda each: (-each.runs, each.begin)):
        if len(chosen) == _PEAKS or level.runs < 2:
            break
        if all(abs(level.begin - other.begin) >= apart for other in chosen):
            chosen.append(level)
    peaks = []
    for level in chosen:
        jobs = sorted({run.job for run in ran if any(a <= level.begin < max(b, a + 1) for a, b in run.stretches)})
        seconds = (level.end - level.begin) / 1000
        named = tuple(jobs[:_NAMED])
        peaks.append(Peak(moment(level.begin), level.runs, seconds, named, len(jobs) - len(named)))
    return tuple(peaks)


def heat_of(ran: Sequence[SimulatedRun], span: SimulatedSpan, timezone: str) -> StartHeatmap:
    clocks = zone(timezone)
    hours = [[0] * 60 for _ in range(24)]
    first, last = _wall(clocks, span.first), _wall(clocks, span.last - 1)
    days = {day: [0] * 24 for day in range(first // _DAY, last // _DAY + 1)}
    for run in ran:
        wall = _wall(clocks, run.started)
        hour, minute = wall % _DAY // 3600, wall % 3600 // 60
        hours[hour][minute] += 1
        days[wall // _DAY][hour] += 1
    by_day = tuple((_EPOCH_DAY + timedelta(days=day), tuple(row)) for day, row in days.items())
    return StartHeatmap(tuple(tuple(row) for row in hours), by_day)


def _wall(clocks: Zone, at: int) -> int:
    second = at // 1000
    return second + clocks.offset_at(second)


# ---- waits -----------------------------------------------------------------------------------------------------------


def waits_of(happened: SimulationRecord, cast: SimulatedJobs) -> list[RunWait]:
    """How long each run that started waited for what, in the order of `happened.ran`."""
    completed: dict[str, list[tuple[int, int]]] = defaultdict(list)
    by_job: dict[str, list[SimulatedRun]] = defaultdict(list)
    for run in happened.ran:
        by_job[run.job].append(run)
        if run.ended is not None and run.state == RunState.COMPLETED:
            completed[run.job].append((run.nominal, run.ended))
    for ends in completed.values():
        ends.sort()
    specs = {part.name: part.spec for part in cast.parts}
    before: dict[str, int] = {}
    found: list[RunWait] = []
    for run in happened.ran:
        spec = specs[run.job]
        met = max((_met(completed[other], run) for other in spec.depends_on), default=0)
        ready = max(run.chosen, met)
        # Runs of a job wait for each other, unless its overlap policy is allow.
        turn = ready if spec.settings.get("overlap") == "allow" else max(ready, before.get(run.job, 0))
        found.append(RunWait(ready - run.chosen, min(turn, run.started) - ready, max(0, run.started - turn)))
        if run.ended is not None:
            before[run.job] = max(before.get(run.job, 0), run.ended)
    return found


def _met(ends: Sequence[tuple[int, int]], run: SimulatedRun) -> int:
    """When the run of the dependency that this run waited for completed: the latest one whose scheduled time is not
    later."""
    place = bisect_right(ends, (run.nominal, run.started))
    return ends[place - 1][1] if place else 0


def summarise_waits(waits: Sequence[int]) -> WaitSummary:
    """Summarises the waits, in milliseconds, of all runs that started."""
    if not waits:
        return WaitSummary()
    ordered = sorted(waits)
    most = ordered[-(-len(ordered) * 19 // 20) - 1]
    return WaitSummary(sum(each > 0 for each in ordered), ordered[-1] / 1000, most / 1000)


# ---- jobs ------------------------------------------------------------------------------------------------------------


def troubles_of(happened: SimulationRecord) -> tuple[SimulatedProblem, ...]:
    """What did not go well, by job, state and reason."""
    counts: Counter[tuple[str, str, str]] = Counter()
    slots: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    ends = [(run.job, run.state, run.reason, run.nominal, 1) for run in happened.ran if run.state not in _HARMLESS]
    for job, state, reason, nominal, count in (*happened.passed, *ends):
        key = job, state, reason or ""
        counts[key] += count
        slots[key].append(nominal)
    found = [
        SimulatedProblem(
            job, state, reason, count, tuple(moment(each) for each in sorted(slots[job, state, reason])[:_FIRST])
        )
        for (job, state, reason), count in counts.items()
    ]
    return tuple(sorted(found, key=lambda each: (each.job, each.state, each.reason)))


def clock_changes_of(cast: SimulatedJobs, span: SimulatedSpan) -> tuple[ClockChange, ...]:
    """The clock changes in the span that skip, move or repeat scheduled times, in the order of time."""
    found: list[ClockChange] = []
    for part in cast.parts:
        speaks = in_span(part, span)
        if speaks is None:
            continue
        schedule, since = speaks[0], speaks[1] - timedelta(seconds=1)
        stages = schedule.stages if isinstance(schedule, Succession) else ()
        own = schedule.last if isinstance(schedule, Succession) else schedule
        end = span.end - timedelta(seconds=1)
        for each, until in (*((stage.schedule, stage.until) for stage in stages), (own, end)):
            if each is not None and since < min(until, end):
                effects = daylight_effects(each, since, min(until, end))
                found += [ClockChange(part.name, effect) for effect in effects if effect.kind != "once"]
            since = max(since, until)
    return tuple(sorted(found, key=lambda change: (change.effect.at, change.job)))


def states_of(happened: SimulationRecord) -> dict[str, Counter[str]]:
    """How many scheduled times of each job are in each state at the end."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for run in happened.ran:
        found[run.job][run.state] += 1
    for passed in happened.passed:
        found[passed.job][passed.state] += passed.slots
    for waiting in happened.waiting:
        found[waiting.job][waiting.state] += 1
    return found


def jobs_of(
    happened: SimulationRecord,
    cast: SimulatedJobs,
    waits: Sequence[RunWait],
    states: Mapping[str, Counter[str]],
    assumed: Sequence[str],
) -> tuple[JobResult, ...]:
    own: dict[str, list[RunWait]] = defaultdict(list)
    longest: Counter[str] = Counter()
    for run, wait in zip(happened.ran, waits, strict=True):
        own[run.job].append(wait)
        if run.ended is not None:
            longest[run.job] = max(longest[run.job], run.ended - run.started)
    unknown = frozenset(assumed)
    return tuple(
        JobResult(
            part.name,
            dict(sorted(states.get(part.name, Counter()).items())),
            len(own[part.name]),
            happened.retries.get(part.name, 0),
            happened.timeouts.get(part.name, 0),
            longest[part.name] / 1000,
            part.name in unknown,
            summarise_waits([wait.dependencies for wait in own[part.name]]),
            summarise_waits([wait.itself for wait in own[part.name]]),
            summarise_waits([wait.room for wait in own[part.name]]),
        )
        for part in sorted(cast.parts, key=lambda part: part.name)
    )
