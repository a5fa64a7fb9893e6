"""The list of runs, the newest first, filtered by job, state, origin and time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import ListRuns
from horae.api.responses.job_responses import Run
from horae.core.run.attempt import one_line
from horae.core.run.lifecycle import RunState
from horae.errors import InvalidInput
from horae.web.forms import form_time, read_form_request
from horae.web.page_renderer import address, render
from horae.web.pictures.letters import readable
from horae.web.pictures.moments import seconds_between
from horae.web.site import Visit
from horae.web.words import label, plural, tone, utc_text

PAGE_SIZE = 50
_FAILURES = f"{RunState.FAILED},{RunState.FAILED_STALE},{RunState.COMPLETED_WITH_ERRORS}"
STATES = (
    ("", "Any state"),
    ("active", "Not ended"),
    (_FAILURES, "Gone wrong"),
    *((str(state), label(state)) for state in RunState),
)
ORIGINS = (
    ("", "Any origin"),
    ("SCHEDULE", "Schedule"),
    ("TRIGGER", "Trigger"),
    ("REPLAY", "Replay"),
    ("BACKFILL", "Backfill"),
)
_ORIGIN_WORDS = {value: text.lower() for value, text in ORIGINS if value}
_FILTERS = ("job", "state", "origin", "since", "until")


@dataclass(frozen=True, slots=True)
class RunRowView:
    """A run as a row of the list. `lag` is the seconds from its chosen time to its start."""

    run: Run
    origin: str
    lag: float | None
    remark: str
    """Why the run failed, or what it waits for, or its reason. A run that completed does not show earlier errors."""


def row_of(run: Run) -> RunRowView:
    lag = seconds_between(run.chosen_time, run.started_at)
    return RunRowView(run, origin_text(run.origin, is_recovery=run.is_recovery), lag, remark_of(run))


def origin_text(origin: str, *, is_recovery: bool = False) -> str:
    return _ORIGIN_WORDS.get(origin, origin.lower()) + (", recovery" if is_recovery else "")


def remark_of(run: Run) -> str:
    if run.error and tone(run.state) in ("bad", "warn"):
        return first_line((run.reason or "") if repeats_error(run) else run.error)
    if run.waiting_for:
        return first_line(waits_text(run))
    if run.count > 1:
        return first_line(f"{run.reason or 'ended'} {plural(run.count, 'time')}, up to {utc_text(run.covers_to)}")
    return first_line(run.reason or (f"replay: {run.replay_reason}" if run.replay_reason else ""))


def repeats_error(run: Run) -> bool:
    """Whether the run's reason begins with its error, on one line."""
    return bool(run.reason and run.error and run.reason.startswith(one_line(run.error)))


def waits_text(run: Run) -> str:
    """Returns what a run waits for, with its detail."""
    detail = f": {run.waiting_detail}" if run.waiting_detail else ""
    return readable(f"waits for {(run.waiting_for or '').replace('_', ' ')}{detail}", 2_000)


def first_line(text: str, longest: int = 160) -> str:
    line = readable(text, 4_000).strip().partition("\n")[0]
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def field_time(text: str) -> str:
    """Returns a time in the format of browsers' fields, in UTC; empty if `text` is not a time."""
    try:
        return form_time(text, "time").astimezone(UTC).strftime("%Y-%m-%dT%H:%M") if text else ""
    except InvalidInput:
        return ""


async def page(visit: Visit, request: Request) -> Response:
    given = request.query_params
    filters = {name: given.get(name, "").strip() for name in _FILTERS}
    values: dict[str, Any] = {"filters": filters, "states": STATES, "origins": ORIGINS, "fault": None}
    values["whens"] = {name: field_time(filters[name]) for name in ("since", "until")}
    try:
        asked = read_form_request(ListRuns, given, limit=PAGE_SIZE)
        found = await visit.desk.list_runs(asked)
    except InvalidInput as error:
        values |= {"rows": (), "older": None, "newest": None, "is_first": True, "fault": error}
        return render("runs.html", visit, request, status=400, **values)
    values |= {
        "rows": [row_of(run) for run in found.runs],
        "older": address("/runs", **filters, before=found.next_before) if found.next_before else None,
        "newest": address("/runs", **filters) if asked.before else None,
        "is_first": asked.before is None,
    }
    return render("runs.html", visit, request, **values)


PAGES = (("/runs", "runs", page),)
