"""What a run that has not started waits for, as a closed set of reasons with a detail in words.

The transaction that makes a run wait stores `retry`, `window`, `dependencies` and `registration` with the run, and
`previous_run` where the run waits for the thread of its own earlier attempt. Every other reason follows from nodes,
pools and other runs, so it is derived when the run is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from horae.core.job.requirements import EXTERNAL, need_text
from horae.core.run.lifecycle import RunState
from horae.core.time.instant import rfc3339
from horae.core.window.decision import decide
from horae.core.window.window import Window
from horae.errors import shown

MOST_NAMED = 3
"""How many runs a detail names; the others are counted."""
LONGEST_ERROR = 200


class WaitingFor(StrEnum):
    """Why a run has not started, in the order in which the reasons are checked. A handler that no live node has comes
    before an earlier run, a time and dependencies: those pass, and then the run still does not start."""

    PREVIOUS_RUN = "previous_run"
    """An earlier run of the same job (queue, coalesce, replace), or the thread of an earlier attempt."""
    WINDOW = "window"
    """The time chosen within its window."""
    RETRY = "retry"
    """The time of its next attempt."""
    DEPENDENCIES = "dependencies"
    """Runs of other jobs that have not completed."""
    REGISTRATION = "registration"
    """The task that a declarative scheduler no longer registers."""
    RESCHEDULED = "rescheduled"
    """The time that an operator moved it to. The catalog stores `window` for it; only the start tells the two apart."""
    NODE = "node"
    """A node: none is alive."""
    HANDLER = "handler"
    """A handler, or another requirement, that no live node has."""
    POOL = "pool"
    """Free capacity of its pool."""
    CAPACITY = "capacity"
    """Free capacity on a node that can run it, or below its job's `max_concurrent`."""
    OWNER_LIMIT = "owner_limit"
    """A limit of its owner: runs at once, starts within a minute, bytes kept."""
    SANDBOX = "sandbox"
    """The sandbox for programs, which the nodes that may start programs cannot provide."""
    QUORUM = "quorum"
    LEADER = "leader"
    SHARD = "shard"
    SECRET = "secret"  # noqa: S105 - the word, and no secret


STUCK = frozenset({WaitingFor.NODE, WaitingFor.HANDLER, WaitingFor.REGISTRATION, WaitingFor.SANDBOX})
"""Reasons that neither time nor the end of other runs removes: an operator has to act."""


