"""Health checks for load balancers and watchdogs, and the metrics.

`/healthz` is red, with status 503, when no node has created the runs of a job's due slots in time, when the catalog
cannot be reached, and when this process's engine has failed. It is degraded, with status 200, when a definition cannot
be read, when runs are stuck, unusually long or not started in time, when jobs are ahead of a clock that was set back,
and when threads still work although their attempts have ended. Every caller gets the status and the reasons,
authenticated callers also the counts, and callers who may see every job the names.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from horae.core.access import Privilege
from horae.core.clock_set_back import ClockLag
from horae.core.run.waiting_reason import LeftoverThread
from horae.core.time.instant import EPOCH
from horae.errors import HoraeError, StoreError, StoreUnavailable
from horae.services.explain.overrun_facts import OverlongRun, overlong_now
from horae.services.explain.wait_facts import StuckRun, stuck_now, threads_now, unstarted_now
from horae.web.http import origin
from horae.web.http.authentication import Authenticator
from horae.web.http.problems import ProblemError
from horae.web.site import Site

_SECONDS = 5.0
"""Seconds that the catalog has to answer a check, and seconds for which the last result is used while the next is not
ready."""
_LEAST = 0.05
_FRESH = 1.0
_EARLY_FRESH = 10.0
_RIGHTS_WITHIN = 4.0
"""Seconds that the catalog has to say whether a caller may read the metrics."""
_KNOWN_FOR = 900.0
"""Seconds for which a caller who was allowed to read the metrics may still do so while the catalog does not answer."""
_MOST_READERS = 100


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server's health. `status` is ok, degraded or red; `details` are for authenticated callers."""

    status: str
    reasons: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


