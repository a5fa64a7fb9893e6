"""What is wrong with a catalog, or about to be: each finding names the thing and the next step. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from horae.control.queries import Queries
from horae.core.lifecycle import JobState, RunState
from horae.core.needs import told
from horae.errors import HoraeError
from horae.store.port import JobRecord, NodeRecord, RunRecord, Store

OVERDUE = timedelta(minutes=5)
LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """`level` is error (something does not run) or warning (something may not)."""

    level: str
    subject: str
    message: str
    hint: str

    def to_dict(self) -> dict[str, str]:
        return {"level": self.level, "subject": self.subject, "message": self.message, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, and what was looked at."""

    findings: tuple[Finding, ...]
    jobs: int
    nodes: int
    waiting: int

    def to_dict(self) -> dict[str, Any]:
        found = [each.to_dict() for each in self.findings]
        return {"findings": found, "jobs": self.jobs, "nodes": self.nodes, "waiting": self.waiting}


async def examine(store: Store) -> Examination:
    """Looks at nodes, jobs and the runs that wait."""
    jobs = await Queries(store).jobs()
    nodes = await store.nodes()
    alive = [node for node in nodes if node.state == "ALIVE" and not node.lock_free]
    waiting = await store.runs(state=RunState.PENDING, limit=LOOKED_AT)
    now = await store.now()
    due = [run for run in waiting if run.not_before is not None and run.not_before <= now]
    findings = [
        *_of_nodes(nodes, alive, jobs),
        *_of_schedules(jobs),
        *_of_handlers(jobs, alive, due),
        *_of_overdue(due, alive, [run for run in due if run.not_before is not None and now - run.not_before > OVERDUE]),
    ]
    findings.sort(key=lambda each: (each.level, each.subject))
    return Examination(tuple(findings), len(jobs), len(alive), len(due))


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
    if not alive or any(len(node.details.get("handlers", ())) >= 1000 for node in alive):
        return []
    known = {handler for node in alive for handler in node.details.get("handlers", ())}
    waits = Counter(run.job_name for run in due)
    found = []
    for job in jobs:
        missing = sorted(job.definition.handlers - known)
        if missing and job.state is not JobState.DISABLED:
            count = waits[job.name]
            runs = f"; {count} of its runs wait for that" if count else ""
            what, hints = zip(*map(told, missing), strict=True)
            message = f"No live node {', none '.join(what)}{runs}"
            found.append(Finding("error", job.name, message, " ".join(dict.fromkeys(hints))))
    return found


def _of_overdue(due: Sequence[RunRecord], alive: Sequence[NodeRecord], overdue: Sequence[RunRecord]) -> list[Finding]:
    if not overdue or not alive:
        return []
    oldest = min(overdue, key=lambda run: run.not_before or run.created_at)
    waited = f"{len(overdue)} of {len(due)} runs that are due have waited for more than five minutes"
    message = f"{waited}, {oldest.job_name} the longest"
    hint = "Raise max_concurrent_jobs, start another node, or look at pools and limits."
    return [Finding("warning", "runs", message, hint)]
