"""The web application: the routes of the API and of the pages, and the middleware around them.

Door          request id, log, headers, Host, origin, limits, problems      http/middleware.py, origin.py, problems.py
Entrance      authentication: token, session, or open                       http/authentication.py
Table         routing by path and method                                    http/routes.py
  operations    the operations of the API, under /api/v1                    http/answers.py, request_reader.py
  events        live updates                                                live/
  pages         the dashboard                                               pages/
  the rest      static files, health, metrics, the OpenAPI document         statics.py, http/health.py, openapi.py
"""

from __future__ import annotations

from functools import partial
from time import time
from urllib.parse import quote

import msgspec
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from horae.api.operations import OPERATIONS, PREFIX
from horae.core.time.instant import parse_instant
from horae.errors import HoraeError, InvalidInput, LoginFailed
from horae.formats.toml.job_file import JOB_FILE_SCHEMA
from horae.web.connections.disconnect import cancel_on_disconnect
from horae.web.forms import CHANGED, form_of
from horae.web.http import openapi
from horae.web.http.authentication import Authenticator, set_session_cookie
from horae.web.http.health import HealthChecker
from horae.web.http.middleware import RequestMiddleware
from horae.web.http.operations import api_path, operation_endpoint
from horae.web.http.problems import Problem, ProblemError, invalid
from horae.web.http.request_reader import body_of, decoded_body, query
from horae.web.http.routes import Endpoint, Router
from horae.web.http.shared_answers import COMPRESSED, LEVEL, PagePart
from horae.web.live.events import EventResponse, Hub
from horae.web.page_renderer import render
from horae.web.pages import ALL_FORMS, ALL_PAGES, Page, login
from horae.web.site import Site, Visit
from horae.web.statics import StaticFiles

_MILLISECOND = 0.001
"""Added to the time of a change, which is rounded down to milliseconds."""


class Application:
    """The web application of one site. `hub` has the live viewers and must be closed when the server stops."""

    def __init__(self, site: Site) -> None:
        entrance = Authenticator(site)
        self.hub = hub = Hub(site)
        self.table = table = Router()
        for operation in OPERATIONS:
            endpoint = operation_endpoint(operation, entrance, hub)
            if operation.is_given_up:
                endpoint = cancel_on_disconnect(endpoint)
            table.add(api_path(operation), operation.name, endpoint, operation.method)
        _add_service(table, site, entrance, hub)
        _add_pages(table, site, entrance, hub)
        self._door = RequestMiddleware(_compressing(table.handle), site, _problem_page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._door(scope, receive, send)


def _compressing(app: ASGIApp) -> ASGIApp:
    """Wraps an application: responses are compressed for clients that accept gzip, at no cost for the others."""
    compressed = GZipMiddleware(app, minimum_size=COMPRESSED, compresslevel=LEVEL)

    async def chosen(scope: Scope, receive: Receive, send: Send) -> None:
        accepts = any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])
        await (compressed if accepts else app)(scope, receive, send)

    return chosen


# ---- the API besides operations --------------------------------------------------------------------------------------


class _EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    overview: bool = False


def _add_service(table: Router, site: Site, entrance: Authenticator, hub: Hub) -> None:
    checkup = HealthChecker(site, entrance)

    async def events(request: Request, named: dict[str, str]) -> Response:
        try:
            asked = msgspec.convert(query(request.scope["query_string"]), _EventsQuery, strict=False)
        except msgspec.ValidationError as error:
            raise invalid(error) from None
        visit = await entrance.visit(request)

        async def still() -> Visit:
            entered = await entrance.entered(request)
            if entered.who.name != visit.who.name:
                raise LoginFailed("Somebody else has signed in", hint="Load the page again.")
            desk = site.desk(await site.store(), entered.who, entered.sign_in)
            return Visit(entered.who, entered.sign_in, desk, site)

        return EventResponse(hub, visit, overview=asked.overview, still=still)

    table.add("/healthz", "healthz", checkup.healthz)
    table.add("/readyz", "readyz", checkup.readyz)
    table.add("/metrics", "metrics", checkup.metrics)
    table.add(f"{PREFIX}/events", "events", events)
    table.add(f"{PREFIX}/openapi.json", "openapi", _fixed(openapi.document(), "application/json"))
    table.add(f"{PREFIX}/jobs.schema.json", "job_schema", _fixed(JOB_FILE_SCHEMA, "application/schema+json"))
    table.add("/static/{file}", "static", StaticFiles().endpoint)


def _fixed(value: object, media_type: str) -> Endpoint:
    body = msgspec.json.encode(value)

    async def endpoint(request: Request, named: dict[str, str]) -> Response:
        return Response(body, 200, {"cache-control": "no-cache"}, media_type)

    return endpoint


