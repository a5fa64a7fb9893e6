"""What a run that has not started waits for, and what exactly: one closed set for every surface.

The transaction that decides it stores `retry`, `window`, `dependencies` and `registration` with the run, and
`previous_run` where the run waits for the thread of its own earlier attempt. Everything else follows from nodes, pools
and other runs, so it is derived when the run is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from horae.core.decision import decide
from horae.core.instant import rfc3339
from horae.core.lifecycle import RunState
from horae.core.needs import EXTERNAL, told
from horae.core.window import Window
from horae.errors import shown

MOST_NAMED = 3
"""Runs that a detail names; of the others it gives the number."""
LONGEST_ERROR = 200


class WaitingFor(StrEnum):
    """Why a run has not started, in the order in which the reasons are looked for. A handler that no live node has
    comes before a turn, a time and dependencies: those will come, and then the run will not start."""

    PREVIOUS_RUN = "previous_run"
    """A run of the same job comes first (queue, coalesce, replace), or a thread of an earlier attempt still works."""
    WINDOW = "window"
    """The time chosen within its window."""
    RETRY = "retry"
    """The time of its next attempt."""
    DEPENDENCIES = "dependencies"
    """Runs of other jobs that have not completed."""
    REGISTRATION = "registration"
    """The task that a declarative scheduler no longer registers."""
    RESCHEDULED = "rescheduled"
    """The time that somebody moved it to. The catalog has `window` for it, which nothing but its start tells apart."""
    NODE = "node"
    """A node: none is alive."""
    HANDLER = "handler"
    """A handler, or another ability, that no live node has."""
    POOL = "pool"
    """A place in its pool."""
    CAPACITY = "capacity"
    """A place on a node that can run it, or one of the runs that its job may have at once."""
    OWNER_LIMIT = "owner_limit"
    """A limit of its owner's: runs at once, starts within a minute, bytes kept."""
    SANDBOX = "sandbox"
    """The sandbox for programs, which the nodes that may start programs cannot give."""
    QUORUM = "quorum"
    LEADER = "leader"
    SHARD = "shard"
    SECRET = "secret"  # noqa: S105 - the word, and no secret


STUCK = frozenset({WaitingFor.NODE, WaitingFor.HANDLER, WaitingFor.REGISTRATION, WaitingFor.SANDBOX})
"""Waits that neither time nor the end of other runs ends: somebody has to do something."""


class Wait(NamedTuple):
    """The reason, and in a sentence's end what is waited for: "the pool db is full (2 of 2: …)"."""

    reason: WaitingFor
    detail: str


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the version that a run was created under asks for before the run may start."""

    handlers: frozenset[str] = frozenset()
    """In the words of `core.needs`."""
    pool: str | None = None
    max_concurrent: int | None = None
    depends_on: tuple[str, ...] = ()
    window: Window | None = None
    timezone: str | None = None
    """The zone that the window is read in; None: nobody here can read the definition."""


class Holder(NamedTuple):
    """A run that another one waits for."""

    run_id: str
    job: str
    state: RunState

    def __str__(self) -> str:
        return f"{self.run_id} of {self.job}, {self.state}"


class Thread(NamedTuple):
    """A thread that works although its attempt has ended. `node` is the node's name, or its id."""

    run_id: str
    job: str
    task: str
    attempt: int
    node: str

    def __str__(self) -> str:
        return f"thread of run {self.run_id} still working on node {self.node} ({self.task}, attempt {self.attempt})"


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node that is alive. `handlers` is None where it has not reported all of them, `free` where it has not said how
    many runs it takes at once. `sandbox` says why it starts no programs although its configuration allows them. `kept`:
    how many of its places are for owners with fewer runs under way, where owners share."""

    name: str
    handlers: frozenset[str] | None = None
    free: int | None = None
    sandbox: str | None = None
    kept: int = 0

    def can_run(self, requires: Requirements) -> bool:
        return self.handlers is None or requires.handlers <= self.handlers


@dataclass(frozen=True, slots=True)
class Pool:
    """How many runs a pool lets run at once, and those that do."""

    limit: int
    holders: tuple[Holder | Thread, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run as far as its waiting is concerned. `stored` is the reason that the catalog has."""

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
class Around:
    """What is around a waiting run. `names_others`: whether the reader may know other jobs by name."""

    now: datetime
    nodes: Sequence[LiveNode] = ()
    pools: Mapping[str, Pool] = field(default_factory=dict)
    running: Mapping[str, Sequence[Holder | Thread]] = field(default_factory=dict)
    """By job: its runs that are RUNNING, and threads of others that still work."""
    ahead: Mapping[str, Sequence[Holder]] = field(default_factory=dict)
    """By run: runs of the same job that it lines up behind."""
    dependencies: Mapping[str, Mapping[str, RunState | None]] = field(default_factory=dict)
    """By run: the latest run of each dependency that counts, None where there is none yet."""
    threads: Mapping[str, Sequence[Thread]] = field(default_factory=dict)
    """By job: threads that still work."""
    names_others: bool = True
    owner_limits: Mapping[str, str] = field(default_factory=dict)
    """By job: the limit of its owner's that lets none of its runs start now, in words."""
    of_owner: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By job: its owner and how many of the owner's runs are under way, where owners share."""
    give_ups: Mapping[str, datetime] = field(default_factory=dict)
    """By run: when it stops waiting for its dependencies, and is skipped: at its job's next slot."""


