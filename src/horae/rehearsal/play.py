"""The whole of it: a span is rehearsed and measured, and, where windows promise to flatten its peaks, once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from horae.rehearsal import measuring, suggesting
from horae.rehearsal.cast import Cast
from horae.rehearsal.draws import Chance, Draws
from horae.rehearsal.result import Compared, Result, Suggestion
from horae.rehearsal.stage import Happened, Span, rehearse

Tell = Callable[[int, datetime], None]
"""Told which of the rehearsals is under way, from 1, and how far its time has come."""
MOST_LOOKED_AT = 50_000
"""Runs up to which windows are looked for: with them each run starts by itself, which takes several times as long."""
_ENOUGH = 0.8
"""A peak that stays above this share of what it was has not been flattened."""
_NOTABLE_WAIT = 10.0
"""Seconds from which on a shorter wait for room is worth a window."""


def play(
    cast: Cast, span: Span, chance: Chance, *, timezone: str = "UTC", suggest: bool = True, tell: Tell | None = None
) -> Result:
    """What the span will be like. Raises InvalidInput for more than can be rehearsed, and what is wrong with
    definitions."""
    draws = Draws(chance, cast.parts, span.start)

    def run(number: int, of: Cast) -> Happened:
        return rehearse(of, span, draws, None if tell is None else lambda at: tell(number, at))

    happened = run(1, cast)
    result = _measured(happened, cast, span, chance, draws, timezone)
    if not suggest:
        return result
    if result.started > MOST_LOOKED_AT:
        return replace(result, looked=False)
    windows = suggesting.suggested(happened, measuring.waits_of(happened, cast), cast, span)
    if not windows:
        return result
    changed = suggesting.with_windows(cast, windows)
    again = _measured(run(2, changed), changed, span, chance, draws, timezone)
    if not _helps(result, again):
        return result
    suggestion = Suggestion(
        windows,
        Compared(result.load.peak, again.load.peak),
        Compared(result.load.busiest, again.load.busiest),
        Compared(result.room.longest, again.room.longest),
    )
    return replace(result, suggestion=suggestion)


def _helps(before: Result, after: Result) -> bool:
    """Whether the peak is lower, or the wait for room shorter, and nothing is worse for it."""
    if _bad(after) > _bad(before) or after.load.peak > before.load.peak or after.room.longest > before.room.longest:
        return False
    flatter = after.load.peak <= before.load.peak * _ENOUGH
    return flatter or before.room.longest - after.room.longest >= _NOTABLE_WAIT


def _bad(result: Result) -> int:
    return sum(trouble.count for trouble in result.troubles)


def _measured(happened: Happened, cast: Cast, span: Span, chance: Chance, draws: Draws, timezone: str) -> Result:
    waits = measuring.waits_of(happened, cast)
    seen = {run.job for run in happened.ran}
    assumed = tuple(name for name in draws.assumed if name in seen)
    states = measuring.states_of(happened)
    total: Counter[str] = Counter()
    for each in states.values():
        total.update(each)
    return Result(
        span.start,
        span.end,
        timezone,
        chance.seed,
        span.slots,
        dict(sorted(total.items())),
        measuring.heat_of(happened.ran, span, timezone),
        measuring.load_of(happened.ran, span),
        measuring.jobs_of(happened, cast, waits, states, assumed),
        measuring.troubles_of(happened),
        measuring.summed([wait.dependencies for wait in waits]),
        measuring.summed([wait.itself for wait in waits]),
        measuring.summed([wait.room for wait in waits]),
        assumed,
        chance.assumed,
        cast.knows_pools,
        clock_changes=measuring.clock_changes_of(cast, span),
    )
