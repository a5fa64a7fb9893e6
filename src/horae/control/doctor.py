"""What is wrong with a catalog, or about to be: each finding names the thing and the next step. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from horae.control.queries import Queries
from horae.control.service import Kept
from horae.control.surroundings import Checked, Surroundings, look_around
from horae.core.lifecycle import JobState, RunState
from horae.core.needs import may_import, told
from horae.errors import HoraeError
from horae.store.port import JobRecord, NodeRecord, RunRecord

OVERDUE = timedelta(minutes=5)
UNDECIDED = timedelta(seconds=30)
SILENT = timedelta(minutes=1)
LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """`level` is error (something does not run) or warning (something may not); `check` is what showed it."""

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
class Examination:
    """What was found, and what was looked at: `checks` says of each thing in a few words how it is."""

    findings: tuple[Finding, ...]
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


async def examine(store: Kept, around: Surroundings | None = None, more: Sequence[Checked] = ()) -> Examination:
    """Looks at nodes, jobs and runs, and at what is `around` the catalog; `more` was looked at before."""
    jobs = await Queries(store).jobs()
    nodes = await store.nodes()
    alive = [node for node in nodes if node.is_live]
    waiting = await store.runs(state=RunState.PENDING, limit=LOOKED_AT)
    running = await store.runs(state=RunState.RUNNING, limit=LOOKED_AT)
    now = await store.now()
    due = [run for run in waiting if run.not_before is not None and run.not_before <= now]
    late = [run for run in due if run.not_before is not None and now - run.not_before > OVERDUE]
    stuck = _of_running(running, jobs, nodes, now)
    checked = {
        "nodes": (f"{len(alive)} alive", [*_of_nodes(nodes, alive, jobs), *_of_silent(alive, now)]),
        "schedules": (f"{len(jobs)} jobs", _of_schedules(jobs)),
        "tasks": (
            f"{len({each for job in jobs for each in job.definition.handlers})} needed",
            _of_handlers(jobs, alive, due),
        ),
        "slots": await _of_slots(store),
        "waiting": (f"{len(due)} runs due, {len(late)} for long", _of_overdue(due, alive, late)),
        "running": (f"{len(running)} runs", stuck),
    }
    findings = [replace(each, check=name) for name, (_, found) in checked.items() for each in found]
    checks = {name: said for name, (said, _) in checked.items()}
    for each in [*more, *await look_around(store, around or Surroundings(), jobs)]:
        checks[each.name] = each.said
        findings += [Finding(fault.level, fault.subject, fault.message, fault.hint, each.name) for fault in each.faults]
    findings.sort(key=lambda each: (each.level, each.subject))
    return Examination(tuple(findings), len(jobs), len(alive), len(due), checks)


class Having:
    """What live nodes say they have, in the words of `core.needs`."""

    def __init__(self, alive: Sequence[NodeRecord]) -> None:
        self._alive = alive
        self._known = {handler for node in alive for handler in node.details.get("handlers", ())}
        # Of very many a node tells only some.
        self.is_known = bool(alive) and all(node.handlers is not None for node in alive)

    def lacking(self, needs: Iterable[str]) -> set[str]:
        """Those that no node has at present; none where that is not known."""
        return set(needs) - self._known if self.is_known else set()

    def missing(self, needs: Iterable[str], defined_at: datetime) -> list[str]:
        """Those that no node has, nor may learn; none where that is not known. A node that may import a callable, and
        joined before the job was defined, learns it when a run waits."""
        lacking = self.lacking(needs)
        if not lacking:
            return []
        later = [
            each for node in self._alive if node.started_at < defined_at for each in node.details.get("modules", ())
        ]
        return sorted(need for need in lacking if not may_import(need, later))


async def _of_slots(store: Kept) -> tuple[str, list[Finding]]:
    overdue = await store.overdue(UNDECIDED)
    if not overdue.undecided:
        return "all decided", []
    since = overdue.oldest_undecided
    message = f"{overdue.undecided} jobs are due and nobody has planned them" + (
        "" if since is None else f", {overdue.undecided_job} since {since:%Y-%m-%d %H:%M:%S} UTC"
    )
    hint = "Nodes that are alive plan what is due: look at their logs, and whether the database is slow."
    return f"{overdue.undecided} overdue", [Finding("error", overdue.undecided_job or "slots", message, hint)]


def _of_running(
    running: Sequence[RunRecord], jobs: Sequence[JobRecord], nodes: Sequence[NodeRecord], now: datetime
) -> list[Finding]:
    """Runs that should have ended, and runs whose node is dead. What was parked in between is given its time twice."""
    limits = {job.name: job.definition.settings.execution_timeout for job in jobs}
    graces = {job.name: job.definition.settings.cancel_grace for job in jobs}
    dead = {node.node for node in nodes if node.state == "DEAD"}
    found = []
    for run in running:
        limit = limits.get(run.job_name)
        if run.owner in dead:
            hint = "Any node that lives takes it over within half a minute; start one if there is none."
            found.append(Finding("warning", run.job_name, f"{run.run_id} belongs to a node that is dead", hint))
        elif limit is not None and run.started_at is not None:
            lasted = now - run.started_at
            if lasted > 2 * limit + graces[run.job_name] + OVERDUE:
                message = f"{run.run_id} has been running for {lasted}, and may for {limit}"
                hint = f"End it: horae run cancel {run.run_id}. A thread that does not stop ends with its process."
                found.append(Finding("warning", run.job_name, message, hint))
    return found


def _of_silent(alive: Sequence[NodeRecord], now: datetime) -> list[Finding]:
    """Nodes whose process holds its lock and says nothing: it hangs, or its clock and the store's parted."""
    return [
        Finding(
            "warning",
            node.name or node.node,
            f"This node has said nothing for {(now - node.heartbeat_at).total_seconds():.0f} s, and its process lives",
            "Look at its logs; a loop that is blocked by a task stops everything on that node.",
        )
        for node in alive
        if now - node.heartbeat_at > SILENT
    ]


