"""Events as log records, seen through real loggers, handlers and formatters."""

from __future__ import annotations

import io
import json
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.observing.samples import RUN, SAMPLES, attempt, ended, sample, started

from horae import events, logs
from horae.events import EVENTS, Event, RunPassed, Stream


@contextmanager
def bare_logging() -> Iterator[logging.Logger]:
    """Logging as a program finds it that has set up nothing: pytest's handlers, new ones in every phase, put aside."""
    root, horae = logging.getLogger(), logging.getLogger("horae")
    loggers = (root, horae, logging.getLogger("asyncio"), logging.getLogger("uvicorn"))
    before = [(each, each.handlers[:], each.level) for each in loggers]
    last = logging.lastResort
    for each in loggers:
        each.handlers.clear()
    try:
        yield horae
    finally:
        for each, handlers, level in before:
            each.handlers[:] = handlers
            each.setLevel(level)
        logging.lastResort = last


def told(caplog: pytest.LogCaptureFixture, *emitted: Event, level: int = logging.DEBUG) -> list[logging.LogRecord]:
    """The records these events leave."""
    caplog.clear()
    stream = Stream()
    detach = logs.attach(stream)
    with caplog.at_level(level, "horae"):
        for event in emitted:
            stream.emit(event)
    detach()
    return list(caplog.records)


def one(caplog: pytest.LogCaptureFixture, event: Event) -> logging.LogRecord:
    (record,) = told(caplog, event)
    return record


