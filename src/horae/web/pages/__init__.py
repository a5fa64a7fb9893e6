"""The pages of the dashboard, one module each: each calls the API and prepares the result for its template.

A module's `PAGES` has the path, the route name and the function of each page. `FORMS` has the same for forms, which are
sent by POST.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from horae.web.pages import (
    audit,
    console,
    explore,
    job,
    jobs,
    login,
    nodes,
    overview,
    people,
    plan,
    run,
    runs,
    settings,
    versions,
)
from horae.web.site import Visit

Page = Callable[[Visit, Request], Awaitable[Response]]
_MODULES = (overview, jobs, job, versions, plan, runs, run, explore, console, nodes, audit, settings, people, login)
ALL_PAGES: tuple[tuple[str, str, Page], ...] = tuple(page for module in _MODULES for page in module.PAGES)
ALL_FORMS: tuple[tuple[str, str, Page], ...] = plan.FORMS
