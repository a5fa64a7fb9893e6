"""What tests of rehearsals share: jobs in one line, a span that begins at midnight, runs as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.schedules import Cron, Schedule
from horae.core.time.duration import parse_duration
from horae.simulate.draws import DrawOptions
from horae.simulate.engine import SimulatedSpan
from horae.simulate.jobs import JobHistory, SimulatedJob, SimulatedJobs
from horae.simulate.result import SimulationResult
from horae.simulate.simulate import play

START = datetime(2027, 3, 1, tzinfo=UTC)
HOURLY = "0 * * * *"


def part(
    name: str,
    schedule: str | Schedule = HOURLY,
    seconds: float | Iterable[float] = (),
    *,
    depends_on: Iterable[str] = (),
    tasks: Iterable[str] = ("work",),
    failed: tuple[int, int] = (0, 0),
    **settings: Any,
) -> SimulatedJob:
    """A job whose runs took `seconds` before; `failed` says how many of how many failed."""
    known = (float(seconds),) if isinstance(seconds, int | float) else tuple(seconds)
    spec = JobSpec(
        name,
        Cron(schedule) if isinstance(schedule, str) else schedule,
        tuple(TaskSpec(task, "shop.work", settings={}) for task in tasks),
        settings,
        depends_on=tuple(depends_on),
    )
    return SimulatedJob(spec, JobHistory(known, failed[1], failed[0]))


def span(length: str = "2h", slots: int = 50) -> SimulatedSpan:
    return SimulatedSpan(START, START + parse_duration(length), slots)


def played(
    *parts: SimulatedJob, length: str = "2h", slots: int = 50, pools: dict[str, int] | None = None, **given: Any
) -> SimulationResult:
    """What these jobs come to, without suggestions unless they are asked for."""
    chance = given.pop("chance", DrawOptions())
    given.setdefault("suggest", False)
    return play(SimulatedJobs(tuple(parts), pools or {}), span(length, slots), chance, **given)


def states(result: SimulationResult, job: str) -> dict[str, int]:
    return dict(next(each for each in result.jobs if each.job == job).states)


def clock(at: datetime) -> str:
    return f"{at:%H:%M}"


def later(duration: str) -> datetime:
    return START + timedelta(seconds=parse_duration(duration).total_seconds())
