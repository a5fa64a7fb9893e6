"""Forms and query parameters of the pages, read as requests to the API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from horae.api.requests import ApiRequest
from horae.errors import InvalidTime, shown
from horae.web.http.problems import invalid

Question = TypeVar("Question", bound=ApiRequest)
CHANGED = "has_changed"
"""The key in a request's state that says that the form changed something, so that live viewers are notified."""
_TIMES = frozenset({"since", "until", "start", "end", "at"})


def read_form_request(kind: type[Question], given: Mapping[str, str], **fixed: Any) -> Question:
    """Returns a request of `kind` with the fields in `given` and in `fixed`. Empty fields, and fields that `kind` does
    not have, are left out. Raises InvalidInput, which names the field."""
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
    """Reads a time as browsers' fields send it. Without an offset it is in UTC. `name` is the field's name for the
    error. Raises InvalidTime."""
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
    """Returns the fields of a request's form. The form is parsed once and kept in the request's state."""
    state = request.scope["state"]
    if "form" not in state:
        # In a thread, since a text area may be as large as a body may be, and other requests must not wait.
        state["form"] = await asyncio.to_thread(form_fields, await request.body())
    found: dict[str, str] = state["form"]
    return found


def form_fields(body: bytes) -> dict[str, str]:
    """Returns the fields of a form as browsers send it, the first of each name. A body that is not valid UTF-8 has
    none."""
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except (UnicodeDecodeError, ValueError):
        return {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def safe_next(text: str | None) -> str:
    """Returns the path to go to after signing in: `text` if it is a path on this server, else the overview. A browser
    reads `//host` and `/\\host` as another server, and ignores tabs and line ends."""
    path = text or ""
    if not path.startswith("/") or path.startswith(("//", "/\\")):
        return "/"
    if any(ord(letter) <= 0x20 or ord(letter) == 0x7F or letter == "\\" for letter in path):
        return "/"
    # Going back to the login page would be a loop.
    return "/" if path.partition("?")[0].rstrip("/") in ("/login", "/logout") else path
