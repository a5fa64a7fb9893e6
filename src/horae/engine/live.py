"""What an engine remembers of the runs it owns: which attempts are under way, and what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from horae.runners.output import Output
from horae.runners.run import Stop
from horae.runners.transaction import Joining
from horae.store.port import AttemptEnd, Claim, Start

TIMEOUT = "timeout"
CANCELLED = "cancelled"
RELEASED = "released"


class LiveAttempt:
    """One attempt under way. `asked` says why it was asked to stop, None while it was not."""

    __slots__ = (
        "abandoned",
        "affected",
        "asked",
        "chunks",
        "expires",
        "grace",
        "handle",
        "joining",
        "kill",
        "number",
        "output",
        "over",
        "position",
        "run",
        "secrets",
        "started",
        "stop",
    )

    def __init__(self, run: LiveRun, start: Start, started: float, expires: float | None, output: Output) -> None:
        self.run = run
        self.position = start.position
        self.number = start.number
        self.started = started
        self.expires = expires
        self.output = output
        self.secrets: dict[str, str] | None = None
        """What it was given to know, and nobody is to read in what it prints or raises."""
        self.stop: Stop | None = None
        """What tells the task; None where it takes no `Run` and cannot ask."""
        self.asked: str | None = None
        self.over = False
        self.abandoned = False
        self.chunks = 0
        self.joining: Joining | None = None
        self.affected: int | None = None
        """Rows that SQL work touched."""
        self.handle: Any = None
        """What can be cancelled: an asyncio.Task, a process' handle; None for a thread."""
        self.kill: Callable[[], None] | None = None
        """Ends at once what a cancelled task would still wait for: a program."""
        self.grace: asyncio.TimerHandle | None = None

    @property
    def task_name(self) -> str:
        return self.run.claim.definition.spec.tasks[self.position].name


class LiveRun:
    """A run this node owns. It is working while attempts are under way, and known until its last settlement is in."""

    __slots__ = (
        "attempts",
        "claim",
        "claimed",
        "ends",
        "expires",
        "job_name",
        "last_run_ms",
        "nudge",
        "preparing",
        "released",
        "results",
        "run_id",
        "settling",
        "stop",
        "waiting_for_turn",
    )

    def __init__(self, claim: Claim, claimed: float, expires: float | None) -> None:
        self.claim = claim
        self.run_id = claim.run_id
        self.job_name = claim.definition.spec.name
        self.claimed = claimed
        self.expires = expires
        self.attempts: dict[int, LiveAttempt] = {}
        self.ends: list[AttemptEnd] = []
        """Outcomes not yet settled."""
        self.results: dict[str, Any] = {}
        self.stop: str | None = None
        """Why the whole run is to end: a cancellation's reason, or `timeout`."""
        self.released = False
        """It is handed back once nothing of it is under way."""
        self.settling = False
        self.waiting_for_turn = False
        """In the completer's line already."""
        self.nudge: asyncio.TimerHandle | None = None
        self.preparing: asyncio.Task[None] | None = None
        """What is read and called before its first attempt."""
        self.last_run_ms: int | None = None

    def stop_preparing(self) -> None:
        if self.preparing is not None:
            self.preparing.cancel()

    def forget(self) -> None:
        if self.nudge is not None:
            self.nudge.cancel()
            self.nudge = None


class Ledger:
    """The runs an engine owns, and how many of its slots are taken."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.runs: dict[str, LiveRun] = {}
        self.working = 0
        """Runs with an attempt under way."""
        self.leftovers = 0
        """Attempts that did not stop when asked and were given up: each holds a slot until it ends."""

    @property
    def free(self) -> int:
        """Runs that may be taken on: slots nobody works in, unless too many ends still wait to be settled."""
        return max(0, min(self.slots - self.working - self.leftovers, 2 * self.slots - len(self.runs)))

    @property
    def known(self) -> Mapping[str, int]:
        return {run_id: run.claim.fence for run_id, run in self.runs.items()}

    def get(self, run_id: str, fence: int) -> LiveRun | None:
        run = self.runs.get(run_id)
        return run if run is not None and run.claim.fence == fence else None
