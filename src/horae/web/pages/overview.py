"""The overview: running runs, next starts, latest failures, start delays and durations, load of the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from horae.api.handlers.catalog import MOST_FAILED
from horae.api.requests import EmptyRequest
from horae.api.responses.catalog_responses import Node, Overview, Spread
from horae.api.responses.job_responses import Run
from horae.core.access import Privilege, holds
from horae.errors import AccessDenied
from horae.web.page_renderer import render
from horae.web.pages.runs import remark_of
from horae.web.pictures.charts import columns, share
from horae.web.pictures.moments import moment
from horae.web.pictures.timeline import SPANS, timeline
from horae.web.site import Visit

SPAN_WORDS = (("1h", "60 minutes"), ("6h", "6 hours"))
MOST_FAILURES = 8
MOST_RUNNING = 12
FIRST_JOB = "CREATE JOB hello\n  SCHEDULE = CRON '*/5 * * * *'\n  AS 'SELECT 1 AS hello';"
"""An example statement for a user who has no job yet."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run in progress. `part` is its time so far in percent of the longest one's. `is_ours` says whether the visitor
    may cancel it."""

    run: Run
    part: float
    is_ours: bool


@dataclass(frozen=True, slots=True)
class FailureView:
    """A failed run. `is_ours` says whether the visitor may replay it."""

    run: Run
    remark: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class PercentileRow:
    """One row of percentiles. `values` has each one's name, its seconds and its share of the maximum."""

    title: str
    count: int
    values: tuple[tuple[str, float | None, float], ...]


async def page(visit: Visit, request: Request) -> Response:
    # After a change all viewers request parts of the page at once, so these share one overview.
    shared = request.scope["state"].get("overview") if "x-fragment" in request.headers else None
    seen = await (visit.desk.overview(EmptyRequest()) if shared is None else shared(visit))
    span = request.query_params.get("span", "1h")
    span = span if span in SPANS else "1h"
    now = moment(seen.now) or datetime.now(UTC)
    running, failures = seen.running[:MOST_RUNNING], seen.failures[:MOST_FAILURES]
    ours = await _executable(visit, {run.job for run in (*running, *failures)})
    return render(
        "overview.html",
        visit,
        request,
        seen=seen,
        span=span,
        spans=SPAN_WORDS,
        line=timeline(seen.coming, seen.running, now, span),
        running=_run_progress(running, now, ours),
        failures=[FailureView(run, remark_of(run), run.job in ours) for run in failures],
        hours=columns(seen.bars, seen.ended),
        measures=(_measure("Lag, from chosen time to start", seen.lag), _measure("Duration", seen.duration)),
        nodes=await _nodes(visit),
        failed_url=f"/runs?{urlencode({'state': 'FAILED,FAILED_STALE', 'since': seen.failed_since})}",
        most_failed=MOST_FAILED,
        is_new=_is_new(seen),
        first_job=FIRST_JOB,
    )


async def _executable(visit: Visit, jobs: set[str]) -> set[str]:
    """Returns those of the jobs that the visitor may execute, which includes to cancel and replay their runs."""
    if not jobs or holds(visit.who, Privilege.EXECUTE_JOB):
        return jobs
    found = await visit.desk.service.store.jobs(sorted(jobs))
    return {job.name for job in found if holds(visit.who, Privilege.EXECUTE_JOB, job.name, owner=job.owner)}


def _run_progress(running: list[Run], now: datetime, ours: set[str]) -> list[RunProgress]:
    lasted = [max((now - (moment(run.started_at) or now)).total_seconds(), 0.0) for run in running]
    longest = max([1.0, *lasted])
    return [
        RunProgress(run, round(100 * seconds / longest, 1), run.job in ours)
        for run, seconds in zip(running, lasted, strict=True)
    ]


def _measure(title: str, spread: Spread) -> PercentileRow:
    named = (("p50", spread.p50), ("p95", spread.p95), ("p99", spread.p99), ("max", spread.most))
    return PercentileRow(title, spread.count, tuple((name, value, share(value, spread.most)) for name, value in named))


async def _nodes(visit: Visit) -> list[Node]:
    """Returns the nodes that are not known to be dead; none if the visitor may not see them."""
    try:
        found = await visit.desk.nodes(EmptyRequest())
    except AccessDenied:
        return []
    return [node for node in found.nodes if node.state != "DEAD"]


def _is_new(seen: Overview) -> bool:
    """Whether the catalog is new: it has no jobs and no runs."""
    totals = seen.totals
    return not (totals.jobs_enabled or totals.jobs_paused or totals.jobs_disabled or seen.recent or seen.running)


PAGES = (("/", "overview", page),)
