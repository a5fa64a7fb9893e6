"""Texts of errors and return values, shortened and cleaned so that every store accepts them."""

from __future__ import annotations

import json
from typing import Any

from horae.errors import HoraeError, StatementFailed, TaskRaised

LONGEST_ERROR = 8_000
"""Characters of an error message that are stored."""


def error_text(error: BaseException) -> str:
    """Returns the error's type and message, with the SQLSTATE if there is one."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - str() of a user's exception may itself raise
        text = ""
    name = type(error).__name__
    state = error.details.get("sqlstate") if isinstance(error, StatementFailed) else None
    if state:
        text = f"{text} (SQLSTATE {state})"
    return f"{name}: {text}" if text else name


def number_of(error: BaseException) -> int:
    return error.number if isinstance(error, HoraeError) else TaskRaised.number


def as_json(value: Any, limit: int) -> tuple[str | None, str | None]:
    """Returns the value as JSON and None, or None and the reason why it cannot be stored."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"it is not JSON: {error}"
    if len(text) > limit:
        return None, f"it takes {len(text)} characters, more than {limit}"
    return text, None


def kept(text: str | None) -> str | None:
    """Returns the text in a form that every store accepts: without NUL and invalid Unicode, at most LONGEST_ERROR
    characters."""
    return None if text is None else storable(text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + "…")


def storable(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
