"""What changes, told to those who watch: server-sent events, at most two a second for each viewer.

One hub for all viewers. While anybody watches it listens to the engine's events and to the catalog's `changed`, which
tells of other processes; every half second it tells each viewer what has changed that they may see. A viewer has room
for one change that is still to be sent: what comes meanwhile is put together with it, so that nothing grows however
slow somebody reads, and who does not read at all is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import horae.events as events
from horae.core.access import Principal, Privilege, holds
from horae.desk.asking import Nothing
from horae.desk.sights import Overview
from horae.errors import HoraeError
from horae.version import __version__
from horae.web.changes import Change, Viewer, event
from horae.web.problems import Refused, limited
from horae.web.sharing import Shared
from horae.web.site import Site, Visit

RHYTHM = 0.5
SLOWEST, BUSY = 2.0, 0.04
"""Seconds between two beats where a server has much to do, and how late a beat is where it has."""
GAP = 0.01
"""Seconds from one viewer to the next, of those who are told the same."""
KEEP_ALIVE = 15.0
UNREAD = 10.0
"""Seconds that a viewer may leave an event unread."""
OVERVIEW = 1.0
OWN_OVERVIEW = 5.0
"""Seconds between two overviews; and where one has to be made for a viewer alone."""
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
    """Everybody who watches one server."""

    def __init__(self, site: Site, *, rhythm: float = RHYTHM) -> None:
        self._site = site
        self._rhythm = rhythm
        self._viewers: set[Viewer] = set()
        self._pending = Change()
        self._task: asyncio.Task[None] | None = None
        self._overview_at = float("-inf")
        self._overviews = Shared(rhythm)
        self.parts = Shared(rhythm)
        """Parts of pages. Whoever is told of a change and asks again gets none from before it."""
        self._is_closed = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def join(self, visit: Visit, *, overview: bool) -> Viewer:
        """Raises RateLimited where there are too many already."""
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
            self._pending = Change()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="horae live pages")
        return viewer

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers and self._task is not None:
            self._task.cancel()
            self._task = None

    def note(self, job: str | None, run_id: str | None) -> None:
        """Something was done to a job or a run; None and None: to something else."""
        if self._viewers:
            self._pending.add(job, run_id)

    async def close(self) -> None:
        """Ends every stream, for good."""
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
        """What goes on, for whoever asks: not older than a beat of this hub's rhythm, nor from before `since`, and made
        once for all who see everything, however many ask."""
        if not holds(visit.who, Privilege.VIEW_JOB_HISTORY):
            return await visit.desk.overview(Nothing())
        return await self._overviews.get(None, lambda: visit.desk.overview(Nothing()), since=since)

    # ---- while anybody watches ---------------------------------------------------------------------------------------

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
                pending, self._pending = self._pending, Change()
                try:
                    await self._tell(pending)
                except HoraeError as error:
                    # The catalog is away, say: who watches is told of everything once it is back.
                    _log.debug("live pages: %s", error)
                    self._pending.more = True
                except Exception:  # noqa: BLE001 - pages that stand still are worse than one that was not told
                    _log.exception("live pages met an error nobody expected, and go on")
                # Where the loop, and whoever else asks it, was kept waiting, those who watch are told more seldom.
                wait = paced(wait, self._rhythm, loop.time() - due)
        finally:
            for stop in stops:
                stop()
            elsewhere.cancel()
            with suppress(asyncio.CancelledError):
                await elsewhere

    async def _watch_catalog(self) -> None:
        """What people do elsewhere is told at once. What nodes elsewhere do, run by run, is told nobody: it would wake
        every node for every run. So whoever watches looks for it, every beat or two."""
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

    async def _tell(self, pending: Change) -> None:
        viewers = tuple(self._viewers)
        limited_ones = [viewer for viewer in viewers if not viewer.sees_all]
        owners = await self._owners(pending) if pending and limited_ones else {}
        if pending:
            self.parts.forget()
            self._overviews.forget()
            told = pending.told()
            for viewer in viewers:
                if viewer.sees_all and not viewer.change and viewer.told is None:
                    # Nothing waits for them yet: what all of them are told is put into words once.
                    viewer.told, viewer.change_told = told, pending
                else:
                    viewer.add(pending, None if viewer.sees_all else _sight(viewer.who, owners))
            self._wake(viewers)
        await self._tell_overview([viewer for viewer in viewers if viewer.wants_overview], has_news=bool(pending))

    def _wake(self, viewers: Sequence[Viewer]) -> None:
        """One after the other: whoever is told asks for more, and so many at once would keep each other waiting."""
        loop = asyncio.get_running_loop()
        gap = min(GAP, self._rhythm / max(len(viewers), 1))
        for place, viewer in enumerate(viewers):
            loop.call_later(place * gap, viewer.wake)

    async def _owners(self, pending: Change) -> dict[str, str]:
        store = await self._site.store()
        names = sorted(pending.jobs | set(pending.runs.values()) - {""})
        return {job.name: job.owner for job in await store.jobs(names)} if names else {}

    async def _tell_overview(self, viewers: Sequence[Viewer], *, has_news: bool) -> None:
        """The same overview for all who see everything, made once; for the others one each, and more seldom."""
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
                viewer.overview = event("overview", await viewer.visit.desk.overview(Nothing()))
                viewer.wake()


def paced(wait: float, rhythm: float, late: float) -> float:
    """How long until the next beat, after one that came, and was done, so many seconds late."""
    return max(rhythm, min(wait * 2, SLOWEST) if late > BUSY else wait / 2)


def _sight(who: Principal, owners: dict[str, str]) -> Callable[[str], bool]:
    def sees(job: str) -> bool:
        owner = owners.get(job)
        return bool(job) and holds(who, Privilege.VIEW_JOB_HISTORY, job, owner=owner)

    return sees


class EventResponse(Response):
    """A stream of events to one viewer, until they leave, stop reading, may no longer look, or the server ends."""

    def __init__(
        self,
        hub: Hub,
        visit: Visit,
        *,
        overview: bool,
        still: Callable[[], Awaitable[Visit]],
        keep_alive: float = KEEP_ALIVE,
    ) -> None:
        """`still` is asked again and again who the viewer is; it raises when they are nobody any more."""
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
        leaving = asyncio.get_running_loop().create_task(_left(receive))
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
        except (HoraeError, Refused) as error:
            _log.info("a viewer may not look any more: %s", error)
            return False
        return True

    async def _send(self, send: Send, body: bytes, *, more: bool) -> bool:
        """False where the viewer does not read."""
        try:
            async with asyncio.timeout(UNREAD):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            _log.info("a viewer who did not read for %g s was dropped", UNREAD)
            return False
        return True


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
