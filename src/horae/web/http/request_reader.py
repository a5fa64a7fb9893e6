"""Strict reading of paths, queries and bodies as the parameters of an operation.

Ambiguous input is refused: an invalid percent code, a parameter given twice, text that is not UTF-8. A path is split
into segments before it is decoded, so a slash within a name is written %2F.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request

from horae.api.operations import Operation
from horae.api.requests import ApiRequest
from horae.errors import InvalidInput, shown
from horae.web.http.problems import ProblemError, invalid

LONGEST_TARGET = 8_192
_BAD_CODE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CODE = re.compile(rb"%([0-9A-Fa-f]{2})")


def segments(raw_path: bytes) -> tuple[str, ...]:
    """Returns the segments of a path, each decoded by itself. `/` has none. Raises InvalidInput."""
    if not raw_path.startswith(b"/"):
        raise InvalidInput("Invalid path: it must begin with /")
    if len(raw_path) > LONGEST_TARGET:
        raise InvalidInput(f"Invalid path: it has more than {LONGEST_TARGET} bytes")
    if raw_path == b"/":
        return ()
    parts = tuple(_decoded(part, "path") for part in raw_path[1:].split(b"/"))
    if any(part in (".", "..") for part in parts):
        raise InvalidInput("Invalid path: it has . or .. in it", hint="Ask for the page by its own address.")
    return parts


def query(raw: bytes) -> dict[str, str]:
    """Returns the parameters of a query. Raises InvalidInput, also for a parameter given twice."""
    if len(raw) > LONGEST_TARGET:
        raise InvalidInput(f"Invalid query: it has more than {LONGEST_TARGET} bytes")
    found: dict[str, str] = {}
    for pair in raw.split(b"&"):
        if not pair:
            continue
        name, _, value = (_decoded(each.replace(b"+", b" "), "query") for each in pair.partition(b"="))
        if name in found:
            raise InvalidInput(f"Invalid query: {shown(name)} is given twice", details={"field": name[:255]})
        found[name] = value
    return found


def _decoded(part: bytes, where: str) -> str:
    if _BAD_CODE.search(part):
        raise InvalidInput(f"Invalid {where}: % must be followed by two hexadecimal digits", hint="Write % as %25.")
    try:
        text = _CODE.sub(lambda code: bytes((int(code[1], 16),)), part).decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"Invalid {where}: it is no UTF-8") from None
    if "\0" in text:
        raise InvalidInput(f"Invalid {where}: it has a NUL in it")
    return text


def request_from_query(operation: Operation, named: dict[str, str], raw_query: bytes) -> ApiRequest:
    """Reads the operation's request from path and query. Raises InvalidInput, which names the field."""
    given: dict[str, Any] = query(raw_query)
    _refuse_named(given, named, "query")
    try:
        return msgspec.convert({**given, **named}, operation.asks, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def request_from_body(operation: Operation, named: dict[str, str], raw_query: bytes, body: bytes) -> ApiRequest:
    """Reads the operation's request from path and body, a JSON object or nothing. Raises InvalidInput, which names the
    field."""
    if raw_query:
        names = ", ".join(query(raw_query)) or "none"
        raise InvalidInput(
            f"Invalid query: {operation.name} takes its parameters in the body, not in the query ({names[:255]})",
            hint="Send them as a JSON object.",
        )
    given = decoded_body(body)
    _refuse_named(given, named, "body")
    try:
        return msgspec.convert({**given, **named}, operation.asks)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def decoded_body(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a body; an empty body counts as an empty object. Raises InvalidInput."""
    if not body.strip():
        return {}
    try:
        given = msgspec.json.decode(body)
    except RecursionError:
        raise InvalidInput("Invalid body: it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(
            f"Invalid body: {error}", hint="It must be a JSON object, in UTF-8.", details={"reason": str(error)}
        ) from None
    if not isinstance(given, dict):
        raise InvalidInput("Invalid body: it must be a JSON object")
    if b"\\u0000" in body:
        # PostgreSQL cannot store NUL in text. The body is searched only if it has the escape for it.
        _refuse_nul(given)
    return given


def _refuse_nul(value: Any) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            _refuse_nul(name)
            _refuse_nul(each)
    elif isinstance(value, list):
        for each in value:
            _refuse_nul(each)
    elif isinstance(value, str) and "\0" in value:
        raise InvalidInput("Invalid body: there is a NUL in a text", hint="Leave it out.")


def _refuse_named(given: dict[str, Any], named: dict[str, str], where: str) -> None:
    twice = sorted(set(given) & set(named))
    if twice:
        raise InvalidInput(
            f"Invalid {where}: {', '.join(twice)} is in the path already", details={"field": ", ".join(twice)}
        )


def require_json(request: Request) -> None:
    """Raises Refused for a content type other than JSON, such as those that a form of another site could send."""
    kind = request.headers.get("content-type")
    if kind is None:
        return
    media, _, rest = kind.partition(";")
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if media.strip().lower() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise ProblemError(
            InvalidInput(
                f"The body is {shown(kind[:100])}, which is not understood",
                hint="Send it as application/json, in UTF-8.",
            ),
            415,
            {"accept": "application/json"},
        )


async def body_of(request: Request) -> bytes:
    """Returns the whole body of a request. Raises Refused if the body is not empty and not declared as JSON."""
    require_json(request)
    body = await request.body()
    if body and "content-type" not in request.headers:
        raise ProblemError(
            InvalidInput("The body has no Content-Type", hint="Send it as application/json, in UTF-8."),
            415,
            {"accept": "application/json"},
        )
    return body
