"""What an engine remembers of the runs it owns: which attempts are under way, and what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from horae.engine.fault import Fault, Tail
from horae.runners.output import Output
from horae.runners.run import Stop
from horae.runners.transaction import Joining
from horae.store.port import AttemptEnd, Claim, Start, ThreadKey

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
        "fault",
        "grace",
        "handle",
        "joining",
        "kill",
        "number",
        "output",
        "over",
        "position",
        "run",
        "saw",
        "secrets",
        "started",
        "stop",
        "tail",
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
        self.saw = False
        """Its task has returned, and knew that it was to stop."""
        self.fault: Fault | None = None
        """Why it failed, from then until that is announced."""
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
        self.tail: Tail | None = None
        """The last lines of a program."""

    @property
    def hidden(self) -> Collection[str]:
        """The values of its secrets."""
        return () if self.secrets is None else self.secrets.values()

    @property
    def key(self) -> ThreadKey:
        """What the catalog knows its thread by."""
        return ThreadKey(self.run.claim.run_no, self.position, self.number)

    @property
    def turn(self) -> float | None:
        """Seconds that it may still take where its run is stopped; None where it is to stop with the run."""
        return self.stop_grace if self.position in self.run.claim.definition.spared else None

    @property
    def stop_grace(self) -> float:
        """Seconds that it may take to stop when it is asked to."""
        return self.run.claim.definition.task_settings[self.position].cancel_grace.total_seconds()

    @property
    def can_be_killed(self) -> bool:
        """Whether giving it up ends it: a process and a program are killed, a thread and a coroutine are not."""
        return self.kill is not None or not (self.handle is None or isinstance(self.handle, asyncio.Task))

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
        "fault",
        "job_name",
        "last_run_ms",
        "leftovers",
        "nudge",
        "preparing",
        "released",
        "results",
        "run_id",
        "settling",
        "stop",
        "stop_told",
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
        self.leftovers: list[LiveAttempt] = []
        """Attempts that were given up while their thread works on."""
        self.results: dict[str, Any] = {}
        self.stop: str | None = None
        """Why the whole run is to end: a cancellation's reason, or `timeout`."""
        self.stop_told = False
        """The catalog has been told of that."""
        self.released = False
        """It is handed back once nothing of it is under way."""
        self.settling = False
        self.waiting_for_turn = False
        """In the completer's line already."""
        self.nudge: asyncio.TimerHandle | None = None
        self.preparing: asyncio.Task[None] | None = None
        """What is read and called before its first attempt."""
        self.last_run_ms: int | None = None
        self.fault: Fault | None = None
        """Why the latest of its attempts that failed here did so: logged with the end of the run."""

    @property
    def threads(self) -> tuple[Start, ...]:
        """The attempts whose thread works on, as a settlement tells of them."""
        return tuple(Start(attempt.position, attempt.number) for attempt in self.leftovers)

    def stop_preparing(self) -> None:
        if self.preparing is not None:
            self.preparing.cancel()

    def forget(self) -> None:
        """Drops the timer that would ask for its next retry."""
        if self.nudge is not None:
            self.nudge.cancel()
            self.nudge = None


class Ledger:
    """The runs an engine owns, and how many of its slots are taken."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.runs: dict[str, LiveRun] = {}
        self.attempts: set[LiveAttempt] = set()
        """All whose code still works, given up or not."""
        self.working = 0
        """Runs with an attempt under way."""
        self.leftovers = 0
        """Attempts that did not stop when asked and were given up: each holds a slot until it ends."""

    @property
    def free(self) -> int:
        """Runs that may be taken on: slots nobody works in, unless too many ends still wait to be settled."""
        return max(0, min(self.slots - self.working - self.leftovers, 2 * self.slots - len(self.runs)))

    @property
    def has_threads(self) -> bool:
        """Whether a thread works on whose attempt was given up: nothing but the end of the process ends it."""
        return any(attempt.abandoned and not attempt.can_be_killed for attempt in self.attempts)

    @property
    def known(self) -> Mapping[str, int]:
        return {run_id: run.claim.fence for run_id, run in self.runs.items()}

    def get(self, run_id: str, fence: int) -> LiveRun | None:
        run = self.runs.get(run_id)
        return run if run is not None and run.claim.fence == fence else None
