"""Every state and every transition, as tables. Code asks them, SQL CHECKs and diagrams are made from them.

A machine is its births (states a row may begin in) and its moves. A state without moves is terminal: a row in it is
never edited again. Asking for a move that is not in the table raises IllegalTransition and changes nothing.

A run that waits, for a retry, a window, dependencies, a pool or a handler, is PENDING: it holds no slot and survives a
crash. RUNNING goes back to PENDING when it is parked for a retry, handed back at shutdown, or orphaned. A run with a
window is judged when its chosen time comes, so it may be PENDING first and QUEUED then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from horae.errors import IllegalTransition, shown


class RunState(StrEnum):
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"
    FAILED = "FAILED"
    FAILED_STALE = "FAILED_STALE"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    MISSED = "MISSED"
    UNSCHEDULABLE = "UNSCHEDULABLE"


EXCEEDED = "Execution exceeded timeout"
"""The reason of a run that was ended FAILED_STALE because it ran past its execution timeout and did not stop."""


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


class JobState(StrEnum):
    ENABLED = "ENABLED"
    PAUSED = "PAUSED"
    DISABLED = "DISABLED"


@dataclass(frozen=True, slots=True)
class Machine:
    """One table: where rows begin, and where each state may go."""

    name: str
    births: frozenset[str]
    moves: Mapping[str, frozenset[str]]
    terminal: frozenset[str] = field(init=False)
    """Where nothing leads on."""

    def __post_init__(self) -> None:
        ends = frozenset(state for state, onward in self.moves.items() if not onward)
        object.__setattr__(self, "terminal", ends)

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(self.moves)

    def allows(self, before: str | None, after: str) -> bool:
        """Whether a row may go from `before` to `after`; None stands for not yet born."""
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


def _machine(name: str, states: Iterable[str], births: str, moves: dict[str, str]) -> Machine:
    table = {str(state): frozenset(moves.get(state, "").split()) for state in states}
    return Machine(name, frozenset(births.split()), MappingProxyType(table))


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
    """The run's end from its tasks' ends, each with the failure strategy it ran under.

    `cancelled` says that the run itself was cancelled or ran out of time, `stale` that its worker was lost and it may
    not be tried again; both outweigh what its tasks say.
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