class HealthChecker:
    """The health checks of one site. A result is reused for a second."""

    def __init__(self, site: Site, entrance: Authenticator) -> None:
        self._site = site
        self._entrance = entrance
        self._kept: Health | None = None
        self._kept_at = float("-inf")
        self._looking: asyncio.Task[Health] | None = None
        self._readers: dict[bytes, float] = {}
        """The callers who were allowed to read the metrics, and when; used while the catalog does not answer."""
        self._early_kept: ClockLag | None = None
        self._early_at = float("-inf")
        self._patience = max(_SECONDS, site.limits.health)

    async def healthz(self, request: Request, named: dict[str, str]) -> Response:
        ends = asyncio.get_running_loop().time() + self._site.limits.health
        found = await self._health()
        if not await self._within(ends, self._is_known(request)):
            found = Health(status=found.status, reasons=found.reasons)
        elif not _NAMING.isdisjoint(found.details) and not await self._within(ends, self._sees_all(request)):
            details = {name: value for name, value in found.details.items() if name not in _NAMING}
            found = Health(status=found.status, reasons=found.reasons, details=details)
        return _health_response(found)

    async def readyz(self, request: Request, named: dict[str, str]) -> Response:
        """Answers whether requests may be sent to this server: the catalog answers and the engine is neither stopping
        nor failed."""
        found = await self._health()
        state = self._site.node().get("state")
        reasons = [each for each in found.reasons if each == _AWAY]
        if state in ("stopping", "failed"):
            reasons.append("the engine of this process is stopping" if state == "stopping" else _FAILED)
        return _health_response(Health(status="red" if reasons else "ok", reasons=reasons))

    async def metrics(self, request: Request, named: dict[str, str]) -> Response:
        """Answers with the metrics. They matter most during an outage, so while the catalog does not answer, a caller
        who was allowed before is still allowed. Raises StoreError for other callers then."""
        reader = _reader(request)
        try:
            async with asyncio.timeout(max(_RIGHTS_WITHIN, self._site.limits.health)):
                visit = await self._entrance.visit(request)
                # The series carry the names of all jobs.
                await visit.desk.service.gate.require(Privilege.VIEW_JOB_HISTORY, action="read the metrics")
        except (StoreError, TimeoutError) as error:
            if monotonic() - self._readers.get(reader, float("-inf")) >= _KNOWN_FOR:
                if isinstance(error, StoreError):
                    raise
                raise StoreUnavailable("The catalog does not say in time whether you may read the metrics") from error
        except (HoraeError, ProblemError):
            self._readers.pop(reader, None)
            raise
        else:
            self._readers.pop(reader, None)
            self._readers[reader] = monotonic()
            if len(self._readers) > _MOST_READERS:
                del self._readers[next(iter(self._readers))]
        return Response(await self._site.scrape(), 200, {"content-type": self._site.metrics_type})

    async def _is_known(self, request: Request) -> bool:
        if "authorization" not in request.headers and "cookie" not in request.headers and not self._site.is_loopback:
            return False
        try:
            await self._entrance.entered(request)
        except (HoraeError, ProblemError):
            return False
        return True

    async def _sees_all(self, request: Request) -> bool:
        """Whether the caller may see every job."""
        try:
            return (await self._entrance.visit(request)).desk.service.views.seen is None
        except (HoraeError, ProblemError):
            return False

    async def _within(self, ends: float, asked: Coroutine[Any, Any, bool]) -> bool:
        """Returns the result of `asked`, or False if there is none by `ends`."""
        least = asyncio.get_running_loop().time() + _LEAST
        try:
            async with asyncio.timeout_at(max(ends, least)):
                return await asked
        except TimeoutError:
            return False

    async def _health(self) -> Health:
        """Returns the current health. A check that takes longer than a caller waits goes on in the background; callers
        who come meanwhile share it."""
        if self._kept is not None and monotonic() - self._kept_at < _FRESH:
            return self._kept
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._renew())
        looking = self._looking
        await asyncio.wait({looking}, timeout=self._site.limits.health - 2 * _LEAST)
        if looking.done():
            return looking.result()
        if self._kept is not None and monotonic() - self._kept_at < _SECONDS:
            return self._kept
        return Health(status="red", reasons=[_AWAY], details={"node": self._site.node(), "store": "timeout"})

    async def _renew(self) -> Health:
        found = await self._look()
        self._kept, self._kept_at = found, monotonic()
        return found

    async def _look(self) -> Health:
        reasons: list[str] = []
        details: dict[str, Any] = {"node": self._site.node()}
        if details["node"].get("state") == "failed":
            reasons.append(_FAILED)
        try:
            async with asyncio.timeout(self._patience):
                store = await self._site.store()
                overdue = await store.overdue(timedelta(seconds=self._site.limits.undecided))
        except (HoraeError, TimeoutError) as error:
            reasons.append(_AWAY)
            details["store"] = error.code if isinstance(error, HoraeError) else "timeout"
        else:
            if overdue.undecided:
                reasons.append("occurrences are overdue, and nobody decided about them")
            details["overdue"] = {
                "undecided": overdue.undecided,
                "oldest_undecided": _stamp(overdue.oldest_undecided),
                "unstarted": overdue.unstarted,
                "oldest_unstarted": _stamp(overdue.oldest_unstarted),
            }
            if not reasons:
                if overdue.unreadable:
                    count = len(overdue.unreadable)
                    reasons.append(f"{count} job{'' if count == 1 else 's'} whose definition cannot be read")
                    details["unreadable"] = list(overdue.unreadable[:_MOST_NAMED])
                stuck, overlong = await self._stuck(), await self._overlong()
                reasons += [f"{count} waiting for {reason}" for reason, count in _counted(stuck).items()]
                if overlong:
                    reasons.append(f"{len(overlong)} run{'' if len(overlong) == 1 else 's'} unusually long")
                    details["overlong"] = [
                        {"run": run.run_id, "job": run.job, "detail": run.reason} for run in overlong[:_MOST_NAMED]
                    ]
                details["waiting"] = [
                    {"run": run.run_id, "job": run.job, "for": run.reason, "detail": run.detail}
                    for run in stuck[:_MOST_NAMED]
                ]
                late = await self._unstarted() if overdue.unstarted else []
                if late:
                    runs = "run is" if len(late) == 1 else "runs are"
                    reasons.append(
                        f"{len(late)} {runs} due for more than {self._site.limits.undecided:g} s, not started"
                    )
                    details["unstarted_jobs"] = sorted({run.job for run in late})[:_MOST_NAMED]
                early = await self._early()
                if early.ahead:
                    jobs = f"{early.ahead} job{'' if early.ahead == 1 else 's'}"
                    reasons.append(f"{jobs} ahead of a clock that was set back, until {_stamp(early.until)}")
                    details["ahead"] = [
                        {"job": job.name, "until": _stamp(job.cursor)} for job in early.jobs[:_MOST_NAMED]
                    ]
                threads = await self._threads()
                if threads:
                    reasons.append(f"{len(threads)} thread{'' if len(threads) == 1 else 's'} working past a stop")
                    details["threads"] = [
                        {
                            "run": thread.run_id,
                            "job": thread.job,
                            "task": thread.task,
                            "node": thread.node,
                            "hint": 'give the task isolation="process", or have it call run.check_cancelled()',
                        }
                        for thread in threads[:_MOST_NAMED]
                    ]
                return Health(status="degraded" if reasons else "ok", reasons=reasons, details=details)
        return Health(status="red" if reasons else "ok", reasons=reasons, details=details)

    async def _stuck(self) -> list[StuckRun]:
        """Returns the stuck runs; none if they cannot be read in time, since that alone must not make the status
        red."""
        try:
            async with asyncio.timeout(self._patience):
                return await stuck_now(await self._site.store())
        except (HoraeError, TimeoutError):
            return []

    async def _early(self) -> ClockLag:
        """Returns the jobs that are ahead of a clock that was set back. It reads all jobs, so the result is kept for
        10 s."""
        if self._early_kept is not None and monotonic() - self._early_at < _EARLY_FRESH:
            return self._early_kept
        try:
            async with asyncio.timeout(self._patience):
                self._early_kept = await (await self._site.store()).set_back()
        except (HoraeError, TimeoutError):
            return ClockLag(EPOCH)
        self._early_at = monotonic()
        return self._early_kept

    async def _unstarted(self) -> list[StuckRun]:
        try:
            async with asyncio.timeout(self._patience):
                return await unstarted_now(await self._site.store(), timedelta(seconds=self._site.limits.undecided))
        except (HoraeError, TimeoutError):
            return []

    async def _threads(self) -> Sequence[LeftoverThread]:
        try:
            async with asyncio.timeout(self._patience):
                return await threads_now(await self._site.store())
        except (HoraeError, TimeoutError):
            return ()

    async def _overlong(self) -> list[OverlongRun]:
        try:
            async with asyncio.timeout(self._patience):
                return await overlong_now(await self._site.store())
        except (HoraeError, TimeoutError):
            return []


def _reader(request: Request) -> bytes:
    """Returns a digest of the request's credentials and of where it came from."""
    headers = request.headers
    shown = (headers.get("authorization"), headers.get("cookie"))
    return sha256(repr((shown, request.scope["state"]["address"], origin.is_local(headers))).encode()).digest()


def _counted(stuck: Sequence[StuckRun]) -> dict[str, str]:
    """Returns how many runs wait for each reason, as text such as `2 runs`."""
    counts = Counter(run.reason for run in stuck)
    return {reason: f"{count} run{'' if count == 1 else 's'}" for reason, count in sorted(counts.items())}


_MOST_NAMED = 20
_NAMING = frozenset({"ahead", "unstarted_jobs", "waiting", "threads", "unreadable", "overlong"})
"""Details that name jobs."""
_AWAY = "the catalog cannot be reached"
_FAILED = "the engine of this process has failed"


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at is not None else None


def _health_response(found: Health) -> Response:
    body = msgspec.json.encode(found, enc_hook=str)
    return Response(body, 503 if found.status == "red" else 200, {"cache-control": "no-store"}, "application/json")