def _of_nodes(nodes: Sequence[NodeRecord], alive: Sequence[NodeRecord], jobs: Sequence[JobRecord]) -> list[Finding]:
    found = []
    if jobs and not alive:
        found.append(
            Finding(
                "error",
                "nodes",
                "No node is alive: nothing runs",
                "Start one: app.run() of the program that has the jobs.",
            )
        )
    for node in nodes:
        if node.state == "ALIVE" and node.lock_free and node.running:
            named = node.name or node.node
            hint = "Any node that lives takes them over within half a minute; start one if there is none."
            found.append(
                Finding("warning", named, f"This node is gone; {node.running} of its runs wait for another", hint)
            )
    return found


def _of_schedules(jobs: Sequence[JobRecord]) -> list[Finding]:
    found = []
    for job in jobs:
        schedule = job.definition.spec.schedule
        try:
            if schedule is not None:
                schedule.next(job.planned_until)
        except HoraeError as error:
            hint = error.hint or "Make its module importable here, or define the job anew."
            found.append(Finding("error", job.name, f"Its schedule cannot be asked here: {error}", hint))
    return found


def _of_handlers(jobs: Sequence[JobRecord], alive: Sequence[NodeRecord], due: Sequence[RunRecord]) -> list[Finding]:
    """Callables that jobs need and no live node says it has."""
    have = Having(alive)
    waits = Counter(run.job_name for run in due)
    found = []
    for job in jobs:
        missing = have.missing(job.definition.handlers, job.updated_at)
        if missing and job.state is not JobState.DISABLED:
            count = waits[job.name]
            runs = f"; {count} of its runs wait for that" if count else ""
            what, hints = zip(*map(told, missing), strict=True)
            message = f"No live node {', none '.join(what)}{runs}"
            found.append(Finding("error", job.name, message, " ".join(dict.fromkeys(hints))))
    return [*found, *_of_earlier_versions(jobs, have, due)]


def _of_earlier_versions(jobs: Sequence[JobRecord], have: Having, due: Sequence[RunRecord]) -> list[Finding]:
    """Runs of earlier versions that need what no live node has: a release took it away."""
    present = {job.name: job for job in jobs}
    found = []
    for run in due:
        job = present.get(run.job_name)
        lacking = set() if run.requires is None else have.lacking(run.requires.handlers)
        if job is None or run.version == job.version or not lacking:
            continue
        what = ", none ".join(told(need)[0] for need in sorted(lacking))
        message = f"{run.run_id} of version {run.version} waits: no live node {what}"
        hint = f"It goes on under version {job.version}, or ends FAILED, once handler_grace is over."
        if not lacking.isdisjoint(job.definition.handlers):
            hint = f"Version {job.version} needs it too: deploy the code that has it, or change the job."
        found.append(Finding("warning", run.job_name, message, hint))
    return found


def _of_overdue(due: Sequence[RunRecord], alive: Sequence[NodeRecord], overdue: Sequence[RunRecord]) -> list[Finding]:
    if not overdue or not alive:
        return []
    oldest = min(overdue, key=lambda run: run.not_before or run.created_at)
    waited = f"{len(overdue)} of {len(due)} runs that are due have waited for more than five minutes"
    message = f"{waited}, {oldest.job_name} the longest"
    hint = "Raise max_concurrent_jobs, start another node, or look at pools and limits."
    return [Finding("warning", "runs", message, hint)]
