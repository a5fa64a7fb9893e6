"""What must hold of every trace, said from the specification: which starts are owed, and that every debt is met.

A task is owed a start, at a time when the scheduler is active and has the task registered and does not run it, for

    a minute that matches its expression and began after its last start. To a task that was never started, minutes
        before the one in which the scheduler was initialized are not owed; to any other they are, whether the scheduler
        was active, stopped, gone, or had the task not registered. One start stands for all of them.
    a failure, when the delay is over (a second at least). Any start before that takes its place.
    a run that ended with its process. It too stands for every minute up to then.

Whatever is owed is to be started within `patience` of running time, and nothing is to be started that is not owed. A
minute that came while the scheduler was active stays owed when another expression is registered; minutes missed besides
are those of the new expression.

At the very moment of a crash or a stop, outside cannot tell what the catalog had been told: a start that was owed, or a
run that ended, at that moment may be started once more when the task is back, and need not be. What is owed at the very
moment of a stop may be started still: a poll that is under way is completed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from tests.declarative.trace import Event, Kind, Registered, Trace
from tests.declarative.trace_cron import MINUTE, Calendar, minute_of

SHORTEST_DELAY = timedelta(seconds=1)
"""A delay that is shorter is this long: what is tried without end is tried once a second at most."""
GRAIN = timedelta(milliseconds=1)
"""The catalog counts in these, so that a delay may be shorter by a part of one."""
_INSTANT = timedelta(microseconds=1)


class Wrong(StrEnum):
    """What a trace can be guilty of."""

    NOT_OWED = "started without being owed"
    EARLY_RETRY = "retried before its delay was over"
    TWO_AT_ONCE = "started while it was running"
    INACTIVE = "started while the scheduler was not active"
    NOT_REGISTERED = "started without being registered"
    UNMET = "not started although it was owed"
    NOT_QUIET = "stop() returned while it was running"
    TWO_SUCCESSES = "succeeded twice without coming due between"
    UNHEARD_OF = "ended without having been started"
    OUT_OF_ORDER = "happened where it cannot happen"


class Why(StrEnum):
    """What a start was owed for."""

    DUE = "due"
    """Its minute had just begun, or was still going on."""
    LATE = "late"
    """Its minute began while the scheduler was active, and could not be served then."""
    MAKE_UP = "make-up"
    """Its minute began while the scheduler was not active, or had another expression for it."""
    RETRY = "retry"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something wrong, at the event with this index; `task` is None where it is the scheduler's own."""

    index: int
    wrong: Wrong
    task: str | None
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"event {self.index}: {self.task or 'the scheduler'} {self.wrong.value}{detail}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found wrong, and how often each thing happened."""

    violations: tuple[Violation, ...]
    tally: Counter[str]


@dataclass(slots=True)
class _Task:
    """What is known of one task. Minutes after `since` are owed."""

    name: str
    registered: Registered | None = None
    since: datetime | None = None
    attempted: datetime | None = None
    """When it was started last."""
    running: bool = False
    ended: datetime | None = None
    retry_at: datetime | None = None
    cut: bool = False
    """Its process ended in the middle of a run."""
    debt: bool = False
    """A minute came while the scheduler was active, and was not served."""
    allowed: bool = False
    """It may be started once more, and need not be: the moment of a crash or a stop."""
    blamed: bool = False
    """Its debt was reported; once is enough."""
    succeeded: datetime | None = None
    """The start of its last success."""
    expressions: set[str] = field(default_factory=set)
    """What was registered for it since then."""

    def start(self, at: datetime) -> None:
        """It is served, for whatever it was owed until now."""
        self.since = self.attempted = at
        self.running = True
        self.retry_at = None
        self.cut = self.debt = self.allowed = self.blamed = False


def check(trace: Trace, patience: timedelta = MINUTE) -> Verdict:
    """The verdict on a whole trace. Where the store failed, patience is needed for what it is told as well."""
    return _Checker(trace, patience).verdict()


