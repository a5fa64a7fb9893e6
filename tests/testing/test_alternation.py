"""Two loops by turns: the inner one on virtual time in its thread, the outer one on real time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from horae.testing.alternation import LoopThread, shut_down
from horae.testing.virtual_loop import VirtualLoop

GUARD = 60.0
"""Real seconds after which something never happens, however slow the machine is."""


def alternating(body: Callable[[LoopThread], Coroutine[Any, Any, None]]) -> LoopThread:
    async def main() -> LoopThread:
        async with LoopThread(VirtualLoop(), grace=GUARD) as alternation:
            async with asyncio.timeout(GUARD):
                await body(alternation)
        return alternation

    before = set(threading.enumerate())  # other tests may have left some
    alternation = asyncio.run(main())
    assert alternation.loop.is_closed()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith(("alternation", "virtual-loop"))]
    return alternation


def test_calls_run_in_one_thread_and_answer_or_raise() -> None:
    async def body(alternation: LoopThread) -> None:
        threads = {await alternation.call(threading.get_ident) for _ in range(5)}
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        with pytest.raises(ValueError, match="invalid literal"):
            await alternation.call(int, "x")
        await alternation.call(alternation.loop.run_to, 86_400.0)
        assert alternation.loop.time() == 86_400.0

    alternating(body)


def test_a_gate_that_is_opened_from_outside_is_noticed_by_the_next_run() -> None:
    async def body(alternation: LoopThread) -> None:
        loop = alternation.loop
        gate = asyncio.Event()
        passed: list[float] = []

        async def waits() -> None:
            await gate.wait()
            passed.append(loop.time())

        loop.create_task(waits())
        await alternation.call(loop.run_to, 10.0)
        gate.set()
        assert passed == []
        await alternation.call(loop.run_to, 20.0)
        assert passed == [10.0]

    alternating(body)


def test_what_is_cancelled_inside_does_not_look_as_if_the_caller_were() -> None:
    async def body(alternation: LoopThread) -> None:
        async def gives_up() -> None:
            raise asyncio.CancelledError

        with pytest.raises(RuntimeError, match="was cancelled there"):
            await alternation.call(lambda: alternation.loop.run_through(gives_up()))

    alternating(body)


def test_the_inner_loop_cannot_wait_for_itself() -> None:
    async def body(alternation: LoopThread) -> None:
        with pytest.raises(RuntimeError, match="cannot wait for a call to itself"):
            await alternation.call(alternation.loop.run_through, alternation.call(int))

    alternating(body)


@pytest.mark.parametrize("held", [True, False])
def test_cancelling_a_call_interrupts_a_loop_that_waits_or_runs_for_ever(held: bool) -> None:
    async def body(alternation: LoopThread) -> None:
        loop = alternation.loop
        began, never = asyncio.Event(), asyncio.Event()
        outer = asyncio.get_running_loop()
        turns = 0

        async def for_ever() -> None:
            nonlocal turns
            outer.call_soon_threadsafe(began.set)
            while True:
                turns += 1
                await (never.wait() if held else asyncio.sleep(0))

        loop.create_task(for_ever())
        if held:
            loop.hold()
        call = asyncio.create_task(alternation.call(loop.run_to, 10.0))
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not loop.is_running()
        assert loop.time() == 0.0
        rested = turns
        assert await alternation.call(int) == 0
        assert turns == rested
        if held:
            loop.release()
            await alternation.call(loop.run_to, 10.0)  # the interruption was for that call alone

    alternating(body)


def test_a_call_that_is_cancelled_while_another_runs_never_begins() -> None:
    async def body(alternation: LoopThread) -> None:
        loop = alternation.loop
        loop.hold()
        first = asyncio.create_task(alternation.call(loop.run_to, 1.0))
        begun: list[int] = []
        second = asyncio.create_task(alternation.call(begun.append, 1))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        loop.release()
        await first  # nobody interrupted it
        await alternation.call(int)
        assert begun == []

    alternating(body)


def test_a_cancelled_call_that_will_not_rest_is_waited_for_no_longer_than_its_grace() -> None:
    async def body(alternation: LoopThread) -> None:
        alternation.grace = 0.01
        began, gate, ended = threading.Event(), threading.Event(), threading.Event()

        def work() -> None:
            began.set()
            gate.wait(GUARD)
            ended.set()

        call = asyncio.create_task(alternation.call(work))
        while not began.is_set():
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not ended.is_set()
        gate.set()
        # The interruption that came while it ran is forgotten with it.
        await alternation.call(alternation.loop.run_to, 1.0)

    alternating(body)


def test_a_call_may_outlive_the_loop_that_gave_it_up(caplog: pytest.LogCaptureFixture) -> None:
    alternation = LoopThread(VirtualLoop(), grace=0.01)
    gate, ended = threading.Event(), threading.Event()

    async def gives_up() -> None:
        outer = asyncio.get_running_loop()

        def work() -> None:
            outer.call_soon_threadsafe(limit.reschedule, 0.0)  # its time is up as soon as it has begun
            gate.wait(GUARD)
            ended.set()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(GUARD) as limit:
                await alternation.call(work)

    gc.collect()  # what other tests left behind is logged when it goes
    caplog.clear()
    asyncio.run(gives_up())
    assert not ended.is_set()
    gate.set()
    asyncio.run(alternation.close())
    assert ended.is_set()
    assert caplog.text == ""


def test_an_interrupted_loop_runs_nothing_until_that_is_forgotten(recwarn: pytest.WarningsRecorder) -> None:
    gc.collect()  # what other tests left behind is warned of when it goes
    recwarn.clear()
    loop = VirtualLoop()

    async def answer() -> int:
        return 42

    loop.interrupt()
    with pytest.raises(RuntimeError, match="was interrupted at"):
        loop.run_to(1.0)
    with pytest.raises(RuntimeError, match="was interrupted at"):
        loop.run_through(answer())
    loop.forget_interruption()
    assert loop.run_through(answer()) == 42
    shut_down(loop)
    assert list(recwarn) == []


def test_closing_ends_tasks_generators_and_threads_and_drops_what_they_raise() -> None:
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            ended.append("generator")

    generator = numbers()

    async def sleeps() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(5)
            ended.append("sleeper")
            raise LookupError("in its last moments")

    async def body(alternation: LoopThread) -> None:
        loop = alternation.loop

        async def first() -> int:
            return await anext(generator)

        assert await alternation.call(loop.run_through, first()) == 1
        loop.create_task(sleeps())
        loop.create_task(asyncio.to_thread(ended.append, "thread"))
        await alternation.call(loop.run_to, 1.0)

    alternation = alternating(body)
    assert sorted(ended) == ["generator", "sleeper", "thread"]
    assert alternation.loop.failures == []
    asyncio.run(alternation.close())  # twice does no harm


def test_a_task_that_starts_another_while_it_ends_leaves_none_behind() -> None:
    loop = VirtualLoop()
    ended: list[int] = []

    async def chain(left: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(left)
            if left:
                loop.create_task(chain(left - 1))

    loop.create_task(chain(3))
    loop.run_to(1.0)
    shut_down(loop)
    assert ended == [3, 2, 1, 0]


def test_a_task_that_will_not_end_is_named_and_the_loop_closed() -> None:
    loop = VirtualLoop()
    enough = False

    async def stubborn() -> None:
        while not enough:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    task = loop.create_task(stubborn())
    with pytest.raises(RuntimeError, match=r"tasks would not end: .*stubborn"):
        shut_down(loop)
    assert loop.is_closed()
    enough = True
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is left behind on purpose