def skipped(minute: int, job: str = "nightly", reason: str = "overlap") -> RunPassed:
    at = 1_772_442_000_000 + minute * 60_000
    return RunPassed(job, "SKIPPED", 1, reason, False, f"occ_{minute}", at, at)


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_becomes_one_record_with_all_its_fields(event: Any, caplog: pytest.LogCaptureFixture) -> None:
    record = one(caplog, event)
    assert record.name in ("horae.runs", "horae.engine", "horae.store")
    carried = {name: value for name, value in vars(record).items() if name.startswith("horae_")}
    own = logs.ERROR_FIELDS  # by the record's exc_text and exc_info
    expected = {f"horae_{name}": value for name, value in event._asdict().items() if name not in own}
    assert carried == {**expected, "horae_event": type(event).__name__}
    message = record.getMessage()
    assert message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ended(), f"nightly COMPLETED in 1.2 s ({RUN})"),
        (
            ended(state="CANCELLED", reason="operator", seconds=125.0),
            f"nightly CANCELLED in 2 min 5 s: operator ({RUN})",
        ),
        (started(), f"nightly started, 250 ms after its time ({RUN})"),
        (started(is_recovery=True), f"nightly started to make up for a missed slot, 250 ms after its time ({RUN})"),
        (sample(events.AttemptEnded), f"nightly/main attempt 1 FAILED in 750 ms: ValueError: no rows ({RUN})"),
        (sample(events.RunParked), f"nightly waits until 2026-03-01T02:00:30.000Z to try again ({RUN})"),
        (
            sample(RunPassed),
            "Skipping overlapping run for Job nightly 2 times, 2026-03-02T09:01:00Z to 2026-03-02T09:02:00Z",
        ),
        (skipped(1), "Skipping overlapping run for Job nightly at 2026-03-02T09:01:00Z"),
        (skipped(1, reason="paused"), "nightly SKIPPED at 2026-03-02T09:01:00Z: paused"),
        (
            RunPassed("nightly", "MISSED", 1, None, False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
            "nightly MISSED at 2026-03-02T09:01:00Z",
        ),
        (
            sample(events.Draining),
            "node 5d0c stops, waits up to 30.0 s for 3 runs: nightly (occ_1), etl (occ_2), …",
        ),
        (events.NodeBuried("77aa", 4), "node 77aa is dead: 4 runs taken over from it"),
        (events.NodeBuried("77aa", 4, "front"), "node front (77aa) is dead: 4 runs taken over from it"),
        (
            events.NodeExpelled("77aa", "front"),
            "node front (77aa) was declared dead by others: it begins anew without its runs",
        ),
        (events.EngineStopped("77aa", 0, "front"), "node front (77aa) stopped, 0 runs handed back"),
        (
            events.Draining("77aa", 30.0, 1, "nightly (occ_1)", "front"),
            "node front (77aa) stops, waits up to 30.0 s for 1 run: nightly (occ_1)",
        ),
        (sample(events.EngineStarted), "node alpha started: 12 jobs, 50 slots"),
        (events.EngineStarted("5d0c", None, 1, 1), "node 5d0c started: 1 job, 1 slot"),
        (sample(events.StoreFound), "catalog is back after 4.5 s"),
        (events.StoreFound(7_800.0), "catalog is back after 2 h 10 min"),
        (sample(events.DefinitionsRegistered), "jobs registered: 1 new, 2 changed, 9 as they were"),
        (
            sample(events.DefinitionsReplaced),
            "2 jobs changed while 3 other nodes run, whose code may say otherwise: etl, tidy",
        ),
    ],
)
def test_a_message_reads_like_a_sentence(event: Event, message: str, caplog: pytest.LogCaptureFixture) -> None:
    assert one(caplog, event).getMessage() == message


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (ended(), "INFO"),
        (ended(state="COMPLETED_WITH_ERRORS"), "WARNING"),
        (ended(state="FAILED"), "ERROR"),
        (ended(state="FAILED_STALE"), "ERROR"),
        (ended(state="CANCELLED", reason="operator"), "INFO"),
        (ended(state="CANCELLED", reason="timeout"), "WARNING"),
        (attempt(state="SUCCESS", error=None), "DEBUG"),
        (attempt(state="FAILED"), "WARNING"),
        (attempt(state="TIMEOUT"), "WARNING"),
        (attempt(state="CANCELLED"), "INFO"),
        (attempt(state="LOST"), "WARNING"),
        (RunPassed("nightly", "SKIPPED", 1, "overlap", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000), "INFO"),
        (RunPassed("nightly", "MISSED", 1, "missed", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000), "WARNING"),
        (
            RunPassed("nightly", "UNSCHEDULABLE", 1, None, False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
            "WARNING",
        ),
        (started(), "INFO"),
        (sample(events.Planned), "DEBUG"),
        (sample(events.Claimed), "DEBUG"),
        (sample(events.StoreLost), "ERROR"),
        (sample(events.LoopFailed), "ERROR"),
        (sample(events.NodeExpelled), "ERROR"),
        (sample(events.HookFailed), "WARNING"),
        (sample(events.RunFenced), "WARNING"),
    ],
)
def test_how_loud_an_event_is_depends_on_what_it_means(
    event: Event, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert one(caplog, event).levelname == level


def test_what_is_below_the_level_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    records = told(caplog, *SAMPLES, level=logging.ERROR)
    assert {record.levelname for record in records} == {"ERROR"}


def test_the_words_are_not_even_made_where_nobody_would_read_them(caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable(float):
        def __format__(self, spec: str) -> str:
            raise AssertionError("formatted for nobody")

    assert told(caplog, ended(seconds=Unreadable(1.5)), level=logging.WARNING) == []
    # The same event does make words, and fail, where somebody reads: so the first half could have failed.
    (complaint,) = told(caplog, ended(seconds=Unreadable(1.5)), level=logging.INFO)
    assert "failed at RunEnded" in complaint.getMessage()


def test_one_group_of_records_can_be_silenced_by_its_logger(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("horae.runs")
    logger.setLevel(logging.ERROR)
    try:
        names = {record.name for record in told(caplog, *SAMPLES)}
    finally:
        logger.setLevel(logging.NOTSET)
    assert names == {"horae.engine", "horae.store"}


def test_a_stranger_s_error_stays_on_one_line_and_is_kept_whole_in_its_field(caplog: pytest.LogCaptureFixture) -> None:
    forged = "boom\n2026-01-01 INFO all is well\x1b[2J" + "x" * 5_000
    record = one(caplog, attempt(error=forged))
    message = record.getMessage()
    assert r"boom\n2026-01-01 INFO all is well\x1b[2Jxxx" in message
    assert message.isprintable()
    assert len(message) < 1_000
    assert vars(record)["horae_error"] == forged


def test_a_traceback_stands_below_its_line_and_none_of_its_lines_looks_like_a_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = "Traceback:\n2026-01-01 INFO all is well\x1b[2J\npassword=hunter2\n"
    record = one(caplog, attempt(traceback=trace))
    first, *lines = logs.TextFormatter().format(record).split("\n")
    assert "attempt 1 FAILED" in first
    assert lines == ["    Traceback:", r"    2026-01-01 INFO all is well\x1b[2J", "    password=…"]
    line = shown(record)
    assert line["exception"] == "Traceback:\n2026-01-01 INFO all is well\x1b[2J\npassword=…"
    assert "traceback" not in line["fields"]


def test_percent_signs_in_names_and_errors_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    assert "100%s %d" in one(caplog, attempt(error="100%s %d")).getMessage()


def test_what_was_detached_is_silent() -> None:
    stream = Stream()
    logs.attach(stream)()
    assert not any(stream.wanted(kind) for kind in EVENTS)


# ---- JSON ------------------------------------------------------------------------------------------------------


def shown(record: logging.LogRecord) -> Any:
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_a_record_as_json_has_time_level_logger_message_event_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    record = one(caplog, ended())
    record.created = 1_772_330_400.1239
    assert shown(record) == {
        "time": "2026-03-01T02:00:00.123Z",
        "level": "INFO",
        "logger": "horae.runs",
        "message": f"nightly COMPLETED in 1.2 s ({RUN})",
        "event": "RunEnded",
        "fields": {"run_id": RUN, "job": "nightly", "state": "COMPLETED", "reason": None, "seconds": 1.2},
    }


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_can_be_shown_as_json(event: Any, caplog: pytest.LogCaptureFixture) -> None:
    line = shown(one(caplog, event))
    assert line["event"] == type(event).__name__
    assert set(line["fields"]) == set(event._fields) - logs.ERROR_FIELDS


def test_times_among_the_fields_are_rfc_3339(caplog: pytest.LogCaptureFixture) -> None:
    assert shown(one(caplog, sample(events.RunParked)))["fields"]["until"] == "2026-03-01T02:00:30.000Z"


def test_an_exception_is_shown_with_its_traceback_and_an_extra_of_others_among_the_fields() -> None:
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        caught = sys.exc_info()
    record = logging.getLogger("elsewhere").makeRecord(
        "elsewhere",
        logging.ERROR,
        "file.py",
        1,
        "%d of %d",
        (1, 2),
        caught,
        extra={"event": "theirs", "tenant": "acme"},
    )
    line = shown(record)
    assert line["message"] == "1 of 2"
    assert line["exception"].splitlines()[0] == "Traceback (most recent call last):"
    assert "in two" in line["exception"]
    assert "event" not in line
    assert line["fields"] == {"event": "theirs", "tenant": "acme"}


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "nan"),
        (_circle(), "[[...]]"),
        ({("a", "b"): 1}, "{('a', 'b'): 1}"),
        (b"bytes", "b'bytes'"),
        (datetime(2026, 3, 1, 2, tzinfo=UTC), "2026-03-01T02:00:00.000Z"),
        ("\udc80", "\udc80"),
    ],
    ids=["not a number", "circle", "tuple key", "bytes", "time", "half a letter"],
)
def test_what_json_cannot_hold_is_told_as_text(value: object, text: str) -> None:
    record = logging.getLogger("horae").makeRecord(
        "horae", logging.INFO, "file.py", 1, "odd", (), None, extra={"odd": value}
    )
    assert shown(record)["fields"]["odd"] == text


