"""Order and failures on virtual time: seeds shuffle the steps of tasks and nothing else; no exception is lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from horae.testing.alternation import shut_down
from horae.testing.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    shut_down(loop)


def interleaving(seed: int | None, task_class: type[asyncio.Task[Any]] = asyncio.Task) -> str:
    """Three tasks of five steps each, that wait by turns for the next turn and for a timer they share."""
    loop = VirtualLoop(seed)
    loop.set_task_factory(lambda loop, coroutine, **options: task_class(coroutine, loop=loop, **options))
    trace: list[str] = []

    async def walk(name: str) -> None:
        for step in range(5):
            trace.append(name)
            await asyncio.sleep(step % 2)

    for name in "abc":
        loop.create_task(walk(name))
    loop.run_to(10.0)
    shut_down(loop)
    return "".join(trace)


def test_without_a_seed_tasks_take_turns_in_the_order_they_were_made() -> None:
    assert interleaving(None) == "abc" * 5


@pytest.mark.parametrize("task_class", [asyncio.Task, asyncio.tasks._PyTask])  # type: ignore[attr-defined]  # private
def test_one_seed_is_one_interleaving_and_seeds_differ(task_class: type[asyncio.Task[Any]]) -> None:
    seen = {seed: interleaving(seed, task_class) for seed in range(20)}
    assert len(set(seen.values())) > 15
    assert {seed: interleaving(seed, task_class) for seed in range(20)} == seen
    for trace in seen.values():
        assert sorted(trace) == sorted("abc" * 5)
    # Their first steps and their later ones are shuffled both.
    assert len({trace[:3] for trace in seen.values()}) > 1
    assert len({trace[6:9] for trace in seen.values()}) > 1


def test_the_c_task_and_the_python_task_are_shuffled_alike() -> None:
    assert interleaving(3) == interleaving(3, asyncio.tasks._PyTask)  # type: ignore[attr-defined]  # private


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_leaves_callbacks_in_their_order_and_places(seed: int) -> None:
    loop = VirtualLoop(seed)
    trace: list[Any] = []

    async def step(name: str) -> None:
        trace.append(name)

    def note(number: int, _: object) -> None:
        trace.append(number)

    for number in range(5):
        loop.call_soon(trace.append, number)
        loop.create_task(step("step"))
    future = loop.create_future()
    for number in range(5, 10):
        future.add_done_callback(partial(note, number))
        loop.call_at(1.0, trace.append, number + 5)
    loop.call_soon(future.set_result, None)
    loop.run_to(1.0)
    assert trace == [0, "step", 1, "step", 2, "step", 3, "step", 4, "step", *range(5, 15)]
    shut_down(loop)


@pytest.mark.parametrize("seed", range(10))
def test_a_callback_that_is_a_task_s_method_but_no_step_keeps_its_place(seed: int) -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    loop = VirtualLoop(seed)
    task = loop.create_task(waits())
    for name in ("first", "second", "third", "last"):
        loop.call_soon(task.set_name, name)
    loop.run_to(0.0)
    assert task.get_name() == "last"
    shut_down(loop)


def test_an_exception_that_nobody_awaits_is_raised_at_the_end_of_the_run_once(loop: VirtualLoop) -> None:
    def fail(error: Exception) -> None:
        raise error

    seen: list[float] = []
    loop.call_later(1.0, fail, ValueError("first"))
    loop.call_later(2.0, fail, LookupError("second"))
    loop.call_later(3.0, lambda: seen.append(loop.time()))
    with pytest.raises(ExceptionGroup) as caught:
        loop.run_to(5.0)
    assert [str(error) for error in caught.value.exceptions] == ["first", "second"]
    assert (loop.time(), seen) == (5.0, [3.0])
    loop.run_to(6.0)
    loop.call_exception_handler({"message": "only words"})
    with pytest.raises(ExceptionGroup) as caught:
        loop.jump_to(7.0)
    assert [str(error) for error in caught.value.exceptions] == ["only words"]
    assert len(loop.failures) == 3


def test_a_task_s_exception_that_is_never_retrieved_is_a_failure(loop: VirtualLoop) -> None:
    async def fails() -> None:
        raise LookupError("lost")

    loop.create_task(fails())
    with pytest.raises(ExceptionGroup) as caught:
        loop.run_to(1.0)
    assert caught.group_contains(LookupError, match="lost")


def test_without_strictness_failures_are_kept_and_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    loop = VirtualLoop(strict=False)
    loop.call_soon(int, "x")
    loop.run_to(1.0)
    assert [type(failure["exception"]) for failure in loop.failures] == [ValueError]
    assert "Exception in callback" in caplog.text
    shut_down(loop)


def test_a_handler_of_one_s_own_is_still_told(loop: VirtualLoop, caplog: pytest.LogCaptureFixture) -> None:
    told: list[dict[str, Any]] = []
    gc.collect()  # what other tests left behind is logged when it goes
    caplog.clear()
    loop.set_exception_handler(lambda _, context: told.append(context))
    loop.call_soon(int, "x")
    with pytest.raises(ExceptionGroup):
        loop.run_to(1.0)
    assert told == loop.failures
    assert caplog.text == ""


def test_an_interrupt_of_the_keyboard_leaves_the_rest_to_the_next_run(loop: VirtualLoop) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    seen: list[float] = []
    loop.call_later(1.0, press)
    loop.call_later(1.0, lambda: seen.append(loop.time()))
    with pytest.raises(KeyboardInterrupt):
        loop.run_to(2.0)
    loop.run_to(2.0)
    assert seen == [1.0]
