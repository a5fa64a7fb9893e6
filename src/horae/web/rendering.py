"""Pages made of templates: the environment, its filters, the addresses that templates link to.

Everything is escaped, always; a name that a template uses and nobody gave is an error. Addresses are made here, so that
a job called `a/b "c"?` has one.
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

from horae.desk.operations import BY_NAME, PREFIX
from horae.version import __version__
from horae.web import wording
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
"""Route, address and title of what the header leads to, and the letter that leads there after `g`."""
THEME_COOKIE = "horae_theme"
"""Set by app.js: a page that took its theme from a script would first be seen in another."""
_SECTION_OF = {"job": "jobs", "run": "runs", "version": "jobs", "versions": "jobs"}
"""Pages below one of the header's."""


# ---- addresses -------------------------------------------------------------------------------------------------------


def job_url(name: str, /, **query: object) -> str:
    return f"/jobs/{quote(name, safe='')}" + _query(query)


def versions_url(name: str, version: int | None = None, /, **query: object) -> str:
    """Where a job's versions are, or one of them."""
    one = "" if version is None else f"/{version}"
    return f"{job_url(name)}/versions{one}" + _query(query)


def run_url(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


def api(operation: str, /, **named: str) -> str:
    """Method and address of an operation, as `data-action` has it: `POST /api/v1/jobs/etl/pause`."""
    found = BY_NAME[operation]
    path = found.path
    for name in found.in_path:
        path = path.replace(f"{{{name}}}", quote(named[name], safe=""))
    return f"{found.method} {PREFIX}{path}"


def address(path: str, /, **query: object) -> str:
    """`path` with a query of what is not None and not empty."""
    return path + _query(query)


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None and value is not False and value != ""}
    return "?" + urlencode({name: "1" if value is True else value for name, value in given.items()}) if given else ""


def static(name: str) -> str:
    """The address of a static file, with a digest, so that it may be kept for ever."""
    return f"/static/{name}?v={digest()}"


# ---- filters ---------------------------------------------------------------------------------------------------------


def time_element(at: str | None, mode: str = "both", missing: str = wording.NOTHING) -> Markup:
    """A `<time>` of an RFC 3339 text. `mode`: absolute (on the reader's own clock), relative ("in 5 min",
    kept going), both, or clock (hours and minutes). Without scripts it says the time in UTC."""
    if not at:
        return Markup('<span class="soft">{}</span>').format(missing)
    # Escaped one by one: Markup.format takes ten times as long, and a page has hundreds.
    return Markup(f'<time datetime="{escape(at)}" data-time="{escape(mode)}">{escape(wording.utc_text(at))}</time>')  # noqa: S704 - see above


def as_json(value: object, indent: int | None = 2) -> str:
    """Plain values as text to read."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def environment() -> Environment:
    """The environment that all templates are rendered in."""
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
        utc=wording.utc_text,
        duration=wording.length_text,
        amount=wording.amount,
        label=wording.label,
        tone=wording.tone,
        glyph=wording.glyph,
        json=as_json,
        plural=wording.plural,
        short_id=wording.short_id,
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


def warm() -> None:
    """Reads every template beside everything else, so that nobody waits for it who asks for the first page."""
    made = _environment()

    def read() -> None:
        for name in made.list_templates(["html"]):
            made.get_template(name)

    # Nobody has to wait for it, at the end of the process least of all.
    Thread(target=read, name="horae-templates", daemon=True).start()


def wanted(request: Request) -> frozenset[str] | None:
    """The ids of the parts that a page on the screen asks for again; None: all of it."""
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
    """The page. `visit` None: nobody is signed in, and the header offers nothing."""
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