# ---- configure -------------------------------------------------------------------------------------------------


def emit_all() -> None:
    stream = Stream()
    detach = logs.attach(stream)
    for event in SAMPLES:
        stream.emit(event)
    detach()


def test_configuring_shows_lines_for_people_on_the_stream() -> None:
    output = io.StringIO()
    with bare_logging():
        logs.configure("INFO", stream=output)
        emit_all()
    lines = output.getvalue().splitlines()
    (line,) = [each for each in lines if "nightly COMPLETED" in each]
    time, level, logger, _ = line.split(maxsplit=3)
    assert datetime.fromisoformat(time).utcoffset() == timedelta(0)
    assert abs(datetime.fromisoformat(time) - datetime.now(UTC)) < timedelta(minutes=5)
    assert (level, logger) == ("INFO", "horae.runs:")
    assert not [each for each in lines if "planned" in each]


def test_configuring_for_json_shows_one_object_a_line() -> None:
    output = io.StringIO()
    with bare_logging():
        logs.configure("DEBUG", json=True, stream=output)
        emit_all()
    shown_events = [json.loads(line)["event"] for line in output.getvalue().splitlines()]
    assert shown_events == [type(event).__name__ for event in SAMPLES]


@pytest.mark.parametrize("name", ["uvicorn.error", "asyncio"])
def test_what_the_server_and_the_loop_warn_of_has_the_same_form(name: str) -> None:
    output = io.StringIO()
    with bare_logging():
        logs.configure("INFO", json=True, stream=output)
        logging.getLogger(name).info("nothing")
        logging.getLogger(name).error("broken", exc_info=ValueError("no\nluck"))
    (line,) = output.getvalue().splitlines()
    assert (json.loads(line)["logger"], json.loads(line)["message"]) == (name, "broken")
    assert "no\nluck" in json.loads(line)["exception"]


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_what_a_logger_without_a_handler_warns_of_has_the_same_form_until_the_program_sets_up_its_own(
    *, is_json: bool
) -> None:
    ours, theirs = io.StringIO(), io.StringIO()
    mine = logging.getLogger("mine")
    with bare_logging():
        logs.configure("INFO", json=is_json, stream=ours)
        mine.info("nothing")
        mine.warning('3 rows\n{"logger":"horae.engine"}')
        (line,) = ours.getvalue().splitlines()
        logging.basicConfig(stream=theirs)
        mine.warning("theirs")
    assert "mine" in line
    assert json.loads(line)["message"].startswith("3 rows\n") if is_json else "WARNING mine: 3 rows" in line
    assert theirs.getvalue() == "WARNING:mine:theirs\n"
    assert len(ours.getvalue().splitlines()) == 1


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_a_record_that_cannot_be_shown_is_told_of_in_one_that_can(
    capsys: pytest.CaptureFixture[str], *, is_json: bool
) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("2026-01-01T00:00:00.000Z INFO    horae.engine: all is well")

    output = io.StringIO()
    with bare_logging() as horae:
        logs.configure("INFO", json=is_json, stream=output)
        horae.error("odd: %s", Odd())
    (line,) = output.getvalue().splitlines()
    assert "a record that cannot be shown (ValueError): odd: %s" in line
    assert "all is well" not in capsys.readouterr().err


