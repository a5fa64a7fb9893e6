"""The middleware around all routes: checks on each request, and headers on each response.

Outermost first: the request's id and access log; security headers for browsers; the rate limit of an address; the Host
header; the request's origin; limits on the size and duration of the body. Errors of all inner layers become problem
documents here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horae.api.operations import OPERATIONS, PREFIX
from horae.api.remote import marking_remote_calls
from horae.errors import CrossSite, InvalidInput, RequestTooLarge, ServerUnavailable, shown
from horae.web.http import origin
from horae.web.http.problems import Problem, ProblemError, limited, problem, problem_response, refusal
from horae.web.http.rate_limit import RateLimiter
from horae.web.site import Site

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    # With no-referrer, browsers would send `Origin: null` for the server's own forms too, such as the login form.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-permitted-cross-domain-policies": "none",
}
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
ADDRESS_TIMES = 4.0
OPEN_TIMES = 20.0
QUIET = ("/static/", "/healthz", "/readyz", "/metrics")
"""Paths whose successful requests are logged at debug level only."""

_LARGE_BODIES = {f"{PREFIX}{each.path}": each.most_body for each in OPERATIONS if each.most_body}
"""Paths whose bodies may be larger, with the most bytes. These bodies are read after authentication."""

_log = logging.getLogger("horae.web")

ProblemPage: TypeAlias = Callable[[Request, Problem, dict[str, str]], Awaitable[Response | None]]
"""Renders a problem as a page; None sends it as a problem document."""


class RequestMiddleware:
    """Wraps an application with this middleware. `told` renders problems as pages for browsers."""

    def __init__(self, app: ASGIApp, site: Site, told: ProblemPage) -> None:
        self._app = app
        self._site = site
        self._told = told
        self._addresses = RateLimiter(site.limits.rate, site.limits.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_socket(scope, receive, send)
            return
        began = monotonic()
        most = max(self._site.limits.body, _LARGE_BODIES.get(_path(scope), 0))
        incoming = _BodyLimiter(scope, receive, most, self._site.limits.patience)
        outgoing = _ResponseSender(scope, send, self._site, incoming)
        scope["state"] = {"address": origin.address(scope, self._site), "request_id": outgoing.request_id}
        try:
            try:
                await self._check(scope)
                incoming.check()
                with marking_remote_calls():
                    await self._app(scope, incoming.receive, outgoing.send)
            except ClientDisconnect:
                outgoing.status = outgoing.status or 499
            except asyncio.CancelledError:
                # The server is stopping, and the time that it waits for requests is over.
                await self._tell(_ending(), scope, incoming, outgoing)
            except Exception as error:  # noqa: BLE001 - any error becomes a problem document, with details in the log
                await self._tell(error, scope, incoming, outgoing)
        finally:
            _note(scope, outgoing, monotonic() - began)

    async def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        address = scope["state"]["address"]
        wait = self._addresses.take(
            origin.limit_key(address), OPEN_TIMES if origin.is_loopback(address) else ADDRESS_TIMES
        )
        if wait:
            raise limited(f"Too many requests from {address}", wait)
        if not origin.is_own_host(headers.get("host"), scope, self._site):
            await self._note(scope, f"asked for by a name that is not ours: {shown(headers.get('host') or '')}")
            raise ProblemError(
                CrossSite(
                    f"This server does not go by the name {shown(headers.get('host') or '')}",
                    hint="Ask for it by its address, or add the name to `hosts` of [server] in horae.toml.",
                ),
                421,
            )
        if scope["method"] not in SAFE:
            reason = origin.cross_site_reason(headers, is_secure=self._site.is_secure)
            if reason is not None:
                await self._note(scope, f"a request that another site made: {reason}")
                raise CrossSite(
                    f"Another site made this request: {reason}", hint="Ask from the dashboard itself, or with a token."
                )

    async def _note(self, scope: Scope, reason: str) -> None:
        await self._site.porter.note_refusal(
            "ACCESS_DENIED", reason, scope["state"]["address"], {"method": scope["method"], "path": _path(scope)[:200]}
        )

    async def _tell(self, error: Exception, scope: Scope, incoming: _BodyLimiter, outgoing: _ResponseSender) -> None:
        refused = refusal(error, outgoing.request_id)
        if outgoing.status:
            # The response has begun, so the client learns of the error only by the end of the connection.
            _log.error("request %s broke off: %s", outgoing.request_id, refused.error.message)
            return
        told = problem(refused, instance=_path(scope), request_id=outgoing.request_id)
        request = Request(scope)
        response = None if _path(scope).startswith("/api/") else await self._page(request, told, refused.headers)
        await (response or problem_response(told, refused.headers))(scope, incoming.receive, outgoing.send)

    async def _page(self, request: Request, told: Problem, headers: dict[str, str]) -> Response | None:
        if "text/html" not in request.headers.get("accept", "") or "x-fragment" in request.headers:
            return None
        try:
            return await self._told(request, told, headers)
        except Exception:  # noqa: BLE001 - if the page cannot be rendered, the client gets the problem document
            _log.exception("the page of a problem could not be made")
            return None


class _BodyLimiter:
    """Limits the size and the duration of a request's body."""

    def __init__(self, scope: Scope, receive: Receive, most: int, seconds: float) -> None:
        self._receive = receive
        self._most = most
        self._seconds = seconds
        self._until: float | None = None
        self._taken = 0
        headers = Headers(scope=scope)
        self._length = headers.get("content-length")
        is_chunked = "transfer-encoding" in headers
        self._is_ambiguous = is_chunked and self._length is not None
        self.is_unread = self._length not in (None, "0") or is_chunked

    def check(self) -> None:
        """Raises what the headers already show: Refused for an ambiguous length, RequestTooLarge."""
        if self._is_ambiguous:
            raise ProblemError(
                InvalidInput(
                    "A request may have a Content-Length or a Transfer-Encoding, not both",
                    hint="Send one of them: of two, a proxy before this server might go by the other.",
                ),
                400,
            )
        if self._length is not None and self._length.isdecimal() and int(self._length) > self._most:
            raise self._too_large()

    async def receive(self) -> Message:
        if not self.is_unread:
            return await self._receive()
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise ProblemError(
                InvalidInput(f"The body did not arrive within {self._seconds:g} s", hint="Send it again, faster."), 408
            ) from None
        if message["type"] == "http.disconnect":
            self.is_unread = False
            return message
        self._taken += len(message.get("body", b""))
        if self._taken > self._most:
            raise self._too_large()
        self.is_unread = message.get("more_body", False)
        return message

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"The request has more than {self._most} bytes", hint="Send less, or have `body_limit` of [server] raised."
        )