# ---- pages -----------------------------------------------------------------------------------------------------------


def _add_pages(table: Router, site: Site, entrance: Authenticator, hub: Hub) -> None:
    for path, name, page in ALL_PAGES:
        endpoint = _login_page(page, entrance) if name == "login" else _page(page, entrance, hub)
        table.add(path, name, cancel_on_disconnect(endpoint) if name == "explore" else endpoint)
    for path, name, page in ALL_FORMS:
        table.add(path, name, _form(page, entrance, hub), "POST")

    async def sign_in(request: Request, named: dict[str, str]) -> Response:
        """Signs in by a form, which is answered with a redirect, or by JSON, which is answered with the session's name,
        expiry and CSRF token."""
        if _is_form(request):
            given = await form_of(request)
            entrance.count_login(request.scope["state"]["address"], given.get("name", ""))
            return await login.sign_in(site, request)
        signed = await entrance.sign_in(request, decoded_body(await body_of(request)))
        answer = {"name": signed.who.name, "expires": signed.expires, "csrf": site.porter.csrf(signed.secret)}
        response = Response(msgspec.json.encode(answer), 200, None, "application/json")
        set_session_cookie(response, signed, site)
        return response

    async def sign_out(request: Request, named: dict[str, str]) -> Response:
        given = request.headers.get("x-csrf-token")
        if given is None and _is_form(request):
            given = (await form_of(request)).get("csrf")
        await entrance.require_sign_out(request, given)
        return await login.sign_out(site, request)

    table.add("/login", "login", sign_in, "POST")
    table.add("/logout", "logout", sign_out, "POST")


def _is_form(request: Request) -> bool:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media == "application/x-www-form-urlencoded"


def _page(page: Page, entrance: Authenticator, hub: Hub) -> Endpoint:
    async def endpoint(request: Request, named: dict[str, str]) -> Response:
        parts = request.headers.get("x-fragment")
        try:
            visit = await entrance.visit(request, is_page=parts is None)
        except LoginFailed:
            if parts is not None or "authorization" in request.headers:
                raise
            return _to_login(request)
        if parts is None:
            return await page(visit, request)

        since = _since(request)
        request.scope["state"]["overview"] = partial(hub.overview, since=since)

        async def made() -> PagePart:
            return PagePart(await page(visit, request))

        key = visit.who, visit.sign_in, request.scope["raw_path"], request.scope["query_string"], parts
        part = await hub.parts.get(key, made, since=since)
        return part.response(request.headers.get("accept-encoding", ""))

    return endpoint


def _form(page: Page, entrance: Authenticator, hub: Hub) -> Endpoint:
    """Returns the endpoint of a page's form. It raises Refused for a body that is not a form, without reading it."""

    async def endpoint(request: Request, named: dict[str, str]) -> Response:
        if not _is_form(request):
            raise ProblemError(
                InvalidInput("This is not a form", hint="/api/v1/openapi.json lists what takes JSON."), 415
            )
        try:
            visit = await entrance.visit(request, is_page=True)
        except LoginFailed:
            if "authorization" in request.headers:
                raise
            return _to_login(request)
        response = await page(visit, request)
        if request.scope["state"].get(CHANGED):
            hub.note(None, None)
        return response

    return endpoint


def _since(request: Request) -> float:
    """Returns the time, in seconds since 1970, before which no shared part may have been made: now after an action of
    the client's own (`Cache-Control: no-cache`), else the time of the change that it was notified of (`X-Told`), maybe
    by another server on the same port. Minus infinity if the client sends neither."""
    if request.headers.get("cache-control") == "no-cache":
        return time()
    try:
        return min(parse_instant(request.headers["x-told"]).timestamp() + _MILLISECOND, time())
    except (KeyError, HoraeError):
        return float("-inf")


def _to_login(request: Request) -> Response:
    raw = request.scope["raw_path"].decode("ascii", "replace")
    asked = request.scope["query_string"].decode("ascii", "replace")
    target = f"{raw}?{asked}" if asked else raw
    return RedirectResponse("/login" if target == "/" else f"/login?next={quote(target, safe='')}", 303)


def _login_page(page: Page, entrance: Authenticator) -> Endpoint:
    async def endpoint(request: Request, named: dict[str, str]) -> Response:
        try:
            visit: Visit | None = await entrance.visit(request, is_page=True)
        except LoginFailed:
            visit = None
        return await page(visit, request)  # type: ignore[arg-type]  # the login page takes None

    return endpoint


async def _problem_page(request: Request, told: Problem, headers: dict[str, str]) -> Response | None:
    """Renders a problem as a page. It shows nothing of the requested page, which the visitor may not be allowed to
    see."""
    visit = request.scope["state"].get("visit")
    return render("problem.html", visit, request, status=told.status, headers=headers, problem=told)
