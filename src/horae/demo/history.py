"""The history of the sample jobs: weeks that the engine really ran on simulated time, up to now.

Nothing is written by hand: jobs come due, run, fail and are retried; a machine dies in the night and comes back half a
day later; people trigger, pause, cancel, replay and change jobs at the moments of the script below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from horae.app.horae import Horae
from horae.core.schedule.schedules import Cron
from horae.demo import world
from horae.demo.world import DemoProgram
from horae.security.keys import generate_key
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.simulation import Simulation

DAYS = 30
CRASHED = 0.82
"""When the machine dies, as a share of the history."""
DOWN = timedelta(hours=11)
LIVE_SINCE = timedelta(minutes=20)
"""How long ago the third release started, with a job that runs every few seconds."""
_STEPS = 60
_CLOSE = timedelta(milliseconds=100)
_KEEPING = {"sweep_every": 6 * 3600, "reap_every": 6 * 3600, "heartbeat": 12 * 3600, "spacing": 900}
_SECONDS = timedelta(seconds=1)

Tell = Callable[[float], None]
Act = Callable[[Horae, Simulation], Awaitable[None]]


class _Crash(Exception):
    """Ends a simulation as a power cut does: nothing is settled or announced."""


@dataclass(frozen=True, slots=True)
class _ScriptedAction:
    """An action of a person. `at` is the share of the history that has passed; the action follows on the next full
    hour."""

    at: float
    act: Act


class DemoHistory:
    """The history in `folder`, from `days` ago until now."""

    def __init__(
        self,
        folder: Path,
        *,
        days: float = DAYS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        tell: Tell = lambda share: None,
    ) -> None:
        """`tell` is called with the share of the history that has been simulated, from 0 to 1."""
        self._folder = folder
        self._clock = clock
        self._tell = tell
        self._now = clock()
        self._days = days
        self.since = (self._now - timedelta(days=days)).replace(hour=0, minute=0, second=0, microsecond=0)

    async def live(self) -> DemoProgram:
        """Simulates the whole history. Returns the world that goes on from now, not started."""
        key = self._folder / "master.key"
        key.touch(mode=0o600)
        key.write_text(generate_key())
        crash = self._crash()
        with suppress(_Crash):
            await self._lived(1, self.since, crash, _FIRST, crashes=True)
        released = self._clock() - LIVE_SINCE
        await self._lived(2, crash + DOWN, released, _SECOND)
        await self._lived(3, released, None, ())
        self._tell(1.0)
        return DemoProgram(self._folder, self.since, live=True)

    def _crash(self) -> datetime:
        """While the job night-audit runs, before a working day."""
        audit = Cron("30 2 * * 1-5", tz="Europe/Berlin", gap="shift").next(self._at(CRASHED))
        assert audit is not None
        return audit + timedelta(minutes=9)

    def _at(self, share: float) -> datetime:
        moment = self.since + (self._now - self.since) * share
        return moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)

    async def _lived(
        self,
        release: int,
        start: datetime,
        end: datetime | None,
        script: tuple[_ScriptedAction, ...],
        *,
        crashes: bool = False,
    ) -> None:
        """Simulates one release from `start` until `end`. None: until the real time at that moment."""
        app = DemoProgram(self._folder, self.since, release=release).app
        async with Simulation(app, start, settings=dict(_KEEPING)) as simulation:
            self._hurry(simulation)
            for moment in script:
                await self._advance(simulation, max(self._at(moment.at), start + _SECONDS) if moment.at else start)
                await moment.act(app, simulation)
            if end is not None:
                await self._advance(simulation, end)
            else:
                while (self._clock() - simulation.now) > _CLOSE:
                    await self._advance(simulation, self._clock())
            if crashes:
                raise _Crash

    async def _advance(self, simulation: Simulation, to: datetime) -> None:
        """Advances in steps, so that progress can be shown."""
        step = (self._now - self.since) / _STEPS
        while (left := to - simulation.now) > timedelta(0):
            await simulation.advance(min(left, step))
            self._tell(min((simulation.now - self.since) / (self._now - self.since), 1.0))

    @staticmethod
    def _hurry(simulation: Simulation) -> None:
        """Turns off disk synchronisation: a history that is lost in a power cut can be simulated again."""
        driver = None if simulation.store is None else simulation.store.driver
        if isinstance(driver, SqliteDriver):
            driver.connection.execute("PRAGMA sys.synchronous = OFF").fetchall()


# ---- what people did -------------------------------------------------------------------------------------------------


async def _began(app: Horae, simulation: Simulation) -> None:
    await app.sql(f"ALTER SYSTEM SET scheduler.job_history_retention_days = {world.RETENTION_DAYS:g}")
    await app.sql("CREATE SECRET smtp-password = 'correct horse battery staple'")
    await app.sql(world.TABLES)
    await app.sql("EXECUTE JOB create-tables KEY 'first'")
    await simulation.advance("1s")
    await app.sql(world.PEOPLE)
    await app.sql(world.TOTALS, user="ann")


async def _triggered(app: Horae, simulation: Simulation) -> None:
    await app.trigger("daily-report", {"to": "the-board@example.com"}, key="board-meeting")
    await app.schedule(
        "remind-ann",
        Cron("0 15 * * 3", tz="Europe/Brussels"),
        task="remind",
        payload={"whom": "ann"},
        tags=("live",),
        description="Added while everything ran, by app.schedule",
    )


async def _disabled(app: Horae, simulation: Simulation) -> None:
    await app.disable("old-newsletter")


async def _rested(app: Horae, simulation: Simulation) -> None:
    until = simulation.now + timedelta(hours=30)
    await app.pause("fetch-prices", until, "The exchange is closed for maintenance until tomorrow")


async def _cancelled(app: Horae, simulation: Simulation) -> None:
    """Cancels the run of rebuild-index that is running, or the next one that starts."""
    for _ in range(8):
        running = [run for run in await app.runs("rebuild-index", limit=3) if run.state == "RUNNING"]
        if running:
            await app.cancel(running[0].run_id)
            return
        await simulation.advance("30m")


async def _moved(app: Horae, simulation: Simulation) -> None:
    await app.reschedule("partner-imports", simulation.now + timedelta(minutes=50))


async def _caught_up(app: Horae, simulation: Simulation) -> None:
    """Backfills the prices that were missed while the machine was down."""
    await simulation.advance("10m")
    await app.backfill("fetch-prices", simulation.now - timedelta(days=2), simulation.now)


async def _paused(app: Horae, simulation: Simulation) -> None:
    await app.sql("ALTER JOB weekly-invoices PAUSE 'Waiting for the new VAT table. Ask ann before you resume it'")


async def _altered(app: Horae, simulation: Simulation) -> None:
    await app.sql("ALTER JOB daily-totals SET SCHEDULE = CRON '45 13 * * *'", user="ann")


async def _replayed(app: Horae, simulation: Simulation) -> None:
    for job, reason in (("warehouse-etl", "stock.example is back"), ("extract-orders", "asked for by finance")):
        failed = await app.runs(job, "FAILED", limit=1)
        if failed:
            await app.replay(failed[0].run_id, reason)


async def _slept(app: Horae, simulation: Simulation) -> None:
    """The machine is suspended for a while."""
    await simulation.jump("95m")


_FIRST = (
    _ScriptedAction(0.0, _began),
    _ScriptedAction(0.06, _triggered),
    _ScriptedAction(0.2, _disabled),
    _ScriptedAction(0.3, _rested),
    _ScriptedAction(0.42, _cancelled),
    _ScriptedAction(0.5, _moved),
    _ScriptedAction(0.55, _paused),
    _ScriptedAction(0.6, _replayed),
)
_SECOND = (
    _ScriptedAction(0.0, _caught_up),
    _ScriptedAction(0.88, _altered),
    _ScriptedAction(0.91, _slept),
    _ScriptedAction(0.96, _replayed),
)
