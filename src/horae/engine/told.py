"""What is said of an error: its text for the row, its traceback for the output, neither longer than can be kept."""

from __future__ import annotations

import json
import traceback
from types import TracebackType
from typing import Any

from horae.errors import HoraeError, StatementFailed, TaskRaised

LONGEST_ERROR = 8_000


def told(error: BaseException) -> str:
    """The kind of an error and what it says."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is still is one
        text = ""
    name = type(error).__name__
    state = error.details.get("sqlstate") if isinstance(error, StatementFailed) else None
    if state:
        text = f"{text} (SQLSTATE {state})"
    return f"{name}: {text}" if text else name


def traced(error: BaseException) -> str:
    """The traceback from the task's own frame on: the engine's frames are of no use to anybody."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _own(error)))
    except Exception:  # noqa: BLE001 - as above: what it cannot say is left out
        text = f"{type(error).__name__}\n"
    return text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + "…\n"


def number_of(error: BaseException) -> int:
    return error.number if isinstance(error, HoraeError) else TaskRaised.number


def as_json(value: Any, limit: int) -> tuple[str | None, str | None]:
    """A return value as JSON, or why it cannot be kept."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"it is not JSON: {error}"
    if len(text) > limit:
        return None, f"it takes {len(text)} characters, more than {limit}"
    return text, None


def kept(text: str | None) -> str | None:
    """Text as every store can keep it: no NUL, nothing that is not UTF-8, not too long."""
    return None if text is None else storable(text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + "…")


def storable(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _own(error: BaseException) -> TracebackType | None:
    frames = error.__traceback__
    while frames is not None and "/horae/" in frames.tb_frame.f_code.co_filename.replace("\\", "/"):
        frames = frames.tb_next
    return frames if frames is not None else error.__traceback__
