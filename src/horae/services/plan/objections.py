"""Objections to a plan: findings that block it or will matter once it is applied, each with the next step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from horae.core.access import LOCAL_NAME, Privilege
from horae.core.job.dependencies import find_cycle
from horae.core.job.requirements import need_text, needs
from horae.core.run.job_view import check_time, check_window
from horae.core.shape import did_you_mean
from horae.errors import DependencyCycle, HoraeError, InvalidTime, InvalidWindow, shown
from horae.security.access import AccessChecker
from horae.services.calculator import Calculate, in_thread
from horae.services.doctor.doctor import DoctorFinding, LiveHandlers
from horae.services.plan.comparison import Comparison, JobComparison
from horae.services.plan.desired_state import DesiredState
from horae.store.protocols.people import PeopleStore
from horae.store.protocols.store import JobRecord

MOST_NAMED = 5
_YIELD_EVERY = 50
"""Definitions after which the event loop gets a turn."""
MOST_REFUSALS = 50
"""Refusals that are listed one by one. A user who lacks a privilege usually lacks it for all jobs."""


async def objections(
    vault: PeopleStore,
    gate: AccessChecker,
    wanted: DesiredState,
    comparison: Comparison,
    present: Mapping[str, JobRecord],
    known: Mapping[str, Iterable[str]],
    have: LiveHandlers,
    now: datetime,
    calculate: Calculate = in_thread,
) -> tuple[DoctorFinding, ...]:
    """Returns the findings, sorted. `known` are names of pools, and of jobs that are depended on, that exist but may be
    hidden from the caller. Findings about the references of a job are only for callers who may define it. Suggestions
    of other names are only for administrators."""
    refused = await _refusals(gate, comparison, wanted.defaults)
    allowed = [each for each in comparison.changing if each.name not in refused]
    found = [_taken(name, gate.who.name) for name in comparison.hidden]
    found += await _of_people(vault, allowed, gate)
    found += _of_rights(gate, comparison, refused)
    found += await _of_secrets(vault, allowed)
    pools = {*known["pools"], *wanted.pools}
    names = {each.name for each in allowed}
    found += await calculate(_of_themselves, comparison, names, present, pools, known["jobs"], have, now, gate.is_open)
    return tuple(sorted(found, key=lambda each: (each.level, each.subject, each.message)))


def _of_themselves(
    comparison: Comparison,
    allowed: set[str],
    present: Mapping[str, JobRecord],
    pools: set[str],
    jobs: Iterable[str],
    have: LiveHandlers,
    now: datetime,
    is_open: bool,  # noqa: FBT001 - a calculation has no keywords of its own
) -> list[DoctorFinding]:
    """Returns the findings that need neither the catalog nor privileges. Pure; takes long for many definitions."""
    changing = [each for each in comparison.changing if each.name in allowed]
    return [
        *_of_definitions(comparison.changing),
        *_of_times(comparison.changing, now),
        *_of_pools(changing, pools, tells_names=is_open),
        *_of_dependencies(comparison, present, jobs, allowed),
        *_of_needs(changing, have, now),
    ]


def _taken(name: str, who: str) -> DoctorFinding:
    message = f"Job {shown(name)}: {shown(who)} may not change it, nor look at it"
    return DoctorFinding("error", name, message, "Choose another name, or ask its owner or an administrator.")


def _of_definitions(changing: Iterable[JobComparison]) -> list[DoctorFinding]:
    found = []
    for each in changing:
        if not each.spec.tasks:
            found.append(
                DoctorFinding("error", each.name, f"Job {shown(each.name)} has no task", "Give it at least one.")
            )
        there = None if each.present is None else each.present.definition.spec.namespace
        if there not in (None, each.spec.namespace):
            message = (
                f"Job {shown(each.name)} belongs to the namespace {shown(there)}, not {shown(each.spec.namespace)}"
            )
            hint = "Choose another name, or define it from its own namespace."
            found.append(DoctorFinding("error", each.name, message, hint))
    return found


def _of_times(changing: Iterable[JobComparison], now: datetime) -> list[DoctorFinding]:
    found = []
    for each in changing:
        present = None if each.present is None else each.present.definition.spec
        schedule = each.spec.schedule
        if schedule is not None:
            schedule = schedule.anchored(now if each.present is None else each.present.created_at)
        try:
            check_time(replace(each.spec, schedule=schedule), present, each.settings.misfire_grace, now)
            check_window(each.spec, each.settings.window, now)
        except (InvalidTime, InvalidWindow) as error:
            found.append(DoctorFinding("error", each.name, error.message, error.hint or ""))
    return found


def _of_pools(changing: Iterable[JobComparison], pools: set[str], *, tells_names: bool) -> list[DoctorFinding]:
    missing: dict[str, list[str]] = {}
    for each in changing:
        pool = each.settings.pool
        if pool is not None and pool not in pools:
            missing.setdefault(pool, []).append(each.name)
    return [
        DoctorFinding(
            "error",
            pool,
            f"There is no pool {shown(pool)}, which {_named(jobs)} {'wants' if len(jobs) == 1 else 'want'}",
            _nearly(pool, pools if tells_names else (), f"Define it with its limit: {pool} = 4 under [pools]."),
        )
        for pool, jobs in missing.items()
    ]


async def _of_people(vault: PeopleStore, changing: Iterable[JobComparison], gate: AccessChecker) -> list[DoctorFinding]:
    """Reports roles that jobs run as, and owners, that do not exist."""
    roles: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}
    for each in changing:
        if each.spec.run_as is not None:
            roles.setdefault(each.spec.run_as, []).append(each.name)
        if each.spec.owner not in (None, LOCAL_NAME):
            owners.setdefault(str(each.spec.owner), []).append(each.name)
    found = []
    for role, jobs in roles.items():
        if await vault.role_grants(role) is None:
            message = f"There is no role {shown(role)}, which {_named(jobs)} would run as"
            near = [each.name for each in await vault.roles()] if gate.is_open else []
            hint = _nearly(role, near, "Create the role first, or let jobs run as their owners.")
            found.append(DoctorFinding("error", role, message, hint))
    for owner, jobs in owners.items():
        if await vault.principal(owner) is None:
            message = f"There is no user {shown(owner)}, whose {_named(jobs)} would be"
            near = [each.name for each in await vault.users()] if gate.is_open else []
            hint = _nearly(owner, near, "Create the user first, or leave the owner out.")
            found.append(DoctorFinding("error", owner, message, hint))
    return found


def _of_dependencies(
    comparison: Comparison, present: Mapping[str, JobRecord], known: Iterable[str], allowed: set[str]
) -> list[DoctorFinding]:
    removed = {job.name for job in comparison.removed}
    graph = {name: job.definition.spec.depends_on for name, job in present.items() if name not in removed}
    graph |= {each.name: each.spec.depends_on for each in comparison.changing}
    found = []
    changing = {each.name for each in comparison.changing}
    seen = sorted({*present, *changing} - removed)
    there = {*seen, *known} - removed
    for name, others in graph.items():
        gone = sorted(removed.intersection(others))
        if gone:
            message = f"Job {shown(name)} depends on {_named(gone)}, which would be removed"
            found.append(
                DoctorFinding("error", name, message, "Keep what is depended on, or take the dependency away.")
            )
        # A hidden dependency of a job that does not change is no fault of this plan.
        for other in others if name in allowed else ():
            if other not in there and other not in removed:
                message = f"Job {shown(name)} depends on {shown(other)}, which does not exist"
                hint = _nearly(other, seen, "Define that job first, or correct the name.")
                found.append(DoctorFinding("error", name, message, hint))
    cycle = find_cycle({name: [each for each in others if each in graph] for name, others in graph.items()})
    if cycle is not None:
        error = DependencyCycle(cycle)
        found.append(DoctorFinding("error", cycle[0], error.message, error.hint or ""))
    return found


async def _refusals(gate: AccessChecker, comparison: Comparison, defaults: Mapping[str, Any]) -> dict[str, HoraeError]:
    """Returns by job the error that the gate would raise for its definition."""
    if gate.is_open:
        return {}
    found: dict[str, HoraeError] = {}
    for number, each in enumerate(comparison.changing):
        if not number % _YIELD_EVERY:
            # With a store that answers at once, no other task would run until the last of thousands.
            await asyncio.sleep(0)
        error = await gate.objection(each.spec, each.present, defaults=defaults)
        if error is not None:
            found[each.name] = error
    return found


def _of_rights(gate: AccessChecker, comparison: Comparison, refused: Mapping[str, HoraeError]) -> list[DoctorFinding]:
    if gate.is_open:
        return []
    found = [DoctorFinding("error", name, error.message, error.hint or "") for name, error in refused.items()]
    for job in comparison.removed:
        if not gate.holds(Privilege.DROP_JOB, job.name, owner=job.owner):
            message = f"Job {shown(job.name)}: {shown(gate.who.name)} may not drop it"
            found.append(DoctorFinding("error", job.name, message, "Ask its owner or an administrator."))
    left = len(found) - MOST_REFUSALS
    if left > 0:
        message = f"{left} more changes that {shown(gate.who.name)} may not make"
        found = [
            *found[:MOST_REFUSALS],
            DoctorFinding("error", "privileges", message, "Ask an administrator for the rights."),
        ]
    if comparison.pools:
        message = f"{shown(gate.who.name)} may not set the limits of pools: only administrators may"
        found.append(DoctorFinding("error", "pools", message, "Leave [pools] out, or ask an administrator."))
    return found


def _of_needs(changing: Iterable[JobComparison], have: LiveHandlers, now: datetime) -> list[DoctorFinding]:
    jobs: dict[str, list[str]] = {}
    for each in changing:
        for need in {need for task in each.spec.tasks for need in needs(task)}:
            jobs.setdefault(need, []).append(each.name)
    found = []
    missing = have.missing(jobs, now)
    for need in missing:
        what, hint = need_text(need)
        who = _named(jobs[need])
        found.append(DoctorFinding("warning", need.strip(), f"No live node {what}, which {who} would wait for", hint))
    for need in sorted(have.lacking(jobs).difference(missing)):
        message = f"No live node {need_text(need)[0]} yet, which {_named(jobs[need])} would wait for"
        module = need.partition(":")[0] if ":" in need else need.rpartition(".")[0]
        hint = f"A node that may import {module} would look for it: see that the code there has it."
        found.append(DoctorFinding("warning", need, message, hint))
    return found


async def _of_secrets(vault: PeopleStore, changing: Iterable[JobComparison]) -> list[DoctorFinding]:
    jobs: dict[tuple[str, str], None] = {}
    for each in changing:
        for task in each.spec.tasks:
            for secret in task.options.get("secrets", ()):
                jobs[secret["name"], each.name] = None
    if not jobs:
        return []
    kept = {(each.name, each.job) for each in await vault.secrets()}
    missing: dict[str, list[str]] = {}
    for name, job in jobs:
        if (name, None) not in kept and (name, job) not in kept:
            missing.setdefault(name, []).append(job)
    return [
        DoctorFinding(
            "warning",
            name,
            f"There is no secret {shown(name)}, which {_named(names)} would be given",
            f"Set it: horae secret set {name}.",
        )
        for name, names in missing.items()
    ]


def _nearly(word: str, known: Iterable[str], otherwise: str) -> str:
    near = did_you_mean(word, sorted(known))
    return otherwise if near is None else f"{near} {otherwise}"


def _named(jobs: Iterable[str]) -> str:
    """Returns a few names in words that go on after a noun: jobs a, b and 3 more."""
    names = sorted(jobs)
    shown_names = ", ".join(shown(name) for name in names[:MOST_NAMED])
    left = len(names) - MOST_NAMED
    more = f" and {left} more" if left > 0 else ""
    return f"{'job' if len(names) == 1 else 'jobs'} {shown_names}{more}"
