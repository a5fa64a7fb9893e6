"""The doctor: checks a catalog without writing, and names each problem with the next step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from horae.core.clock_set_back import HINT, ClockLag
from horae.core.job.requirements import EXTERNAL, may_import, need_text
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.waiting_reason import WaitingFor
from horae.core.window.probability import HINT as EXACT_HINT
from horae.core.window.probability import narrow_odds
from horae.errors import HoraeError
from horae.services.doctor.environment import CatalogEnvironment, CheckResult, check_environment
from horae.services.doctor.former_timeouts import former_timeouts
from horae.services.explain.overrun_facts import OverlongRun, overlong_now
from horae.services.queries import Queries
from horae.services.service import ServiceCatalog
from horae.store.protocols.reads import HalfDeletedJob, RefusedRequest
from horae.store.protocols.store import HookRecord, JobRecord, NodeRecord, RunRecord, ThreadRecord

OVERDUE = timedelta(minutes=5)
UNDECIDED = timedelta(seconds=30)
SILENT = timedelta(minutes=1)
REFUSED = timedelta(days=7)
MOST_REFUSED = 5
MOST_EARLY = 5
LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One problem. `level` is error (something does not run) or warning (something may not run). `check` names the
    check that found it."""

    level: str
    subject: str
    message: str
    hint: str
    check: str = ""

    def to_dict(self) -> dict[str, str]:
        return {
            "level": self.level,
            "subject": self.subject,
            "message": self.message,
            "hint": self.hint,
            "check": self.check,
        }


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The findings, and in `checks` the result of each check in a few words. `nodes` counts live nodes, `waiting`
    counts runs that are due."""

    findings: tuple[DoctorFinding, ...]
    jobs: int
    nodes: int
    waiting: int
    checks: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        found = [each.to_dict() for each in self.findings]
        return {
            "findings": found,
            "jobs": self.jobs,
            "nodes": self.nodes,
            "waiting": self.waiting,
            "checks": dict(self.checks),
        }


async def examine(
    store: ServiceCatalog, around: CatalogEnvironment | None = None, more: Sequence[CheckResult] = ()
) -> DoctorReport:
    """Checks nodes, jobs, runs, and the environment of the catalog (`around`). `more` are checks that the caller has
    made."""
    jobs = await Queries(store).jobs()
    nodes = await store.nodes()
    alive = [node for node in nodes if node.is_live]
    waiting = await store.runs(state=RunState.PENDING, limit=LOOKED_AT)
    queued = await store.runs(state=RunState.QUEUED, limit=LOOKED_AT)
    running = await store.runs(state=RunState.RUNNING, limit=LOOKED_AT)
    now = await store.now()
    due = [run for run in waiting if run.not_before is not None and run.not_before <= now]
    late = [run for run in due if run.not_before is not None and now - run.not_before > OVERDUE]
    stuck = [*_of_running(running, jobs, nodes, now), *_of_overlong(await overlong_now(store, running))]
    checked = {
        "nodes": (f"{len(alive)} alive", [*_of_nodes(nodes, alive, jobs), *_of_silent(alive, now)]),
        "schedules": (
            f"{len(jobs)} jobs",
            [
                *_of_schedules(jobs),
                *_of_alarms(jobs),
                *_of_windows(jobs, now),
                *_of_half_deleted(await store.half_deleted(LOOKED_AT)),
            ],
        ),
        "tasks": (
            f"{len({each for job in jobs for each in job.definition.handlers})} needed",
            _of_handlers(jobs, alive, [*waiting, *queued]),
        ),
        "slots": await _of_slots(store),
        "cursors": _of_cursors(await store.set_back()),
        "waiting": (f"{len(due)} runs due, {len(late)} for long", _of_overdue(due, alive, late)),
        "running": (f"{len(running)} runs", [*stuck, *_of_threads(await store.threads())]),
        "requests": _of_refusals(await store.refusals(now - REFUSED, MOST_REFUSED)),
        "hooks": _of_hooks(await store.hooks(), alive),
        "timeouts": await _of_timeouts(store, jobs),
    }
    findings = [replace(each, check=name) for name, (_, found) in checked.items() for each in found]
    checks = {name: said for name, (said, _) in checked.items()}
    for each in [*more, *await check_environment(store, around or CatalogEnvironment(), jobs)]:
        checks[each.name] = each.said
        findings += [
            DoctorFinding(fault.level, fault.subject, fault.message, fault.hint, each.name) for fault in each.faults
        ]
    findings.sort(key=lambda each: (each.level, each.subject))
    return DoctorReport(tuple(findings), len(jobs), len(alive), len(due), checks)


class LiveHandlers:
    """The handlers and other abilities that live nodes report, named as in `core.job.requirements`."""

    def __init__(self, alive: Sequence[NodeRecord]) -> None:
        self._alive = alive
        self._known = {handler for node in alive for handler in node.details.get("handlers", ())}
        # A node with very many handlers reports only some of them.
        self.is_known = bool(alive) and all(node.handlers is not None for node in alive)

    def hint(self, need: str) -> str:
        """Returns how to give a live node an ability that is missing."""
        unsafe = next((node.sandbox for node in self._alive if node.sandbox is not None), None)
        return unsafe if need == EXTERNAL and unsafe is not None else need_text(need)[1]

    def lacking(self, needs: Iterable[str]) -> set[str]:
        """Returns the abilities that no live node has at present; none where that is unknown."""
        return set(needs) - self._known if self.is_known else set()

    def missing(self, needs: Iterable[str], defined_at: datetime) -> list[str]:
        """Returns the abilities that no live node has or may come to have, sorted; none where that is unknown. A node
        that may import a handler, and joined before the job was defined, imports it when a run waits."""
        lacking = self.lacking(needs)
        if not lacking:
            return []
        later = [
            each for node in self._alive if node.started_at < defined_at for each in node.details.get("modules", ())
        ]
        return sorted(need for need in lacking if not may_import(need, later))


async def _of_timeouts(store: ServiceCatalog, jobs: Sequence[JobRecord]) -> tuple[str, list[DoctorFinding]]:
    # The placeholder of an unreadable definition has no timeout.
    readable = [job for job in jobs if job.definition.fault is None]
    limited = sum(job.definition.settings.execution_timeout is not None for job in readable)
    said = f"{limited} of {len(readable)} jobs have one"
    former = await former_timeouts(store, {job.name: job for job in readable})
    if former is None:
        return said, []
    hint = "Runs that last unusually long are named here, in the log and by health, whether they have a timeout or not."
    return said, [DoctorFinding("warning", "timeouts", f"Jobs have {former}", hint)]


async def _of_slots(store: ServiceCatalog) -> tuple[str, list[DoctorFinding]]:
    overdue = await store.overdue(UNDECIDED)
    if not overdue.undecided:
        return "all decided", []
    since = overdue.oldest_undecided
    message = f"{overdue.undecided} jobs are due and nobody has planned them" + (
        "" if since is None else f", {overdue.undecided_job} since {since:%Y-%m-%d %H:%M:%S} UTC"
    )
    hint = "Nodes that are alive plan what is due: look at their logs, and whether the database is slow."
    return f"{overdue.undecided} overdue", [DoctorFinding("error", overdue.undecided_job or "slots", message, hint)]


def _of_cursors(found: ClockLag) -> tuple[str, list[DoctorFinding]]:
    """Reports jobs whose runs were created by a clock that was ahead."""
    findings = [DoctorFinding("warning", job.name, f"I{str(job)[1:]}", HINT) for job in found.jobs[:MOST_EARLY]]
    return f"{found.ahead} ahead of the clock" if found.ahead else "none is ahead of the clock", findings


def _of_hooks(hooks: Sequence[HookRecord], alive: Sequence[NodeRecord]) -> tuple[str, list[DoctorFinding]]:
    """Reports hooks that no live node has and that ended runs wait for."""
    had = {each for node in alive for each in node.details.get("hooks", ())}
    lacking = [each for each in hooks if each.waiting and each.hook.hook_id not in had]
    findings = [
        DoctorFinding(
            "warning",
            each.hook.hook_id,
            f"{each.waiting} ended runs wait for the hook {each.hook.hook_id}, which no live node has"
            + ("" if each.oldest is None else f", the oldest since {each.oldest:%Y-%m-%d %H:%M:%S} UTC"),
            "Start a node whose program registers it with on_complete. What waits is kept for 7 days.",
        )
        for each in lacking
    ]
    return f"{len(hooks)} known, {sum(each.waiting for each in lacking)} ends wait", findings


def _of_running(
    running: Sequence[RunRecord], jobs: Sequence[JobRecord], nodes: Sequence[NodeRecord], now: datetime
) -> list[DoctorFinding]:
    """Reports runs that should have ended, and runs whose node is dead. A run may last twice its timeout, because it
    may have been parked in between."""
    limits = {job.name: job.definition.settings.execution_timeout for job in jobs}
    graces = {job.name: job.definition.settings.cancel_grace for job in jobs}
    dead = {node.node for node in nodes if node.state == "DEAD"}
    found = []
    for run in running:
        limit = limits.get(run.job_name)
        if run.owner in dead:
            hint = "Any node that lives takes it over within half a minute; start one if there is none."
            found.append(DoctorFinding("warning", run.job_name, f"{run.run_id} belongs to a node that is dead", hint))
        elif limit is not None and run.started_at is not None:
            lasted = now - run.started_at
            if lasted > 2 * limit + graces[run.job_name] + OVERDUE:
                message = f"{run.run_id} has been running for {lasted}, and may for {limit}"
                hint = f"End it: horae run cancel {run.run_id}. A thread that does not stop ends with its process."
                found.append(DoctorFinding("warning", run.job_name, message, hint))
    return found


def _of_threads(threads: Sequence[ThreadRecord]) -> list[DoctorFinding]:
    """Reports threads that still work although their attempt has ended: they hold up the next runs of their jobs."""
    hint = 'Have the task call run.check_cancelled(), or give it isolation="process": a process can be killed.'
    return [
        DoctorFinding(
            "warning",
            thread.job_name,
            f"The thread of {thread.run_id} ({thread.task_name}, attempt {thread.number}) still works on node"
            f" {thread.node_name or thread.node}; its attempt ended {thread.since:%Y-%m-%d %H:%M:%S} UTC",
            hint,
        )
        for thread in threads
    ]


def _of_overlong(overlong: Sequence[OverlongRun]) -> list[DoctorFinding]:
    """Reports runs that last unusually long. A run of a job without a timeout is never ended."""
    hint = "Look at its output. End it by horae run cancel; give its job an execution_timeout if that should end it."
    return [
        DoctorFinding("warning", run.job, f"{run.run_id} lasts unusually long: {run.reason}", hint) for run in overlong
    ]


def _of_silent(alive: Sequence[NodeRecord], now: datetime) -> list[DoctorFinding]:
    """Reports nodes whose process holds its lock and sends no heartbeat: it hangs, or its clock and the store's
    differ."""
    return [
        DoctorFinding(
            "warning",
            node.name or node.node,
            f"This node has said nothing for {(now - node.heartbeat_at).total_seconds():.0f} s, and its process lives",
            "Look at its logs; a loop that is blocked by a task stops everything on that node.",
        )
        for node in alive
        if now - node.heartbeat_at > SILENT
    ]


def _of_nodes(
    nodes: Sequence[NodeRecord], alive: Sequence[NodeRecord], jobs: Sequence[JobRecord]
) -> list[DoctorFinding]:
    found = []
    if jobs and not alive:
        found.append(
            DoctorFinding(
                "error",
                "nodes",
                "No node is alive: nothing runs",
                "Start one: app.run() of the program that has the jobs.",
            )
        )
    for node in alive:
        if node.sandbox is not None:
            hint = "Their runs wait for `sandbox` until then; docs/external.md has what each sandbox needs."
            message = f"This node starts no programs: {node.sandbox}"
            found.append(DoctorFinding("error", node.name or node.node, message, hint))
    for node in nodes:
        if node.state == "ALIVE" and node.lock_free and node.running:
            named = node.name or node.node
            hint = "Any node that lives takes them over within half a minute; start one if there is none."
            found.append(
                DoctorFinding("warning", named, f"This node is gone; {node.running} of its runs wait for another", hint)
            )
    return found


def _of_windows(jobs: Sequence[JobRecord], now: datetime) -> list[DoctorFinding]:
    """Reports jobs whose constraints leave so little of their windows that draws may find no start."""
    found = []
    for job in jobs:
        odds = narrow_odds(job.name, job.definition.spec.schedule, job.definition.settings.window, now)
        if odds is not None:
            found.append(DoctorFinding("warning", job.name, f"A{str(odds)[1:]}", EXACT_HINT))
    return found


def _of_schedules(jobs: Sequence[JobRecord]) -> list[DoctorFinding]:
    found = []
    for job in jobs:
        if job.definition.fault is not None:
            message = f"Its definition, version {job.version}, cannot be read here: {job.definition.fault}"
            hint = f"Define the job anew, drop it (horae job drop {job.name}), or use the release that wrote it."
            found.append(DoctorFinding("error", job.name, message, hint))
        schedule = job.definition.spec.schedule
        try:
            if schedule is not None:
                schedule.next(job.planned_until)
        except HoraeError as error:
            hint = error.hint or "Make its module importable here, or define the job anew."
            found.append(DoctorFinding("error", job.name, f"Its schedule cannot be asked here: {error}", hint))
    return found


def _of_alarms(jobs: Sequence[JobRecord]) -> list[DoctorFinding]:
    """Reports enabled jobs that never fire: their schedules have times to come, but no `wake_at` makes a node look at
    them."""
    found = []
    for job in jobs:
        if job.state is not JobState.ENABLED or job.wake_at is not None or job.definition.fault is not None:
            continue
        try:
            following = None if job.schedule is None else job.schedule.next(job.planned_until)
        except HoraeError:
            continue
        if following is not None:
            message = (
                f"It never fires: it has no alarm (wake_at is NULL), and its next time is {following:%Y-%m-%d %H:%M:%S}"
                " UTC. Its row in sys.jobs was changed by hand"
            )
            hint = f"Enable it again, which sets the alarm: horae job enable {job.name}"
            found.append(DoctorFinding("error", job.name, message, hint))
    return found


def _of_refusals(refusals: Sequence[RefusedRequest]) -> tuple[str, list[DoctorFinding]]:
    """Reports recent requests through `cb_schedules` that were refused: their clients got no error."""
    asked = {"create": "INSERT", "drop": "DELETE"}
    findings = [
        DoctorFinding(
            "warning",
            each.name or "cb_schedules",
            f"{asked.get(each.field, f'UPDATE of {each.field}')} through cb_schedules by {each.by} was refused"
            f" {each.refused_at:%Y-%m-%d %H:%M:%S} UTC: {each.error}",
            "Nothing was changed: write it again as it should be. This is shown for 7 days.",
        )
        for each in refusals
    ]
    most = "at least " if len(refusals) == MOST_REFUSED else ""
    return f"{most}{len(refusals)} refused in 7 days", findings


def _of_half_deleted(left: Sequence[HalfDeletedJob]) -> list[DoctorFinding]:
    """Reports jobs whose row is gone, and whose versions or runs are not. Rows were deleted by hand before the catalog
    refused that, or while its triggers were off."""
    found = []
    for each in left:
        named = each.name or f"job {each.job_uuid}"
        message = f"Its row was deleted from sys.jobs by hand, and its versions and {each.runs} runs are left"
        if each.open_runs:
            message += f"; {each.open_runs} of the runs have not ended and go on without a job"
        hint = (
            "Define a job of that name again: it takes the next version and repeats no slot. To remove what is left,"
            f" drop it after that: horae job drop {each.name}"
        )
        if each.name is None:
            hint = "No version says its name, so it cannot be defined again: restore a backup, or leave it."
        found.append(DoctorFinding("error" if each.open_runs else "warning", named, message, hint))
    return found


def _of_handlers(
    jobs: Sequence[JobRecord], alive: Sequence[NodeRecord], waiting: Sequence[RunRecord]
) -> list[DoctorFinding]:
    """Reports handlers that jobs need and no live node reports."""
    have = LiveHandlers(alive)
    waits = Counter(run.job_name for run in waiting if run.requires is not None and have.lacking(run.requires.handlers))
    found = []
    for job in jobs:
        missing = have.missing(job.definition.handlers, job.updated_at) if job.definition.fault is None else []
        if missing and job.state is not JobState.DISABLED:
            count = waits[job.name]
            runs = f"; {count} of its runs wait for that" if count else ""
            what, hints = zip(*((need_text(need)[0], have.hint(need)) for need in missing), strict=True)
            message = f"No live node {', none '.join(what)}{runs}"
            found.append(DoctorFinding("error", job.name, message, " ".join(dict.fromkeys(hints))))
    return [*found, *_of_earlier_versions(jobs, have, waiting)]


def _of_earlier_versions(
    jobs: Sequence[JobRecord], have: LiveHandlers, waiting: Sequence[RunRecord]
) -> list[DoctorFinding]:
    """Reports runs of earlier versions that need a handler which no live node has: a release removed it. There is one
    finding for each job and version, which names the oldest run."""
    present = {job.name: job for job in jobs}
    stuck: defaultdict[tuple[str, int], list[RunRecord]] = defaultdict(list)
    for run in waiting:
        job = present.get(run.job_name)
        if job is None or run.version == job.version or run.waiting_for == WaitingFor.REGISTRATION:
            continue
        if run.requires is not None and have.lacking(run.requires.handlers):
            stuck[run.job_name, run.version].append(run)
    found = []
    for (name, version), runs in stuck.items():
        job, run = present[name], min(runs, key=lambda each: each.scheduled_time)
        lacking = set() if run.requires is None else have.lacking(run.requires.handlers)
        what = ", none ".join(need_text(need)[0] for need in sorted(lacking))
        which = f"{run.run_id} of version {version} waits"
        if len(runs) > 1:
            which = f"{run.run_id} and {len(runs) - 1} more of version {version} wait"
        message = f"{which}: no live node {what}"
        hint = f"It goes on under version {job.version}, or ends FAILED, once handler_grace is over."
        if not lacking.isdisjoint(job.definition.handlers):
            hint = f"Version {job.version} needs it too: deploy the code that has it, or change the job."
        found.append(DoctorFinding("warning", name, message, hint))
    return found


def _of_overdue(
    due: Sequence[RunRecord], alive: Sequence[NodeRecord], overdue: Sequence[RunRecord]
) -> list[DoctorFinding]:
    if not overdue or not alive:
        return []
    oldest = min(overdue, key=lambda run: run.not_before or run.created_at)
    waited = f"{len(overdue)} of {len(due)} runs that are due have waited for more than five minutes"
    message = f"{waited}, {oldest.job_name} the longest"
    hint = "Raise max_concurrent_jobs, start another node, or look at pools and limits."
    return [DoctorFinding("warning", "runs", message, hint)]
