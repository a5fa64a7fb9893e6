"""A client of a server's API over HTTP. The list of operations says which path each request goes to.

It uses only the standard library, keeps one connection open, and blocks. It is for the command line and for scripts.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from datetime import datetime
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlencode, urlsplit
from uuid import uuid4

import msgspec

from horae.api.operations import BY_NAME, PREFIX, Operation
from horae.api.requests import ApiRequest
from horae.api.responses.job_responses import ApiResponse
from horae.core.time.instant import aware
from horae.errors import HoraeError, InvalidInput, ServerUnavailable, shown

MOST_ANSWERED = 256 * 1024 * 1024
"""Bytes of a response at most. A longer one does not come from a Horae server."""
_TRIES = 2
_CUT = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, http.client.CannotSendRequest)
"""Errors of a connection that the server has closed meanwhile."""


class Client:
    """Calls the server at `url` on behalf of the user that owns `token`.

        client = Client("https://jobs.example.com", token)
        client.call("pause", name="etl", note="migration")

    Raises the server's own errors, by their codes, and ServerUnavailable if nothing answers or the answer is not from a
    Horae server. A token is sent over plain http only to this machine, unless `insecure` is set.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 30.0, insecure: bool = False) -> None:
        parts = _parts(url)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/") + PREFIX
        self._timeout = timeout
        self._headers = {"Accept": "application/json", "User-Agent": "horae-client"}
        if token:
            self._headers["Authorization"] = f"Bearer {_checked_token(token)}"
            if not (self._is_secure or insecure or is_loopback(self._host)):
                raise InvalidInput(
                    f"A token is not sent to {self.url}: everybody on the way could read it",
                    hint="Use https. Where the way is safe by other means: HORAE_INSECURE=1, in Python insecure=True.",
                )
        self._connection: http.client.HTTPConnection | None = None

    def call(self, operation: str, /, **parameters: Any) -> Any:
        """Calls an operation and returns its response. Raises InvalidInput for an unknown operation or invalid
        parameters."""
        known = BY_NAME.get(operation)
        if known is None:
            raise InvalidInput(
                f"There is no operation {shown(operation)}", hint=f"Known: {', '.join(sorted(BY_NAME))}."
            )
        try:
            asked = msgspec.convert(parameters, known.asks)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"{operation}: {error}") from error
        return self.answer(known, asked)

    def answer(self, operation: Operation, asked: ApiRequest) -> ApiResponse:
        """Like `Desk.answer`."""
        values = {name: getattr(asked, name) for name in asked.__struct_fields__}
        names = {name: quote(_text(values.pop(name)), safe="") for name in operation.in_path}
        path = self._prefix + operation.path.format(**names)
        body = None
        if operation.has_body:
            body = msgspec.json.encode(values)
        else:
            query = urlencode({name: _text(value) for name, value in values.items() if value is not None})
            path += f"?{query}" if query else ""
        response, content = self._exchange(operation.method, path, body)
        if response.status >= 400:
            raise self._problem(response, content)
        if response.status >= 300:
            raise self._stranger(response, "it sends elsewhere")
        try:
            return msgspec.json.decode(content, type=operation.answers)
        except msgspec.MsgspecError as error:
            raise self._stranger(response, str(error)) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- HTTP --------------------------------------------------------------------------------------------------------

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[http.client.HTTPResponse, bytes]:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        if method == "POST":
            # The same key for every try, so that a request whose response was lost is not carried out twice.
            headers["Idempotency-Key"] = str(uuid4())
        for left in reversed(range(_TRIES)):
            is_kept = self._connection is not None
            try:
                return self._once(method, path, body, headers)
            except _CUT as error:
                self.close()
                # The server may have closed a kept connection before the request arrived.
                if not is_kept or not left:
                    raise self._unavailable(error) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._unavailable(error) from error
        raise AssertionError("the last try answers or raises")

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout)
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        content = response.read(MOST_ANSWERED + 1)
        if len(content) > MOST_ANSWERED:
            self.close()
            raise self._stranger(response, "its answer has no end")
        if response.will_close:
            self.close()
        return response, content

    # ---- errors ------------------------------------------------------------------------------------------------------

    def _problem(self, response: http.client.HTTPResponse, content: bytes) -> HoraeError:
        """Builds the error that a problem document (RFC 9457) describes."""
        try:
            told = msgspec.json.decode(content, type=_Problem)
        except msgspec.MsgspecError:
            return self._stranger(response, "its error is no problem document")
        return rebuild_error(told.code, told.detail or told.title, told.hint, told.details or {})

    def _unavailable(self, error: Exception) -> ServerUnavailable:
        if isinstance(error, TimeoutError):
            reason = f"it did not answer within {self._timeout:g} seconds"
        elif isinstance(error, ssl.SSLCertVerificationError):
            reason = f"its certificate is not trusted: {error.verify_message}"
        elif isinstance(error, socket.gaierror):
            reason = "there is no such host"
        else:
            reason = str(error) or type(error).__name__
        return ServerUnavailable(
            f"The server at {self.url} cannot be asked: {reason}",
            hint="Is it running, and is that its address? `horae serve` starts one.",
            details={"url": self.url},
        )

    def _stranger(self, response: http.client.HTTPResponse, reason: str) -> ServerUnavailable:
        what = response.headers.get("Content-Type", "no content type").partition(";")[0]
        return ServerUnavailable(
            f"Whoever answers at {self.url} is no Horae server, or one of another release: HTTP {response.status}, "
            f"{what}: {reason}",
            hint="Give the address that `horae serve` printed, and the same release on both sides.",
            details={"url": self.url, "status": response.status},
        )


class _Problem(msgspec.Struct):
    code: str
    title: str = ""
    detail: str = ""
    hint: str | None = None
    details: dict[str, Any] | None = None


def rebuild_error(code: str, message: str, hint: str | None, details: Mapping[str, Any]) -> HoraeError:
    """Builds the error with that code as the server raised it; HoraeError for a code that this release does not
    know."""
    kind = _classes().get(code, HoraeError)
    error = kind.__new__(kind, message)
    # Not the class's own __init__, which may build the message from other arguments.
    HoraeError.__init__(error, message, hint=hint, details=dict(details))
    for name, value in details.items():
        if not hasattr(error, name):
            setattr(error, name, value)
    return error


def _classes() -> dict[str, type[HoraeError]]:
    found: dict[str, type[HoraeError]] = {}
    left = [HoraeError]
    while left:
        kind = left.pop()
        found.setdefault(kind.code, kind)
        left += [each for each in kind.__subclasses__() if each.__module__ == HoraeError.__module__]
    return found


def is_loopback(host: str) -> bool:
    """Returns whether a host name or address is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(url: str) -> SplitResult:
    invalid = InvalidInput(f"Invalid server {shown(url)}", hint="Write http://127.0.0.1:8421 or https://host.")
    try:
        parts = urlsplit(url.strip())
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise invalid from None
    if not is_good or parts.query or parts.fragment:
        raise invalid
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "A server's address has no user or password in it", hint="Give a token: HORAE_TOKEN, or --token-file."
        )
    return parts


def _checked_token(token: str) -> str:
    trimmed = token.strip()
    if not trimmed.isascii() or not trimmed.isprintable() or " " in trimmed:
        raise InvalidInput("That is no token", hint="A token begins with horae_ and has no spaces in it.")
    return trimmed


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return aware(value).isoformat().replace("+00:00", "Z")
    return str(value)
