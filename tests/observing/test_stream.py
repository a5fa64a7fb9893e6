"""The stream: who hears what, and that nobody is hurt by anybody else."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from typing import Any, NamedTuple, NoReturn

import pytest
from tests.observing.samples import SAMPLES, sample

from horae import events
from horae.errors import InvalidInput
from horae.events import EVENTS, HistoryDeleted, Listener, RunEnded, RunsReaped, RunStarted, Stream


def test_the_catalogue_holds_every_event_class_of_the_module_once() -> None:
    tuples = [each for each in vars(events).values() if isinstance(each, type) and hasattr(each, "_fields")]
    assert list(EVENTS) == tuples
    assert {type(each) for each in SAMPLES} == set(EVENTS)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_says_when_it_is_emitted(kind: type[Any]) -> None:
    assert (kind.__doc__ or "").startswith("Emitted "), kind


def test_a_listener_hears_only_the_classes_it_asked_for_in_the_order_of_their_emission() -> None:
    stream, heard = Stream(), list[object]()
    stream.listen(heard.append, RunStarted, RunEnded)
    for event in SAMPLES:
        stream.emit(event)
    assert heard == [sample(RunStarted), sample(RunEnded)]


def test_a_listener_that_names_no_class_hears_all() -> None:
    stream, heard = Stream(), list[object]()
    stream.listen(heard.append)
    for event in SAMPLES:
        stream.emit(event)
    assert heard == list(SAMPLES)


def test_listeners_are_called_in_the_order_in_which_they_began_to_listen() -> None:
    stream, heard = Stream(), list[str]()
    stream.listen(lambda _: heard.append("first"), RunsReaped)
    stream.listen(lambda _: heard.append("second"))
    stream.listen(lambda _: heard.append("third"), RunsReaped)
    stream.emit(RunsReaped(1))
    assert heard == ["first", "second", "third"]


def test_an_event_is_wanted_while_somebody_listens_to_its_class() -> None:
    stream = Stream()
    assert not any(stream.wanted(kind) for kind in EVENTS)
    end = stream.listen(lambda _: None, RunEnded)
    assert [kind for kind in EVENTS if stream.wanted(kind)] == [RunEnded]
    end()
    assert not stream.wanted(RunEnded)


def test_the_same_listener_may_listen_twice_and_ends_each_on_its_own() -> None:
    stream, heard = Stream(), list[object]()
    first = stream.listen(heard.append, RunsReaped)
    stream.listen(heard.append, RunsReaped)
    first()
    first()
    stream.emit(RunsReaped(1))
    assert heard == [RunsReaped(1)]


def test_a_listener_may_stop_listening_while_it_hears() -> None:
    stream, heard = Stream(), list[str]()

    def once(event: object) -> None:
        heard.append("once")
        end()

    end = stream.listen(once, RunsReaped)
    stream.listen(lambda _: heard.append("always"), RunsReaped)
    stream.emit(RunsReaped(1))
    stream.emit(RunsReaped(1))
    assert heard == ["once", "always", "always"]


def test_one_that_begins_to_listen_during_an_emission_hears_from_the_next_on() -> None:
    stream, heard = Stream(), list[object]()

    def introduce(event: object) -> None:
        end()
        stream.listen(heard.append, RunsReaped)

    end = stream.listen(introduce, RunsReaped)
    stream.emit(RunsReaped(1))
    stream.emit(RunsReaped(2))
    assert heard == [RunsReaped(2)]


def test_a_listener_that_raises_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    stream, heard = Stream(), list[object]()

    def broken(event: object) -> NoReturn:
        raise ValueError("no such dashboard")

    stream.listen(broken)
    stream.listen(heard.append)
    stream.emit(RunsReaped(1))
    assert heard == [RunsReaped(1)]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("horae", logging.ERROR)
    assert "broken failed at RunsReaped" in record.getMessage()
    assert "no such dashboard" in caplog.text


def test_a_listener_s_error_is_logged_once_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()

    def broken(event: RunsReaped) -> NoReturn:
        raise (KeyError if event.count == 7 else ValueError)(event.count)

    stream.listen(broken, RunsReaped)
    for count in (1, 2, 7, 3, 7):
        stream.emit(RunsReaped(count))
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, KeyError]


def test_the_errors_of_two_listeners_are_logged_for_each_of_them(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    for text in ("one", "two"):
        stream.listen(functools.partial(int, base=text), RunsReaped)  # type: ignore[arg-type]  # raises TypeError at every call
    stream.emit(RunsReaped(1))
    stream.emit(RunsReaped(1))
    assert len(caplog.records) == 2


def test_a_cancellation_inside_a_listener_does_not_cancel_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    async def engine() -> str:
        stream, future = Stream(), asyncio.get_running_loop().create_future()
        future.cancel()
        stream.listen(lambda _: future.result(), RunsReaped)
        stream.emit(RunsReaped(1))
        return "went on"

    assert asyncio.run(engine()) == "went on"
    assert "CancelledError" in caplog.text


def test_a_request_to_end_the_program_goes_through() -> None:
    stream = Stream()

    def interrupted(event: object) -> NoReturn:
        raise KeyboardInterrupt

    stream.listen(interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.emit(RunsReaped(1))


def test_events_of_different_classes_do_not_mix_though_their_values_are_equal() -> None:
    stream, heard = Stream(), list[object]()
    stream.listen(heard.append, RunsReaped)
    stream.emit(HistoryDeleted(1))
    assert heard == []


def test_a_class_that_is_no_event_cannot_be_listened_to() -> None:
    class Unknown(NamedTuple):
        count: int  # type: ignore[assignment]  # hides tuple.count

    with pytest.raises(InvalidInput, match="no class of events"):
        Stream().listen(print, Unknown)


async def _later(event: object) -> None: ...


class _Later:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize("listener", [_later, _Later(), "print"], ids=["coroutine function", "async object", "text"])
def test_what_cannot_be_called_at_once_cannot_listen(listener: Listener) -> None:
    with pytest.raises(InvalidInput, match="plain function"):
        Stream().listen(listener)


def test_others_may_come_and_go_on_their_own_threads_while_events_are_emitted() -> None:
    stream, heard = Stream(), list[object]()
    stream.listen(heard.append, RunsReaped)
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            stream.listen(lambda _: None, RunsReaped)()

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for count in range(5_000):
        stream.emit(RunsReaped(count))
    done.set()
    for thread in threads:
        thread.join()
    assert heard == [RunsReaped(count) for count in range(5_000)]
    stream.emit(HistoryDeleted(1))
    assert stream.wanted(RunsReaped)
