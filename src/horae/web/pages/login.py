"""The door: a name and a password become a session, whose secret is in a cookie that no script can read.

What was wrong is never said: whether there is such a user is nobody's business who cannot sign in as one.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from horae.errors import InvalidInput, LoginFailed
from horae.web.entering import end_session, keep_session, session_of
from horae.web.forms import form_of, safe_next
from horae.web.rendering import render
from horae.web.site import Site, Visit

REFUSED = "That name and password do not go together, or the account is closed."
_LONGEST = 1_024


async def page(visit: Visit | None, request: Request) -> Response:
    """The form. Whoever is in already goes on at once."""
    target = safe_next(request.query_params.get("next"))
    if visit is not None:
        return RedirectResponse(target, 303)
    return render("login.html", None, request, next=target, name="", fault=None)


async def sign_in(site: Site, request: Request) -> Response:
    """Answers the form: a session and the way on, or the form again. Raises RateLimited, which the server tells."""
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
    keep_session(answer, signed, site)
    return answer


async def sign_out(site: Site, request: Request) -> Response:
    """Ends the session, here and in the browser."""
    secret = session_of(request, site)
    if secret is not None:
        await site.porter.sign_out(secret)
    answer = RedirectResponse("/login", 303, {"cache-control": "no-store"})
    end_session(answer, site)
    return answer


PAGES = (("/login", "login", page),)