def test_configuring_again_changes_level_and_form_without_a_second_handler() -> None:
    first, second = io.StringIO(), io.StringIO()
    with bare_logging() as horae:
        logs.configure("DEBUG", stream=first)
        logs.configure("ERROR", json=True, stream=second)
        emit_all()
        assert len(horae.handlers) == 1
    assert first.getvalue() == ""
    assert {json.loads(line)["level"] for line in second.getvalue().splitlines()} == {"ERROR"}


def test_without_a_stream_the_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_logging():
        logs.configure()
        emit_all()
    assert "nightly COMPLETED" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "horae"], ids=["root", "horae"])
def test_a_program_s_own_handlers_are_left_alone_but_the_level_is_set(name: str) -> None:
    theirs, ours = io.StringIO(), io.StringIO()
    with bare_logging():
        logging.getLogger(name).addHandler(logging.StreamHandler(theirs))
        logs.configure("INFO", json=True, stream=ours)
        emit_all()
    assert ours.getvalue() == ""
    assert f"nightly COMPLETED in 1.2 s ({RUN})" in theirs.getvalue().splitlines()


def test_a_level_that_does_not_exist_is_refused_and_nothing_is_set_up() -> None:
    with bare_logging() as horae:
        with pytest.raises(ValueError, match="LOUD"):
            logs.configure("LOUD")
        assert horae.handlers == []


