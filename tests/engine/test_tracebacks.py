"""Where a failure happened: in the report, in the events, and in the records that handlers of logging are given."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import pytest
from tests.engine import process_tasks
from tests.engine.world import only_report, only_run, simulate

from horae import Every, Horae, Retry
from horae.engine.attempts.error_record import LAST_LINES, AttemptFault, OutputTail, fault_of
from horae.events import AttemptEnded, RunEnded
from horae.executors.outcome import LONGEST_TRACEBACK, failure_of
from horae.logs import JsonFormatter, TextFormatter
from horae.testing.simulation import Simulation

VALUE = "0123456789abcdefghij"


class Kept(logging.Handler):
    """What a handler such as Sentry's is given."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    handler, logger = Kept(), logging.getLogger("horae.runs")
    logger.addHandler(handler)
    yield handler.records
    logger.removeHandler(handler)


def inner() -> None:
    raise ValueError("no such table")


def outer() -> None:
    try:
        inner()
    except ValueError as error:
        raise KeyError("orders") from error


async def outer_too() -> None:
    outer()


@pytest.mark.parametrize("task", [outer, outer_too], ids=["sync", "async"])
def test_the_report_has_the_traceback_of_every_attempt_from_the_task_s_frame_on(task: Callable[[], Any]) -> None:
    app = Horae("sqlite://")
    app.job("a", Every("1h"), retry=Retry(1, "30s"))(task)

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        report = await only_report(app)
        assert report.run.reason == "KeyError: 'orders' (after 2 attempts)"
        for attempt in report.tasks[0].attempts:
            trace = attempt.traceback or ""
            assert trace.rstrip().endswith("KeyError: 'orders'")
            assert "in inner\n" in trace
            assert "ValueError: no such table" in trace
            assert "/horae/engine/" not in trace
            assert trace in await app.output(attempt.attempt_id)
        told = report.to_dict()["tasks"][0]["attempts"]
        assert [each["traceback"] for each in told] == [each.traceback for each in report.tasks[0].attempts]

    simulate(app, body)


def test_a_record_carries_the_exception_itself_and_the_end_of_the_run_is_an_error(
    records: list[logging.LogRecord],
) -> None:
    app = Horae("sqlite://")
    app.job("a", Every("1h"), retry=Retry(1, "30s"))(outer)

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")

    simulate(app, body)
    first, second, end = records
    assert [record.levelname for record in records] == ["WARNING", "WARNING", "ERROR"]
    for record in records:
        assert record.exc_info is not None
        kind, error, frames = record.exc_info
        assert (kind, str(error)) == (KeyError, "'orders'")
        assert frames is not None
        assert "in inner\n" in JsonFormatter().format(record).replace("\\n", "\n")
    assert "KeyError: 'orders' (after 2 attempts)" in end.getMessage()
    assert "in inner\n" in TextFormatter().format(second)
    # The traceback stands below the attempt's line: once is enough for people.
    assert "\n" not in TextFormatter().format(end)
    assert second.exc_info != first.exc_info


def test_where_attempts_are_not_logged_the_end_of_the_run_prints_the_traceback(
    records: list[logging.LogRecord],
) -> None:
    app = Horae("sqlite://")
    app.job("a", Every("1h"))(outer)
    logger = logging.getLogger("horae.runs")
    logger.setLevel(logging.ERROR)

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")

    try:
        simulate(app, body)
        (end,) = records
        assert "in inner\n" in TextFormatter().format(end)
    finally:
        logger.setLevel(logging.NOTSET)


def test_a_traceback_of_another_process_is_kept_and_logged_as_text(records: list[logging.LogRecord]) -> None:
    app = Horae("sqlite://")
    app.job("a", Every("1h"), isolation="process")(process_tasks.fail)

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app)
        trace = report.tasks[0].attempts[0].traceback or ""
        assert 'raise ValueError("in the child")' in trace
        assert report.run.reason == "ValueError: in the child"

    simulate(app, body)
    assert [record.exc_info for record in records] == [None, None]
    assert 'raise ValueError(\\"in the child\\")' in JsonFormatter().format(records[-1])


def test_an_async_task_that_runs_out_of_time_says_where_it_was(records: list[logging.LogRecord]) -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"), task_timeout="5s")
    async def slow() -> None:
        await asyncio.sleep(60)

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        (attempt,) = (await only_report(app)).tasks[0].attempts
        assert (attempt.state, attempt.error) == ("TIMEOUT", "took longer than its task_timeout")
        assert "await asyncio.sleep(60)" in (attempt.traceback or "")
        assert (await only_run(app)).reason == attempt.error

    simulate(app, body)
    assert all(record.exc_info is None for record in records)


