"""Live updates for viewers: server-sent events, at most two a second for each viewer.

One hub serves all viewers of a server. While there are any, it listens to the engine's events and to the catalog's
change counter, which covers other processes. Every half second it sends each viewer the changes that they may see. A
viewer has one pending change, into which further ones are merged, so memory stays bounded however slowly a client
reads. A client that does not read at all is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import horae.events as events
from horae.api.requests import EmptyRequest
from horae.api.responses.catalog_responses import Overview
from horae.core.access import Principal, Privilege, holds
from horae.errors import HoraeError
from horae.version import __version__
from horae.web.http.problems import ProblemError, limited
from horae.web.http.shared_answers import SharedAnswers
from horae.web.live.changes import PendingChange, Viewer, event
from horae.web.site import Site, Visit

INTERVAL = 0.5
SLOWEST, BUSY = 2.0, 0.04
"""The most seconds between two rounds of notifications, and how many seconds late a round is on a busy server."""
GAP = 0.01
"""Seconds between waking two viewers, so that they do not all reload at once."""
KEEP_ALIVE = 15.0
UNREAD = 10.0
"""Seconds that an event may stay unread before the viewer is disconnected."""
OVERVIEW = 1.0
OWN_OVERVIEW = 5.0
"""Seconds between two overviews after a change; and without one, or for a viewer who needs an overview of their own."""
OF_RUNS = (
    events.RunStarted,
    events.AttemptStarted,
    events.AttemptEnded,
    events.RunParked,
    events.RunReleased,
    events.RunEnded,
    events.RunFenced,
    events.RunAbandoned,
    events.RunFreed,
)
OF_JOBS = (events.RunPassed, events.HandlerMissing, events.DefinitionUnreadable)
OF_ALL = (
    events.EngineStarted,
    events.EngineStopped,
    events.StoreLost,
    events.StoreFound,
    events.DefinitionsRegistered,
    events.NodeExpelled,
    events.NodeBuried,
    events.RunsReaped,
    events.RunsSwept,
    events.HistoryDeleted,
)

_log = logging.getLogger("horae.web")


class Hub:
    """The live viewers of one server."""

    def __init__(self, site: Site, *, rhythm: float = INTERVAL) -> None:
        self._site = site
        self._rhythm = rhythm
        self._viewers: set[Viewer] = set()
        self._pending = PendingChange()
        self._task: asyncio.Task[None] | None = None
        self._overview_at = float("-inf")
        self._overviews = SharedAnswers(rhythm)
        self.parts = SharedAnswers(rhythm)
        """Rendered parts of pages. They are dropped at every change, before viewers are notified of it."""
        self._is_closed = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def join(self, visit: Visit, *, overview: bool) -> Viewer:
        """Adds a viewer. `overview` says whether they get overviews too. Raises Refused with RateLimited if there are
        too many viewers."""
        if self._is_closed or len(self._viewers) >= self._site.limits.viewers:
            raise limited(
                "Too many viewers are live already", KEEP_ALIVE, hint="Close another page, or look again later."
            )
        own = sum(each.who.name == visit.who.name for each in self._viewers)
        if visit.sign_in != "open" and own >= self._site.limits.own_viewers:
            raise limited(f"{visit.who.name} has {own} live pages already", KEEP_ALIVE, hint="Close one of them first.")
        viewer = Viewer(visit, overview=overview)
        self._viewers.add(viewer)
        if self._task is None:
            self._pending = PendingChange()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="horae live pages")
        return viewer

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers and self._task is not None:
            self._task.cancel()
            self._task = None

    def note(self, job: str | None, run_id: str | None) -> None:
        """Notes that a job or a run was changed, or, with None and None, something else."""
        if self._viewers:
            self._pending.add(job, run_id)

    async def close(self) -> None:
        """Ends all streams and accepts no more viewers."""
        self._is_closed = True
        task, self._task = self._task, None
        for viewer in tuple(self._viewers):
            viewer.is_over = True
            viewer.wake()
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def overview(self, visit: Visit, *, since: float = float("-inf")) -> Overview:
        """Returns the overview for a visitor. Visitors who see every job share one, which is at most `rhythm` seconds
        old and made after `since`, in seconds since 1970."""
        if not holds(visit.who, Privilege.VIEW_JOB_HISTORY):
            return await visit.desk.overview(EmptyRequest())
        return await self._overviews.get(None, lambda: visit.desk.overview(EmptyRequest()), since=since)

    # ---- the loop, which runs while there are viewers ----------------------------------------------------------------

    async def _run(self) -> None:
        stops = [
            self._site.events.listen(lambda each: self._pending.add(each.job, each.run_id), *OF_RUNS),
            self._site.events.listen(lambda each: self._pending.add(each.job, None), *OF_JOBS),
            self._site.events.listen(lambda each: self._pending.add(None, None), *OF_ALL),
        ]
        elsewhere = asyncio.get_running_loop().create_task(self._watch_catalog(), name="horae live catalog")
        loop = asyncio.get_running_loop()
        wait = self._rhythm
        try:
            while True:
                due = loop.time() + wait
                await asyncio.sleep(wait)
                pending, self._pending = self._pending, PendingChange()
                try:
                    await self._tell(pending)
                except HoraeError as error:
                    # For example, the catalog is unavailable. Once it is back, viewers are told to reload everything.
                    _log.debug("live pages: %s", error)
                    self._pending.more = True
                except Exception:  # noqa: BLE001 - a lost notification is better than no more updates at all
                    _log.exception("live pages met an error nobody expected, and go on")
                # On a busy event loop, viewers are notified less often, so that other requests do not wait.
                wait = next_interval(wait, self._rhythm, loop.time() - due)
        finally:
            for stop in stops:
                stop()
            elsewhere.cancel()
            with suppress(asyncio.CancelledError):
                await elsewhere

    async def _watch_catalog(self) -> None:
        """Notes changes by other processes. The catalog notifies of what users do there. It does not notify of each
        run of other nodes, since that would wake every node for every run, so this polls the catalog's mark for
        them."""
        seen: int | None = None
        mark: tuple[int, ...] | None = None
        while True:
            try:
                store = await self._site.store()
                now = await store.changed(seen or 0, 0 if seen is None else self._rhythm)
                marked = await store.mark(self._site.node().get("node"))
                if seen is not None and (now != seen or marked != mark):
                    self._pending.more = True
                seen, mark = now, marked
            except HoraeError:
                await asyncio.sleep(1.0)
            if seen is not None:
                await asyncio.sleep(self._rhythm)

    async def _tell(self, pending: PendingChange) -> None:
        viewers = tuple(self._viewers)
        limited_ones = [viewer for viewer in viewers if not viewer.sees_all]
        owners = await self._owners(pending) if pending and limited_ones else {}
        if pending:
            self.parts.forget()
            self._overviews.forget()
            told = pending.told()
            for viewer in viewers:
                if viewer.sees_all and not viewer.change and viewer.told is None:
                    # The viewer has nothing pending, so they can share the change that is encoded once for all.
                    viewer.told, viewer.change_told = told, pending
                else:
                    viewer.add(pending, None if viewer.sees_all else _visibility(viewer.who, owners))
            self._wake(viewers)
        await self._tell_overview([viewer for viewer in viewers if viewer.wants_overview], has_news=bool(pending))

    def _wake(self, viewers: Sequence[Viewer]) -> None:
        """Wakes the viewers one after the other: each then requests parts of a page, and all at once would be slow."""
        loop = asyncio.get_running_loop()
        gap = min(GAP, self._rhythm / max(len(viewers), 1))
        for place, viewer in enumerate(viewers):
            loop.call_later(place * gap, viewer.wake)

    async def _owners(self, pending: PendingChange) -> dict[str, str]:
        store = await self._site.store()
        names = sorted(pending.jobs | set(pending.runs.values()) - {""})
        return {job.name: job.owner for job in await store.jobs(names)} if names else {}

    async def _tell_overview(self, viewers: Sequence[Viewer], *, has_news: bool) -> None:
        """Sends overviews: a shared one to viewers who see every job, and, less often, one each to the others."""
        now = asyncio.get_running_loop().time()
        wait = OVERVIEW if has_news else OWN_OVERVIEW
        shared = [viewer for viewer in viewers if viewer.sees_all]
        fresh = any(viewer.overview_at == float("-inf") for viewer in shared)
        if shared and (fresh or now - self._overview_at >= wait):
            self._overview_at = now
            told = event("overview", await self.overview(shared[0].visit))
            for viewer in shared:
                viewer.overview, viewer.overview_at = told, now
            self._wake(shared)
        for viewer in viewers:
            if not viewer.sees_all and now - viewer.overview_at >= OWN_OVERVIEW:
                viewer.overview_at = now
                viewer.overview = event("overview", await viewer.visit.desk.overview(EmptyRequest()))
                viewer.wake()


def next_interval(wait: float, rhythm: float, late: float) -> float:
    """Returns the seconds until the next round, after a wait of `wait` and a round that ended `late` seconds late."""
    return max(rhythm, min(wait * 2, SLOWEST) if late > BUSY else wait / 2)


def _visibility(who: Principal, owners: dict[str, str]) -> Callable[[str], bool]:
    def sees(job: str) -> bool:
        owner = owners.get(job)
        return bool(job) and holds(who, Privilege.VIEW_JOB_HISTORY, job, owner=owner)

    return sees


class EventResponse(Response):
    """A stream of events to one viewer, until they disconnect, stop reading or lose access, or the server stops."""

    def __init__(
        self,
        hub: Hub,
        visit: Visit,
        *,
        overview: bool,
        still: Callable[[], Awaitable[Visit]],
        keep_alive: float = KEEP_ALIVE,
    ) -> None:
        """`still` is called every `keep_alive` seconds to authenticate the viewer again. It raises an error if they
        have lost access."""
        super().__init__(None, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, "text/event-stream")
        del self.headers["content-length"]
        self._hub = hub
        self._still = still
        self._keep_alive = keep_alive
        self._visit = visit
        self._overview = overview

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = self._hub.join(self._visit, overview=self._overview)
        streaming = asyncio.get_running_loop().create_task(self._stream(viewer, scope, send))
        leaving = asyncio.get_running_loop().create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.leave(viewer)
            for task in (streaming, leaving):
                task.cancel()
            results = await asyncio.gather(streaming, leaving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _stream(self, viewer: Viewer, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        hello = b"retry: 2000\n" + event("hello", {"version": __version__})
        more = scope["method"] != "HEAD"
        await self._send(send, hello, more=more)
        loop = asyncio.get_running_loop()
        asked = loop.time()
        while more:
            told = await viewer.next(self._keep_alive)
            if loop.time() - asked >= self._keep_alive:
                asked = loop.time()
                if not await self._may_stay(viewer):
                    break
            if viewer.is_over or not await self._send(send, told or b":\n\n", more=True):
                break
        if more:
            await self._send(send, b"", more=False)

    async def _may_stay(self, viewer: Viewer) -> bool:
        try:
            viewer.visit = await self._still()
        except (HoraeError, ProblemError) as error:
            _log.info("a viewer may not look any more: %s", error)
            return False
        return True

    async def _send(self, send: Send, body: bytes, *, more: bool) -> bool:
        """Sends a part of the stream. Returns False if the viewer does not read it in time."""
        try:
            async with asyncio.timeout(UNREAD):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            _log.info("a viewer who did not read for %g s was dropped", UNREAD)
            return False
        return True


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
