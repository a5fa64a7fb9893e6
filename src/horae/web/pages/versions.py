"""A job's versions: the list, the diff of any two, and one version with a rollback to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.api import requests
from horae.api.responses.job_responses import Coming
from horae.api.responses.version_responses import Difference, WholeVersion
from horae.core.time.zone import zone
from horae.errors import HoraeError
from horae.web.forms import read_form_request
from horae.web.page_renderer import render, versions_url
from horae.web.pictures.letters import pretty, readable
from horae.web.pictures.moments import moment
from horae.web.site import Visit

PAGE_SIZE = 25
POLICIES = (
    ("", "As that version says"),
    ("immediate", "At once"),
    ("graceful", "After the next start"),
)
_LONGEST = 4_000


@dataclass(frozen=True, slots=True)
class DiffPart:
    """One part that differs, with both values as text; None where a version does not have it."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class VersionComparison:
    old: int
    new: int
    parts: tuple[DiffPart, ...]


def part_of(each: Difference) -> DiffPart:
    return DiffPart(
        each.path,
        None if each.said_before is None else readable(each.said_before, _LONGEST),
        None if each.said_after is None else readable(each.said_after, _LONGEST),
    )


async def page(visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    given = request.query_params
    job = await visit.desk.get_job(requests.NameRequest(name=name))
    fault: HoraeError | None = None
    compared = None
    asked: dict[str, Any] = {"name": name, "limit": PAGE_SIZE}
    try:
        found = await visit.desk.job_versions(
            read_form_request(requests.JobVersions, {"before": given.get("before", "")}, **asked)
        )
    except HoraeError as error:
        fault = error
        found = await visit.desk.job_versions(requests.JobVersions(name=name, limit=PAGE_SIZE))
    if given.get("old", "").strip() or given.get("new", "").strip():
        try:
            diff = await visit.desk.diff_versions(read_form_request(requests.DiffVersions, given, name=name))
            compared = VersionComparison(diff.old, diff.new, tuple(part_of(each) for each in diff.changes))
        except HoraeError as error:
            fault = error
    newest = found.versions[0].version if found.versions else 1
    return render(
        "versions.html",
        visit,
        request,
        job=job,
        may=frozenset(job.may),
        versions=found.versions,
        compared=compared,
        fault=fault,
        old=given.get("old", "").strip() or (str(newest - 1) if newest > 1 else ""),
        new=given.get("new", "").strip() or str(newest),
        newer=versions_url(name) if given.get("before") else None,
        older=versions_url(name, before=found.next_before) if found.next_before else None,
    )


async def one(visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    asked = read_form_request(requests.JobVersion, {"version": request.path_params["version"]}, name=name)
    seen = await visit.desk.job_version(asked)
    job = await visit.desk.get_job(requests.NameRequest(name=name))
    timezone = job.timezone or "UTC"
    return render(
        "version.html",
        visit,
        request,
        job=job,
        seen=seen,
        may=frozenset(seen.may),
        is_present=seen.version == seen.present,
        parts=tuple(part_of(each) for each in seen.differs),
        starts=start_pairs(seen, timezone),
        definitions=_definitions(seen),
        policies=POLICIES,
    )


@dataclass(frozen=True, slots=True)
class VersionStart:
    at: str
    local: str
    is_same: bool


def start_pairs(seen: WholeVersion, timezone: str) -> list[tuple[VersionStart | None, VersionStart | None]]:
    """Returns the next starts of the present version and of the other one, side by side, also in the job's time zone.
    A side is None where it has fewer starts."""
    now, then = ([_start(each, timezone) for each in starts] for starts in (seen.coming, seen.coming_then))
    both = {at for at, _ in now} & {at for at, _ in then}
    made = [[VersionStart(at, local, is_same=at in both) for at, local in starts] for starts in (now, then)]
    longest = max(len(now), len(then))
    return [
        (made[0][index] if index < len(now) else None, made[1][index] if index < len(then) else None)
        for index in range(longest)
    ]


def _start(each: Coming, timezone: str) -> tuple[str, str]:
    at = each.chosen or each.nominal
    found = moment(at)
    assert found is not None
    return at, f"{zone(timezone).wall(found):%a %d %b %H:%M:%S}"


def _definitions(seen: WholeVersion) -> list[tuple[str, str, str]]:
    """Returns id, title and text of each format that can express the version."""
    forms = (("sql", "SQL", seen.sql), ("toml", "TOML", seen.toml), ("krontab", "krontab", seen.krontab))
    said = [(f"definition-{key}", title, text) for key, title, text in forms if text is not None]
    return [*said, ("definition-json", "JSON", pretty(seen.definition))]


PAGES = (
    ("/jobs/{name}/versions", "versions", page),
    ("/jobs/{name}/versions/{version}", "version", one),
)
