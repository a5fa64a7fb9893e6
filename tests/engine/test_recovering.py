"""Slots missed while nobody was there: every recovery policy, after a crash and a long silence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engine.world import clock, offsets, oldest_first, shown, simulate, states

from horae import Bounded, Cron, Every, Horae, Run
from horae.core.job import ids
from horae.events import RunPassed
from horae.testing.simulation import Simulation


def hourly(app: Horae, recovery: Any, seconds: float = 0.0, **policies: Any) -> list[tuple[str | None, bool]]:
    """An hourly job; what it answers fills with the slot and the recovery flag of each run that starts."""
    seen: list[tuple[str | None, bool]] = []

    @app.job("hourly", Every("1h"), recovery=recovery, **policies)
    async def work(run: Run) -> None:
        seen.append((clock(run.scheduled_time), run.is_recovery))
        await asyncio.sleep(seconds)

    return seen


async def silence(sim: Simulation, until: str = "5h30m") -> None:
    """Runs from 0:30 to 1:30, then a crash, and nobody there for the time given from 1:30 on."""
    await sim.advance("1h30m")
    await sim.crash()
    await sim.jump(until)


def test_last_runs_the_newest_missed_slot_and_records_the_others_as_missed() -> None:
    app = Horae("sqlite://")
    seen = hourly(app, "last")

    async def body(sim: Simulation) -> None:
        await silence(sim, "4h")
        assert await states(app) == ["COMPLETED", *["MISSED (missed)"] * 3, "COMPLETED"]
        await sim.advance("1h")

    simulate(app, body)
    assert seen == [("1:00:00", False), ("5:00:00", True), ("6:00:00", False)]


def test_under_last_a_slot_within_its_grace_is_the_one_run_and_all_older_ones_are_missed() -> None:
    app = Horae("sqlite://")
    seen = hourly(app, "last")

    async def body(sim: Simulation) -> None:
        await silence(sim, "3h30m30s")
        assert await states(app) == ["COMPLETED", *["MISSED (missed)"] * 3, "COMPLETED"]

    simulate(app, body)
    assert seen == [("1:00:00", False), ("5:00:00", False)]


def test_all_runs_every_missed_slot_in_order_one_after_the_other() -> None:
    app = Horae("sqlite://")
    seen = hourly(app, "all", 60)

    async def body(sim: Simulation) -> None:
        await silence(sim, "4h")
        starts = offsets(await sim.advance("20m"))
        assert starts == ["5:31:00", "5:32:00", "5:33:00"]
        assert await states(app) == ["COMPLETED"] * 5

    simulate(app, body)
    assert seen == [("1:00:00", False), *[(f"{hour}:00:00", True) for hour in (2, 3, 4, 5)]]


def test_none_records_them_all_as_missed_and_waits_for_the_next_slot() -> None:
    app = Horae("sqlite://")
    passed: list[RunPassed] = []
    app.events.listen(passed.append, RunPassed)
    seen = hourly(app, "none")

    async def body(sim: Simulation) -> None:
        await silence(sim, "4h")
        assert await states(app) == ["COMPLETED", *["MISSED (missed)"] * 4]
        await sim.advance("30m")

    simulate(app, body)
    assert seen == [("1:00:00", False), ("6:00:00", False)]
    assert sum(each.count for each in passed) == 4


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Bounded(2), ["MISSED (too many to catch up on)"] * 2 + ["COMPLETED"] * 2),
        (Bounded(max_age="2h"), ["MISSED (too old to catch up on)"] * 2 + ["COMPLETED"] * 2),
        (Bounded(1, "3h"), ["MISSED (too old to catch up on)", *["MISSED (too many to catch up on)"] * 2, "COMPLETED"]),
        (Bounded(99), ["COMPLETED"] * 4),
    ],
)
def test_bounded_catches_up_on_no_more_than_it_says(bounds: Bounded, expected: list[str]) -> None:
    app = Horae("sqlite://")
    hourly(app, bounds)

    async def body(sim: Simulation) -> None:
        await silence(sim, "4h")
        assert await states(app) == ["COMPLETED", *expected]

    simulate(app, body)


def test_compressed_starts_one_run_that_is_told_the_span_it_covers() -> None:
    app = Horae("sqlite://")
    spans: list[tuple[str | None, str | None, str | None, bool]] = []

    @app.job("hourly", Every("1h"), recovery="compressed")
    async def work(run: Run) -> None:
        spans.append((clock(run.scheduled_time), clock(run.covers_from), clock(run.covers_to), run.is_recovery))

    async def body(sim: Simulation) -> None:
        await silence(sim, "4h")
        runs = await oldest_first(app)
        assert [run.run_id for run in runs][-1] == ids.run_id(ids.job_uuid("hourly"), runs[-1].scheduled_time)
        assert [(shown(run), run.count) for run in runs] == [("COMPLETED", 1), ("COMPLETED", 4)]
        await sim.advance("30m")

    simulate(app, body)
    assert spans == [
        ("1:00:00", None, None, False),
        ("5:00:00", "1:00:00", "5:00:00", True),
        ("6:00:00", None, None, False),
    ]


def test_a_compressed_run_covers_what_earlier_ones_failed_to_cover() -> None:
    app = Horae("sqlite://")
    spans: list[tuple[str | None, str | None]] = []

    @app.job("hourly", Every("1h"), recovery="compressed")
    async def work(run: Run) -> None:
        spans.append((clock(run.covers_from), clock(run.covers_to)))
        if len(spans) == 2:
            raise ValueError("the first that catches up fails")

    async def body(sim: Simulation) -> None:
        await silence(sim, "3h")
        await sim.crash()
        await sim.jump("4h")

    simulate(app, body)
    assert spans == [(None, None), ("1:00:00", "4:00:00"), ("1:00:00", "8:00:00")]


def test_recovery_that_is_interrupted_by_crashes_goes_on_and_repeats_no_slot() -> None:
    app = Horae("sqlite://")
    done: list[str | None] = []

    @app.job("hourly", Every("1h"), recovery="all")
    async def work(run: Run) -> None:
        await asyncio.sleep(60)
        done.append(clock(run.scheduled_time))

    async def body(sim: Simulation) -> None:
        await silence(sim, "6h")
        for _ in range(4):
            await sim.advance("90s")
            await sim.crash()
        await sim.advance("15m")
        runs = await oldest_first(app)
        assert [shown(run) for run in runs] == ["COMPLETED"] * 7
        assert [run.is_recovery for run in runs] == [False, *[True] * 6]
        assert len({run.run_id for run in runs}) == 7

    simulate(app, body)
    assert done == [f"{hour}:00:00" for hour in range(1, 8)]


def test_recovery_runs_line_up_even_where_overlap_says_skip_or_allow() -> None:
    app = Horae("sqlite://")
    at_work = most = 0
    for overlap in ("skip", "allow", "replace", "coalesce"):

        @app.job(overlap, Cron("0 * * * *"), recovery="all", overlap=overlap)
        async def work(run: Run) -> None:
            nonlocal at_work, most
            if run.job_name == "allow":
                at_work += 1
                most = max(most, at_work)
            await asyncio.sleep(30)
            if run.job_name == "allow":
                at_work -= 1

    async def body(sim: Simulation) -> None:
        await silence(sim, "4h")
        await sim.advance("10m")
        for overlap in ("skip", "allow", "replace", "coalesce"):
            assert await states(app, overlap) == ["COMPLETED"] * 5

    simulate(app, body)
    assert most == 1


def test_slots_missed_by_less_than_the_misfire_grace_are_ordinary() -> None:
    app = Horae("sqlite://")
    seen = hourly(app, "none", misfire_grace="45m")

    async def body(sim: Simulation) -> None:
        await sim.advance("1h30m")
        await sim.jump("75m")
        assert await states(app) == ["COMPLETED", "COMPLETED"]

    simulate(app, body)
    assert seen == [("1:00:00", False), ("2:00:00", False)]


def test_deadline_speaks_before_recovery_does() -> None:
    app = Horae("sqlite://")
    seen = hourly(app, "all", deadline="2h")

    async def body(sim: Simulation) -> None:
        await silence(sim, "4h")
        assert await states(app) == ["COMPLETED", *["MISSED (deadline)"] * 2, "COMPLETED", "COMPLETED"]

    simulate(app, body)
    assert [slot for slot, _ in seen] == ["1:00:00", "4:00:00", "5:00:00"]


def test_a_long_silence_is_one_row_with_its_span_and_count() -> None:
    app = Horae("sqlite://")

    @app.job("minutely", Every("1m"), recovery="none")
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("90s")
        await sim.crash()
        await sim.jump("20d")
        runs = await oldest_first(app)
        assert len(runs) == 3
        span = runs[1]
        assert (span.state, span.count, clock(span.covers_from)) == ("MISSED", 20 * 24 * 60 - 1, "0:01:00")

    simulate(app, body)


def test_a_job_whose_very_first_slot_was_missed_recovers_as_any_other() -> None:
    app = Horae("sqlite://")
    seen = hourly(app, "all")

    async def body(sim: Simulation) -> None:
        await sim.advance("30m")
        await sim.crash()
        await sim.jump("3h")
        await sim.advance("1m")

    simulate(app, body)
    assert [slot for slot, _ in seen] == ["1:00:00", "2:00:00", "3:00:00"]


def test_a_clock_that_is_set_back_runs_no_slot_a_second_time() -> None:
    app = Horae("sqlite://")
    seen = hourly(app, "all")

    async def body(sim: Simulation) -> None:
        await sim.advance("2h30m")
        await sim.set_clock(sim.now - (sim.now - sim.now.replace(hour=0, minute=30)))
        await sim.advance("3h")

    simulate(app, body)
    slots = [slot for slot, _ in seen]
    assert slots == ["1:00:00", "2:00:00", "3:00:00"]
