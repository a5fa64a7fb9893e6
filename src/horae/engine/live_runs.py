"""The runs that an engine owns, in memory: their attempts under way and what these were asked to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from horae.engine.attempts.error_record import AttemptFault, OutputTail
from horae.executors.output import Output
from horae.executors.run import StopFlag
from horae.executors.transaction import RunTransaction
from horae.store.protocols.store import AttemptEnd, AttemptStart, Claim, ThreadKey

TIMEOUT = "timeout"
CANCELLED = "cancelled"
RELEASED = "released"


class LiveAttempt:
    """One attempt under way. `asked` is the reason why it was asked to stop, None if it was not asked."""

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

    def __init__(
        self, run: LiveRun, start: AttemptStart, started: float, expires: float | None, output: Output
    ) -> None:
        self.run = run
        self.position = start.position
        self.number = start.number
        self.started = started
        self.expires = expires
        self.output = output
        self.secrets: dict[str, str] | None = None
        """Secrets that the attempt received, by name. They are removed from its output and its errors."""
        self.stop: StopFlag | None = None
        """The stop flag that the task reads through its `Run`. None if it takes no `Run`."""
        self.asked: str | None = None
        self.saw = False
        """Whether the task returned and knew that it was to stop."""
        self.fault: AttemptFault | None = None
        """Why the attempt failed, from the failure until its event is emitted."""
        self.over = False
        self.abandoned = False
        self.chunks = 0
        self.joining: RunTransaction | None = None
        self.affected: int | None = None
        """Rows that a SQL task changed."""
        self.handle: Any = None
        """The object to cancel: an asyncio.Task or the handle of a process; None for a thread."""
        self.kill: Callable[[], None] | None = None
        """Kills the program that a cancelled task still waits for."""
        self.grace: asyncio.TimerHandle | None = None
        self.tail: OutputTail | None = None
        """The last output lines of a program."""

    @property
    def hidden(self) -> Collection[str]:
        """The values of the attempt's secrets."""
        return () if self.secrets is None else self.secrets.values()

    @property
    def key(self) -> ThreadKey:
        """The key of the attempt's thread in the catalog."""
        return ThreadKey(self.run.claim.run_no, self.position, self.number)

    @property
    def turn(self) -> float | None:
        """Seconds that the attempt may go on after its run is stopped; None if it is to stop with the run."""
        return self.stop_grace if self.position in self.run.claim.definition.spared else None

    @property
    def stop_grace(self) -> float:
        """Seconds that the attempt may take to stop when asked to."""
        return self.run.claim.definition.task_settings[self.position].cancel_grace.total_seconds()

    @property
    def can_be_killed(self) -> bool:
        """Whether abandoning the attempt ends its code: processes and programs are killed, threads and coroutines are
        not."""
        return self.kill is not None or not (self.handle is None or isinstance(self.handle, asyncio.Task))

    @property
    def task_name(self) -> str:
        return self.run.claim.definition.spec.tasks[self.position].name


class LiveRun:
    """A run that this node owns. It is kept until its last settlement is committed."""

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
        """Ends of attempts that are not settled yet."""
        self.leftovers: list[LiveAttempt] = []
        """Abandoned attempts whose threads still work."""
        self.results: dict[str, Any] = {}
        self.stop: str | None = None
        """Why the whole run is to end: the reason of a cancellation, or `timeout`."""
        self.stop_told = False
        """Whether a settlement has carried `stop` to the catalog."""
        self.released = False
        """Whether the run is released as soon as none of its attempts is under way."""
        self.settling = False
        self.waiting_for_turn = False
        """Whether the run is already queued for settlement."""
        self.nudge: asyncio.TimerHandle | None = None
        self.preparing: asyncio.Task[None] | None = None
        """The preparation of the run's first attempt: reading earlier results and calling on_start hooks."""
        self.last_run_ms: int | None = None
        self.fault: AttemptFault | None = None
        """The fault of the run's latest failed attempt on this node. It is logged with the end of the run."""

    @property
    def threads(self) -> tuple[AttemptStart, ...]:
        """The abandoned attempts whose threads still work, in the form that a settlement reports."""
        return tuple(AttemptStart(attempt.position, attempt.number) for attempt in self.leftovers)

    def stop_preparing(self) -> None:
        if self.preparing is not None:
            self.preparing.cancel()

    def forget(self) -> None:
        """Cancels the timer for the run's next retry."""
        if self.nudge is not None:
            self.nudge.cancel()
            self.nudge = None


class LiveRuns:
    """The runs that an engine owns, and how much of its concurrency limit they use."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.runs: dict[str, LiveRun] = {}
        self.attempts: set[LiveAttempt] = set()
        """All attempts whose code still works, including abandoned ones."""
        self.working = 0
        """Runs with an attempt under way."""
        self.leftovers = 0
        """Abandoned attempts whose code still works. Each counts against the concurrency limit until it ends."""

    @property
    def free(self) -> int:
        """The free capacity: how many runs the node may claim. It is lower while too many ended runs wait to be
        settled."""
        return max(0, min(self.slots - self.working - self.leftovers, 2 * self.slots - len(self.runs)))

    @property
    def has_threads(self) -> bool:
        """Whether a thread of an abandoned attempt still works. Only the end of the process ends such a thread."""
        return any(attempt.abandoned and not attempt.can_be_killed for attempt in self.attempts)

    @property
    def known(self) -> Mapping[str, int]:
        return {run_id: run.claim.fence for run_id, run in self.runs.items()}

    def get(self, run_id: str, fence: int) -> LiveRun | None:
        run = self.runs.get(run_id)
        return run if run is not None and run.claim.fence == fence else None
