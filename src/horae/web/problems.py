"""Errors as RFC 9457 problem documents: which status, which words, which headers.

Whatever is none of Horae's own errors is told as an incident: its number is shown, and nothing else of it; the log has
the rest under that number.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

import horae.errors as errors
from horae.errors import HoraeError, InvalidInput, NotFound

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = 2

_log = logging.getLogger("horae.web")

STATUSES: tuple[tuple[type[HoraeError], int], ...] = (
    (errors.RequestTooLarge, 413),
    (errors.InvalidInput, 400),
    (errors.NotFound, 404),
    (errors.IllegalTransition, 409),
    (errors.KeyReused, 422),
    (errors.Conflict, 409),
    (errors.StoreError, 503),
    (errors.LoginFailed, 401),
    (errors.RateLimited, 429),
    (errors.AccessDenied, 403),
    (errors.SecretError, 409),
    (errors.ExecutionError, 400),
)
"""By the first class that fits."""

TITLES = {
    400: "Bad request",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timed out",
    409: "Conflict",
    412: "Precondition failed",
    413: "Request too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Key reused",
    429: "Too many requests",
    500: "Internal error",
    503: "Service unavailable",
}


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, in the words of RFC 9457, with Horae's own code and number. `hint` is the next step."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    number: int
    request_id: str
    hint: str | None = None
    details: dict[str, Any] | None = None


class Refused(Exception):
    """An error that is told with a status of its own, or with headers besides."""

    def __init__(self, error: HoraeError, status: int | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.status = status or status_of(error)
        self.headers = headers or {}


def status_of(error: HoraeError) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def limited(message: str, seconds: float, *, hint: str | None = None) -> Refused:
    """Too many requests; the next may come after so many seconds."""
    wait = max(1, math.ceil(seconds))
    return Refused(errors.RateLimited(message, hint=hint or f"Try again in {wait} s."), 429, {"retry-after": str(wait)})


def not_found(path: str) -> Refused:
    return Refused(
        NotFound(f"There is nothing at {errors.shown(path)}", hint="/api/v1/openapi.json lists what there is.")
    )


def method_not_allowed(method: str, allowed: str) -> Refused:
    error = InvalidInput(f"{method} is not possible here", hint=f"What is: {allowed}.")
    return Refused(error, 405, {"allow": allowed})


def refusal(error: BaseException, request_id: str) -> Refused:
    """Any error as one that can be told. What nobody expected is logged with its traceback."""
    if isinstance(error, Refused):
        return _complete(error)
    if isinstance(error, HoraeError) and status_of(error) != 500:
        return _complete(Refused(error))
    if isinstance(error, msgspec.ValidationError):
        return Refused(invalid(error))
    if isinstance(error, RecursionError):
        return Refused(InvalidInput("The request is nested too deeply"))
    _log.error("incident %s: %s", request_id, type(error).__name__, exc_info=error)
    told = HoraeError(
        "Something went wrong in the server itself",
        hint=f"Its log says what, under {request_id}.",
        details={"incident": request_id},
    )
    return Refused(told, 500)


def _complete(refused: Refused) -> Refused:
    if refused.status == 401:
        refused.headers.setdefault("www-authenticate", 'Bearer realm="horae"')
    if refused.status == 429 and "retry_after" in refused.error.details:
        refused.headers.setdefault("retry-after", str(refused.error.details["retry_after"]))
    if refused.status in (429, 503):
        refused.headers.setdefault("retry-after", str(_RETRY_SECONDS))
    return refused


def invalid(error: msgspec.ValidationError, where: str = "") -> InvalidInput:
    """What msgspec says, with the place in words: `Expected int, got str - at $.limit`."""
    reason, _, place = str(error).partition(" - at ")
    field = place.strip("`").removeprefix("$").removeprefix(".")
    named = f"{field}: {reason}" if field else reason
    return InvalidInput(f"Invalid request: {where}{named}", details={"field": field, "reason": reason})


def problem(refused: Refused, *, instance: str, request_id: str) -> Problem:
    error = refused.error
    plain = error.to_dict()
    return Problem(
        type=f"urn:horae:error:{error.code}",
        title=TITLES.get(refused.status, "Error"),
        status=refused.status,
        detail=error.message,
        instance=instance,
        code=error.code,
        number=error.number,
        request_id=request_id,
        hint=error.hint,
        details=plain.get("details"),
    )


def problem_response(told: Problem, headers: dict[str, str]) -> Response:
    body = msgspec.json.encode(_writable(msgspec.to_builtins(told)))
    return Response(body, told.status, {**headers, "cache-control": "no-store"}, MEDIA_TYPE)


def _writable(value: Any) -> Any:
    """The same without half characters, which UTF-8 cannot write: a message may quote what a stranger sent."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_writable(name): _writable(each) for name, each in value.items()}
    return value
