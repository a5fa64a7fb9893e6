"""Tickers: a job's schedule that can be iterated, started, stopped, paused and asked for its state.

A ticker keeps no state of its own. What it answers comes from the catalog, so it is the same on every node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from horae.core.job import ids
from horae.core.run.lifecycle import JobState
from horae.core.time.instant import aware
from horae.errors import JobNotFound
from horae.store.protocols.store import JobRecord, Store

if TYPE_CHECKING:
    from horae.app.horae import Horae


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick: a scheduled time, the id of its run, when the tick was noticed, and when the job last started
    before."""

    job_name: str
    run_id: str
    scheduled_time: datetime
    now: datetime
    last_run_time: datetime | None


class Ticker:
    """One job's schedule. Every call reads the catalog.

    async for tick in app.ticker("nightly"):
        print(tick.scheduled_time)
    """

    def __init__(self, app: Horae, name: str) -> None:
        self._app = app
        self.name = name

    async def start(self) -> None:
        """Enables the job from now on."""
        await self._app.enable(self.name)

    async def stop(self) -> None:
        """Disables the job: no runs are created and nothing is recorded until `start`."""
        await self._app.disable(self.name)

    async def pause(self, until: datetime | None = None, note: str | None = None) -> None:
        """Pauses the job: its scheduled times pass and are recorded as skipped, until `until` or until `resume`."""
        await self._app.pause(self.name, until, note)

    async def resume(self) -> None:
        """Resumes the paused job."""
        await self._app.resume(self.name)

    async def is_active(self) -> bool:
        """Whether the job is not disabled and now lies within its schedule's start and end, with a scheduled time still
        to come."""
        job = await self._app.get_job(self.name)
        return await self._app.home.call(lambda store: _active(store, job))

    async def is_paused(self) -> bool:
        return (await self._app.get_job(self.name)).state is JobState.PAUSED

    async def is_enabled(self) -> bool:
        """Whether the job is active and not paused."""
        return await self.is_active() and not await self.is_paused()

    async def is_running(self) -> bool:
        """Whether any node has a running run of the job."""
        return await self._app.is_running(self.name)

    async def next_run(self) -> datetime | None:
        """The time of the job's next run, or None."""
        return await self._app.next_run(self.name)

    async def occurrences_between(self, start: datetime, end: datetime) -> list[datetime]:
        """The scheduled times after `start`, up to and including `end`."""
        schedule = (await self._app.get_job(self.name)).schedule
        return [] if schedule is None else list(schedule.between(aware(start, "start"), aware(end, "end")))

    async def __aiter__(self) -> AsyncIterator[Tick]:
        """Yields a tick at each scheduled time from now on while the job is enabled.

        Ends after the schedule's last time, when the job is dropped, and at the end of a simulation.
        """
        home = self._app.home
        tick: Tick | None = None
        while self._app.home is home:
            tick = await home.wait_for(partial(self._next, None if tick is None else tick.scheduled_time))
            if tick is None:
                return
            yield tick

    async def _next(self, after: datetime | None) -> Tick | None:
        """Waits for the first scheduled time after `after` (None: after now) and returns its tick; None if there are no
        more."""
        while True:
            try:
                job = await self._app.get_job(self.name)
            except JobNotFound:
                if after is None:
                    raise
                return None
            now, seen = await self._app.home.call(_moment)
            after = now if after is None else after
            schedule = job.schedule
            slot = None if schedule is None else schedule.next(after)
            if slot is None:
                return None
            if slot > now:
                wait = min((slot - now).total_seconds(), self._app.home.look_every)
                await self._app.home.call(lambda store, seen=seen, wait=wait: store.changed(seen, wait))  # type: ignore[misc]  # bound
                continue
            after = slot
            if job.state is JobState.ENABLED:
                run_id = ids.run_id(ids.job_uuid(self.name), slot)
                return Tick(self.name, run_id, slot, now, await self._last_run(slot))

    async def _last_run(self, before: datetime) -> datetime | None:
        runs = await self._app.runs(job=self.name, limit=20)
        started = [each.started_at for each in runs if each.started_at is not None and each.scheduled_time < before]
        return max(started, default=None)


async def _moment(store: Store) -> tuple[datetime, int]:
    return await store.now(), await store.changed(0, 0.0)


async def _active(store: Store, job: JobRecord) -> bool:
    schedule = job.schedule
    if job.state is JobState.DISABLED or schedule is None:
        return False
    now = await store.now()
    start, end = getattr(schedule, "start", None), getattr(schedule, "end", None)
    within = (start is None or start <= now) and (end is None or now <= end)
    return within and (schedule.next(now) is not None or schedule.matches(now))
