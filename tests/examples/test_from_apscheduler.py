"""Every claim of from-apscheduler.md about what APScheduler does, beside APScheduler itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.executors.base import BaseExecutor
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from horae import Cron, Every, Horae, Iso8601, Window
from horae.core.report.report import RunReport
from horae.core.schedule.schedules import Schedule
from horae.events import RunPassed
from horae.testing.simulation import Simulation

PAGE = (Path(__file__).parents[2] / "docs" / "from-apscheduler.md").read_text()
START = datetime(2026, 1, 1, tzinfo=UTC)
BRUSSELS = ZoneInfo("Europe/Brussels")
HOUR = timedelta(hours=1)


def fired(trigger: Any, start: datetime, end: datetime) -> list[datetime]:
    """All times of a trigger with start < t <= end, as APScheduler works them out."""
    found: list[datetime] = []
    before, now = None, start
    while True:
        at = trigger.get_next_fire_time(before, now)
        if at is None or at > end:
            return [each for each in found if each > start]
        found.append(at.astimezone(UTC))
        before, now = at, at + timedelta(microseconds=1)


def shown(*code: str) -> None:
    """What is compared is what the page says."""
    for each in code:
        assert each in PAGE, each


SAME: list[tuple[str, str, Any, Schedule]] = [
    (
        '"interval", minutes=5',
        'Every("5m")',
        IntervalTrigger(minutes=5, timezone=UTC, start_date=START, end_date=START + 24 * HOUR),
        Every("5m", start=START, end=START + 24 * HOUR),
    ),
    ('"cron", hour=2', 'Cron("0 2 * * *")', CronTrigger(hour=2, timezone=UTC), Cron("0 2 * * *")),
    (
        'timezone="Europe/Brussels"',
        'tz="Europe/Brussels"',
        CronTrigger(hour=4, timezone=BRUSSELS),
        Cron("0 4 * * *", tz="Europe/Brussels"),
    ),
    (
        'second="*/10"',
        'Every("10s", start=datetime(2026, 1, 1, tzinfo=UTC))',
        CronTrigger(second="*/10", timezone=UTC, end_date=START + HOUR),
        Every("10s", start=datetime(2026, 1, 1, tzinfo=UTC), end=START + HOUR),
    ),
    (
        "hour=4, second=30",
        'Iso8601("R/2026-01-01T04:00:30/P1D", tz="Europe/Brussels")',
        CronTrigger(hour=4, minute=0, second=30, timezone=BRUSSELS),
        Iso8601("R/2026-01-01T04:00:30/P1D", tz="Europe/Brussels"),
    ),
    (
        'day="last"',
        'Iso8601("R/2026-01-31T00:00:00/P1M", tz="Europe/Brussels")',
        CronTrigger(day="last", timezone=BRUSSELS),
        Iso8601("R/2026-01-31T00:00:00/P1M", tz="Europe/Brussels"),
    ),
    (
        'day_of_week="mon-fri"',
        'Cron("0 0 * * mon-fri")',
        CronTrigger(day_of_week="mon-fri", timezone=UTC),
        Cron("0 0 * * mon-fri"),
    ),
]


@pytest.mark.parametrize(("theirs", "ours", "trigger", "schedule"), SAME, ids=[each[0] for each in SAME])
def test_a_schedule_of_the_table_fires_when_apscheduler_s_does(
    theirs: str, ours: str, trigger: Any, schedule: Schedule
) -> None:
    shown(theirs, ours)
    # At hours that every day has: what becomes of others is each schedule's own to say.
    start, end = START - timedelta(seconds=1), datetime(2028, 3, 1, tzinfo=UTC)
    expected = fired(trigger, start, end)
    assert len(expected) > 20
    assert set(schedule.between(start, end)) ^ set(expected) == set()


@pytest.mark.parametrize(
    ("weekday", "trigger"),
    [("sun", CronTrigger(day="2nd sun", timezone=UTC)), ("mon", CronTrigger(day="2nd mon", timezone=UTC))],
)
def test_the_second_sunday_is_a_weekly_schedule_that_only_some_days_of_the_month_allow(
    weekday: str, trigger: Any
) -> None:
    shown('day="2nd sun"', 'Cron("0 0 * * sun")', 'window=Window.after("0s", only={"dom": "8-14"})', "UNSCHEDULABLE")
    app = Horae("sqlite://")

    @app.job("a", Cron(f"0 0 * * {weekday}"), window=Window.after("0s", only={"dom": "8-14"}))
    def work() -> None: ...

    async def main() -> list[datetime]:
        async with Simulation(app, start=START) as sim:
            started = await sim.advance("400d")
            states = {str(run.state) for run in await app.runs("a", limit=1000)}
            assert states == {"COMPLETED", "UNSCHEDULABLE"}
            return [at for _, _, at in started]

    assert asyncio.run(main()) == fired(trigger, START, START + timedelta(days=400))


def test_numbers_of_weekdays_and_days_with_weekdays_mean_something_else() -> None:
    shown("`day_of_week=0` is Monday", "both to match, cron and Horae either")
    end = START + timedelta(days=60)
    mondays = fired(CronTrigger(day_of_week=0, timezone=UTC), START, end)
    assert {each.strftime("%a") for each in mondays} == {"Mon"}
    assert fired(CronTrigger.from_crontab("0 0 * * 0", timezone=UTC), START, end) == mondays
    assert {each.strftime("%a") for each in Cron("0 0 * * 0").between(START, end)} == {"Sun"}
    both = fired(CronTrigger(day="13", day_of_week="fri", timezone=UTC), START, START + timedelta(days=365))
    assert {(each.day, each.strftime("%a")) for each in both} == {(13, "Fri")}
    assert len(list(Cron("0 0 13 * fri").between(START, end))) > len(both)


# ---- what a scheduler does with times that are late ------------------------------------------------------------------


class Endless(BaseExecutor):  # type: ignore[misc]  # it has no types
    """Takes jobs and never ends one."""

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None: ...


@pytest.fixture
def scheduler() -> Iterator[Callable[..., tuple[Any, list[Any]]]]:
    """Makes a real scheduler whose own thread stands still, with the events that it tells."""
    made: list[Any] = []

    def make(executor: Any) -> tuple[Any, list[Any]]:
        found = BackgroundScheduler(executors={"default": executor}, timezone=UTC)
        told: list[Any] = []
        found.add_listener(told.append, EVENT_JOB_EXECUTED | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        found.start(paused=True)
        made.append(found)
        return found, told

    yield make
    for each in made:
        each.shutdown(wait=False)


def processed(scheduler: Any, **options: Any) -> None:
    """A job that was due at four times, an hour apart, the last half an hour ago; then a look at what is due."""
    first = datetime.now(UTC) - 3 * HOUR - timedelta(minutes=30)
    scheduler.add_job(int, "interval", hours=1, start_date=first, next_run_time=first, id="a", **options)
    scheduler.state = 1
    scheduler._process_jobs()
    scheduler.state = 2


def late(recovery: str, **options: Any) -> list[str]:
    """The states of the runs of an hourly job whose node slept over four of its times and another half an hour."""
    app = Horae("sqlite://")

    @app.job("a", Every("1h", start=START), recovery=recovery, **options)
    def work() -> None: ...

    async def main() -> list[str]:
        async with Simulation(app, start=START + timedelta(minutes=30)) as sim:
            await sim.jump(START + timedelta(hours=4, minutes=30))
            runs = await app.runs("a", limit=100)
            return [
                str(run.state) for run in sorted(runs, key=lambda run: run.scheduled_time) for _ in range(run.count)
            ]

    return asyncio.run(main())


def test_coalesce_runs_the_newest_of_the_missed_times_and_without_it_all_of_them(scheduler: Any) -> None:
    shown("`coalesce=True`", '`recovery="last"`, the default', "`coalesce=False`", '`recovery="all"`')
    for coalesce, expected in ((True, 1), (False, 4)):
        theirs, told = scheduler(DebugExecutor())
        processed(theirs, coalesce=coalesce, misfire_grace_time=None)
        assert [each.code for each in told] == [EVENT_JOB_EXECUTED] * expected
    assert late("last").count("COMPLETED") == 1
    assert late("last")[-1] == "COMPLETED"
    assert late("all") == ["COMPLETED"] * 4


def test_a_time_that_is_later_than_the_grace_is_missed_and_both_tell_of_it(scheduler: Any) -> None:
    shown("misfire_grace_time=60", 'misfire_grace="60s", recovery="none"', "EVENT_JOB_MISSED", "RunPassed")
    shown('@app.on_complete(states={"MISSED"})', "report.run.covers_from")
    theirs, told = scheduler(DebugExecutor())
    processed(theirs, coalesce=False, misfire_grace_time=60)
    assert [each.code for each in told] == [EVENT_JOB_MISSED] * 4
    assert late("none", misfire_grace="60s") == ["MISSED"] * 4
    app = Horae("sqlite://")
    passed: list[RunPassed] = []
    app.events.listen(passed.append, RunPassed)

    missed: list[RunReport] = []

    @app.on_complete(states={"MISSED"})
    def tell(report: RunReport) -> None:
        missed.append(report)

    @app.job("a", Every("1h", start=START), recovery="none")
    def work() -> None: ...

    async def main() -> None:
        async with Simulation(app, start=START + timedelta(minutes=30)) as sim:
            await sim.jump(START + timedelta(hours=4, minutes=30))

    asyncio.run(main())
    assert [(each.job, each.state) for each in passed for _ in range(each.count)] == [("a", "MISSED")] * 4
    assert [(each.run.job_name, str(each.state)) for each in missed] == [("a", "MISSED")] * 4


@pytest.mark.parametrize("most", [1, 3])
def test_what_is_beyond_max_instances_is_skipped_there_and_skipped_or_waits_here(scheduler: Any, most: int) -> None:
    shown("max_instances=1", 'overlap="skip"', "max_instances=3", 'overlap="allow", max_concurrent=3', "waits")
    shown("EVENT_JOB_MAX_INSTANCES", 'states={"SKIPPED"}')
    theirs, told = scheduler(Endless())
    theirs.add_job(int, "interval", hours=1, id="a", max_instances=most, misfire_grace_time=None, coalesce=True)
    job = theirs.get_job("a")
    theirs.state = 1
    for _ in range(most + 1):
        job.modify(next_run_time=datetime.now(UTC))
        theirs._process_jobs()
    theirs.state = 2
    assert [each.code for each in told] == [EVENT_JOB_MAX_INSTANCES]

    app = Horae("sqlite://")
    skipped: list[RunReport] = []

    @app.on_complete(states={"SKIPPED"})
    def tell(report: RunReport) -> None:
        skipped.append(report)

    policies: dict[str, Any] = {"overlap": "skip"} if most == 1 else {"overlap": "allow", "max_concurrent": most}

    @app.job("a", Every("1h", start=START), **policies)
    async def work() -> None:
        await asyncio.sleep(86_400)

    async def main() -> list[str]:
        async with Simulation(app, start=START) as sim:
            await sim.advance(timedelta(hours=most + 1))
            return sorted(str(run.state) for run in await app.runs("a"))

    ours = asyncio.run(main())
    assert len(skipped) == ours.count("SKIPPED")
    assert ours == (["RUNNING", "SKIPPED"] if most == 1 else ["PENDING", *["RUNNING"] * most])


def test_every_row_about_times_is_looked_at_here() -> None:
    rows = re.findall(r"^\| (.+?) \|", PAGE, re.MULTILINE)[2:]
    looked_at = [theirs for theirs, *_ in SAME]
    looked_at += ['day="2nd sun"', "coalesce=", "max_instances=", "misfire_grace_time=", "EVENT_JOB_MISSED"]
    looked_at += ["EVENT_JOB_MAX_INSTANCES"]
    others = ("Scheduler", '"date"', "pause_job", "ProcessPool", "jitter=", "EVENT_JOB_ERROR")
    assert [row for row in rows if not any(part in row for part in (*looked_at, *others))] == []