class _ResponseSender:
    """Adds the common headers to a response, and keeps its status and size for the log."""

    def __init__(self, scope: Scope, send: Send, site: Site, incoming: _BodyLimiter) -> None:
        self._scope = scope
        self._send = send
        self._site = site
        self._incoming = incoming
        self.request_id = uuid4().hex[:16]
        self.status = 0
        self.sent = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
            headers["x-request-id"] = self.request_id
            if self._incoming.is_unread:
                # Otherwise the server would read and discard the rest of the body.
                headers["connection"] = "close"
            if self._site.is_secure:
                headers.setdefault("strict-transport-security", "max-age=31536000")
        elif message["type"] == "http.response.body":
            if self._scope["method"] == "HEAD":
                message = {**message, "body": b""}
            self.sent += len(message.get("body", b""))
        await self._send(message)


def _ending() -> ServerUnavailable:
    return ServerUnavailable(
        "The server is ending, and does not wait for this request any longer",
        hint="What it asked for may have been done or not: ask again when a server is back.",
    )


def _path(scope: Scope) -> str:
    """Returns the path as it was sent, still encoded, so that decoded characters cannot forge log lines."""
    raw: bytes = scope.get("raw_path") or b"/"
    return raw.decode("ascii", "replace")[:1_000]


def _note(scope: Scope, outgoing: _ResponseSender, seconds: float) -> None:
    """Writes the access log, without the query and the headers, which may contain secrets."""
    path = _path(scope)
    status = outgoing.status
    quiet = status < 400 and path.startswith(QUIET)
    level = logging.DEBUG if quiet else logging.WARNING if status >= 500 else logging.INFO
    if not _log.isEnabledFor(level):
        return
    state = scope["state"]
    visit = state.get("visit")
    who = visit.who.name if visit is not None else "-"
    _log.log(
        level,
        "%s %s %d in %.1f ms for %s at %s",
        scope["method"],
        path,
        status,
        seconds * 1000,
        who,
        state["address"],
        extra={
            "horae_event": "Request",
            "horae_method": scope["method"],
            "horae_path": path,
            "horae_status": status,
            "horae_seconds": round(seconds, 6),
            "horae_bytes": outgoing.sent,
            "horae_who": who,
            "horae_address": state["address"],
            "horae_request_id": outgoing.request_id,
        },
    )


async def _refuse_socket(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": "There are no web sockets here"})
