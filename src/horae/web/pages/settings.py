"""Settings: what ALTER SYSTEM has set for all nodes, what it could set, and what this server is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.desk.asking import Nothing
from horae.desk.sights import Setting, Settings
from horae.web.pictures.letters import readable
from horae.web.rendering import render
from horae.web.site import Visit

_STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "postgresql": "PostgreSQL"}
_SIGN_IN = {
    "open": "open: whoever reaches this server on its own machine is the administrator",
    "session": "by name and password, or by token",
    "token": "by name and password, or by token",
    "local": "local: the catalog is opened directly",
}


@dataclass(frozen=True, slots=True)
class Shown:
    name: str
    short: str
    """Without `scheduler.`, which all of them begin with."""
    value: str
    default: str
    description: str
    is_set: bool


def shown_setting(setting: Setting) -> Shown:
    return Shown(
        setting.name,
        setting.name.removeprefix("scheduler."),
        value_text(setting.value),
        value_text(setting.default) or "none",
        readable(setting.description, 1_000),
        is_set=setting.value is not None,
    )


def value_text(value: Any) -> str:
    """A value as it is typed: text as it is, everything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 2_000)


def about(visit: Visit) -> list[tuple[str, str]]:
    """What this server is, in pairs."""
    site, node = visit.site, visit.site.node()
    # Which database it is makes no difference to anything but this line.
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
    me = await visit.desk.me(Nothing())
    # What would be refused is not asked: a refusal is written down.
    found = await visit.desk.settings(Nothing()) if me.is_admin else Settings(settings=[])
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
