"""What lives found, told again as short as it can be."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from tests.declarative.trace_lives import explained, lived

from horae.declarative import Scheduler
from horae.testing import Simulation
from horae.testing.faults import Faults


async def _starts_after_a_crash_in_the_middle_of_a_claim(number: int) -> list[str]:
    """Answers of the store are lost when 12:00 is claimed; the process ends, and is back at 14:10."""
    starts: list[str] = []
    scheduler = Scheduler("sqlite://", tz="UTC")

    async def task() -> None:
        starts.append(f"{simulation.now:%H:%M}")

    registrations = [("task", "0 * * * *", task, timedelta(minutes=5))]
    async with Simulation(scheduler, datetime(2026, 1, 1, 10, 10, tzinfo=UTC), seed=number) as simulation:
        await scheduler.initialize(registrations)
        await simulation.advance("50m")
        assert simulation.store is not None
        simulation.store.faults = Faults(unknown=0.4)
        await simulation.advance("1h")
        await simulation.crash()
        simulation.store.faults = Faults()
        await simulation.jump(datetime(2026, 1, 1, 14, 10, tzinfo=UTC))
        await scheduler.initialize(registrations)
        await simulation.advance("10m")
    return starts


def test_a_run_that_was_claimed_unheard_and_handed_back_stands_for_the_minutes_missed_after_it() -> None:
    stories = {tuple(asyncio.run(_starts_after_a_crash_in_the_middle_of_a_claim(number))) for number in range(12)}
    # Called before the crash and made up for after it, or cut off and called again: once at 14:10 in any case.
    assert stories <= {("11:00", "12:00", "14:10"), ("11:00", "14:10")}


def test_a_retry_and_a_minute_that_fall_on_the_same_moment_are_one_run() -> None:
    # A matter of a microsecond by which two timers for one moment differ, which this life happens to lead to.
    trace, verdict = lived(4549)
    assert not verdict.violations, explained(4549, trace, verdict)
