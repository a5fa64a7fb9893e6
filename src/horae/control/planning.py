"""A plan: what is wanted against the catalog, as a diff of the future. Reads only; `applying` does what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from horae.control.comparing import Comparison, compare, durations, job_view, prospects, update_of
from horae.control.doctor import Finding, Having, live
from horae.control.objections import objections
from horae.control.planned import CHANGED, CREATED, REMOVED, JobChange, Loads, Plan
from horae.control.queries import PAGE
from horae.core.duration import parse_duration
from horae.core.forecast import Outlook, Owed, changed_view, look_ahead, owed
from horae.core.instant import seconds_of
from horae.core.lifecycle import JobState, RunState
from horae.core.slot import JobView, defined_late
from horae.core.update import Update, parse_update
from horae.core.wanted import Wanted
from horae.errors import InvalidInput, shown
from horae.store.board import RunsAsked
from horae.store.port import JobRecord

if TYPE_CHECKING:
    from horae.control.service import Service

HORIZON = timedelta(days=7)
LONGEST_HORIZON = timedelta(days=3660)
FROM_HISTORY = "from-history"
ASSUMED = 60.0
"""Seconds that runs are taken to last of which nothing is known."""
LOOKED_AT = 20_000
"""Runs of the past that tell how long runs take."""
MOST_OWING = 1_000
MOST_RUNNING = 1_000
_NAMED = 5

Told = Callable[[str, int, int], None]
"""Told how far it is: with what, how many, of how many."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How a plan is to be made. `update` None: as each job says. `seconds` None: runs take as long as they did."""

    update: Update | None = None
    prune: bool = False
    horizon: timedelta = HORIZON
    seconds: float | None = None


def asked_plan(
    *, update_policy: object = None, prune: bool = False, horizon: object = None, durations_from: str = FROM_HISTORY
) -> Asked:
    """The options as people write them. Raises InvalidInput and its like."""
    length = HORIZON if horizon is None else parse_duration(horizon, name="horizon")  # type: ignore[arg-type]  # checked there
    if not timedelta(0) < length <= LONGEST_HORIZON:
        raise InvalidInput(f"Invalid horizon {shown(horizon)}: it must be more than nothing, and at most ten years")
    update = None if update_policy is None else parse_update(update_policy)
    return Asked(update, prune, length, durations(durations_from))


@dataclass(frozen=True, slots=True)
class Read:
    """What of the catalog a plan is made on: the jobs that whoever asks may see, by name."""

    jobs: Mapping[str, JobRecord]
    hidden: frozenset[str]
    pools: Mapping[str, int]
    now: datetime


async def read_catalog(service: Service, wanted: Wanted, told: Told | None = None) -> Read:
    now = await service.now()
    jobs: dict[str, JobRecord] = {}
    after = None
    gate = service.gate
    while True:
        page = await service.store.jobs(after=after, limit=PAGE)
        jobs |= {job.name: job for job in page if gate.may_see(job.name, job.owner)}
        if told is not None:
            told("jobs read", len(jobs), max(len(jobs), len(wanted.specs)))
        if len(page) < PAGE:
            break
        after = page[-1].name
    hidden = set[str]()
    if gate.seen() is not None:
        hidden = await _present(service, [spec.name for spec in wanted.specs if spec.name not in jobs])
    return Read(jobs, frozenset(hidden), await service.store.pools(), now)


async def _present(service: Service, names: list[str]) -> set[str]:
    """Those names that jobs have, whoever may see them."""
    found: set[str] = set()
    for index in range(0, len(names), PAGE):
        found |= {job.name for job in await service.store.jobs(names[index : index + PAGE])}
    return found


async def plan_changes(service: Service, wanted: Wanted, asked: Asked, told: Told | None = None) -> Plan:
    """What applying `wanted` would do, and what that does to the future. Nothing is written."""
    read = await read_catalog(service, wanted, told)
    compared = await asyncio.to_thread(compared_with, wanted, read, asked)
    lengths = {} if asked.seconds is not None else await _lengths(service)
    nodes = await service.store.nodes()
    running = await service.views.list_runs(RunsAsked(states=frozenset({RunState.RUNNING}), limit=MOST_RUNNING))
    needed = {other for each in compared.changing for other in each.spec.depends_on}
    known = {"pools": read.pools, "jobs": await _present(service, sorted(needed - read.jobs.keys()))}
    have = Having(live(nodes))
    found = await objections(service.store, service.gate, wanted, compared, read.jobs, known, have, read.now)
    outlook, debts = await asyncio.to_thread(_looked_ahead, compared, read, lengths, asked, told)
    otherwise = ASSUMED if asked.seconds is None else asked.seconds
    names = {**read.jobs, **compared.expected}.keys() - {job.name for job in compared.removed}
    return Plan(
        id=compared.number,
        now=read.now,
        until=outlook.until,
        is_cut=outlook.until < _end(read.now, asked),
        policy=None if asked.update is None else str(asked.update),
        prune=asked.prune,
        jobs=_jobs(compared, outlook, asked, read.now),
        unchanged=compared.unchanged,
        pools=compared.pools,
        load=Loads(
            outlook.before,
            outlook.after,
            outlook.load_until,
            len(names),
            0 if asked.seconds is not None else sum(name not in lengths for name in names),
            otherwise,
            outlook.load_until < _end(read.now, asked),
        ),
        owed=debts,
        findings=(*found, *_unasked(outlook)),
        notes=tuple(_notes(wanted, compared, read, have)),
        running=len(running),
        running_more=len(running) >= MOST_RUNNING,
        concerned=compared.concerned,
    )


