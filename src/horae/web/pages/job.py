"""A job's page: its next starts and their explanation, its runs, its year, its definition and versions, its actions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from horae.api import requests
from horae.api.responses.job_responses import Coming, WholeJob
from horae.core.run.lifecycle import RunState
from horae.core.time.instant import LAST, instant, seconds_of
from horae.core.time.zone import zone
from horae.errors import InvalidInput, InvalidTime, shown
from horae.web.forms import read_form_request
from horae.web.page_renderer import job_url, render, requested_parts, run_url
from horae.web.pages.runs import RunRowView, row_of
from horae.web.pictures.charts import dots
from horae.web.pictures.jobyear import job_year
from horae.web.pictures.letters import pretty
from horae.web.pictures.moments import moment
from horae.web.site import Visit
from horae.web.words import label

PAGE_SIZE = 25
LATEST = 50
VERSIONS = 10
STATES = (
    ("", "Any state"),
    ("active", "Not ended"),
    (f"{RunState.FAILED},{RunState.FAILED_STALE},{RunState.COMPLETED_WITH_ERRORS}", "Gone wrong"),
    *((str(state), label(state)) for state in RunState),
)
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class RunHistoryView:
    rows: tuple[RunRowView, ...]
    state: str
    day: str
    older: str | None
    newest: str | None
    url: str
    fault: InvalidInput | None = None


@dataclass(frozen=True, slots=True)
class UpcomingStart:
    """One of the next starts. `local` is in the job's time zone; `shift` is seconds after the slot, None if none."""

    coming: Coming
    local: str
    shift: float | None


async def page(visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    job = await visit.desk.get_job(requests.NameRequest(name=name))
    given = request.query_params
    if "slot" in given:
        return await _to_run(visit, job, given["slot"])
    parts = requested_parts(request)

    def has(*ids: str) -> bool:
        return parts is None or not parts.isdisjoint(ids)

    values: dict[str, Any] = {"latest": None, "dots": None, "calendar": None, "explained": None, "versions": None}
    history = await _history(visit, job, given.get("state", ""), given.get("day", ""), given.get("before"))
    if has("pace"):
        latest = await visit.desk.job_runs(requests.JobRuns(name=name, limit=LATEST))
        values |= {"latest": latest.runs, "dots": dots(latest.runs)}
    if has("year"):
        values["calendar"] = await _calendar(visit, job, given.get("year", ""))
    if has("why"):
        values["explained"] = await visit.desk.explain_job(requests.ExplainJobRequest(name=name))
    if has("versions"):
        values["versions"] = await visit.desk.job_versions(requests.JobVersions(name=name, limit=VERSIONS))
    return render(
        "job.html",
        visit,
        request,
        job=job,
        may=frozenset(job.may),
        history=history,
        states=STATES,
        starts=[_start(each, job.timezone or "UTC") for each in job.coming],
        settings=[(key.replace("_", " "), _plain(value)) for key, value in sorted(job.settings.items())],
        definitions=_definitions(job),
        **values,
    )


async def _history(visit: Visit, job: WholeJob, state: str, day: str, before: str | None) -> RunHistoryView:
    given = {"state": state.strip(), "before": before or ""}
    fixed: dict[str, Any] = {"name": job.name, "limit": PAGE_SIZE}
    url = job_url(job.name, state=state, day=day)
    try:
        if day.strip():
            fixed["since"], fixed["until"] = day_bounds(day.strip(), job.timezone or "UTC")
        found = await visit.desk.job_runs(read_form_request(requests.JobRuns, given, **fixed))
    except InvalidInput as error:
        return RunHistoryView((), state, day, None, None, url, error)
    older = job_url(job.name, state=state, day=day, before=found.next_before) if found.next_before else None
    rows = tuple(row_of(run) for run in found.runs)
    return RunHistoryView(rows, state, day, older, url if before else None, url)


def day_bounds(text: str, timezone: str) -> tuple[datetime, datetime]:
    """Returns the start and end of a day in a time zone, whose clocks may skip midnight or repeat it. Raises
    InvalidTime."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidTime(f"Invalid day {shown(text)}: is no date", hint="Write it as 2027-03-01.") from None
    if not 2 <= day.year <= 9998:
        raise InvalidTime(f"Invalid day {shown(text)}: must lie in the years 2 to 9998")
    return _midnight(day, timezone), _midnight(day + timedelta(days=1), timezone)


def _midnight(day: date, timezone: str) -> datetime:
    clocks = zone(timezone)
    wall = seconds_of(datetime(day.year, day.month, day.day, tzinfo=UTC))
    found = clocks.instants(wall)
    # If the clocks go forward over midnight, the day begins at the change.
    return instant(found[0] if found else wall - clocks.offset_at(wall - _DAY))


async def _calendar(visit: Visit, job: WholeJob, year: str) -> Any:
    asked = int(year) if year.isdecimal() and len(year) <= 4 and int(year) in range(2, 9999) else None
    found = await visit.desk.job_calendar(requests.JobCalendar(name=job.name, year=asked))
    years = [
        (each, job_url(job.name, year=each) + "#year")
        for each in (found.year - 1, found.year, found.year + 1)
        if 2 <= each <= 9998
    ]
    return {"seen": found, "drawn": job_year(found), "years": years}


async def _to_run(visit: Visit, job: WholeJob, slot: str) -> Response:
    """Redirects to the run of the slot at a unix second, which is all that a strip's mark has, or to the job."""
    if slot.isdecimal() and int(slot[:15]) < LAST:
        at = instant(int(slot[:15]))
        asked = requests.JobRuns(name=job.name, since=at, until=at + timedelta(seconds=1), limit=1)
        found = await visit.desk.job_runs(asked)
        if found.runs:
            return RedirectResponse(run_url(found.runs[0].run_id), 303)
    return RedirectResponse(job_url(job.name), 303)


def _start(each: Coming, timezone: str) -> UpcomingStart:
    nominal, chosen = moment(each.nominal), moment(each.chosen)
    at = chosen or nominal
    assert at is not None
    assert nominal is not None
    shift = (chosen - nominal).total_seconds() if chosen is not None and chosen != nominal else None
    return UpcomingStart(each, f"{zone(timezone).wall(at):%a %d %b %Y %H:%M:%S}", shift)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_plain(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(_plain(each) for each in value)
    return value if isinstance(value, str) else pretty(value).replace("\n", " ")


def _definitions(job: WholeJob) -> list[tuple[str, str, str]]:
    """Returns id, title and text of each format that can express the job."""
    forms = (("sql", "SQL", job.sql), ("toml", "TOML", job.toml), ("krontab", "krontab", job.krontab))
    said = [(f"definition-{key}", title, text) for key, title, text in forms if text is not None]
    return [*said, ("definition-json", "JSON", pretty(job.definition))]


PAGES = (("/jobs/{name}", "job", page),)
