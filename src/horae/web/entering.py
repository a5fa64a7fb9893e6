"""Who made a request: a token, a session's cookie, or, where nobody can sign in yet, whoever sits at the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.control.visiting import SignedIn
from horae.core.access import LOCAL, Principal
from horae.errors import CrossSite, InvalidInput, LoginFailed
from horae.web import origin
from horae.web.door import OPEN_TIMES, SAFE
from horae.web.forms import form_of
from horae.web.limiting import Buckets
from horae.web.problems import Refused, limited
from horae.web.site import Site, Visit

COOKIE = "horae_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Where the server is reached by https: browsers take a cookie of such a name from this very host by https alone, so
that neither another host of the domain nor whoever sits between can put one in its place."""
CSRF_HEADER = "x-csrf-token"
_FAILURE_RATE = 0.5


@dataclass(frozen=True, slots=True)
class Entered:
    """Who came in, and by what: open, session or token. `secret` is the session's."""

    who: Principal
    sign_in: str
    secret: str | None = None


def cookie_name(site: Site) -> str:
    return SECURE_COOKIE if site.is_secure else COOKIE


def keep_session(response: Response, signed: SignedIn, site: Site) -> None:
    """Gives the browser its session. Lax: who follows a link from elsewhere, in a mail say, is still signed in; what
    changes something is protected by the token that our own pages alone have, and by where it came from."""
    response.set_cookie(
        cookie_name(site), signed.secret, expires=signed.expires, secure=site.is_secure, httponly=True, samesite="lax"
    )


def session_of(request: Request, site: Site) -> str | None:
    """The session's secret that a request shows, if any. Raises Refused where it shows two.

    Read byte by byte: browsers hold to the rules of a name that begins with these very bytes, and to no rules where it
    only does once somebody has taken Unicode's spaces from it, as the framework does. They send a cookie once, so a
    second is not from us, and nothing says which."""
    name = cookie_name(site).encode()
    headers = (value for key, value in request.scope["headers"] if key == b"cookie")
    pairs = (pair.strip(b" \t").partition(b"=") for header in headers for pair in header.split(b";"))
    found = [value for key, is_pair, value in pairs if is_pair and key == name]
    if len(found) > 1:
        raise Refused(
            InvalidInput(
                f"This request shows {len(found)} sessions, of which one may have been put there by somebody else",
                hint=f"Delete the cookies {name.decode()} of this server in the browser, then sign in again.",
            )
        )
    return found[0].decode("latin-1") or None if found else None


def end_session(response: Response, site: Site) -> None:
    response.delete_cookie(cookie_name(site), secure=site.is_secure, httponly=True, samesite="lax")


class Entrance:
    """Finds out who asks, and lets them ask only so often."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._visitors = Buckets(site.limits.rate, site.limits.burst)
        self._failures = Buckets(_FAILURE_RATE, site.limits.failures)
        self._logins = Buckets(site.limits.logins / 60, site.limits.logins)

    async def visit(self, request: Request, *, is_page: bool = False) -> Visit:
        """The visit that a request is. A page's form has what others send in a header as a field. Raises LoginFailed,
        CrossSite, RateLimited."""
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

    async def entered(self, request: Request) -> Entered:
        """Raises LoginFailed for whoever shows nothing, or something that opens nothing; Refused for two sessions."""
        porter, address = self._site.porter, request.scope["state"]["address"]
        given = request.headers.get("authorization")
        if given is None and await self._is_open(request):
            return Entered(LOCAL, "open")
        secret = session_of(request, self._site) if given is None else None
        if given is None and secret is None:
            raise LoginFailed(
                "Sign in first: this takes a token, or a session",
                hint="Send `Authorization: Bearer TOKEN` (`horae token create` makes one), or sign in at /login.",
            )
        try:
            if given is not None:
                return Entered(await porter.of_token(_bearer(given), address=address), "token")
            assert secret is not None
            return Entered(await porter.of_session(secret, address=address), "session", secret)
        except LoginFailed as error:
            # After it was looked up: others at the same address have what opens, and are let in.
            wait = self._failures.take(origin.holder(address))
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
        """Raises RateLimited after too many tries from an address, or for a name."""
        wait = self._logins.take(f"from {origin.holder(address)}") or self._logins.take(f"for {name[:255]}", 5.0)
        if wait:
            raise limited("Too many tries to sign in", wait)

    async def sign_in(self, request: Request, given: dict[str, Any]) -> SignedIn:
        """Begins a session by what a body says. Raises LoginFailed, RateLimited."""
        name, password = given.get("name"), given.get("password")
        if not isinstance(name, str) or not isinstance(password, str) or set(given) - {"name", "password"}:
            raise LoginFailed("Signing in takes a name and a password", hint='Send {"name": …, "password": …}.')
        self.count_login(request.scope["state"]["address"], name)
        return await self._site.porter.sign_in(name, password)

    async def require_sign_out(self, request: Request, given: str | None) -> None:
        """Lets sign out whoever a page of this session sent; a session that is none needs no protection."""
        secret = session_of(request, self._site)
        if secret is not None:
            await self._require_csrf(request, secret, given)


def _bearer(given: str) -> str:
    scheme, _, token = given.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise LoginFailed("The Authorization header is not understood", hint="Write: Authorization: Bearer TOKEN")
    return token.strip()
