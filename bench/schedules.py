"""`Cron.next` against cronsim, croniter and APScheduler's CronTrigger; `between` over a year."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

from bench.timing import microseconds, race, table
from horae import Cron

CASES = [
    ("*/5 * * * *", "UTC", 5.0),
    ("0 9 * * 1-5", "UTC", 10.0),
    ("0 0 29 2 *", "UTC", 10.0),
    ("15 3 1,15 * 1", "UTC", 10.0),
    ("30 2 * * *", "Europe/Berlin", 5.0),
]
"""Expression, zone, and how many times faster than cronsim it has to be."""

STEPS = 100
START = datetime(2026, 11, 15, 10, 3, tzinfo=UTC)


def ours(expression: str, zone: str) -> Callable[[], int]:
    cron = Cron(expression, tz=zone)

    def run() -> int:
        at: datetime | None = START
        for _ in range(STEPS):
            assert at is not None
            at = cron.next(at)
        return STEPS

    return run


def cronsim(expression: str, zone: str) -> Callable[[], int]:
    start = START.astimezone(ZoneInfo(zone))

    def run() -> int:
        times = CronSim(expression, start)
        for _ in range(STEPS):
            next(times)
        return STEPS

    return run


def with_croniter(expression: str, zone: str) -> Callable[[], int]:
    start = START.astimezone(ZoneInfo(zone))

    def run() -> int:
        times = croniter(expression, start)
        for _ in range(STEPS):
            times.get_next(datetime)
        return STEPS

    return run


def apscheduler(expression: str, zone: str) -> Callable[[], int]:
    trigger = CronTrigger.from_crontab(expression, timezone=ZoneInfo(zone))
    start = START.astimezone(ZoneInfo(zone))

    def run() -> int:
        at = start
        for _ in range(STEPS):
            at = trigger.get_next_fire_time(at, at)
        return STEPS

    return run


def next_table() -> tuple[str, list[str]]:
    """The table, and what fell short of its target."""
    rows, short, own = [], [], []
    for expression, zone, target in CASES:
        took = race(
            {
                "horae": ours(expression, zone),
                "cronsim": cronsim(expression, zone),
                "croniter": with_croniter(expression, zone),
                "APScheduler": apscheduler(expression, zone),
            }
        )
        own.append(took["horae"])
        times = {name: spent / took["horae"] for name, spent in took.items()}
        peers = [f"{microseconds(took[name])} ({times[name]:.0f}x)" for name in ("cronsim", "croniter", "APScheduler")]
        rows.append([f"`{expression}` {zone}", microseconds(took["horae"]), *peers])
        if times["cronsim"] < target:
            short.append(f"{expression} {zone}: {times['cronsim']:.1f}x cronsim, target {target:.0f}x")
        if times["croniter"] < 20:
            short.append(f"{expression} {zone}: {times['croniter']:.1f}x croniter, target 20x")
    spread = max(own[:4]) / min(own[:4])
    if spread > 5:
        short.append(f"rarest expression {spread:.1f}x the densest, target at most 5x")
    heading = table(["next occurrence of", "Horae", "cronsim 2.8", "croniter 6.2", "APScheduler 3.11"], rows)
    return f"{heading}\n\nSlowest UTC expression against the fastest: {spread:.1f}x.", short


def between_table() -> tuple[str, list[str]]:
    year = START + timedelta(days=365)
    contenders: dict[str, Callable[[], int]] = {}
    for zone in ("UTC", "Europe/Berlin"):
        cron = Cron("*/5 * * * *", tz=zone)
        contenders[zone] = lambda cron=cron: sum(1 for _ in cron.between(START, year))  # type: ignore[misc]  # bound now
    took = race(contenders, rounds=5)
    rows = [[zone, f"{1 / spent / 1e6:.1f} million/s"] for zone, spent in took.items()]
    short = [f"between in {zone}: {1 / spent / 1e6:.2f} M/s" for zone, spent in took.items() if 1 / spent < 1.5e6]
    return table(["`between` over a year of `*/5 * * * *`", "occurrences"], rows), short
