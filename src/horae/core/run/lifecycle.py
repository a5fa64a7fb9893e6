"""The states of runs, task runs and attempts, and their transitions, as tables.

Code asks these tables; SQL CHECKs and diagrams are made from them. A machine has births, the states in which a row may
begin, and moves. A state without moves is terminal: a row in it never changes state again. A move that is not in the
table raises IllegalTransition and changes nothing.

A run that waits for a retry, a window, dependencies, a pool or a handler is PENDING: it takes no capacity and survives
a crash. RUNNING goes back to PENDING when the run is parked for a retry, released at shutdown, or taken over from a
dead node. A run with a window is judged when its chosen time comes, so it may be PENDING first and QUEUED then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from horae.errors import IllegalTransition, shown


class RunState(StrEnum):
    PENDING = "PENDING"
    """It waits for its time, for something else that it needs, or for a node to claim it."""
    QUEUED = "QUEUED"
    """It waits behind an earlier run of its job."""
    RUNNING = "RUNNING"
    """A node owns it."""
    COMPLETED = "COMPLETED"
    """It ended without a failed or cancelled task."""
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"
    """It ended, and every task that failed has the failure strategy `continue`."""
    FAILED = "FAILED"
    """A task failed, or the run was given up before it could start or go on."""
    FAILED_STALE = "FAILED_STALE"
    """Its node was lost and it must not be tried again, or it exceeded its execution timeout and did not stop."""
    CANCELLED = "CANCELLED"
    """It was cancelled, or stopped because it exceeded its execution timeout."""
    SKIPPED = "SKIPPED"
    """It did not start, because of an earlier run, a pause or a dependency."""
    MISSED = "MISSED"
    """Its scheduled time was not served in time, and it is not caught up on."""
    UNSCHEDULABLE = "UNSCHEDULABLE"
    """Its window allowed no start."""


EXCEEDED = "Execution exceeded timeout"
"""The reason of a run that ended FAILED_STALE because it exceeded its execution timeout and did not stop."""


class TaskState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class AttemptState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    LOST = "LOST"
    """Its node died, or reported the attempt as lost."""


class JobState(StrEnum):
    ENABLED = "ENABLED"
    PAUSED = "PAUSED"
    DISABLED = "DISABLED"


@dataclass(frozen=True, slots=True)
class StateMachine:
    """One table: the states in which rows begin, and those to which each state may move."""

    name: str
    births: frozenset[str]
    moves: Mapping[str, frozenset[str]]
    terminal: frozenset[str] = field(init=False)
    """The states without moves."""

    def __post_init__(self) -> None:
        ends = frozenset(state for state, onward in self.moves.items() if not onward)
        object.__setattr__(self, "terminal", ends)

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(self.moves)

    def allows(self, before: str | None, after: str) -> bool:
        """Whether a row may go from `before` to `after`; `before` None: the row does not exist yet."""
        return after in (self.births if before is None else self.moves.get(before, frozenset()))

    def check(self, before: str | None, after: str) -> None:
        """Raises IllegalTransition unless `allows`."""
        if self.allows(before, after):
            return
        onward = sorted(self.births if before is None else self.moves.get(before, frozenset()))
        known = before is None or before in self.moves
        told = ", ".join(onward) or (f"none, {before} is terminal" if known else f"{before} is no state of it")
        wanted = f"be born {shown(after)}" if before is None else f"go from {shown(before)} to {shown(after)}"
        raise IllegalTransition(
            f"A {self.name} cannot {wanted}",
            hint=f"Allowed: {told}.",
            details={"machine": self.name, "before": before, "after": after},
        )


def _machine(name: str, states: Iterable[str], births: str, moves: dict[str, str]) -> StateMachine:
    table = {str(state): frozenset(moves.get(state, "").split()) for state in states}
    return StateMachine(name, frozenset(births.split()), MappingProxyType(table))


RUNS = _machine(
    "run",
    RunState,
    "PENDING QUEUED RUNNING SKIPPED MISSED UNSCHEDULABLE",
    {
        "PENDING": "RUNNING QUEUED CANCELLED SKIPPED MISSED FAILED",
        "QUEUED": "PENDING CANCELLED SKIPPED MISSED",
        "RUNNING": "COMPLETED COMPLETED_WITH_ERRORS FAILED CANCELLED FAILED_STALE PENDING",
    },
)
TASK_RUNS = _machine(
    "task run",
    TaskState,
    "PENDING RUNNING SKIPPED",
    {
        "PENDING": "RUNNING SKIPPED CANCELLED FAILED",
        "RUNNING": "SUCCESS FAILED TIMEOUT CANCELLED PENDING",
    },
)
ATTEMPTS = _machine(
    "attempt",
    AttemptState,
    "PENDING RUNNING",
    {"PENDING": "RUNNING CANCELLED LOST", "RUNNING": "SUCCESS FAILED TIMEOUT CANCELLED LOST"},
)
MACHINES = (RUNS, TASK_RUNS, ATTEMPTS)

FAILURES = frozenset({TaskState.FAILED, TaskState.TIMEOUT})


def fold(tasks: Iterable[tuple[TaskState, str]], *, cancelled: bool = False, stale: bool = False) -> RunState:
    """The run's final state, from the final states of its tasks, each with the failure strategy it ran under.

    `cancelled`: the run itself was cancelled or timed out. `stale`: its node was lost and it must not be tried again.
    Both override the states of its tasks. Raises IllegalTransition where a task has not ended.
    """
    ended = list(tasks)
    for state, _ in ended:
        if state not in TASK_RUNS.terminal:
            raise IllegalTransition(f"A run cannot end while a task is {state}")
    if stale:
        return RunState.FAILED_STALE
    if cancelled:
        return RunState.CANCELLED
    failed = {strategy for state, strategy in ended if state in FAILURES}
    if failed - {"continue"}:
        return RunState.FAILED
    if failed:
        return RunState.COMPLETED_WITH_ERRORS
    if any(state == TaskState.CANCELLED for state, _ in ended):
        return RunState.CANCELLED
    return RunState.COMPLETED
