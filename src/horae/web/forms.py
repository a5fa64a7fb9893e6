"""What a page's form or address says, as a question to the desk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from horae.desk.asking import Asked
from horae.errors import InvalidTime, shown
from horae.web.problems import invalid

Question = TypeVar("Question", bound=Asked)
CHANGED = "has_changed"
"""Where a request's state says that the form has changed something, of which those who watch are told."""
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


async def form_of(request: Request) -> dict[str, str]:
    """The fields of the form that a request brings; it is read once."""
    state = request.scope["state"]
    if "form" not in state:
        # In a thread: a text area may hold all that a body may, and others are answered meanwhile.
        state["form"] = await asyncio.to_thread(form_fields, await request.body())
    found: dict[str, str] = state["form"]
    return found


def form_fields(body: bytes) -> dict[str, str]:
    """The fields of a form as browsers send it; the first of each name. What is no UTF-8 is nobody's."""
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except (UnicodeDecodeError, ValueError):
        return {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


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
