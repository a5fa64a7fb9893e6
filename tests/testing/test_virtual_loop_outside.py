"""Virtual time and the world outside: held work stops it, strangers slow it, the background does neither."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from horae.testing.alternation import shut_down
from horae.testing.virtual_loop import VirtualLoop

YEAR = 365 * 86_400.0
GUARD = 60.0
"""Real seconds after which something never happens, however slow the machine is."""


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    shut_down(loop)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def at_each(loop: VirtualLoop, *delays: float) -> list[float]:
    """The moments at which timers fire that are set now."""
    seen: list[float] = []
    for delay in delays:
        loop.call_later(delay, lambda: seen.append(loop.time()))
    return seen


def test_time_stands_still_while_a_thread_works(loop: VirtualLoop) -> None:
    done = threading.Event()

    async def main() -> tuple[str, float]:
        return await asyncio.to_thread(lambda: "worked" if done.wait(GUARD) else "too late"), loop.time()

    threading.Timer(0.05, done.set).start()
    seen = at_each(loop, 0.001)
    assert loop.run_through(main()) == ("worked", 0.0)
    assert seen == []


def test_a_thousand_answers_of_threads_all_come_before_time_moves(loop: VirtualLoop) -> None:
    async def main() -> set[float]:
        moments = set()
        for _ in range(500):
            await asyncio.gather(asyncio.to_thread(int), asyncio.to_thread(int))
            moments.add(loop.time())
        return moments

    at_each(loop, *range(1, 50))
    assert loop.run_through(main()) == {0.0}


def test_a_thread_is_waited_for_when_nobody_awaits_it_any_more(loop: VirtualLoop) -> None:
    started, done, ended = threading.Event(), threading.Event(), []

    def work() -> None:
        started.set()
        done.wait(GUARD)
        ended.append(loop.time())

    async def main() -> None:
        future = loop.run_in_executor(None, work)
        while not started.is_set():
            await asyncio.sleep(0)
        future.cancel()

    loop.create_task(main())
    threading.Timer(0.05, done.set).start()
    loop.run_to(5.0)
    assert ended == [0.0]


def test_an_executor_of_one_s_own_is_held_and_work_that_never_began_is_not(loop: VirtualLoop) -> None:
    gate = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        first = loop.run_in_executor(executor, gate.wait, GUARD)
        loop.run_in_executor(executor, int).cancel()
        threading.Timer(0.02, gate.set).start()
        loop.run_to(1.0)
        assert first.result() is True


def test_releasing_more_than_was_held_is_refused(loop: VirtualLoop) -> None:
    with loop.holding():
        pass
    with pytest.raises(RuntimeError, match="released more often than held"):
        loop.release()


def test_a_release_by_a_thread_that_has_nothing_else_to_say_is_noticed(loop: VirtualLoop) -> None:
    loop.hold()
    threading.Timer(0.02, loop.release).start()
    loop.run_to(1.0)
    assert loop.time() == 1.0


def test_a_stranger_s_descriptor_is_given_time_before_time_moves(
    loop: VirtualLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    loop.patience = GUARD

    async def receive() -> tuple[bytes, float]:
        return await loop.sock_recv(ours, 10), loop.time()

    receiving = loop.create_task(receive())
    threading.Timer(0.02, theirs.send, [b"hello"]).start()
    at_each(loop, 1.0, 2.0)
    loop.run_to(3.0)
    assert receiving.result() == (b"hello", 0.0)


def test_a_silent_stranger_is_waited_for_once_until_it_speaks(
    loop: VirtualLoop, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.patience = 0.01
    receiving = loop.create_task(loop.sock_recv(pair[0], 10))
    seen = at_each(loop, 1.0, 2.0)
    waits: list[float | None] = []
    select = loop._selector.select

    def noted(timeout: float | None) -> Any:
        waits.append(timeout)
        return select(timeout)

    monkeypatch.setattr(loop._selector, "select", noted)
    loop.run_to(3.0)
    assert seen == [1.0, 2.0]
    assert [timeout for timeout in waits if timeout] == [0.01]
    pair[1].send(b"late")
    loop.run_to(3.0)
    assert receiving.result() == b"late"
    receiving = loop.create_task(loop.sock_recv(pair[0], 10))
    waits.clear()
    loop.run_to(4.0)
    assert [timeout for timeout in waits if timeout] == [0.01]
    assert not receiving.done()


def test_the_background_listens_without_stopping_time(
    loop: VirtualLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    loop.patience = 60.0  # would be noticed
    heard: list[tuple[bytes, float]] = []
    beats: list[float] = []

    async def listen() -> None:
        while data := await loop.sock_recv(ours, 10):
            heard.append((data, loop.time()))

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.1)
            beats.append(loop.time())

    with loop.background():
        loop.create_task(listen())
        loop.create_task(beat())
    seen = at_each(loop, 100.0)
    loop.run_to(YEAR)
    assert (seen, beats) == ([100.0], [100.0, YEAR])
    theirs.send(b"notice")
    loop.run_to(YEAR)
    assert heard == [(b"notice", YEAR)]


def test_timers_of_the_background_fire_in_one_order_with_all_others(loop: VirtualLoop) -> None:
    seen: list[str] = []
    loop.call_later(2.0, seen.append, "second")
    with loop.background():
        loop.call_later(1.0, seen.append, "first")
        loop.call_later(2.0, seen.append, "third")
    loop.jump_to(5.0)
    assert seen == ["first", "second", "third"]


def test_a_coroutine_of_the_background_gets_its_timers_when_nobody_else_has_any(loop: VirtualLoop) -> None:
    async def main() -> float:
        with loop.background():
            await asyncio.create_task(asyncio.sleep(1.5))
        return loop.time()

    assert loop.run_through(main()) == 1.5
