"""`Run`: what a task is told about the run it is part of, and what it may ask for while it works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime, timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, Protocol

from horae.core import ids
from horae.core.instant import EPOCH
from horae.core.job import Settings
from horae.errors import SecretError

_LOG = logging.getLogger("horae.task")
# What a task logs through `run.log` is wanted, whatever the host program's root logger thinks of INFO.
_LOG.setLevel(logging.INFO)


class Facts(NamedTuple):
    """Everything about an attempt that does not change while it runs. Times in milliseconds; it can be pickled."""

    job_name: str
    run_id: str
    task_name: str
    attempt: int
    payload: Any
    results: Mapping[str, Any]
    scheduled_ms: int
    chosen_ms: int
    started_ms: int
    last_run_ms: int | None
    is_recovery: bool
    covers_from_ms: int | None
    covers_to_ms: int | None
    config: Settings


class Cancelled(BaseException):
    """Raised in a task that is to stop: by `run.check_cancelled()`, and with isolation="process" in a sync task at
    whatever it is doing.

    It is not an Exception, for the reason that `asyncio.CancelledError` is not: a task that catches every Exception, to
    try again or to go on with the next item, would not stop. It is no HoraeError either: nothing went wrong.
    """


class Stop:
    """Whether somebody asked the attempt to stop, and what the task makes of it; tasks read it in any thread."""

    __slots__ = ("asked", "is_done", "seen")

    def __init__(self) -> None:
        self.asked = False
        self.seen = False
        """The task knows that it is to stop."""
        self.is_done = False
        """The task has said that it finished its work."""


class Executor(Protocol):
    """`run.transaction`: in sync tasks `execute` returns rows, in async ones it is awaited."""

    def execute(self, sql: str, parameters: Any = None) -> Any: ...


class _RunLog(logging.LoggerAdapter[logging.Logger]):
    """Adds who speaks to every record, and keeps what the caller adds."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Run:
    """One attempt as its task sees it. Times are aware datetimes in UTC."""

    __slots__ = ("_facts", "_join", "_log", "_secret", "_stop", "_transaction")

    def __init__(
        self, facts: Facts, stop: Stop, join: Callable[[], Executor], secret: Callable[[str], Any] | None = None
    ) -> None:
        self._facts = facts
        self._stop = stop
        self._join = join
        self._secret = secret or _no_secrets
        self._transaction: Executor | None = None
        self._log: _RunLog | None = None

    @classmethod
    def in_child(
        cls,
        facts: Mapping[str, Any],
        ask: Callable[..., Any],
        stop: Stop | None = None,
        learnt: Callable[[str], None] | None = None,
    ) -> Run:
        """The run as a task in a process of its own sees it; `ask` puts a question to the engine and waits; `learnt` is
        told every secret before the task is."""
        secret = partial(_asked_secret, ask, learnt)
        return cls(Facts(**facts), stop or Stop(), lambda: _Asking(ask), secret)

    @property
    def job_name(self) -> str:
        return self._facts.job_name

    @property
    def run_id(self) -> str:
        return self._facts.run_id

    @property
    def task_name(self) -> str:
        return self._facts.task_name

    @property
    def task_run_id(self) -> str:
        facts = self._facts
        return ids.task_run_id(facts.run_id, ids.task_uuid(ids.job_uuid(facts.job_name), facts.task_name))

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._facts.attempt

    @property
    def attempt_id(self) -> str:
        return ids.attempt_id(self.task_run_id, self._facts.attempt)

    @property
    def payload(self) -> Any:
        return self._facts.payload

    @property
    def results(self) -> Mapping[str, Any]:
        """What the tasks of this run that have finished returned, by task name."""
        return self._facts.results

    @property
    def scheduled_time(self) -> datetime:
        """The slot this run stands for: its identity, whenever it starts."""
        return _moment(self._facts.scheduled_ms)

    @property
    def chosen_time(self) -> datetime:
        """When it was to start: the scheduled time, or the moment chosen inside its window."""
        return _moment(self._facts.chosen_ms)

    @property
    def started_at(self) -> datetime:
        """When this attempt started: another time for each."""
        return _moment(self._facts.started_ms)

    @property
    def last_run_time(self) -> datetime | None:
        """When the job's latest run before this one started."""
        return None if self._facts.last_run_ms is None else _moment(self._facts.last_run_ms)

    @property
    def is_recovery(self) -> bool:
        """Whether this makes up for a slot that was missed."""
        return self._facts.is_recovery

    @property
    def covers_from(self) -> datetime | None:
        """The end of what was covered before: a run that carries a span carries the slots after this moment,"""
        return None if self._facts.covers_from_ms is None else _moment(self._facts.covers_from_ms)

    @property
    def covers_to(self) -> datetime | None:
        """up to and with this one. None where the run stands for its own slot alone."""
        return None if self._facts.covers_to_ms is None else _moment(self._facts.covers_to_ms)

    @property
    def config(self) -> Settings:
        """The settings this task runs under: the scheduler's, the job's and its own, as they were when it began."""
        return self._facts.config

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is to stop. A sync task looks at it now and then: a thread cannot be stopped.

        A task that has read True and returns counts as interrupted, unless it says `done()`.
        """
        stop = self._stop
        if stop.asked:
            stop.seen = True
        return stop.asked

    def check_cancelled(self) -> None:
        """Raises `horae.Cancelled` if this attempt is to stop. To be called between two pieces of work.

        for order in orders:
            run.check_cancelled()
            ship(order)
        """
        if self.cancelled:
            raise Cancelled("the task was asked to stop")

    def done(self) -> None:
        """Says that the task has finished its work, although it knows that it is to stop: it succeeds by returning."""
        self._stop.is_done = True

    @property
    def transaction(self) -> Executor:
        """The transaction that this task's end is committed in: what is written through it happens exactly once."""
        if self._transaction is None:
            self._transaction = self._join()
        return self._transaction

    def secret(self, name: str) -> Any:
        """The value of a secret, the job's own or one its owner may use; awaited in async tasks.

        It is blackened in what this attempt prints, logs and raises. Raises SecretNotFound, AccessDenied, SecretError.
        """
        return self._secret(name)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger; what it is told is kept with the attempt."""
        if self._log is None:
            facts = self._facts
            self._log = _RunLog(
                _LOG,
                {"job": facts.job_name, "run_id": facts.run_id, "task": facts.task_name, "attempt": facts.attempt},
            )
        return self._log

    def __repr__(self) -> str:
        facts = self._facts
        return f"<Run {facts.job_name}/{facts.task_name} attempt {facts.attempt} of {facts.run_id}>"


def _asked_secret(ask: Callable[..., Any], learnt: Callable[[str], None] | None, name: str) -> Any:
    answer = ask("secret", name)

    async def later() -> str:
        return told(await answer)

    def told(value: str) -> str:
        if learnt is not None:
            learnt(value)
        return value

    return later() if isawaitable(answer) else told(answer)


def _no_secrets(name: str) -> Any:
    raise SecretError("This run has no secrets: it runs without a catalog", hint="Run it with an app.")


class _Asking:
    """The transaction seen from another process: every statement is a question."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def execute(self, sql: str, parameters: Any = None) -> Any:
        return self._ask("execute", sql, parameters)


def _moment(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)
