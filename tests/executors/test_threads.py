"""Sync tasks in threads: results in the loop, threads used again, nothing a call raises or never returns does harm."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.executors.bench import PATIENCE, comes_true

from horae.executors.threads import Threads


async def call(threads: Threads, function: Callable[[], Any]) -> tuple[Any, BaseException | None, threading.Thread]:
    """Value and error of one call, and the thread that was told of them."""
    told: asyncio.Future[tuple[Any, BaseException | None, threading.Thread]] = (
        asyncio.get_running_loop().create_future()
    )
    threads.submit(function, lambda value, error: told.set_result((value, error, threading.current_thread())))
    return await told


def test_a_call_runs_in_another_thread_and_its_value_is_told_in_the_loop() -> None:
    async def scenario() -> None:
        threads = Threads(asyncio.get_running_loop())
        value, error, listener = await call(threads, threading.current_thread)
        assert error is None
        assert listener is threading.current_thread()
        assert value is not listener
        assert value.daemon
        threads.close()

    asyncio.run(scenario())


def test_one_thread_serves_calls_that_come_one_after_another() -> None:
    async def scenario() -> None:
        threads = Threads(asyncio.get_running_loop())
        names = {(await call(threads, lambda: threading.current_thread().name))[0] for _ in range(50)}
        assert len(names) == 1
        threads.close()

    asyncio.run(scenario())


def test_calls_that_wait_for_each_other_each_get_a_thread() -> None:
    async def scenario() -> None:
        threads = Threads(asyncio.get_running_loop())
        together = threading.Barrier(20, timeout=PATIENCE)
        for _ in range(2):
            ends = await asyncio.gather(*(call(threads, together.wait) for _ in range(20)))
            assert [error for _, error, _ in ends if error is not None] == []
        assert threads.busy == 0
        threads.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_whatever_a_call_raises_is_told_and_harms_neither_thread_nor_loop(raised: type[BaseException]) -> None:
    def fail() -> None:
        raise raised("no")

    async def scenario() -> None:
        threads = Threads(asyncio.get_running_loop())
        before = (await call(threads, threading.current_thread))[0]
        value, error, _ = await call(threads, fail)
        assert value is None
        assert type(error) is raised
        assert (await call(threads, threading.current_thread))[0] is before
        threads.close()

    asyncio.run(scenario())


def test_thousands_of_calls_all_come_back_exactly_once() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        threads, over = Threads(loop), loop.create_future()
        values: list[int] = []
        left = iter(range(5_000))

        def done(value: int, error: BaseException | None) -> None:
            values.append(value)
            following = next(left, None)
            if following is not None:
                threads.submit(lambda: following, done)
            elif not threads.busy:
                over.set_result(None)

        for number in [next(left) for _ in range(32)]:
            threads.submit(lambda number=number: number, done)  # type: ignore[misc]  # mypy cannot infer such a default
        await over
        assert sorted(values) == list(range(5_000))
        threads.close()

    asyncio.run(scenario())


def test_results_that_come_while_the_loop_is_busy_are_told_with_one_wake_up() -> None:
    class CountingLoop(asyncio.SelectorEventLoop):
        woken = 0

        def call_soon_threadsafe(self, *arguments: Any, **options: Any) -> asyncio.Handle:  # type: ignore[override]  # handed on as it is
            self.woken += 1
            return super().call_soon_threadsafe(*arguments, **options)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        threads = Threads(loop)
        values: list[int] = []
        ready = threading.Semaphore(0)
        for _ in range(30):
            threads.submit(ready.release, lambda value, error: values.append(1))
        for _ in range(30):
            assert ready.acquire(timeout=PATIENCE)
        # Each has been called; that each has also handed its result over is seen nowhere else.
        assert comes_true(lambda: len(threads._finished) == 30)
        while len(values) < 30:
            await asyncio.sleep(0)
        assert loop.woken < 10
        threads.close()

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(scenario())


def test_a_listener_that_fails_does_not_cost_the_others_their_results() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        threads = Threads(loop)
        threads.submit(int, lambda value, error: [][0])
        assert (await call(threads, lambda: "told"))[0] == "told"
        assert [type(each["exception"]) for each in complaints] == [IndexError]
        assert threads.busy == 0
        threads.close()

    asyncio.run(scenario())


def test_an_idle_thread_keeps_nothing_of_its_last_call_alive() -> None:
    class Value:
        pass

    async def scenario() -> None:
        threads = Threads(asyncio.get_running_loop())
        told = await call(threads, Value)
        reference = weakref.ref(told[0])
        del told
        await asyncio.sleep(0)
        gc.collect()
        assert reference() is None
        threads.close()

    asyncio.run(scenario())


def test_closing_ends_idle_threads_and_leaves_a_stuck_one_whose_result_is_dropped() -> None:
    release = threading.Event()
    told: list[Any] = []

    async def scenario() -> tuple[threading.Thread, threading.Thread]:
        threads = Threads(asyncio.get_running_loop())
        both = threading.Barrier(2, timeout=PATIENCE)
        pair = await asyncio.gather(
            *(call(threads, lambda: (both.wait(), threading.current_thread())[1]) for _ in range(2))
        )
        workers = {each[0] for each in pair}
        began: asyncio.Future[threading.Thread] = asyncio.get_running_loop().create_future()

        def stick() -> None:
            began.get_loop().call_soon_threadsafe(began.set_result, threading.current_thread())
            release.wait(PATIENCE)

        threads.submit(stick, lambda *end: told.append(end))
        stuck = await began
        (idle,) = workers - {stuck}
        threads.close()
        threads.close()
        idle.join(PATIENCE)
        assert not idle.is_alive()
        assert threads.busy == 1
        with pytest.raises(RuntimeError):
            threads.submit(int, lambda *end: None)
        return idle, stuck

    _, stuck = asyncio.run(scenario())
    assert stuck.is_alive()
    release.set()  # the loop is closed by now
    stuck.join(PATIENCE)
    assert not stuck.is_alive()
    assert told == []


def test_a_call_that_never_comes_back_does_not_keep_the_program_from_ending() -> None:
    program = """
import asyncio, threading
from horae.executors.threads import Threads

async def main():
    began = threading.Event()
    Threads(asyncio.get_running_loop()).submit(lambda: (began.set(), threading.Event().wait()), print)
    assert began.wait(60)

asyncio.run(main())
print("over")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert (ended.stdout, ended.stderr) == ("over\n", "")
