"""Whose turn it is to write among texts of others on SQLite: one at a time, in order, and not all of the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from horae.store.sqlite.text.write_turn import MOST_EXCESS, WriteTurn

PATIENCE = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def asked(turn: WriteTurn, threads: ThreadPoolExecutor, text: str, over: threading.Event | None = None) -> Future[bool]:
    """Asks in a thread, and comes back when the text is among those that wait, or has its turn."""
    looks = threading.Semaphore(0)

    def is_over() -> bool:
        looks.release()
        return over is not None and over.is_set()

    found = threads.submit(turn.take, text, is_over)
    assert looks.acquire(timeout=PATIENCE)
    return found


def test_texts_write_one_at_a_time_in_the_order_in_which_they_asked(threads: ThreadPoolExecutor) -> None:
    turn = WriteTurn(Clock())
    assert turn.take("a", lambda: False)
    assert turn.take("a", lambda: False), "a text that has its turn keeps it"
    second, third = asked(turn, threads, "b"), asked(turn, threads, "c")
    turn.give_back("c")
    assert not second.done()
    turn.give_back("a")
    assert second.result(PATIENCE)
    assert not third.done()
    turn.give_back("b")
    assert third.result(PATIENCE)


def test_a_text_that_is_over_waits_no_more_and_holds_nobody_up(threads: ThreadPoolExecutor) -> None:
    turn = WriteTurn(Clock())
    assert turn.take("a", lambda: False)
    over = threading.Event()
    second, third = asked(turn, threads, "b", over), asked(turn, threads, "c")
    over.set()
    turn.look()
    assert second.result(PATIENCE) is False
    turn.give_back("a")
    assert third.result(PATIENCE)


def test_what_texts_have_held_is_left_to_others_before_the_next_begins(threads: ThreadPoolExecutor) -> None:
    clock = Clock()
    turn = WriteTurn(clock)
    assert turn.take("a", lambda: False)
    clock.now += 5
    turn.give_back("a")
    second = asked(turn, threads, "b")
    clock.now += 5 - MOST_EXCESS - 0.25
    turn.look()
    assert not second.done()
    clock.now += 0.5
    turn.look()
    assert second.result(PATIENCE)


def test_short_texts_that_leave_room_for_others_never_wait() -> None:
    clock = Clock()
    turn = WriteTurn(clock)
    for number in range(1000):
        assert turn.take(number, lambda: False)
        clock.now += 0.004
        turn.give_back(number)
        clock.now += 0.004
