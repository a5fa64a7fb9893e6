"""A plan: what is wanted against the catalog, as a diff of the future. Reads only; `applying` does what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from horae.control.calculator import Calculate, in_thread
from horae.control.comparing import ASSUMED, Comparison, compare, durations, prospects, update_of
from horae.control.doctor import Finding, Having
from horae.control.former_timeouts import former_timeouts
from horae.control.objections import objections
from horae.control.planned import CHANGED, CREATED, REMOVED, JobChange, Loads, Plan
from horae.control.queries import PAGE
from horae.control.remarks import debts, foreseen, notes, notes_of_slots
from horae.control.views import JobsAsked
from horae.core.access import Privilege
from horae.core.duration import parse_duration
from horae.core.forecast import Outlook, look_ahead
from horae.core.instant import seconds_of
from horae.core.lifecycle import RunState
from horae.core.owing import Owed
from horae.core.update import Update, parse_update
from horae.core.wanted import Wanted
from horae.errors import InvalidInput, shown
from horae.store.board import RunsAsked
from horae.store.port import JobRecord, RunRecord

if TYPE_CHECKING:
    from horae.control.service import Service

HORIZON = timedelta(days=7)
LONGEST_HORIZON = timedelta(days=3660)
FROM_HISTORY = "from-history"
LOOKED_AT = 20_000
"""Runs of the past that tell how long runs take."""
MOST_RUNNING = 1_000

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
    sees_limits: bool = True
    """Whether they are told what limits pools have."""


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
    return Read(jobs, frozenset(hidden), await service.store.pools(), now, gate.is_open)


async def _present(service: Service, names: list[str]) -> set[str]:
    """Those names that jobs have, whoever may see them."""
    found: set[str] = set()
    for index in range(0, len(names), PAGE):
        found |= {job.name for job in await service.store.jobs(names[index : index + PAGE])}
    return found


async def require_planner(service: Service, action: str) -> None:
    """Lets pass users who may create jobs or look at all of them, for whom nothing is read, and those who may look at
    one."""
    if service.gate.holds(Privilege.CREATE_JOB) or service.gate.holds(Privilege.VIEW_JOB_HISTORY):
        return
    if service.who.is_enabled and (await service.views.list_jobs(JobsAsked(limit=1))).total:
        return
    await service.gate.require(Privilege.CREATE_JOB, action=action)


async def plan_changes(
    service: Service, wanted: Wanted, asked: Asked, told: Told | None = None, calculate: Calculate = in_thread
) -> Plan:
    """What applying `wanted` would do, and what that does to the future. Nothing is written. `told` is for those who
    calculate in this process."""
    read = await read_catalog(service, wanted, told)
    compared = await calculate(compared_with, wanted, read, asked)
    lengths = {} if asked.seconds is not None else await _lengths(service)
    nodes = await service.store.nodes()
    running = await service.views.list_runs(RunsAsked(states=frozenset({RunState.RUNNING}), limit=MOST_RUNNING))
    needed = {other for each in compared.changing for other in each.spec.depends_on}
    known = {"pools": read.pools, "jobs": await _present(service, sorted(needed - read.jobs.keys()))}
    have = Having([node for node in nodes if node.is_live])
    gate = service.gate
    found = await objections(service.store, gate, wanted, compared, read.jobs, known, have, read.now, calculate)
    waiting = await _waiting(service, read)
    former = await former_timeouts(service.store, read.jobs)
    seen = await calculate(looked_ahead, compared, read, waiting, lengths, asked, told)
    outlook = seen.outlook
    otherwise = ASSUMED if asked.seconds is None else asked.seconds
    names = {**read.jobs, **compared.expected}.keys() - {job.name for job in compared.removed}
    return Plan(
        id=compared.number,
        now=read.now,
        until=outlook.until,
        is_cut=outlook.until < _end(read.now, asked),
        policy=None if asked.update is None else str(asked.update),
        prune=asked.prune,
        jobs=_jobs(compared, seen, asked),
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
        owed=seen.owed,
        findings=(*found, *seen.findings),
        notes=(*notes(wanted, compared, read.jobs, have, read.now), *seen.notes, *([former] if former else [])),
        running=len(running),
        running_more=len(running) >= MOST_RUNNING,
        concerned=compared.concerned,
    )


def without_looking(asked: Asked) -> Asked:
    """The same plan with nothing seen of the future, for those who only apply it: its number does not tell how far
    somebody looked."""
    return replace(asked, horizon=timedelta(seconds=1), seconds=ASSUMED)


def compared_with(wanted: Wanted, read: Read, asked: Asked) -> Comparison:
    return compare(
        wanted,
        read.jobs,
        read.hidden,
        read.pools,
        update=asked.update,
        prune=asked.prune,
        now=read.now,
        tells_limits=read.sees_limits,
    )


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


async def _waiting(service: Service, read: Read) -> dict[str, list[RunRecord]]:
    """The runs of these jobs that were born and have not started, by job."""
    found: dict[str, list[RunRecord]] = {}
    if any(job.planned_until > read.now for job in read.jobs.values()):
        for run in await service.store.runs(state=RunState.PENDING, limit=LOOKED_AT):
            if run.job_name in read.jobs:
                found.setdefault(run.job_name, []).append(run)
    return found


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is to come. `switches` are the moments up to which versions before still speak, by job."""

    outlook: Outlook
    owed: tuple[Owed, ...]
    switches: Mapping[str, datetime]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def looked_ahead(
    compared: Comparison,
    read: Read,
    waiting: Mapping[str, Sequence[RunRecord]],
    lengths: Mapping[str, float],
    asked: Asked,
    told: Told | None,
) -> _Seen:
    both = prospects(compared, read.jobs, waiting, lengths, asked.seconds, update=asked.update, now=read.now)
    switches = {
        each.name: each.after.former[-1].until
        for each in both
        if each.is_changed and each.after is not None and each.after.former
    }

    def tell(done: int) -> None:
        if told is not None:
            told("jobs looked at", done // 2, len(both))

    outlook = look_ahead(both, read.now, _end(read.now, asked), tell)
    return _Seen(
        outlook,
        tuple(debts(read.jobs.values(), read.now)),
        switches,
        tuple(foreseen(outlook, compared, read.now)),
        tuple(notes_of_slots(compared, both, read.now)),
    )


# ---- what is told ----------------------------------------------------------------------------------------------------


def _jobs(compared: Comparison, seen: _Seen, asked: Asked) -> tuple[JobChange, ...]:
    found = []
    outlook = seen.outlook
    for each in compared.changing:
        update = update_of(each, asked.update)
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
                seen.switches.get(each.name),
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
