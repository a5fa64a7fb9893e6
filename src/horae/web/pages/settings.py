"""The settings page: the settings of ALTER SYSTEM for all nodes, and facts about this server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import EmptyRequest
from horae.api.responses.catalog_responses import Setting, Settings
from horae.web.page_renderer import render
from horae.web.pictures.letters import readable
from horae.web.site import Visit

_STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "postgresql": "PostgreSQL"}
_SIGN_IN = {
    "open": "open: whoever reaches this server on its own machine is the administrator",
    "session": "by name and password, or by token",
    "token": "by name and password, or by token",
    "local": "local: the catalog is opened directly",
}


@dataclass(frozen=True, slots=True)
class SettingView:
    name: str
    short: str
    """The name without its `scheduler.` prefix."""
    value: str
    default: str
    description: str
    is_set: bool


def shown_setting(setting: Setting) -> SettingView:
    return SettingView(
        setting.name,
        setting.name.removeprefix("scheduler."),
        value_text(setting.value),
        value_text(setting.default) or "none",
        readable(setting.description, 1_000),
        is_set=setting.value is not None,
    )


def value_text(value: Any) -> str:
    """Returns a value as a user would type it: text unchanged, other values as JSON, empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 2_000)


def about(visit: Visit) -> list[tuple[str, str]]:
    """Returns names and values of facts about this server."""
    site, node = visit.site, visit.site.node()
    # Only this line needs the database's name, so the store's interface has no member for it.
    dialect = str(getattr(getattr(visit.desk.service.store, "driver", None), "dialect", ""))
    pairs = [
        ("Store", _STORES.get(dialect, dialect)),
        ("Sign-in", _SIGN_IN.get(visit.sign_in, visit.sign_in)),
        ("Reached", "on this machine only" if site.is_loopback else "over the network"),
        ("Cookies", "by https only" if site.is_secure else "also without https"),
        ("Node", str(node.get("name") or node.get("node") or "")),
        ("Engine", str(node.get("state") or "")),
    ]
    return [(name, value) for name, value in pairs if value]


async def page(visit: Visit, request: Request) -> Response:
    me = await visit.desk.me(EmptyRequest())
    # Not requested for other users, since it would be refused, and refusals go to the audit trail.
    found = await visit.desk.settings(EmptyRequest()) if me.is_admin else Settings(settings=[])
    settings = [shown_setting(each) for each in found.settings]
    return render(
        "settings.html",
        visit,
        request,
        settings=sorted(settings, key=lambda each: (not each.is_set, each.name)),
        may_set=me.is_admin,
        me=me,
        about=about(visit),
    )


PAGES = (("/settings", "settings", page),)