def test_an_event_has_both_and_nothing_of_a_failed_attempt_is_held_on_to_afterwards() -> None:
    app = Horae("sqlite://")
    held: list[Any] = []

    class Large:
        pass

    @app.job("a", Every("1h"))
    async def bad() -> None:
        large = Large()
        held.append(ref(large))
        raise ValueError("bad")

    seen: list[tuple[str, str | None, str | None]] = []
    app.events.listen(
        lambda event: seen.append((type(event).__name__, event.traceback, repr(event.exception))),
        AttemptEnded,
        RunEnded,
    )

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        gc.collect()
        assert [each() for each in held] == [None]

    # The runner of the tests keeps every record, and with it the exception.
    logger = logging.getLogger("horae.runs")
    logger.setLevel(logging.CRITICAL)
    try:
        simulate(app, body)
    finally:
        logger.setLevel(logging.NOTSET)
    assert [(kind, repr_) for kind, _, repr_ in seen] == [
        ("AttemptEnded", "ValueError('bad')"),
        ("RunEnded", "ValueError('bad')"),
    ]
    assert all('raise ValueError("bad")' in (trace or "") for _, trace, _ in seen)


# ---- what must not be told ---------------------------------------------------------------------------------------


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - that is what is wanted
        return caught


def test_an_attempt_that_was_given_a_secret_never_hands_its_exception_on() -> None:
    fault = fault_of(raised(ValueError(f"no entry with {VALUE}")), [VALUE])
    assert fault.error == "ValueError: no entry with ***"
    assert VALUE not in (fault.traceback or "")
    assert fault.exception is None
    # Its frames may hold it all the same.
    assert fault_of(raised(ValueError("no entry")), [VALUE]).exception is None


def test_a_password_in_an_address_is_taken_out_and_keeps_the_exception_back_also_from_its_chain() -> None:
    cause = raised(ConnectionError("cannot reach postgresql://ann:hunter2@db/shop"))
    error = RuntimeError("no orders")
    error.__cause__ = cause
    fault = fault_of(raised(error))
    assert (fault.error, fault.exception) == ("RuntimeError: no orders", None)
    assert "postgresql://ann:…@db/shop" in (fault.traceback or "")
    assert "hunter2" not in (fault.traceback or "")


@pytest.mark.parametrize("length", range(LONGEST_TRACEBACK // 4 - 160, LONGEST_TRACEBACK // 4 + 40, 11))
def test_a_secret_across_the_place_where_a_traceback_is_cut_is_not_told_by_half(length: int) -> None:
    error = raised(ValueError(f"{'x' * length}{VALUE}{'y' * LONGEST_TRACEBACK}"))
    failure = failure_of(error, asked=False, memory=0, secrets=[VALUE])
    fault = fault_of(error, [VALUE])
    assert isinstance(fault, AttemptFault)
    for text in (fault.traceback or "", failure.traceback, failure.message):
        assert len(text) <= LONGEST_TRACEBACK + 10
        assert VALUE[:6] not in text
        assert VALUE[-6:] not in text


def test_a_long_traceback_keeps_its_end_which_names_the_error() -> None:
    def deep(count: int) -> None:
        if count:
            deep_too(count)
        raise ValueError("at the bottom")

    def deep_too(count: int) -> None:
        deep(count - 1)

    with pytest.raises(ValueError, match="at the bottom") as caught:
        deep(300)
    fault = fault_of(caught.value)
    assert (fault.traceback or "").startswith("Traceback (most recent call last):")
    assert (fault.traceback or "").endswith("ValueError: at the bottom\n")


def test_of_a_program_the_last_lines_are_kept_without_its_secrets_however_the_pieces_fall() -> None:
    text = "".join(f"line {number} {VALUE}\n" for number in range(500))
    for size in (1, 7, 100, len(text)):
        tail = OutputTail([VALUE])
        for start in range(0, len(text), size):
            tail.write(text[start : start + size])
        assert tail.text() == "".join(f"line {number} ***\n" for number in range(500 - LAST_LINES, 500))
    endless = OutputTail()
    endless.write("x" * 10 * LONGEST_TRACEBACK)
    assert endless.text() == "x" * LONGEST_TRACEBACK
    assert OutputTail().text() == ""
