"""What attempts print where the log is a file or a pipe: records of it, a line each, but for what a terminal shows."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import pytest

from horae.executors import output as outputs
from horae.executors.output import Capture, Output, OutputSource, current
from horae.logs import TextFormatter
from horae.security.redaction import Redactor

WHOSE = OutputSource("etl", "load", "occ_1", 2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[logging.LogRecord]]:
    """Records of what is printed, while it is told."""
    monkeypatch.setattr(outputs._state, "in_log", True)
    monkeypatch.setattr(outputs._state, "children_in_log", True)
    handler = Keeping()
    logger = logging.getLogger("horae.output")
    logger.addHandler(handler)
    yield handler.records
    logger.removeHandler(handler)


def printing(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, output: Output, *texts: str, tee: bool = True
) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    capture = Capture(tee=tee)
    capture.install()
    token = current.set(output)
    try:
        for text in texts:
            sys.stdout.write(text)
    finally:
        current.reset(token)
        capture.uninstall()


def messages(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records]


def test_a_line_is_a_record_once_it_is_whole_and_the_rest_at_the_end(
    monkeypatch: pytest.MonkeyPatch, told: list[logging.LogRecord]
) -> None:
    stream, output = io.StringIO(), Output(whose=WHOSE)
    printing(monkeypatch, stream, output, "a", "b\nc\r\n", "\nd")
    assert messages(told) == ["ab", "c", ""]
    assert output.close() == "ab\nc\r\n\nd", "kept as it was"
    assert messages(told) == ["ab", "c", "", "d"]
    assert stream.getvalue() == ""
    assert TextFormatter().format(told[0]).endswith(" INFO    horae.output: etl/load (occ_1): ab")


def test_what_a_terminal_shows_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, told: list[logging.LogRecord]
) -> None:
    stream = Terminal()
    printing(monkeypatch, stream, Output(whose=WHOSE), "a\n", "b")
    assert (stream.getvalue(), told) == ("a\nb", [])


def test_without_a_tee_nothing_is_told(monkeypatch: pytest.MonkeyPatch, told: list[logging.LogRecord]) -> None:
    stream, output = io.StringIO(), Output(whose=WHOSE)
    printing(monkeypatch, stream, output, "a\n", tee=False)
    assert (stream.getvalue(), told, output.close()) == ("", [], "a\n")


def test_a_line_that_never_ends_is_told_in_parts(
    monkeypatch: pytest.MonkeyPatch, told: list[logging.LogRecord]
) -> None:
    printing(monkeypatch, io.StringIO(), Output(whose=WHOSE), *["x" * 1_000] * 20)
    assert told
    assert max(map(len, messages(told))) <= outputs._LONGEST_LINE


def test_secrets_are_taken_out_of_what_is_told(monkeypatch: pytest.MonkeyPatch, told: list[logging.LogRecord]) -> None:
    output = Output(whose=WHOSE)
    output.blacken_by(Redactor(["hunter2-hunter2"]))
    printing(monkeypatch, io.StringIO(), output, "my hunter2", "-hunter2 is\nout\n")
    output.print_elsewhere("hunter2-hunter2\n")
    output.close()
    text = "\n".join(messages(told))
    assert "***" in text
    assert "out" in text
    assert "hunter2" not in text
