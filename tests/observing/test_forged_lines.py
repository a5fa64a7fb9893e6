"""What a task logs or raises is one record in every format, whatever letters it is made of."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from horae import logs

FORGED = "2026-01-01T00:00:00.000Z INFO    horae.engine: all is well"
BREAKS = [
    "\n",
    "\r",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u2028",
    "\u2029",
    "\x1b[2K\x1b[1G",
    "\x1b[1A",
    "\x08",
    "\x00",
]
RECORD = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]{12}Z ")


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[tuple[logging.Logger, io.StringIO, bool]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter() if request.param == "json" else logs.TextFormatter())
    logger = logging.Logger("horae.task")
    logger.addHandler(handler)
    yield logger, stream, request.param == "json"
    logger.removeHandler(handler)


def records(text: str, *, is_json: bool) -> list[str]:
    """The lines that a reader takes for records, however the reader ends lines."""
    lines = text.splitlines()
    return [line for line in lines if json.loads(line)] if is_json else [each for each in lines if RECORD.match(each)]


@pytest.mark.parametrize("break_", BREAKS, ids=ascii)
def test_a_message_is_one_record_whatever_breaks_its_lines(
    written: tuple[logging.Logger, io.StringIO, bool], break_: str
) -> None:
    logger, stream, is_json = written
    logger.info("3 rows%s%s", break_, FORGED, extra={"run_id": "occ_1", "job": f"etl{break_}{FORGED}", "task": "load"})
    logger.info("plain%s%s", break_, FORGED)
    text = stream.getvalue()
    assert len(records(text, is_json=is_json)) == 2
    assert len(text.splitlines()) == 2
    assert all(letter.isprintable() for letter in text.replace("\n", ""))


@pytest.mark.parametrize("break_", BREAKS, ids=ascii)
def test_a_traceback_or_a_stack_below_a_record_begins_no_other(
    written: tuple[logging.Logger, io.StringIO, bool], break_: str
) -> None:
    logger, stream, is_json = written
    try:
        raise ValueError(f"boom{break_}{FORGED}")
    except ValueError:
        logger.exception("failed", stack_info=True)
    assert len(records(stream.getvalue(), is_json=is_json)) == 1


def test_a_traceback_that_another_formatter_has_made_before_is_indented_all_the_same() -> None:
    record = logging.makeLogRecord({"msg": "failed", "name": "horae.task"})
    record.exc_text = f"Traceback\n{FORGED}"
    assert len(records(logs.TextFormatter().format(record), is_json=False)) == 1
    assert record.exc_text == f"Traceback\n{FORGED}"


def test_letters_of_any_language_stay_as_they_are() -> None:
    record = logging.makeLogRecord({"msg": "Größe 大 ✓", "name": "horae.task"})
    assert logs.TextFormatter().format(record).endswith("horae.task: Größe 大 ✓")
