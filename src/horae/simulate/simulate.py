"""Simulates a span and measures it, and once more with the windows that promise to flatten its peaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from horae.simulate import measurement, suggestions
from horae.simulate.draws import DrawOptions, Draws
from horae.simulate.engine import SimulatedSpan, SimulationRecord, simulate_span
from horae.simulate.jobs import SimulatedJobs
from horae.simulate.result import FigureChange, SimulationResult, Suggestion

Tell = Callable[[int, datetime], None]
"""Called with the number of the simulation under way, from 1, and the simulated time that it has reached."""
MOST_LOOKED_AT = 50_000
"""Runs up to which windows are looked for. With windows each run starts on its own, which takes several times as
long."""
_ENOUGH = 0.8
"""A peak above this share of the former peak counts as not flattened."""
_NOTABLE_WAIT = 10.0
"""Seconds by which the wait for free capacity must become shorter to justify windows."""


def play(
    cast: SimulatedJobs,
    span: SimulatedSpan,
    chance: DrawOptions,
    *,
    timezone: str = "UTC",
    suggest: bool = True,
    tell: Tell | None = None,
) -> SimulationResult:
    """Simulates the span and returns the result.

    Raises InvalidInput for too many runs, and the errors of faulty definitions.
    """
    draws = Draws(chance, cast.parts, span.start)

    def run(number: int, of: SimulatedJobs) -> SimulationRecord:
        return simulate_span(of, span, draws, None if tell is None else lambda at: tell(number, at))

    happened = run(1, cast)
    result = _measured(happened, cast, span, chance, draws, timezone)
    if not suggest:
        return result
    if result.started > MOST_LOOKED_AT:
        return replace(result, looked=False)
    windows = suggestions.suggest_windows(happened, measurement.waits_of(happened, cast), cast, span)
    if not windows:
        return result
    changed = suggestions.with_windows(cast, windows)
    again = _measured(run(2, changed), changed, span, chance, draws, timezone)
    if not _helps(result, again):
        return result
    suggestion = Suggestion(
        windows,
        FigureChange(result.load.peak, again.load.peak),
        FigureChange(result.load.busiest, again.load.busiest),
        FigureChange(result.room.longest, again.room.longest),
    )
    return replace(result, suggestion=suggestion)


def _helps(before: SimulationResult, after: SimulationResult) -> bool:
    """Whether the peak is lower, or the wait for free capacity shorter, and nothing is worse."""
    if _bad(after) > _bad(before) or after.load.peak > before.load.peak or after.room.longest > before.room.longest:
        return False
    flatter = after.load.peak <= before.load.peak * _ENOUGH
    return flatter or before.room.longest - after.room.longest >= _NOTABLE_WAIT


def _bad(result: SimulationResult) -> int:
    return sum(trouble.count for trouble in result.troubles)


def _measured(
    happened: SimulationRecord,
    cast: SimulatedJobs,
    span: SimulatedSpan,
    chance: DrawOptions,
    draws: Draws,
    timezone: str,
) -> SimulationResult:
    waits = measurement.waits_of(happened, cast)
    seen = {run.job for run in happened.ran}
    assumed = tuple(name for name in draws.assumed if name in seen)
    states = measurement.states_of(happened)
    total: Counter[str] = Counter()
    for each in states.values():
        total.update(each)
    return SimulationResult(
        span.start,
        span.end,
        timezone,
        chance.seed,
        span.slots,
        dict(sorted(total.items())),
        measurement.heat_of(happened.ran, span, timezone),
        measurement.load_of(happened.ran, span),
        measurement.jobs_of(happened, cast, waits, states, assumed),
        measurement.troubles_of(happened),
        measurement.summarise_waits([wait.dependencies for wait in waits]),
        measurement.summarise_waits([wait.itself for wait in waits]),
        measurement.summarise_waits([wait.room for wait in waits]),
        assumed,
        chance.assumed,
        cast.knows_pools,
        clock_changes=measurement.clock_changes_of(cast, span),
    )
