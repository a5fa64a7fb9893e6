"""Rendering of pages: the template environment, its filters, and the URLs that templates link to.

All values are escaped. A template that uses an undefined name raises an error. URLs are made here, so that also a job
named `a/b "c"?` has a valid one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from horae.api.operations import BY_NAME, PREFIX
from horae.version import __version__
from horae.web import words
from horae.web.site import Visit
from horae.web.statics import digest

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"

NAVIGATION = (
    ("overview", "/", "Overview", "o"),
    ("jobs", "/jobs", "Jobs", "j"),
    ("runs", "/runs", "Runs", "r"),
    ("plan", "/plan", "Plan", "l"),
    ("explore", "/explore", "Explore", "e"),
    ("console", "/sql", "SQL", "s"),
    ("nodes", "/nodes", "Nodes", "n"),
    ("audit", "/audit", "Audit", "a"),
    ("settings", "/settings", "Settings", "t"),
    ("people", "/people", "People", "p"),
)
"""The header's links: route, path, title, and the key that opens the page after `g`."""
THEME_COOKIE = "horae_theme"
"""The cookie with the theme, set by app.js. The server reads it, since a theme set by a script would flash another
one first."""
_SECTION_OF = {"job": "jobs", "run": "runs", "version": "jobs", "versions": "jobs"}
"""The header's page for each page below one."""


# ---- addresses -------------------------------------------------------------------------------------------------------


def job_url(name: str, /, **query: object) -> str:
    return f"/jobs/{quote(name, safe='')}" + _query(query)


def versions_url(name: str, version: int | None = None, /, **query: object) -> str:
    """Returns the path of a job's versions, or of one version."""
    one = "" if version is None else f"/{version}"
    return f"{job_url(name)}/versions{one}" + _query(query)


def run_url(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


def api(operation: str, /, **named: str) -> str:
    """Returns method and path of an operation for `data-action`, such as `POST /api/v1/jobs/etl/pause`."""
    found = BY_NAME[operation]
    path = found.path
    for name in found.in_path:
        path = path.replace(f"{{{name}}}", quote(named[name], safe=""))
    return f"{found.method} {PREFIX}{path}"


def address(path: str, /, **query: object) -> str:
    """Returns `path` with a query of the values that are not None, False or empty."""
    return path + _query(query)


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None and value is not False and value != ""}
    return "?" + urlencode({name: "1" if value is True else value for name, value in given.items()}) if given else ""


def static(name: str) -> str:
    """Returns the URL of a static file, with a digest so that browsers may cache it for ever."""
    return f"/static/{name}?v={digest()}"


# ---- filters ---------------------------------------------------------------------------------------------------------


def time_element(at: str | None, mode: str = "both", missing: str = words.NOTHING) -> Markup:
    """Returns a `<time>` element for an RFC 3339 text. `mode` is absolute (in the reader's time zone), relative ("in 5
    min", kept up to date), both, or clock (hours and minutes). Without scripts it shows the time in UTC."""
    if not at:
        return Markup('<span class="soft">{}</span>').format(missing)
    # Escaped one by one, since Markup.format takes ten times as long and a page has hundreds of times.
    return Markup(f'<time datetime="{escape(at)}" data-time="{escape(mode)}">{escape(words.utc_text(at))}</time>')  # noqa: S704 - see above


def as_json(value: object, indent: int | None = 2) -> str:
    """Returns plain values as JSON text."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def environment() -> Environment:
    """Returns a new environment for the templates."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        time=time_element,
        utc=words.utc_text,
        duration=words.length_text,
        amount=words.amount,
        label=words.label,
        tone=words.tone,
        glyph=words.glyph,
        json=as_json,
        plural=words.plural,
        short_id=words.short_id,
    )
    made.globals.update(
        static=static,
        job_url=job_url,
        run_url=run_url,
        versions_url=versions_url,
        api=api,
        address=address,
        navigation=NAVIGATION,
        version=__version__,
        escape=escape,
    )
    return made


_environment = lru_cache(environment)


def load_templates() -> None:
    """Compiles all templates in the background, so that the first page is fast."""
    made = _environment()

    def read() -> None:
        for name in made.list_templates(["html"]):
            made.get_template(name)

    # A daemon thread does not delay the end of the process.
    Thread(target=read, name="horae-templates", daemon=True).start()


def requested_parts(request: Request) -> frozenset[str] | None:
    """Returns the ids of the parts of a page that a script requests again; None for the whole page."""
    asked = request.headers.get("x-fragment", "").split()
    return frozenset(asked) or None


def render(
    template: str,
    visit: Visit | None,
    request: Request,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Returns a rendered page. `visit` is None if nobody is signed in; then the header has no links."""
    route = request.scope.get("route")
    name = getattr(route, "name", "") or ""
    text = (
        _environment()
        .get_template(template)
        .render(
            visit=visit,
            request=request,
            section=_SECTION_OF.get(name, name),
            theme=theme if (theme := request.cookies.get(THEME_COOKIE)) in ("light", "dark") else None,
            is_part="x-fragment" in request.headers,
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **values,
        )
    )
    return HTMLResponse(text, status, {"cache-control": "no-store", **(headers or {})})