@pytest.mark.parametrize("formatter", [logs.JsonFormatter(), logs.TextFormatter()], ids=["json", "text"])
def test_a_password_in_an_address_is_in_no_line_of_the_log(formatter: logging.Formatter) -> None:
    try:
        raise OSError("postgresql://ann:hunter2@db/horae is away")
    except OSError as error:
        found = (type(error), error, error.__traceback__)
    record = logging.getLogger("horae").makeRecord(
        "horae", logging.ERROR, __file__, 0, "lost", (), found, extra={"horae_error": "password=hunter2"}
    )
    line = formatter.format(record)
    assert "OSError" in line
    assert "hunter2" not in line


def test_what_becomes_of_a_job_again_and_again_is_one_line_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    repeated = [skipped(minute, job) for minute in range(1, 44) for job in ("nightly", "other")]
    last = (started(), skipped(50), skipped(51, reason="paused"), events.EngineStopped("alpha", 0))
    records = [record for record in told(caplog, *repeated, *last) if hasattr(record, "horae_count")]
    assert [record.getMessage() for record in records] == [
        "Skipping overlapping run for Job nightly at 2026-03-02T09:01:00Z",
        "Skipping overlapping run for Job other at 2026-03-02T09:01:00Z",
        "Skipping overlapping run for Job nightly 42 times, 2026-03-02T09:02:00Z to 2026-03-02T09:43:00Z",
        "Skipping overlapping run for Job nightly at 2026-03-02T09:50:00Z",
        "nightly SKIPPED at 2026-03-02T09:51:00Z: paused",
        "Skipping overlapping run for Job other 42 times, 2026-03-02T09:02:00Z to 2026-03-02T09:43:00Z",
    ]
    assert sum(vars(record)["horae_count"] for record in records) == 88


def test_what_goes_on_for_hours_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    assert [record.getMessage() for record in told(caplog, *(skipped(minute) for minute in range(181)))] == [
        "Skipping overlapping run for Job nightly at 2026-03-02T09:00:00Z",
        "Skipping overlapping run for Job nightly 60 times, 2026-03-02T09:01:00Z to 2026-03-02T10:00:00Z",
        "Skipping overlapping run for Job nightly 60 times, 2026-03-02T10:01:00Z to 2026-03-02T11:00:00Z",
        "Skipping overlapping run for Job nightly 60 times, 2026-03-02T11:01:00Z to 2026-03-02T12:00:00Z",
    ]


def test_lines_of_run_log_name_job_task_and_run() -> None:
    extra = {"job": "etl", "task": "load", "run_id": RUN, "attempt": 2}
    record = logging.makeLogRecord({"name": "horae.task", "levelname": "INFO", "msg": "%d rows", "args": (3,), **extra})
    assert logs.TextFormatter().format(record).endswith(f"INFO    horae.task: etl/load ({RUN}): 3 rows")
    assert record.getMessage() == "3 rows", "the record is as the task logged it"
    alone = logging.makeLogRecord({**record.__dict__, "task": "etl"})
    assert logs.TextFormatter().format(alone).endswith(f"horae.task: etl ({RUN}): 3 rows")
    other = logging.makeLogRecord({"name": "horae.task", "levelname": "INFO", "msg": "by getLogger"})
    assert logs.TextFormatter().format(other).endswith("horae.task: by getLogger")
