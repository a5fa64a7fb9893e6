"""The overview: what runs now, what comes next, what failed, how late things start, how full the nodes are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from horae.core.access import Privilege, holds
from horae.desk.asking import Nothing
from horae.desk.shapes import Run
from horae.desk.sights import Node, Overview, Spread
from horae.desk.whole import MOST_FAILED
from horae.errors import AccessDenied
from horae.web.pages.runs import remark_of
from horae.web.pictures.charts import columns, share
from horae.web.pictures.moments import moment
from horae.web.pictures.timeline import SPANS, timeline
from horae.web.rendering import render
from horae.web.site import Visit

SPAN_WORDS = (("1h", "60 minutes"), ("6h", "6 hours"))
MOST_FAILURES = 8
MOST_RUNNING = 12
FIRST_JOB = "CREATE JOB hello\n  SCHEDULE = CRON '*/5 * * * *'\n  AS 'SELECT 1 AS hello';"
"""What somebody who has no job yet may begin with."""


@dataclass(frozen=True, slots=True)
class Going:
    """A run under way. `part`: how long it has been at it, in hundredths of the longest of them. `is_ours`: whoever
    looks may cancel it."""

    run: Run
    part: float
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """`is_ours`: whoever looks may replay it."""

    run: Run
    remark: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the percentiles: what, and for each its name, its seconds and its part of the longest."""

    title: str
    count: int
    values: tuple[tuple[str, float | None, float], ...]


async def page(visit: Visit, request: Request) -> Response:
    # Parts are asked for when something changed, by all who look at once: they share what all see.
    shared = request.scope["state"].get("overview") if "x-fragment" in request.headers else None
    seen = await (visit.desk.overview(Nothing()) if shared is None else shared(visit))
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
        running=_going(running, now, ours),
        failures=[Failure(run, remark_of(run), run.job in ours) for run in failures],
        hours=columns(seen.bars, seen.ended),
        measures=(_measure("Lag, from chosen time to start", seen.lag), _measure("Duration", seen.duration)),
        nodes=await _nodes(visit),
        failed_url=f"/runs?{urlencode({'state': 'FAILED,FAILED_STALE', 'since': seen.failed_since})}",
        most_failed=MOST_FAILED,
        is_new=_is_new(seen),
        first_job=FIRST_JOB,
    )


async def _executable(visit: Visit, jobs: set[str]) -> set[str]:
    """Those of the jobs that whoever looks may run, and so cancel and replay."""
    if not jobs or holds(visit.who, Privilege.EXECUTE_JOB):
        return jobs
    found = await visit.desk.service.store.jobs(sorted(jobs))
    return {job.name for job in found if holds(visit.who, Privilege.EXECUTE_JOB, job.name, owner=job.owner)}


def _going(running: list[Run], now: datetime, ours: set[str]) -> list[Going]:
    lasted = [max((now - (moment(run.started_at) or now)).total_seconds(), 0.0) for run in running]
    longest = max([1.0, *lasted])
    return [
        Going(run, round(100 * seconds / longest, 1), run.job in ours)
        for run, seconds in zip(running, lasted, strict=True)
    ]


def _measure(title: str, spread: Spread) -> Measure:
    named = (("p50", spread.p50), ("p95", spread.p95), ("p99", spread.p99), ("max", spread.most))
    return Measure(title, spread.count, tuple((name, value, share(value, spread.most)) for name, value in named))


async def _nodes(visit: Visit) -> list[Node]:
    """Those that are not known to be dead; none for whoever may not see them."""
    try:
        found = await visit.desk.nodes(Nothing())
    except AccessDenied:
        return []
    return [node for node in found.nodes if node.state != "DEAD"]


def _is_new(seen: Overview) -> bool:
    """Whether there is nothing here yet: no job, and nothing that ever ran."""
    totals = seen.totals
    return not (totals.jobs_enabled or totals.jobs_paused or totals.jobs_disabled or seen.recent or seen.running)


PAGES = (("/", "overview", page),)