def wait_of(run: WaitingRun, around: Around) -> Wait | None:
    """What a run waits for; None where nothing keeps it, and a node is about to claim it."""
    found = _until_due(run, around)
    if found is None:
        is_due = run.state is RunState.PENDING
        return (lacking_node(run.requires, around.nodes) or _full(run, around)) if is_due else None
    if found.reason is WaitingFor.REGISTRATION or run.stored == WaitingFor.PREVIOUS_RUN or not around.nodes:
        return found
    lacking = lacking_node(run.requires, around.nodes)
    if lacking is None:
        return found
    return Wait(lacking.reason, f"{lacking.detail}; it also waits for {found.reason}: {found.detail}")


def _until_due(run: WaitingRun, around: Around) -> Wait | None:
    """What a run waits for before any node may claim it."""
    if run.state is RunState.QUEUED:
        behind: list[Holder | Thread] = [*around.ahead.get(run.run_id, ()), *around.threads.get(run.job, ())]
        return Wait(WaitingFor.PREVIOUS_RUN, _named(behind) or "the run of its job before it")
    if run.state is not RunState.PENDING:
        return None
    if run.stored == WaitingFor.PREVIOUS_RUN:
        own = [thread for thread in around.threads.get(run.job, ()) if thread.run_id == run.run_id]
        return Wait(WaitingFor.PREVIOUS_RUN, _named(own) or "the thread of its earlier attempt, which still works")
    is_due = run.not_before is not None and run.not_before <= around.now
    if run.stored == WaitingFor.DEPENDENCIES:
        return Wait(WaitingFor.DEPENDENCIES, _dependencies(run, around))
    if run.stored == WaitingFor.REGISTRATION:
        return Wait(WaitingFor.REGISTRATION, "its task is not registered; initialize() with it goes on with the run")
    return None if is_due else _time(run)


def lacking_node(requires: Requirements, nodes: Sequence[LiveNode]) -> Wait | None:
    """Why no live node could run this however much room there is; None where one can."""
    if not nodes:
        return Wait(WaitingFor.NODE, "no node is alive")
    if any(node.can_run(requires) for node in nodes):
        return None
    had = frozenset[str]().union(*(node.handlers or () for node in nodes))
    missing = sorted(requires.handlers - had)
    unsafe = [node for node in nodes if node.sandbox is not None]
    if missing == [EXTERNAL] and unsafe:
        more = f" (and {len(unsafe) - 1} more)" if len(unsafe) > 1 else ""
        return Wait(WaitingFor.SANDBOX, f"node {unsafe[0].name}{more}: {unsafe[0].sandbox}")
    if missing:
        return Wait(WaitingFor.HANDLER, f"no live node {', none '.join(told(need)[0] for need in missing)}")
    parts = ", ".join(shown(need.strip()) for need in sorted(requires.handlers))
    return Wait(WaitingFor.HANDLER, f"no live node has all of {parts}: each is on another one")


