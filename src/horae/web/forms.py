"""What a page's form or address says, as a question to the desk."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from horae.desk.asking import Asked
from horae.errors import InvalidTime, shown
from horae.web.problems import invalid

Question = TypeVar("Question", bound=Asked)
_TIMES = frozenset({"since", "until", "start", "end", "at"})


def question(kind: type[Question], given: Mapping[str, str], **fixed: Any) -> Question:
    """The question that `given` asks: fields that it does not have are left out, and so is what it does not say. Raises
    InvalidInput, which names the field."""
    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        text = given.get(name, "").strip()
        if text:
            values[name] = form_time(text, name) if name in _TIMES else text
    try:
        return msgspec.convert(values | fixed, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def form_time(text: str, name: str) -> datetime:
    """A time as a browser's field has it: without an offset it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTime(
            f"Invalid {name} {shown(text)}: is not a date or time",
            hint="Write it as 2027-03-01T09:00 (UTC) or 2027-03-01T09:00:00+01:00.",
            details={"name": name},
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def safe_next(text: str | None) -> str:
    """Where to go after signing in: a path on this server, or the overview. A browser reads `//host` and `/\\host` as
    another server, and drops tabs and line ends before it reads."""
    path = text or ""
    if not path.startswith("/") or path.startswith(("//", "/\\")):
        return "/"
    if any(ord(letter) <= 0x20 or ord(letter) == 0x7F or letter == "\\" for letter in path):
        return "/"
    # Back to the door would be a circle.
    return "/" if path.partition("?")[0].rstrip("/") in ("/login", "/logout") else path
