"""The list of jobs: search, filters, sorting and paging; each job's latest outcomes and actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import ListJobs
from horae.api.responses.job_responses import Job
from horae.core.access import Privilege, holds
from horae.core.run.lifecycle import JobState
from horae.errors import InvalidInput
from horae.web.forms import read_form_request
from horae.web.page_renderer import address, render
from horae.web.pictures.strip import LONGEST, Strip, strip
from horae.web.site import Visit
from horae.web.words import label

PAGE_SIZE = 25
SIZES = (25, 50, 100)
STATES = (("", "Any state"), *((str(state), label(state)) for state in JobState))
COLUMNS = (
    ("name", "Job"),
    ("", "Schedule"),
    ("next_run_time", "Next start"),
    ("last_run", "Latest runs"),
    ("state", "State"),
    ("owner", "Owner"),
)
"""Each column's sort key and title. An empty key means that the column cannot be sorted."""
_FILTERS = ("search", "state", "tag", "owner")
_RIGHTS = (("alter", Privilege.ALTER_JOB), ("drop", Privilege.DROP_JOB), ("execute", Privilege.EXECUTE_JOB))
_NEWEST_FIRST = frozenset({"last_run", "updated_at"})


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column's header. `url` sorts by it, None if it cannot; `sorted` is ascending, descending or empty."""

    title: str
    url: str | None
    sorted: str


@dataclass(frozen=True, slots=True)
class JobRowView:
    """A job in the list. `may` has the actions that the visitor may do, of alter, drop, execute and move."""

    job: Job
    strip: Strip | None
    may: tuple[str, ...]


async def page(visit: Visit, request: Request) -> Response:
    given = {name: text for name, text in request.query_params.items() if text.strip()}
    filters = {name: given.get(name, "").strip() for name in _FILTERS}
    values: dict[str, Any] = {"filters": filters, "states": STATES, "is_filtered": any(filters.values()), "fault": None}
    try:
        asked = read_form_request(ListJobs, {"limit": str(PAGE_SIZE), **given}, outcomes=LONGEST)
        found = await visit.desk.list_jobs(asked)
    except InvalidInput as error:
        values |= {"rows": [], "columns": [], "total": 0, "newer": None, "older": None, "note": "", "fault": error}
        values |= {"sizes": (), "self_url": "/jobs", "asked": ListJobs(), "may_some": False}
        return render("jobs.html", visit, request, status=400, **values)
    here = {**filters, "sort": asked.sort, "descending": asked.descending, "limit": asked.limit}
    first, last = asked.offset + 1, asked.offset + len(found.jobs)
    rows = [JobRowView(job, strip(job.outcomes or []), may_do(visit, job)) for job in found.jobs]
    values |= {
        "asked": asked,
        "rows": rows,
        "may_some": any(row.may for row in rows),
        "columns": [_column(name, title, asked, here) for name, title in COLUMNS],
        "total": found.total,
        "newer": address("/jobs", **here, offset=max(asked.offset - asked.limit, 0) or None) if asked.offset else None,
        "older": address("/jobs", **here, offset=found.next_offset) if found.next_offset is not None else None,
        "note": f"{first:,} to {last:,} of {found.total:,}" if found.jobs else "",
        "sizes": [(size, address("/jobs", **{**here, "limit": size})) for size in SIZES],
        "self_url": address("/jobs", **here, offset=asked.offset or None),
    }
    return render("jobs.html", visit, request, **values)


def may_do(visit: Visit, job: Job) -> tuple[str, ...]:
    may = [word for word, right in _RIGHTS if holds(visit.who, right, job.name, owner=job.owner)]
    # Moving a run needs both rights, since deciding when a job runs amounts to running it.
    return (*may, "move") if {"alter", "execute"} <= set(may) else tuple(may)


def _column(name: str, title: str, asked: ListJobs, here: dict[str, Any]) -> SortColumn:
    if not name:
        return SortColumn(title, None, "")
    is_sorted = asked.sort == name
    descending = not asked.descending if is_sorted else name in _NEWEST_FIRST
    url = address("/jobs", **{**here, "sort": name, "descending": descending})
    return SortColumn(title, url, ("descending" if asked.descending else "ascending") if is_sorted else "")


PAGES = (("/jobs", "jobs", page),)
