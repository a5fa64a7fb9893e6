"""The login page: a name and a password begin a session, whose secret is in a cookie that scripts cannot read.

The error never says what was wrong, so that it does not reveal which users exist.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from horae.errors import InvalidInput, LoginFailed
from horae.web.forms import form_of, safe_next
from horae.web.http.authentication import delete_session_cookie, session_secret, set_session_cookie
from horae.web.page_renderer import render
from horae.web.site import Site, Visit

REFUSED = "That name and password do not go together, or the account is closed."
_LONGEST = 1_024


async def page(visit: Visit | None, request: Request) -> Response:
    """Answers with the form, or redirects a visitor who is signed in already."""
    target = safe_next(request.query_params.get("next"))
    if visit is not None:
        return RedirectResponse(target, 303)
    return render("login.html", None, request, next=target, name="", fault=None)


async def sign_in(site: Site, request: Request) -> Response:
    """Handles the form: begins a session and redirects, or answers with the form again. Raises RateLimited."""
    given = await form_of(request)
    target = safe_next(given.get("next"))
    name, password = given.get("name", "").strip(), given.get("password", "")
    try:
        if not name or not password or max(len(name), len(password)) > _LONGEST:
            raise LoginFailed(REFUSED)
        signed = await site.porter.sign_in(name, password)
    except (LoginFailed, InvalidInput):
        return render("login.html", None, request, status=401, next=target, name=name[:255], fault=REFUSED)
    answer = RedirectResponse(target, 303, {"cache-control": "no-store"})
    set_session_cookie(answer, signed, site)
    return answer


async def sign_out(site: Site, request: Request) -> Response:
    """Ends the session, deletes its cookie, and redirects to the login page."""
    secret = session_secret(request, site)
    if secret is not None:
        await site.porter.sign_out(secret)
    answer = RedirectResponse("/login", 303, {"cache-control": "no-store"})
    delete_session_cookie(answer, site)
    return answer


PAGES = (("/login", "login", page),)
