"""Virtual time: exact, in order, never waiting for a timer."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from horae.testing.alternation import shut_down
from horae.testing.virtual_loop import VirtualLoop

YEAR = 365 * 86_400.0


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    shut_down(loop)


def at_each(loop: VirtualLoop, *delays: float) -> list[float]:
    """The moments at which timers fire that are set now."""
    seen: list[float] = []
    for delay in delays:
        loop.call_later(delay, lambda: seen.append(loop.time()))
    return seen


# ---- time ------------------------------------------------------------------------------------------------------------


def test_time_begins_at_zero_and_ends_at_the_limit_without_any_timer(loop: VirtualLoop) -> None:
    assert loop.time() == 0.0
    loop.run_to(12.345)
    assert loop.time() == 12.345
    assert loop.ticks == 12_345_000


def test_a_tenth_of_a_second_ten_times_is_a_second_and_stays_exact_after_ten_years(loop: VirtualLoop) -> None:
    async def ten_tenths() -> float:
        for _ in range(10):
            await asyncio.sleep(0.1)
        return loop.time()

    assert loop.run_through(ten_tenths()) == 1.0
    loop.run_to(10 * YEAR + 0.001)
    assert loop.run_through(ten_tenths()) == 10 * YEAR + 1.001


def test_a_timer_fires_at_its_own_moment_and_the_limit_is_included(loop: VirtualLoop) -> None:
    seen = at_each(loop, 3.0, 0.001, 2.0, 2.000_001)
    loop.run_to(2.0)
    assert seen == [0.001, 2.0]
    loop.run_to(3.0)
    assert seen == [0.001, 2.0, 2.000_001, 3.0]


def test_timers_of_random_delays_fire_in_the_order_of_a_sorted_list(loop: VirtualLoop) -> None:
    draw = random.Random(7)
    seen: list[tuple[float, int]] = []
    wanted: list[tuple[float, int]] = []

    def note(number: int) -> None:
        seen.append((loop.time(), number))

    for number in range(2000):
        delay = draw.randrange(300) / 1000
        handle = loop.call_later(delay, note, number)
        if draw.random() < 0.6:
            handle.cancel()
        else:
            wanted.append((delay, number))
    loop.run_to(1.0)
    assert seen == sorted(wanted)  # of one moment, in the order they were set


def test_cancelled_timers_are_not_kept_until_their_moment(loop: VirtualLoop) -> None:
    seen = at_each(loop, 2.0)
    for _ in range(1000):
        loop.call_later(YEAR, print).cancel()
    loop.run_to(1.0)
    assert len(loop._timers) == 1
    loop.call_later(1.0, print).cancel()  # of the same moment as one that fires
    loop.run_to(2.0)
    assert seen == [2.0]
    assert (loop._timers, loop._timer_cancelled_count) == ([], 0)


def test_a_sleep_of_less_than_a_tick_still_moves_time(loop: VirtualLoop) -> None:
    async def until(deadline: float) -> float:
        while loop.time() < deadline:
            await asyncio.sleep(deadline - loop.time())
        return loop.time()

    assert loop.run_through(until(0.1 + 0.2)) == 0.300_001
    handle = loop.call_at(0.300_001_000_000_1, lambda: None)
    assert handle.when() == 0.300_002


def test_a_timer_for_now_fires_without_moving_time_even_while_work_is_held(loop: VirtualLoop) -> None:
    seen = at_each(loop, 0, -1, 5)
    loop.hold()
    loop.call_later(0, lambda: loop.call_later(0, loop.release))
    loop.run_to(1.0)
    assert seen == [0.0, 0.0]


def test_a_timer_for_ever_never_fires_and_stops_nobody(loop: VirtualLoop) -> None:
    seen = at_each(loop, math.inf, 1.0)
    loop.run_to(100 * YEAR)
    assert seen == [1.0]
    with pytest.raises(ValueError, match="not to inf"):
        loop.run_to(math.inf)


def test_time_does_not_go_back(loop: VirtualLoop) -> None:
    loop.run_to(5.0)
    for go in (loop.run_to, loop.jump_to):
        with pytest.raises(ValueError, match=r"goes on from 5\.0, and not to 4\.0"):
            go(4.0)


def test_a_jump_fires_what_came_due_late_in_its_order(loop: VirtualLoop) -> None:
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, loop.time()))

    async def periodic() -> None:
        while True:
            await asyncio.sleep(10)
            note("periodic")

    loop.create_task(periodic())
    loop.run_to(0.0)
    for name, delay in (("later", 30.0), ("sooner", 20.0), ("after", 41.0)):
        loop.call_later(delay, note, name)
    loop.jump_to(40.0)
    assert seen == [("sooner", 40.0), ("later", 40.0), ("periodic", 40.0)]
    loop.run_to(50.0)
    assert seen[3:] == [("after", 41.0), ("periodic", 50.0)]


def test_timeouts_locks_conditions_and_groups_work_on_virtual_time(loop: VirtualLoop) -> None:
    seen: list[Any] = []

    async def consumer(condition: asyncio.Condition) -> None:
        async with condition:
            await condition.wait()
            seen.append(("notified", loop.time()))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(3600)
        seen.append(loop.time())
        condition = asyncio.Condition()
        async with asyncio.TaskGroup() as group:
            group.create_task(consumer(condition))
            await asyncio.sleep(2.5)
            async with condition:
                condition.notify_all()

    loop.run_through(main(), limit=90)
    assert seen == [60.0, ("notified", 62.5)]


# ---- run_through -----------------------------------------------------------------------------------------------------


def test_a_coroutine_that_needs_no_timer_is_done_without_moving_time(loop: VirtualLoop) -> None:
    seen = at_each(loop, 0.5)

    async def answer() -> int:
        for _ in range(100):
            await asyncio.sleep(0)
        return 42

    assert loop.run_through(answer()) == 42
    assert (loop.time(), seen) == (0.0, [])


def test_time_moves_for_a_coroutine_as_far_as_it_was_allowed_to(loop: VirtualLoop) -> None:
    async def busy(pause: float) -> float:
        await asyncio.sleep(pause)
        return loop.time()

    assert loop.run_through(busy(60)) == 60.0
    with pytest.raises(RuntimeError, match=r"busy.* waits in vain: .* in 5 virtual seconds"):
        loop.run_through(busy(6), limit=5)
    assert loop.time() == 60.0
    assert not asyncio.all_tasks(loop)


def test_a_coroutine_that_nothing_can_wake_is_refused_and_cancelled(loop: VirtualLoop) -> None:
    cancelled = []

    async def forlorn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(loop.time())

    with pytest.raises(RuntimeError, match=r"forlorn.* waits in vain"):
        loop.run_through(forlorn(), limit=math.inf)
    assert cancelled == [0.0]


def test_what_the_coroutine_raises_is_raised(loop: VirtualLoop) -> None:
    async def fails() -> None:
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        loop.run_through(fails())
    loop.run_to(1.0)


def test_a_loop_that_somebody_stops_goes_on_to_its_limit(loop: VirtualLoop) -> None:
    loop.call_later(1.0, loop.stop)
    seen = at_each(loop, 2.0)
    loop.run_to(3.0)
    assert seen == [2.0]


def test_it_runs_as_any_loop_does_under_a_plain_runner() -> None:
    async def main() -> float:
        await asyncio.sleep(YEAR)
        loop = asyncio.get_running_loop()
        threading.Timer(0.01, loop.call_soon_threadsafe, [event.set]).start()
        await event.wait()  # without a timer or held work a loop without a limit waits for something real
        return loop.time()

    event = asyncio.Event()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == YEAR


# ---- pauses ----------------------------------------------------------------------------------------------------------


def test_a_pause_comes_when_all_of_its_moment_is_done_and_the_next_run_goes_on_from_there(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1.0)
        loop.pause()
        seen.append("pause")
        await asyncio.sleep(0)
        seen.append("the rest of that moment")

    loop.create_task(work())
    loop.call_later(1.0, seen.append, "a timer of that moment")
    loop.call_later(2.0, seen.append, "a later one")
    assert not loop.run_to(3.0)
    assert loop.time() == 1.0
    assert sorted(seen) == ["a timer of that moment", "pause", "the rest of that moment"]
    assert loop.run_to(3.0)
    assert (seen[-1], loop.time()) == ("a later one", 3.0)


def test_a_pause_that_nobody_was_running_for_stops_the_next_run_before_time_moves(loop: VirtualLoop) -> None:
    loop.pause()
    loop.run_through(asyncio.sleep(1.0))  # somebody waits for its end
    assert not loop.run_to(2.0)
    assert loop.time() == 1.0
    assert loop.run_to(2.0)
    loop.pause()
    assert not loop.jump_to(5.0)
    assert loop.time() == 5.0
    assert loop.run_to(5.0)


def test_what_is_ready_runs_without_time_moving(loop: VirtualLoop) -> None:
    seen = at_each(loop, 0.0, 0.001)

    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    task = loop.create_task(work())
    loop.run_ready()
    assert (task.result(), seen, loop.time()) == ("done", [0.0], 0.0)
