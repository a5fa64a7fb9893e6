"""Authentication of requests: by token, by session cookie, or, for local clients of an open catalog, none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.core.access import LOCAL, Principal
from horae.errors import CrossSite, InvalidInput, LoginFailed
from horae.services.sessions import NewSession
from horae.web.forms import form_of
from horae.web.http import origin
from horae.web.http.middleware import OPEN_TIMES, SAFE
from horae.web.http.problems import ProblemError, limited
from horae.web.http.rate_limit import RateLimiter
from horae.web.site import Site, Visit

COOKIE = "horae_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""The cookie's name on a server with https. Browsers accept a cookie with this prefix only over https and only from
this host, so neither another host of the domain nor an attacker on the network can set it."""
CSRF_HEADER = "x-csrf-token"
_FAILURE_RATE = 0.5


@dataclass(frozen=True, slots=True)
class AuthenticatedCaller:
    """An authenticated caller. `sign_in` is open, session or token; `secret` is the session's."""

    who: Principal
    sign_in: str
    secret: str | None = None


def cookie_name(site: Site) -> str:
    return SECURE_COOKIE if site.is_secure else COOKIE


def set_session_cookie(response: Response, signed: NewSession, site: Site) -> None:
    """Sets the session's cookie. With SameSite=Lax, a user who follows a link from elsewhere, such as a mail, is still
    signed in. Changes are protected by the CSRF token and by the check of the request's origin."""
    response.set_cookie(
        cookie_name(site), signed.secret, expires=signed.expires, secure=site.is_secure, httponly=True, samesite="lax"
    )


def session_secret(request: Request, site: Site) -> str | None:
    """Returns the session's secret from the request's cookie, if any. Raises Refused if the request has it twice.

    The names are compared as bytes. Browsers apply the rules of the `__Host-` prefix to a name that begins with exactly
    these bytes. Starlette strips Unicode spaces from names, so with it a cookie without those rules could pass for this
    one. Browsers send a cookie once; of two, one was set by an attacker, and nothing says which."""
    name = cookie_name(site).encode()
    headers = (value for key, value in request.scope["headers"] if key == b"cookie")
    pairs = (pair.strip(b" \t").partition(b"=") for header in headers for pair in header.split(b";"))
    found = [value for key, is_pair, value in pairs if is_pair and key == name]
    if len(found) > 1:
        raise ProblemError(
            InvalidInput(
                f"This request shows {len(found)} sessions, of which one may have been put there by somebody else",
                hint=f"Delete the cookies {name.decode()} of this server in the browser, then sign in again.",
            )
        )
    return found[0].decode("latin-1") or None if found else None


def delete_session_cookie(response: Response, site: Site) -> None:
    response.delete_cookie(cookie_name(site), secure=site.is_secure, httponly=True, samesite="lax")


class Authenticator:
    """Authenticates requests and applies the rate limits of each caller."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._visitors = RateLimiter(site.limits.rate, site.limits.burst)
        self._failures = RateLimiter(_FAILURE_RATE, site.limits.failures)
        self._logins = RateLimiter(site.limits.logins / 60, site.limits.logins)

    async def visit(self, request: Request, *, is_page: bool = False) -> Visit:
        """Authenticates a request and returns its visit. With `is_page`, the CSRF token may also be a field of the
        form. Raises LoginFailed, CrossSite, and Refused with RateLimited."""
        entered = await self.entered(request)
        wait = self._visitors.take(entered.who.name, OPEN_TIMES if entered.sign_in == "open" else 1.0)
        if wait:
            raise limited(f"Too many requests by {entered.who.name}", wait)
        if entered.secret is not None and request.method not in SAFE:
            given = request.headers.get(CSRF_HEADER)
            if given is None and is_page:
                given = (await form_of(request)).get("csrf")
            await self._require_csrf(request, entered.secret, given)
        csrf = self._site.porter.csrf(entered.secret) if entered.secret is not None and is_page else None
        desk = self._site.desk(await self._site.store(), entered.who, entered.sign_in)
        visit = Visit(entered.who, entered.sign_in, desk, self._site, csrf)
        request.scope["state"]["visit"] = visit
        return visit

    async def entered(self, request: Request) -> AuthenticatedCaller:
        """Authenticates a request without counting it. Raises LoginFailed for missing or invalid credentials, Refused
        for two session cookies or too many failures from an address."""
        porter, address = self._site.porter, request.scope["state"]["address"]
        given = request.headers.get("authorization")
        if given is None and await self._is_open(request):
            return AuthenticatedCaller(LOCAL, "open")
        secret = session_secret(request, self._site) if given is None else None
        if given is None and secret is None:
            raise LoginFailed(
                "Sign in first: this takes a token, or a session",
                hint="Send `Authorization: Bearer TOKEN` (`horae token create` makes one), or sign in at /login.",
            )
        try:
            if given is not None:
                return AuthenticatedCaller(await porter.of_token(_bearer(given), address=address), "token")
            assert secret is not None
            return AuthenticatedCaller(await porter.of_session(secret, address=address), "session", secret)
        except LoginFailed as error:
            # Counted after the lookup, so that other clients at the same address with valid credentials get in.
            wait = self._failures.take(origin.limit_key(address))
            if wait:
                raise limited(f"Too many failed tries from {address}", wait) from error
            raise

    async def _is_open(self, request: Request) -> bool:
        is_near = origin.is_loopback(request.scope["state"]["address"]) and origin.is_local(request.headers)
        return self._site.is_loopback and is_near and await self._site.porter.is_open()

    async def _require_csrf(self, request: Request, secret: str, given: str | None) -> None:
        if not self._site.porter.is_csrf(secret, given):
            address = request.scope["state"]["address"]
            told = {"method": request.method, "path": request.scope["raw_path"].decode("ascii", "replace")[:200]}
            await self._site.porter.note_refusal(
                "ACCESS_DENIED", "a change that no page of ours asked for", address, told
            )
            raise CrossSite(
                "This request does not show that a page of this server made it",
                hint=f"Send the page's token in {CSRF_HEADER.title()}, or use a bearer token instead of the cookie.",
            )

    # ---- signing in and out ------------------------------------------------------------------------------------------

    def count_login(self, address: str, name: str) -> None:
        """Counts a try to sign in. Raises Refused with RateLimited after too many from an address or for a name."""
        wait = self._logins.take(f"from {origin.limit_key(address)}") or self._logins.take(f"for {name[:255]}", 5.0)
        if wait:
            raise limited("Too many tries to sign in", wait)

    async def sign_in(self, request: Request, given: dict[str, Any]) -> NewSession:
        """Begins a session with the name and password in a JSON body. Raises LoginFailed, and Refused with
        RateLimited."""
        name, password = given.get("name"), given.get("password")
        if not isinstance(name, str) or not isinstance(password, str) or set(given) - {"name", "password"}:
            raise LoginFailed("Signing in takes a name and a password", hint='Send {"name": …, "password": …}.')
        self.count_login(request.scope["state"]["address"], name)
        return await self._site.porter.sign_in(name, password)

    async def require_sign_out(self, request: Request, given: str | None) -> None:
        """Raises CrossSite unless the request has its session's CSRF token. A request without a session passes."""
        secret = session_secret(request, self._site)
        if secret is not None:
            await self._require_csrf(request, secret, given)


def _bearer(given: str) -> str:
    scheme, _, token = given.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise LoginFailed("The Authorization header is not understood", hint="Write: Authorization: Bearer TOKEN")
    return token.strip()