class _Checker:
    def __init__(self, trace: Trace, patience: timedelta) -> None:
        self._events = trace.events
        self._patience = patience
        self._untold = patience if trace.store_failures else timedelta(0)
        """For how long the catalog may not have been told that a run has ended."""
        self._calendar = Calendar(trace.zone, trace.events[0].at, trace.events[-1].at)
        self._tasks: dict[str, _Task] = {}
        self._coming: dict[str, Registered] = {}
        self._active = False
        self._stopping = False
        self._active_since = self._awake_since = self._ended_at = self._now = trace.events[0].at
        self._index = 0
        self._violations: list[Violation] = []
        self._tally: Counter[str] = Counter({"store failures": trace.store_failures})

    def verdict(self) -> Verdict:
        for index, event in enumerate(self._events):
            self._index = index
            if event.at < self._now:
                self._blame(Wrong.OUT_OF_ORDER, None, f"{event.kind} before what went before it")
            if event.kind is not Kind.JUMP:  # no running time passes in a jump
                self._check_debts(event.at)
            self._now = event.at
            self._take(event)
        self._tally["clock changes"] = self._calendar.clock_changes()
        return Verdict(tuple(self._violations), self._tally)

    def _blame(self, wrong: Wrong, task: str | None, detail: str = "") -> None:
        self._violations.append(Violation(self._index, wrong, task, detail))

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event.kind:
            case Kind.INIT:
                self._coming = dict(event.tasks)
            case Kind.ACTIVE:
                self._begin()
            case Kind.STOP:
                self._end_of_activity()
                self._stopping = True
            case Kind.STOPPED:
                self._stopped()
            case Kind.CRASH:
                self._crash()
            case Kind.JUMP:
                self._awake_since = event.at
            case Kind.START:
                self._start(self._task(event))
            case Kind.SUCCESS | Kind.FAILURE:
                self._finish(self._task(event), failed=event.kind is Kind.FAILURE)
            case Kind.END:
                return
        if event.kind not in (Kind.START, Kind.SUCCESS, Kind.FAILURE):
            self._tally[event.kind.value] += 1

    def _task(self, event: Event) -> _Task:
        assert event.task is not None
        return self._tasks.setdefault(event.task, _Task(event.task))

    def _begin(self) -> None:
        if self._active or self._stopping:
            self._blame(Wrong.OUT_OF_ORDER, None, "it began before it had ended")
        self._active, self._active_since = True, self._now
        for name in self._coming:
            self._tasks.setdefault(name, _Task(name))
        for name, task in self._tasks.items():
            registered = self._coming.get(name)
            if registered is not None and task.registered is not None and registered != task.registered:
                self._tally["overridden"] += 1
            task.registered = registered
            if registered is None:
                continue
            task.expressions.add(registered.expression)
            if task.attempted is None:
                task.since = minute_of(self._now) - _INSTANT

    def _end_of_activity(self) -> None:
        """Notes what is owed for minutes of activity, so that it is not forgotten with the expression."""
        if not self._active:
            return
        self._active, self._ended_at = False, self._now
        for task in self._tasks.values():
            if task.registered is None:
                continue
            if self._now > self._free_since(task) + self._patience:
                task.allowed = False
            began = self._owed_minute(task, self._now)
            if began is None:
                continue
            task.allowed = True
            noticed = max(began, self._awake_since, self._active_since)
            if task.attempted is not None and noticed < self._now:
                task.debt = True

    def _stopped(self) -> None:
        self._stopping = False
        for task in self._tasks.values():
            if task.running:
                self._blame(Wrong.NOT_QUIET, task.name)

    def _crash(self) -> None:
        self._end_of_activity()
        self._stopping = False
        for task in self._tasks.values():
            if task.running:
                task.running, task.cut = False, True
                self._tally["cut"] += 1
            elif task.ended is not None and task.ended + self._untold >= self._now:
                task.allowed = True
                task.succeeded = None

    def _start(self, task: _Task) -> None:
        self._tally["starts"] += 1
        if not self._active and not (self._stopping and self._ended_at == self._now):
            self._blame(Wrong.INACTIVE, task.name)
        elif task.registered is None:
            self._blame(Wrong.NOT_REGISTERED, task.name)
        elif task.running:
            self._blame(Wrong.TWO_AT_ONCE, task.name)
        else:
            self._judge(task, task.registered)
        task.start(self._now)

    def _judge(self, task: _Task, registered: Registered) -> None:
        why = self._why(task, registered)
        if why is not None:
            self._tally[why.value] += 1
            if task.retry_at is not None and why in (Why.DUE, Why.LATE, Why.MAKE_UP):
                self._tally["pre-empted"] += 1
            if task.since is not None:
                owed = self._calendar.count(registered.expression, task.since, self._now)
                self._tally["minutes folded"] += max(0, owed - 1)
        elif task.retry_at is not None:
            self._blame(Wrong.EARLY_RETRY, task.name, f"not before {task.retry_at}")
        else:
            self._blame(Wrong.NOT_OWED, task.name, f"last started {task.attempted}, as {registered}")

    def _why(self, task: _Task, registered: Registered) -> Why | None:
        if task.cut:
            return Why.RESTART
        assert task.since is not None
        newest = self._calendar.last(registered.expression, task.since, self._now)
        if newest is not None:
            if newest == minute_of(self._now):
                return Why.DUE
            return Why.LATE if newest >= self._active_since else Why.MAKE_UP
        if task.debt:
            return Why.LATE
        if task.retry_at is not None and task.retry_at < self._now + GRAIN:
            return Why.RETRY
        if task.allowed and self._now <= self._free_since(task) + self._patience:
            return Why.RESTART
        return None

    def _finish(self, task: _Task, *, failed: bool) -> None:
        if not task.running:
            self._blame(Wrong.UNHEARD_OF, task.name)
            return
        task.running, task.ended = False, self._now
        if failed:
            assert task.registered is not None
            self._tally["failures"] += 1
            task.retry_at = self._now + max(task.registered.delay, SHORTEST_DELAY)
            return
        self._tally["successes"] += 1
        started = task.attempted
        assert started is not None
        if task.succeeded is not None and not any(
            self._calendar.count(expression, task.succeeded, started) for expression in task.expressions
        ):
            self._blame(Wrong.TWO_SUCCESSES, task.name, f"started {task.succeeded} and {started}")
        task.succeeded = started
        task.expressions = set() if task.registered is None else {task.registered.expression}

    # ---- what is owed ------------------------------------------------------------------------------------------------

    def _owed_minute(self, task: _Task, until: datetime) -> datetime | None:
        if task.registered is None or task.since is None:
            return None
        return self._calendar.first(task.registered.expression, task.since, until)

    def _free_since(self, task: _Task) -> datetime:
        """Since when it could have been started, as far as it is up to the scheduler."""
        return max(filter(None, (self._active_since, self._awake_since, task.ended)))

    def _debts(self, task: _Task, until: datetime) -> Iterator[tuple[datetime, str]]:
        if task.cut:
            yield self._active_since, "the run that ended with its process"
        if task.debt:
            yield self._active_since, "a minute that came before it was registered anew"
        began = self._owed_minute(task, until)
        if began is not None:
            yield began, f"the minute {began}"
        if task.retry_at is not None:
            yield task.retry_at, f"the retry at {task.retry_at}"

    def _check_debts(self, until: datetime) -> None:
        """No task has waited for longer than patience allows, without a start, up to `until`."""
        if not self._active:
            return
        for task in self._tasks.values():
            if task.registered is None or task.running or task.blamed:
                continue
            free = self._free_since(task)
            for owed, what in self._debts(task, until):
                if max(owed, free) + self._patience < until:
                    self._blame(Wrong.UNMET, task.name, what)
                    task.blamed = True
                    break
