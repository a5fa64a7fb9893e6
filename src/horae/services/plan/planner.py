"""The planner: compares a desired state with a catalog, and forecasts what the change does.

It only reads. `applier` applies plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from horae.core.access import Privilege
from horae.core.change.forecast import JobForecasts, forecast_jobs
from horae.core.change.update_policy import Update, parse_update
from horae.core.run.lifecycle import RunState
from horae.core.run.unserved import UnservedSlots
from horae.core.time.duration import parse_duration
from horae.core.time.instant import seconds_of
from horae.errors import InvalidInput, shown
from horae.services.calculator import Calculate, in_thread
from horae.services.doctor.doctor import DoctorFinding, LiveHandlers
from horae.services.doctor.former_timeouts import former_timeouts
from horae.services.plan.comparison import ASSUMED, Comparison, compare, durations, prospects, update_of
from horae.services.plan.desired_state import DesiredState
from horae.services.plan.objections import objections
from horae.services.plan.records import CHANGED, CREATED, REMOVED, JobChange, Plan, PlanLoads
from horae.services.plan.remarks import forecast_findings, missed_times, notes, notes_of_slots
from horae.services.queries import PAGE
from horae.services.views import JobsQuery
from horae.store.protocols.reads import RunsQuery
from horae.store.protocols.store import JobRecord, RunRecord

if TYPE_CHECKING:
    from horae.services.service import Service

HORIZON = timedelta(days=7)
LONGEST_HORIZON = timedelta(days=3660)
FROM_HISTORY = "from-history"
LOOKED_AT = 20_000
"""Past runs that are read for how long runs take."""
MOST_RUNNING = 1_000

ProgressCallback = Callable[[str, int, int], None]
"""Progress callback: the unit that is counted, how many are done, of how many."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of a plan. `update` None: each job's own policy. `seconds` is how long runs last; None: as long as they
    did."""

    update: Update | None = None
    prune: bool = False
    horizon: timedelta = HORIZON
    seconds: float | None = None


def parse_plan_options(
    *, update_policy: object = None, prune: bool = False, horizon: object = None, durations_from: str = FROM_HISTORY
) -> PlanOptions:
    """Parses the options as users write them. Raises InvalidInput, InvalidDuration, InvalidPolicy."""
    length = HORIZON if horizon is None else parse_duration(horizon, name="horizon")  # type: ignore[arg-type]  # checked there
    if not timedelta(0) < length <= LONGEST_HORIZON:
        raise InvalidInput(f"Invalid horizon {shown(horizon)}: it must be more than nothing, and at most ten years")
    update = None if update_policy is None else parse_update(update_policy)
    return PlanOptions(update, prune, length, durations(durations_from))


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The catalog's state that a plan is made of. `jobs` are those that the caller may see, by name. `hidden` are
    desired names that belong to jobs that the caller may not see."""

    jobs: Mapping[str, JobRecord]
    hidden: frozenset[str]
    pools: Mapping[str, int]
    now: datetime
    sees_limits: bool = True
    """Whether the caller may know the limits of pools."""


async def read_catalog(service: Service, wanted: DesiredState, told: ProgressCallback | None = None) -> CatalogSnapshot:
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
    return CatalogSnapshot(jobs, frozenset(hidden), await service.store.pools(), now, gate.is_open)


async def _present(service: Service, names: list[str]) -> set[str]:
    """Returns the names that belong to jobs, whether or not the caller may see them."""
    found: set[str] = set()
    for index in range(0, len(names), PAGE):
        found |= {job.name for job in await service.store.jobs(names[index : index + PAGE])}
    return found


async def require_planner(service: Service, action: str) -> None:
    """Checks that the caller may create jobs, or may see at least one job. Raises AccessDenied. Nothing is read for
    callers who may create jobs or see all of them."""
    if service.gate.holds(Privilege.CREATE_JOB) or service.gate.holds(Privilege.VIEW_JOB_HISTORY):
        return
    if service.who.is_enabled and (await service.views.list_jobs(JobsQuery(limit=1))).total:
        return
    await service.gate.require(Privilege.CREATE_JOB, action=action)