class WaitDetail(NamedTuple):
    """The reason, and what is waited for in words that end a sentence: "the pool db is full (2 of 2: …)"."""

    reason: WaitingFor
    detail: str


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the version that a run was created under requires before the run may start."""

    handlers: frozenset[str] = frozenset()
    """In the words of `core.job.requirements`."""
    pool: str | None = None
    max_concurrent: int | None = None
    depends_on: tuple[str, ...] = ()
    window: Window | None = None
    timezone: str | None = None
    """The zone that the window is read in; None: the definition cannot be read here."""


class HoldingRun(NamedTuple):
    """A run that another one waits for."""

    run_id: str
    job: str
    state: RunState

    def __str__(self) -> str:
        return f"{self.run_id} of {self.job}, {self.state}"


class LeftoverThread(NamedTuple):
    """A thread that is still running although its attempt has ended. `node` is the node's name, or its id."""

    run_id: str
    job: str
    task: str
    attempt: int
    node: str

    def __str__(self) -> str:
        return f"thread of run {self.run_id} still working on node {self.node} ({self.task}, attempt {self.attempt})"


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node that is alive. `handlers` is None where it has not reported all of them. `free` is its free capacity; None
    where it has not reported its concurrency limit. `sandbox` says why it starts no programs although its configuration
    allows them. `kept` is how much of the free capacity is for owners with fewer runs under way, where several owners
    share."""

    name: str
    handlers: frozenset[str] | None = None
    free: int | None = None
    sandbox: str | None = None
    kept: int = 0

    def can_run(self, requires: Requirements) -> bool:
        return self.handlers is None or requires.handlers <= self.handlers


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A pool's limit, and the runs and threads that hold a place in it."""

    limit: int
    holders: tuple[HoldingRun | LeftoverThread, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run, as far as its waiting is concerned. `stored` is the reason in the catalog."""

    run_id: str
    job: str
    state: RunState
    stored: str | None
    not_before: datetime | None
    chosen_time: datetime
    requires: Requirements = Requirements()
    retry_count: int = 0
    error: str | None = None
    scheduled_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class WaitFacts:
    """What surrounds a waiting run. `names_others`: whether the reader may see the names of other jobs."""

    now: datetime
    nodes: Sequence[LiveNode] = ()
    pools: Mapping[str, PoolUse] = field(default_factory=dict)
    running: Mapping[str, Sequence[HoldingRun | LeftoverThread]] = field(default_factory=dict)
    """By job: its runs that are RUNNING, and the threads of others that are still running."""
    ahead: Mapping[str, Sequence[HoldingRun]] = field(default_factory=dict)
    """By run: runs of the same job that it is queued behind."""
    dependencies: Mapping[str, Mapping[str, RunState | None]] = field(default_factory=dict)
    """By run: the state of each dependency's latest run that counts; None where there is none yet."""
    threads: Mapping[str, Sequence[LeftoverThread]] = field(default_factory=dict)
    """By job: threads that are still running after their attempts."""
    names_others: bool = True
    owner_limits: Mapping[str, str] = field(default_factory=dict)
    """By job: the limit of its owner that lets none of its runs start now, in words."""
    of_owner: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By job: its owner, and how many of the owner's runs are under way, where several owners share."""
    give_ups: Mapping[str, datetime] = field(default_factory=dict)
    """By run: when it stops waiting for its dependencies and is SKIPPED, which is at its job's next slot."""


def wait_of(run: WaitingRun, around: WaitFacts) -> WaitDetail | None:
    """What a run waits for; None: nothing holds it up, and a node is about to claim it."""
    found = _until_due(run, around)
    if found is None:
        is_due = run.state is RunState.PENDING
        return (lacking_node(run.requires, around.nodes) or _full(run, around)) if is_due else None
    if found.reason is WaitingFor.REGISTRATION or run.stored == WaitingFor.PREVIOUS_RUN or not around.nodes:
        return found
    lacking = lacking_node(run.requires, around.nodes)
    if lacking is None:
        return found
    return WaitDetail(lacking.reason, f"{lacking.detail}; it also waits for {found.reason}: {found.detail}")


def _until_due(run: WaitingRun, around: WaitFacts) -> WaitDetail | None:
    """What a run waits for before any node may claim it."""
    if run.state is RunState.QUEUED:
        behind: list[HoldingRun | LeftoverThread] = [
            *around.ahead.get(run.run_id, ()),
            *around.threads.get(run.job, ()),
        ]
        return WaitDetail(WaitingFor.PREVIOUS_RUN, _named(behind) or "the run of its job before it")
    if run.state is not RunState.PENDING:
        return None
    if run.stored == WaitingFor.PREVIOUS_RUN:
        own = [thread for thread in around.threads.get(run.job, ()) if thread.run_id == run.run_id]
        return WaitDetail(
            WaitingFor.PREVIOUS_RUN, _named(own) or "the thread of its earlier attempt, which still works"
        )
    is_due = run.not_before is not None and run.not_before <= around.now
    if run.stored == WaitingFor.DEPENDENCIES:
        return WaitDetail(WaitingFor.DEPENDENCIES, _dependencies(run, around))
    if run.stored == WaitingFor.REGISTRATION:
        return WaitDetail(
            WaitingFor.REGISTRATION, "its task is not registered; initialize() with it goes on with the run"
        )
    return None if is_due else _time(run)


def lacking_node(requires: Requirements, nodes: Sequence[LiveNode]) -> WaitDetail | None:
    """Why no live node could run this, whatever its free capacity; None where one can."""
    if not nodes:
        return WaitDetail(WaitingFor.NODE, "no node is alive")
    if any(node.can_run(requires) for node in nodes):
        return None
    had = frozenset[str]().union(*(node.handlers or () for node in nodes))
    missing = sorted(requires.handlers - had)
    unsafe = [node for node in nodes if node.sandbox is not None]
    if missing == [EXTERNAL] and unsafe:
        more = f" (and {len(unsafe) - 1} more)" if len(unsafe) > 1 else ""
        return WaitDetail(WaitingFor.SANDBOX, f"node {unsafe[0].name}{more}: {unsafe[0].sandbox}")
    if missing:
        return WaitDetail(WaitingFor.HANDLER, f"no live node {', none '.join(need_text(need)[0] for need in missing)}")
    parts = ", ".join(shown(need.strip()) for need in sorted(requires.handlers))
    return WaitDetail(WaitingFor.HANDLER, f"no live node has all of {parts}: each is on another one")


def _time(run: WaitingRun) -> WaitDetail:
    at = run.not_before or run.chosen_time
    if run.stored == WaitingFor.RETRY:
        after = "" if run.error is None else f", after {_short(run.error)}"
        return WaitDetail(WaitingFor.RETRY, f"retry {run.retry_count + 1} at {rfc3339(at)}{after}")
    if run.stored == WaitingFor.WINDOW and _is_moved(run):
        return WaitDetail(WaitingFor.RESCHEDULED, f"somebody moved it to {rfc3339(at)}")
    if run.stored == WaitingFor.WINDOW:
        return WaitDetail(WaitingFor.WINDOW, f"{rfc3339(at)}, chosen within its window")
    return WaitDetail(WaitingFor.RESCHEDULED, f"not before {rfc3339(at)}")


def _is_moved(run: WaitingRun) -> bool:
    """Whether the run's start is neither its window's choice nor, without a window, its scheduled time."""
    nominal, window, timezone = run.scheduled_time, run.requires.window, run.requires.timezone
    if nominal is None or timezone is None:
        return False
    if window is None:
        return run.chosen_time != nominal
    return run.chosen_time != decide(window.request(run.job, nominal, timezone)).chosen_time


def _full(run: WaitingRun, around: WaitFacts) -> WaitDetail | None:
    """Why there is no free capacity for a run that some node could run."""
    requires = run.requires
    if run.job in around.owner_limits:
        return WaitDetail(WaitingFor.OWNER_LIMIT, around.owner_limits[run.job])
    pool = None if requires.pool is None else around.pools.get(requires.pool)
    if pool is not None and len(pool.holders) >= pool.limit:
        held = _named(pool.holders) if around.names_others else ""
        taken = f"{len(pool.holders)} of {pool.limit}" + (f": {held}" if held else "")
        return WaitDetail(WaitingFor.POOL, f"the pool {shown(requires.pool)} is full ({taken})")
    running = around.running.get(run.job, ())
    if requires.max_concurrent is not None and len(running) >= requires.max_concurrent:
        said = f"{run.job} runs {len(running)} of {requires.max_concurrent} at once ({_named(running)})"
        return WaitDetail(WaitingFor.CAPACITY, said)
    able = [node for node in around.nodes if node.can_run(requires)]
    if all(node.free is not None and node.free <= 0 for node in able):
        names = ", ".join(sorted(node.name for node in able)[:MOST_NAMED])
        more = "" if len(able) <= MOST_NAMED else f" and {len(able) - MOST_NAMED} more"
        return WaitDetail(WaitingFor.CAPACITY, f"every node that can run it is full ({names}{more})")
    owner, under_way = around.of_owner.get(run.job, ("", 0))
    if all(node.free is not None and node.free <= node.kept <= under_way for node in able):
        said = f"{shown(owner)} has {under_way} runs under way, and what places are left are kept for owners with fewer"
        return WaitDetail(WaitingFor.CAPACITY, said)
    return None


def _dependencies(run: WaitingRun, around: WaitFacts) -> str:
    latest = around.dependencies.get(run.run_id)
    if latest is None:
        known = ", ".join(run.requires.depends_on) if around.names_others else ""
        return known or "runs of the jobs that it depends on"
    unmet = {name: state for name, state in sorted(latest.items()) if state is not RunState.COMPLETED}
    if not unmet:
        return "its dependencies are looked at again shortly"
    if not around.names_others:
        return f"{len(unmet)} of its dependencies"
    need_text = ", ".join(f"{name} ({'no run yet' if state is None else state})" for name, state in unmet.items())
    at = around.give_ups.get(run.run_id)
    return need_text if at is None else f"{need_text}; SKIPPED at {rfc3339(at)}, unless COMPLETED by then"


def _named(runs: Iterable[HoldingRun | LeftoverThread]) -> str:
    """The first few runs and threads, and how many more there are."""
    found = list(runs)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return "; ".join(str(each) for each in found[:MOST_NAMED]) + more


def _short(error: str) -> str:
    line = error.strip().partition("\n")[0]
    return line if len(line) <= LONGEST_ERROR else f"{line[: LONGEST_ERROR - 1]}…"