def _time(run: WaitingRun) -> Wait:
    at = run.not_before or run.chosen_time
    if run.stored == WaitingFor.RETRY:
        after = "" if run.error is None else f", after {_short(run.error)}"
        return Wait(WaitingFor.RETRY, f"retry {run.retry_count + 1} at {rfc3339(at)}{after}")
    if run.stored == WaitingFor.WINDOW and _is_moved(run):
        return Wait(WaitingFor.RESCHEDULED, f"somebody moved it to {rfc3339(at)}")
    if run.stored == WaitingFor.WINDOW:
        return Wait(WaitingFor.WINDOW, f"{rfc3339(at)}, chosen within its window")
    return Wait(WaitingFor.RESCHEDULED, f"not before {rfc3339(at)}")


def _is_moved(run: WaitingRun) -> bool:
    """Whether its start is neither what its window chooses nor, where it has none, its own time."""
    nominal, window, timezone = run.scheduled_time, run.requires.window, run.requires.timezone
    if nominal is None or timezone is None:
        return False
    if window is None:
        return run.chosen_time != nominal
    return run.chosen_time != decide(window.request(run.job, nominal, timezone)).chosen_time


def _full(run: WaitingRun, around: Around) -> Wait | None:
    """Why there is no room for a run that a node could run."""
    requires = run.requires
    if run.job in around.owner_limits:
        return Wait(WaitingFor.OWNER_LIMIT, around.owner_limits[run.job])
    pool = None if requires.pool is None else around.pools.get(requires.pool)
    if pool is not None and len(pool.holders) >= pool.limit:
        held = _named(pool.holders) if around.names_others else ""
        taken = f"{len(pool.holders)} of {pool.limit}" + (f": {held}" if held else "")
        return Wait(WaitingFor.POOL, f"the pool {shown(requires.pool)} is full ({taken})")
    running = around.running.get(run.job, ())
    if requires.max_concurrent is not None and len(running) >= requires.max_concurrent:
        said = f"{run.job} runs {len(running)} of {requires.max_concurrent} at once ({_named(running)})"
        return Wait(WaitingFor.CAPACITY, said)
    able = [node for node in around.nodes if node.can_run(requires)]
    if all(node.free is not None and node.free <= 0 for node in able):
        names = ", ".join(sorted(node.name for node in able)[:MOST_NAMED])
        more = "" if len(able) <= MOST_NAMED else f" and {len(able) - MOST_NAMED} more"
        return Wait(WaitingFor.CAPACITY, f"every node that can run it is full ({names}{more})")
    owner, under_way = around.of_owner.get(run.job, ("", 0))
    if all(node.free is not None and node.free <= node.kept <= under_way for node in able):
        said = f"{shown(owner)} has {under_way} runs under way, and what places are left are kept for owners with fewer"
        return Wait(WaitingFor.CAPACITY, said)
    return None


def _dependencies(run: WaitingRun, around: Around) -> str:
    latest = around.dependencies.get(run.run_id)
    if latest is None:
        known = ", ".join(run.requires.depends_on) if around.names_others else ""
        return known or "runs of the jobs that it depends on"
    unmet = {name: state for name, state in sorted(latest.items()) if state is not RunState.COMPLETED}
    if not unmet:
        return "its dependencies are looked at again shortly"
    if not around.names_others:
        return f"{len(unmet)} of its dependencies"
    told = ", ".join(f"{name} ({'no run yet' if state is None else state})" for name, state in unmet.items())
    at = around.give_ups.get(run.run_id)
    return told if at is None else f"{told}; SKIPPED at {rfc3339(at)}, unless COMPLETED by then"


def _named(runs: Iterable[Holder | Thread]) -> str:
    """The first few runs and threads, and how many more there are."""
    found = list(runs)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return "; ".join(str(each) for each in found[:MOST_NAMED]) + more


def _short(error: str) -> str:
    line = error.strip().partition("\n")[0]
    return line if len(line) <= LONGEST_ERROR else f"{line[: LONGEST_ERROR - 1]}…"