async def plan_changes(
    service: Service,
    wanted: DesiredState,
    asked: PlanOptions,
    told: ProgressCallback | None = None,
    calculate: Calculate = in_thread,
) -> Plan:
    """Returns what applying `wanted` would do, and its effect on runs to come. Writes nothing. Pass `told` only where
    `calculate` runs in this process."""
    read = await read_catalog(service, wanted, told)
    compared = await calculate(compared_with, wanted, read, asked)
    lengths = {} if asked.seconds is not None else await _lengths(service)
    nodes = await service.store.nodes()
    running = await service.views.list_runs(RunsQuery(states=frozenset({RunState.RUNNING}), limit=MOST_RUNNING))
    needed = {other for each in compared.changing for other in each.spec.depends_on}
    known = {"pools": read.pools, "jobs": await _present(service, sorted(needed - read.jobs.keys()))}
    have = LiveHandlers([node for node in nodes if node.is_live])
    gate = service.gate
    found = await objections(service.store, gate, wanted, compared, read.jobs, known, have, read.now, calculate)
    waiting = await _waiting(service, read)
    former = await former_timeouts(service.store, read.jobs)
    seen = await calculate(forecast_plan, compared, read, waiting, lengths, asked, told)
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
        load=PlanLoads(
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


def without_forecast(asked: PlanOptions) -> PlanOptions:
    """Returns the options of the same plan without a forecast, for callers that only apply it. The plan's id does not
    depend on the horizon."""
    return replace(asked, horizon=timedelta(seconds=1), seconds=ASSUMED)


def compared_with(wanted: DesiredState, read: CatalogSnapshot, asked: PlanOptions) -> Comparison:
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


def _end(now: datetime, asked: PlanOptions) -> datetime:
    end: datetime = now + asked.horizon
    seconds_of(end, "horizon")
    return end


async def _lengths(service: Service) -> dict[str, float]:
    """Returns by job the median length of its latest runs, in seconds."""
    took: dict[str, list[float]] = {}
    for run in await service.views.pace(LOOKED_AT):
        if run.seconds is not None:
            took.setdefault(run.job_name, []).append(run.seconds)
    return {name: sorted(each)[len(each) // 2] for name, each in took.items()}


async def _waiting(service: Service, read: CatalogSnapshot) -> dict[str, list[RunRecord]]:
    """Returns by job the runs that were created and have not started."""
    found: dict[str, list[RunRecord]] = {}
    if any(job.planned_until > read.now for job in read.jobs.values()):
        for run in await service.store.runs(state=RunState.PENDING, limit=LOOKED_AT):
            if run.job_name in read.jobs:
                found.setdefault(run.job_name, []).append(run)
    return found


@dataclass(frozen=True, slots=True)
class _PlanForecast:
    """The forecast. `switches` are by job the times up to which earlier versions still hold."""

    outlook: JobForecasts
    owed: tuple[UnservedSlots, ...]
    switches: Mapping[str, datetime]
    findings: tuple[DoctorFinding, ...]
    notes: tuple[str, ...]


def forecast_plan(
    compared: Comparison,
    read: CatalogSnapshot,
    waiting: Mapping[str, Sequence[RunRecord]],
    lengths: Mapping[str, float],
    asked: PlanOptions,
    told: ProgressCallback | None,
) -> _PlanForecast:
    both = prospects(compared, read.jobs, waiting, lengths, asked.seconds, update=asked.update, now=read.now)
    switches = {
        each.name: each.after.former[-1].until
        for each in both
        if each.is_changed and each.after is not None and each.after.former
    }

    def tell(done: int) -> None:
        if told is not None:
            told("jobs looked at", done // 2, len(both))

    outlook = forecast_jobs(both, read.now, _end(read.now, asked), tell)
    return _PlanForecast(
        outlook,
        tuple(missed_times(read.jobs.values(), read.now)),
        switches,
        tuple(forecast_findings(outlook, compared, read.now)),
        tuple(notes_of_slots(compared, both, read.now)),
    )


# ---- records of the plan ---------------------------------------------------------------------------------------------


def _jobs(compared: Comparison, seen: _PlanForecast, asked: PlanOptions) -> tuple[JobChange, ...]:
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