def without_looking(asked: Asked) -> Asked:
    """The same plan with nothing seen of the future, for those who only apply it: its number does not tell how far
    somebody looked."""
    return replace(asked, horizon=timedelta(seconds=1), seconds=ASSUMED)


def compared_with(wanted: Wanted, read: Read, asked: Asked) -> Comparison:
    return compare(wanted, read.jobs, read.hidden, read.pools, update=asked.update, prune=asked.prune, now=read.now)


def _end(now: datetime, asked: Asked) -> datetime:
    end: datetime = now + asked.horizon
    seconds_of(end, "horizon")
    return end


async def _lengths(service: Service) -> dict[str, float]:
    """How long runs of each job took lately, in seconds; the middle one of them."""
    took: dict[str, list[float]] = {}
    for run in await service.views.pace(LOOKED_AT):
        if run.seconds is not None:
            took.setdefault(run.job_name, []).append(run.seconds)
    return {name: sorted(each)[len(each) // 2] for name, each in took.items()}


def _looked_ahead(
    compared: Comparison, read: Read, lengths: Mapping[str, float], asked: Asked, told: Told | None
) -> tuple[Outlook, tuple[Owed, ...]]:
    otherwise = ASSUMED if asked.seconds is None else asked.seconds
    both = prospects(compared, read.jobs, lengths, otherwise, update=asked.update, now=read.now)

    def tell(done: int) -> None:
        if told is not None:
            told("jobs looked at", done // 2, len(both))

    outlook = look_ahead(both, read.now, _end(read.now, asked), tell)
    return outlook, tuple(_debts(compared, read))


def _debts(compared: Comparison, read: Read) -> list[Owed]:
    """What is owed now, which the change does not take away: of jobs whose time has come and that nobody planned, and
    of new jobs whose only slot has passed."""
    found = []
    waiting = [job for job in read.jobs.values() if job.wake_at is not None and job.wake_at <= read.now]
    for job in waiting[:MOST_OWING]:
        view = job_view(job)
        if view is not None:
            own = job.definition.spec.schedule
            late = own is not None and defined_late(own, job.created_at)
            found.append(_debt(replace(view, first_seen=late), read.now))
    for each in compared.changing:
        schedule = each.spec.schedule
        if each.present is None and schedule is not None and defined_late(schedule, read.now):
            view = changed_view(None, each.name, schedule, each.settings, each.spec.state, read.now, Update())
            first = schedule.next(datetime.min.replace(tzinfo=read.now.tzinfo))
            if view is not None and first is not None:
                behind = replace(view, planned_until=first - timedelta(seconds=1), first_seen=True)
                found.append(_debt(behind, read.now))
    return [each for each in found if each is not None]


def _debt(view: JobView, now: datetime) -> Owed | None:
    try:
        return owed(view, now)
    except Exception:  # noqa: BLE001 - a user's own schedule may raise anything; that is told by its own finding
        return None


# ---- what is told ----------------------------------------------------------------------------------------------------


def _jobs(compared: Comparison, outlook: Outlook, asked: Asked, now: datetime) -> tuple[JobChange, ...]:
    found = []
    for each in compared.changing:
        update = update_of(each, asked.update)
        switch = None
        if each.present is not None and update.policy == "graceful" and each.name not in outlook.unasked:
            switch = update.switch_at(each.present.schedule, now)
        found.append(
            JobChange(
                each.name,
                CREATED if each.present is None else CHANGED,
                each.version,
                each.spec.namespace,
                str(each.spec.state),
                str(update),
                each.changes,
                outlook.forecasts.get(each.name),
                switch,
                None if each.spec.schedule is None else str(each.spec.schedule),
            )
        )
    for job in compared.removed:
        namespace = job.definition.spec.namespace
        forecast = outlook.forecasts.get(job.name)
        said = None if job.schedule is None else str(job.schedule)
        state = str(job.state)
        found.append(JobChange(job.name, REMOVED, job.version, namespace, state, forecast=forecast, schedule=said))
    return tuple(sorted(found, key=lambda each: each.name))


def _unasked(outlook: Outlook) -> list[Finding]:
    return [
        Finding(
            "warning",
            name,
            f"The schedule of job {shown(name)} cannot be asked here: {reason}",
            "Plan where its module can be imported, to see its occurrences.",
        )
        for name, reason in sorted(outlook.unasked.items())
    ]


def _notes(wanted: Wanted, compared: Comparison, read: Read, have: Having) -> list[str]:
    found = []
    by_state: dict[JobState, list[str]] = {}
    for spec in wanted.specs:
        job = read.jobs.get(spec.name)
        if job is not None and spec.name not in wanted.stated and job.state is not JobState.ENABLED:
            by_state.setdefault(job.state, []).append(spec.name)
    for state, names in sorted(by_state.items()):
        stays, whose = ("stays", "its") if len(names) == 1 else ("stay", "their")
        found.append(f"{_listed(names)} {stays} {state}: {whose} state is not said")
    given = [each for each in compared.changing if each.present is not None and each.spec.owner is None]
    others = [each.name for each in given if each.present is not None and each.present.owner != "local"]
    if others:
        found.append(f"{_listed(others)} {'keeps its owner' if len(others) == 1 else 'keep their owners'}")
    overdue = sum(job.wake_at is not None and job.wake_at <= read.now for job in read.jobs.values())
    if overdue > MOST_OWING:
        found.append(f"of {overdue} jobs that nobody has planned, what {MOST_OWING} owe was looked at")
    if compared.changing and not have.is_known:
        found.append("no node is alive, or none says all that it has: whether the work can be done is not known")
    return found


def _listed(names: list[str]) -> str:
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left} more" if left > 0 else "")
