"""The audit page: the audit trail, the newest rows first, with filters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import ListAudit
from horae.api.responses.catalog_responses import AuditRow
from horae.errors import InvalidInput
from horae.web.forms import read_form_request
from horae.web.page_renderer import address, render
from horae.web.pictures.letters import pretty, readable
from horae.web.site import Visit

PAGE_SIZE = 50
EVENTS = (
    *("JOB_CREATED", "JOB_MODIFIED", "JOB_DELETED", "JOB_EXECUTED", "JOB_FAILED", "JOB_CANCELLED"),
    "SPAN_CLOSED",
    *("LOGIN", "LOGIN_FAILED", "LOGOUT", "ACCESS_DENIED", "TOKEN_CREATED", "TOKEN_REVOKED"),
    *("CATALOG_OPENED", "USER_CREATED", "USER_ALTERED", "USER_DROPPED", "GRANTED", "REVOKED"),
)
"""Suggestions for the filter, which takes any event."""
_FILTERS = ("event", "actor", "job")
_TELLING = 90
_INCARNATION = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class AuditRowView:
    row: AuditRow
    actor: str
    tone: str
    summary: str
    details: str


def shown_row(row: AuditRow) -> AuditRowView:
    has_any = any(value is not None for value in row.details.values())
    details = pretty(row.details, 16_000) if has_any else ""
    return AuditRowView(row, actor_of(row.actor), _tone(row), summary_of(row), details)


def actor_of(actor: str) -> str:
    """Returns an actor's name. A node's actor is its incarnation's id, which is shortened to 8 characters."""
    return f"node {actor[:8]}" if _INCARNATION.fullmatch(actor) else readable(actor, 255)


def summary_of(row: AuditRow) -> str:
    """Returns the details on one line: texts and numbers, else the names of the details; shortened if too long."""
    parts = [
        f"{name} {readable(value, 200)}"
        for name, value in row.details.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value)
    ]
    parts = parts or [name for name, value in row.details.items() if value is not None]
    line = ", ".join(parts).replace("\n", " ")
    return line if len(line) <= _TELLING else f"{line[: _TELLING - 1]}…"


def _tone(row: AuditRow) -> str:
    if row.outcome.upper() in ("REFUSED", "DENIED", "FAILED", "FAILURE"):
        return "bad"
    return "bad" if row.event.endswith("FAILED") else "off"


async def page(visit: Visit, request: Request) -> Response:
    given = request.query_params
    if not visit.who.is_admin:
        # Not requested, since it would be refused, and each refusal is a row of the trail.
        return render("audit.html", visit, request, status=403, filters=None)
    filters = {name: given.get(name, "").strip() for name in _FILTERS}
    try:
        asked = read_form_request(ListAudit, given, limit=PAGE_SIZE)
    except InvalidInput as error:
        values: dict[str, Any] = {"rows": (), "older": None, "newest": None, "is_first": True, "fault": error}
        return render("audit.html", visit, request, status=400, filters=filters, events=EVENTS, **values)
    found = await visit.desk.list_audit(asked)
    return render(
        "audit.html",
        visit,
        request,
        filters=filters,
        events=EVENTS,
        rows=[shown_row(row) for row in found.rows],
        older=address("/audit", **filters, before=found.next_before) if found.next_before else None,
        newest=address("/audit", **filters) if asked.before else None,
        is_first=asked.before is None,
        fault=None,
    )


PAGES = (("/audit", "audit", page),)
