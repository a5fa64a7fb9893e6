"""Whether all is well, for load balancers and watchdogs; and the metrics.

`/healthz` is red, with status 503, when an occurrence is overdue and nobody decided about it, when the catalog cannot
be reached, and when this process' engine has failed: not merely when the process is dead. It is degraded, with status
200, when runs wait for something that neither time nor other runs will give them, and when threads work although their
attempts have ended. Anyone gets the verdict and counts;
names are for callers who may see every job.
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

from horae.control.overrun_facts import OverlongRun, overlong_now
from horae.control.wait_facts import StuckRun, stuck_now, threads_now, unstarted_now
from horae.core.access import Privilege
from horae.core.instant import EPOCH
from horae.core.set_back import SetBack
from horae.core.wait import Thread
from horae.errors import HoraeError, StoreError, StoreUnavailable
from horae.web import origin
from horae.web.entering import Entrance
from horae.web.problems import Refused
from horae.web.site import Site

_SECONDS = 5.0
"""The catalog has so long to answer a look, and a verdict is so long told again where the next is not there yet."""
_LEAST = 0.05
_FRESH = 1.0
_EARLY_FRESH = 10.0
_RIGHTS_WITHIN = 4.0
"""The catalog has so long to say whether somebody may read the metrics."""
_KNOWN_FOR = 900.0
"""So long after the catalog last said so somebody may read them while it says nothing."""
_MOST_READERS = 100


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is ok, degraded or red; `details` for callers who have signed in."""

    status: str
    reasons: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


class Checkup:
    """The verdicts on one site, looked up again after a second at the earliest."""

    def __init__(self, site: Site, entrance: Entrance) -> None:
        self._site = site
        self._entrance = entrance
        self._kept: Health | None = None
        self._kept_at = float("-inf")
        self._looking: asyncio.Task[Health] | None = None
        self._readers: dict[bytes, float] = {}
        """Who was let read the metrics, and when: while the catalog says nothing, that still counts."""
        self._early_kept: SetBack | None = None
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
        return _told(found)

    async def readyz(self, request: Request, named: dict[str, str]) -> Response:
        """Whether requests may be sent here: the catalog answers, and the engine is not on its way out."""
        found = await self._health()
        state = self._site.node().get("state")
        reasons = [each for each in found.reasons if each == _AWAY]
        if state in ("stopping", "failed"):
            reasons.append("the engine of this process is stopping" if state == "stopping" else _FAILED)
        return _told(Health(status="red" if reasons else "ok", reasons=reasons))

    async def metrics(self, request: Request, named: dict[str, str]) -> Response:
        """An outage is when they are wanted most: a reader who had the right before is believed then. Raises
        StoreUnavailable for others."""
        reader = _reader(request)
        try:
            async with asyncio.timeout(max(_RIGHTS_WITHIN, self._site.limits.health)):
                visit = await self._entrance.visit(request)
                # The series are named after jobs, all of them.
                await visit.desk.service.gate.require(Privilege.VIEW_JOB_HISTORY, action="read the metrics")
        except (StoreError, TimeoutError) as error:
            if monotonic() - self._readers.get(reader, float("-inf")) >= _KNOWN_FOR:
                if isinstance(error, StoreError):
                    raise
                raise StoreUnavailable("The catalog does not say in time whether you may read the metrics") from error
        except (HoraeError, Refused):
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
        except (HoraeError, Refused):
            return False
        return True

    async def _sees_all(self, request: Request) -> bool:
        """Whether the caller may know every job by name."""
        try:
            return (await self._entrance.visit(request)).desk.service.views.seen is None
        except (HoraeError, Refused):
            return False

    async def _within(self, ends: float, asked: Coroutine[Any, Any, bool]) -> bool:
        """Whether it is so; no, where the catalog does not say so in time."""
        least = asyncio.get_running_loop().time() + _LEAST
        try:
            async with asyncio.timeout_at(max(ends, least)):
                return await asked
        except TimeoutError:
            return False

    async def _health(self) -> Health:
        """A look goes on where it takes longer than anybody waits for it: one for all who ask meanwhile."""
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
        """What cannot be read in time makes nothing red."""
        try:
            async with asyncio.timeout(self._patience):
                return await stuck_now(await self._site.store())
        except (HoraeError, TimeoutError):
            return []

    async def _early(self) -> SetBack:
        """All jobs are read for it, so it is kept for a while."""
        if self._early_kept is not None and monotonic() - self._early_at < _EARLY_FRESH:
            return self._early_kept
        try:
            async with asyncio.timeout(self._patience):
                self._early_kept = await (await self._site.store()).set_back()
        except (HoraeError, TimeoutError):
            return SetBack(EPOCH)
        self._early_at = monotonic()
        return self._early_kept

    async def _unstarted(self) -> list[StuckRun]:
        try:
            async with asyncio.timeout(self._patience):
                return await unstarted_now(await self._site.store(), timedelta(seconds=self._site.limits.undecided))
        except (HoraeError, TimeoutError):
            return []

    async def _threads(self) -> Sequence[Thread]:
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
    """All that lets a request in, as a digest."""
    headers = request.headers
    shown = (headers.get("authorization"), headers.get("cookie"))
    return sha256(repr((shown, request.scope["state"]["address"], origin.is_local(headers))).encode()).digest()


def _counted(stuck: Sequence[StuckRun]) -> dict[str, str]:
    """How many runs wait for each thing, in words."""
    counts = Counter(run.reason for run in stuck)
    return {reason: f"{count} run{'' if count == 1 else 's'}" for reason, count in sorted(counts.items())}


_MOST_NAMED = 20
_NAMING = frozenset({"ahead", "unstarted_jobs", "waiting", "threads", "unreadable", "overlong"})
"""Details that name jobs."""
_AWAY = "the catalog cannot be reached"
_FAILED = "the engine of this process has failed"


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at is not None else None


def _told(found: Health) -> Response:
    body = msgspec.json.encode(found, enc_hook=str)
    return Response(body, 503 if found.status == "red" else 200, {"cache-control": "no-store"}, "application/json")
