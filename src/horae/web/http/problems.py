"""Errors as RFC 9457 problem documents, with their statuses, titles and headers.

An exception that is not a HoraeError is reported as an incident: the client gets the request's id and nothing else, and
the log has the traceback under that id.
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
"""The status of each error class. The first entry that an error is an instance of counts."""

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
    """An error as RFC 9457 defines it, with Horae's own code and number; `hint` says what to do next."""

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


class ProblemError(Exception):
    """An error with the status and headers of its response. Without `status`, the error's class decides."""

    def __init__(self, error: HoraeError, status: int | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.status = status or status_of(error)
        self.headers = headers or {}


def status_of(error: HoraeError) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def limited(message: str, seconds: float, *, hint: str | None = None) -> ProblemError:
    """Returns a refusal for too many requests. The client may try again after `seconds`."""
    wait = max(1, math.ceil(seconds))
    return ProblemError(
        errors.RateLimited(message, hint=hint or f"Try again in {wait} s."), 429, {"retry-after": str(wait)}
    )


def not_found(path: str) -> ProblemError:
    return ProblemError(
        NotFound(f"There is nothing at {errors.shown(path)}", hint="/api/v1/openapi.json lists what there is.")
    )


def method_not_allowed(method: str, allowed: str) -> ProblemError:
    error = InvalidInput(f"{method} is not possible here", hint=f"What is: {allowed}.")
    return ProblemError(error, 405, {"allow": allowed})


def refusal(error: BaseException, request_id: str) -> ProblemError:
    """Returns the refusal to send for any error. An unexpected error is logged with its traceback."""
    if isinstance(error, ProblemError):
        return _complete(error)
    if isinstance(error, HoraeError) and status_of(error) != 500:
        return _complete(ProblemError(error))
    if isinstance(error, msgspec.ValidationError):
        return ProblemError(invalid(error))
    if isinstance(error, RecursionError):
        return ProblemError(InvalidInput("The request is nested too deeply"))
    _log.error("incident %s: %s", request_id, type(error).__name__, exc_info=error)
    told = HoraeError(
        "Something went wrong in the server itself",
        hint=f"Its log says what, under {request_id}.",
        details={"incident": request_id},
    )
    return ProblemError(told, 500)


def _complete(refused: ProblemError) -> ProblemError:
    if refused.status == 401:
        refused.headers.setdefault("www-authenticate", 'Bearer realm="horae"')
    if refused.status == 429 and "retry_after" in refused.error.details:
        refused.headers.setdefault("retry-after", str(refused.error.details["retry_after"]))
    if refused.status in (429, 503):
        refused.headers.setdefault("retry-after", str(_RETRY_SECONDS))
    return refused


def invalid(error: msgspec.ValidationError, where: str = "") -> InvalidInput:
    """Returns a validation error of msgspec as an InvalidInput that names the field: `Expected int, got str - at
    $.limit` becomes `limit: Expected int, got str`. `where` comes before the field."""
    reason, _, place = str(error).partition(" - at ")
    field = place.strip("`").removeprefix("$").removeprefix(".")
    named = f"{field}: {reason}" if field else reason
    return InvalidInput(f"Invalid request: {where}{named}", details={"field": field, "reason": reason})


def problem(refused: ProblemError, *, instance: str, request_id: str) -> Problem:
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
    """Replaces lone surrogates, which UTF-8 cannot encode. A message may quote such text from the client."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_writable(name): _writable(each) for name, each in value.items()}
    return value
