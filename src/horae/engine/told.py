"""What is said of an error and of a return value: text for the row, no longer than can be kept."""

from __future__ import annotations

import json
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
