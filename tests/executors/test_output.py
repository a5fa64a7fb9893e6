"""One attempt's text: bounded, counted, taken in pieces, written by many."""

from __future__ import annotations

import sys
import threading
import tracemalloc

from horae.executors.output import Output


def test_text_is_taken_in_pieces_and_the_rest_comes_with_the_end() -> None:
    output = Output()
    output.write("one ")
    output.write("two\n")
    assert output.take() == "one two\n"
    assert output.take() == ""
    output.write("three")
    assert output.close() == "three"


def test_what_was_never_written_to_is_empty_and_says_nothing() -> None:
    output = Output()
    output.write("")
    assert output.empty
    assert output.close() == ""


def test_it_is_not_empty_until_what_was_written_is_taken() -> None:
    output = Output()
    output.write("a")
    assert not output.empty
    output.take()
    assert output.empty


def test_text_past_the_limit_is_counted_over_all_pieces_and_told_once() -> None:
    output = Output(limit=10)
    output.write("12345")
    assert output.take() == "12345"
    output.write("6789abcdef")
    output.write("xyz")
    assert output.take() == "6789a"
    assert not output.empty
    assert output.close() == "\n… 8 characters more were not kept\n"
    assert output.close() == ""


def test_the_note_on_what_is_missing_begins_on_a_line_of_its_own() -> None:
    output = Output(limit=3)
    output.write("ab\n")
    output.write("c")
    assert output.close() == "ab\n… 1 character more were not kept\n"


def test_nothing_is_kept_after_the_end() -> None:
    told: list[Output] = []
    output = Output(notify=told.append)
    output.close()
    output.write("late")
    assert (output.empty, output.close(), told) == (True, "", [])


def test_whoever_asked_is_notified_of_the_first_text_after_each_taking() -> None:
    told: list[Output] = []
    output = Output(limit=6, notify=told.append)
    for text in ("a", "b"):
        output.write(text)
        output.write(text)
        assert told == [output]
        output.take()
        told.clear()
    output.write("ef")
    output.take()
    told.clear()
    output.write("no room for this")
    assert told == []


def test_printing_goes_on_when_whoever_asked_cannot_be_told() -> None:
    def closed(output: Output) -> None:
        raise RuntimeError("Event loop is closed")

    output = Output(notify=closed)
    output.write("kept")
    assert output.close() == "kept"


def test_a_gigabyte_takes_no_more_memory_than_its_limit() -> None:
    megabyte = "x" * 1024 * 1024
    output = Output()
    tracemalloc.start()
    try:
        for _ in range(1024):
            output.write(megabyte)
        for _ in range(10_000):
            output.write("x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000
    text = output.close()
    assert text.startswith("x" * 65_536 + "\n")
    assert text.endswith(f"… {1024 * 1024 * 1024 + 10_000 - 65_536} characters more were not kept\n")


def test_many_small_texts_take_little_memory_too() -> None:
    output = Output()
    tracemalloc.start()
    try:
        for number in range(20_000):
            output.write(chr(0x400 + number % 100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300_000


def test_nothing_written_by_several_threads_is_lost_or_counted_twice() -> None:
    output = Output(limit=30_000)
    pieces: list[str] = []
    over = threading.Event()

    def take() -> None:
        while not over.is_set():
            pieces.append(output.take())

    def write(letter: str) -> None:
        for _ in range(2_000):
            output.write(letter * 5)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        taker = threading.Thread(target=take)
        writers = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
        for thread in (taker, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        over.set()
        taker.join()
    finally:
        sys.setswitchinterval(before)
    text = "".join(pieces) + output.close()
    assert len(text.partition("\n")[0]) == 30_000
    assert text.endswith("\n… 10000 characters more were not kept\n")


def test_a_print_in_the_middle_of_a_print_does_not_wait_for_itself() -> None:
    """As from a signal handler, or from a finalizer."""
    output = Output()

    class Talker(str):
        def __getitem__(self, index: object) -> str:
            output.write("in the middle ")
            return "end"

    done = threading.Thread(target=output.write, args=(Talker("text "),), daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive()
    assert output.close() == "text in the middle "
