"""Horae as a contender of `bench.engine`: a real app with its engine, in this process, on the clock of the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.catalog_common import DEFINE_BATCH
from bench.catalog_raw import FAR, RawPostgres, RawSqlite, RawWriter, raw_cycle
from bench.engine_child import serve
from horae import Every, Horae
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.ids import job_uuid
from horae.events import RunEnded
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store

RAW_BATCH = 500
FORMS = ("async", "sync")


class Ends:
    """Counts the runs that the catalog has taken down as ended, and when the last of them was."""

    def __init__(self, app: Horae) -> None:
        self._left = 0
        self._all = asyncio.Event()
        self.last = 0.0
        app.events.listen(self._count, RunEnded)

    def expect(self, count: int) -> None:
        self._left = count
        self._all.clear()

    def _count(self, event: RunEnded) -> None:
        self._left -= 1
        if self._left == 0:
            self.last = time.time()
            self._all.set()

    async def wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._all.wait(), seconds)
        except TimeoutError:
            raise RuntimeError(
                f"{self._left} runs had not ended within {seconds:.0f} s: is the machine busy?"
            ) from None


def made(url: str, slots: int) -> Horae:
    """An app with the two tasks that do nothing."""
    app = Horae(url, max_concurrent_jobs=slots)

    @app.task("async")
    async def in_the_loop() -> None:
        pass

    @app.task("sync")
    def in_a_thread() -> None:
        pass

    return app


async def define(app: Horae, specs: Sequence[JobSpec]) -> None:
    async def written(store: Store) -> None:
        for first in range(0, len(specs), DEFINE_BATCH):
            await store.define(specs[first : first + DEFINE_BATCH])

    await app.home.call(written)


def due_together(prefix: str, count: int, handler: str, period: int, start: datetime) -> list[JobSpec]:
    """Jobs of one task that are all due at the same moments."""
    schedule = Every(timedelta(seconds=period), start=start)
    return [JobSpec(f"{prefix}-{n}", schedule, tasks=(TaskSpec("task", handler=handler),)) for n in range(count)]


async def until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


def soon(seconds: float) -> datetime:
    return (datetime.now(UTC) + timedelta(seconds=seconds + 1)).replace(microsecond=0)


# ---- runs a second ---------------------------------------------------------------------------------------------------


async def throughput(url: str, jobs: int, slots: int, rounds: int) -> dict[str, Any]:
    """Runs a second of jobs that are all due at once, in turn with the raw limit on the same tables.

    From the moment they are due to the moment the catalog has the last one's end.
    """
    app = made(url, slots)
    period = 2 * (6 + jobs // 1000)
    start = soon(4 + jobs * 3 * 0.0008)
    turns = {form: start + timedelta(seconds=period // 2 * place) for place, form in enumerate(FORMS)}
    for form, moment in turns.items():
        await define(app, due_together(form, jobs, form, period, moment))
    raw_names = [f"raw-{number}" for number in range(jobs)]
    await define(app, due_together("raw", jobs, "async", 86_400, start + timedelta(days=1)))
    raw = await app.home.call(_raw_writer)
    numbers = sorted(str(job_uuid(name)) for name in raw_names)
    if datetime.now(UTC) > start - timedelta(seconds=1):
        raise RuntimeError(f"defining {3 * jobs} jobs took too long: is the machine busy?")
    found: dict[str, list[float]] = {"raw": [], **{key: [] for form in FORMS for key in (form, f"{form}_cpu_us")}}
    ends = Ends(app)
    async with app:
        for turn in range(rounds + 1):
            for form, first in turns.items():
                due = first.timestamp() + period * turn
                ends.expect(jobs)
                await until(due - 0.05)
                spent = time.process_time()
                await ends.wait(period / 2 - 1)
                cpu = time.process_time() - spent
                limit = _raw_rate(raw, numbers, turn)
                if turn:  # the first round fills caches
                    found[form].append(jobs / (ends.last - due))
                    found[f"{form}_cpu_us"].append(cpu / jobs * 1e6)
                    found["raw"].append(limit)
        await _check_history(app, jobs)
    raw.close()
    return found


async def _raw_writer(store: Store) -> RawWriter:
    assert isinstance(store, Catalog)
    driver: Any = store.driver
    aside = f"UPDATE sys.jobs SET wake_at = {FAR} WHERE job_name LIKE 'raw-%'"  # noqa: S608 - a number of our own
    if driver.dialect == "sqlite":
        driver.connection.execute(aside)
        return RawSqlite(driver.connection)
    writer = RawPostgres(driver.url)
    writer.execute(aside)
    writer.execute("VACUUM ANALYZE")
    return writer


def _raw_rate(raw: RawWriter, jobs: Sequence[str], turn: int) -> float:
    """Whole cycles a second, as plain SQL with rows worked out beforehand."""
    spent = 0.0
    now = time.time_ns() // 1_000_000
    for first in range(0, len(jobs), RAW_BATCH):
        batch = jobs[first : first + RAW_BATCH]
        cycle = raw_cycle(batch, raw.numbers(len(batch)), now, turn)
        birth, end = raw.prepared(cycle.birth), raw.prepared(cycle.end)
        begun = time.perf_counter()
        raw.write(birth)
        raw.write(end)
        spent += time.perf_counter() - begun
    return len(jobs) / spent


async def _check_history(app: Horae, jobs: int) -> None:
    """What was counted can be read: run, task run and attempt of each."""
    for form in FORMS:
        latest = await app.runs(job=f"{form}-{jobs - 1}", limit=1)
        report = await app.report(latest[0].run_id)
        assert str(report.run.state) == "COMPLETED", report
        assert [str(attempt.state) for task in report.tasks for attempt in task.attempts] == ["SUCCESS"], report


# ---- start lag, and cost by size -------------------------------------------------------------------------------------


class Paced:
    """One app on one catalog in which `due` jobs come due together, again and again."""

    def __init__(self, url: str, slots: int, due: int) -> None:
        self.due = due
        self.lags: list[float] = []
        self.walls: list[float] = []
        self.app = made(url, slots)
        self.ends = Ends(self.app)
        self._moment = 0.0
        self.app.registry.add("stamp", self._stamp)

    async def _stamp(self) -> None:
        self.lags.append(time.time() - self._moment)

    async def round(self, moment: float) -> None:
        self._moment = moment
        self.ends.expect(self.due)
        await until(moment - 0.02)
        await self.ends.wait(30.0)
        self.walls.append(self.ends.last - moment)


async def prepare(url: str, due: int) -> dict[str, Any]:
    """A catalog with the jobs that `paced` gives their times to."""
    app = made(url, 1)
    await define(app, due_together("job", due, "stamp", 86_400, soon(86_400)))
    await app.close()
    return {}


async def paced(places: Mapping[str, str], due: int, rounds: int, slots: int) -> dict[str, Any]:
    """Start lags in seconds, and seconds from due to the last end, of catalogs of several sizes that take turns.

    In each, `due` jobs are due at the same moment of every turn; the rest sleeps.
    """
    space = 1 + due // 500
    period = space * len(places)
    racers = {name: Paced(url, slots, due) for name, url in places.items()}
    start = soon(10 + due * len(places) * 0.006)
    for place, racer in enumerate(racers.values()):
        moment = start + timedelta(seconds=space * place)
        await define(racer.app, due_together("job", due, "stamp", period, moment))
    async with AsyncExitStack() as stack:
        for racer in racers.values():
            await stack.enter_async_context(racer.app)
        if datetime.now(UTC) > start - timedelta(seconds=0.5):
            raise RuntimeError("starting took too long: is the machine busy?")
        for turn in range(rounds + 2):
            for place, racer in enumerate(racers.values()):
                await racer.round(start.timestamp() + period * turn + space * place)
            if turn < 2:  # caches are filled
                for racer in racers.values():
                    racer.lags.clear()
                    racer.walls.clear()
    return {name: {"lags": racer.lags, "walls": racer.walls} for name, racer in racers.items()}


if __name__ == "__main__":
    raise SystemExit(serve({"throughput": throughput, "prepare": prepare, "paced": paced}))
