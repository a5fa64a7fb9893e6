"""`Run`: what a task can read about its own run, and what it can request while it works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime, timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, Protocol

from horae.core.job import ids
from horae.core.job.definition import Settings
from horae.core.time.instant import EPOCH
from horae.errors import SecretError

_LOG = logging.getLogger("horae.task")
# Records of `run.log` are captured from INFO on, whatever the host program's root level is.
_LOG.setLevel(logging.INFO)


class RunFacts(NamedTuple):
    """Everything about an attempt that does not change while it runs. Times are in milliseconds. It can be pickled."""

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
    """Raised in a task that is to stop: by `run.check_cancelled()`, and with isolation="process" in a sync task at any
    point.

    It is not an Exception, like `asyncio.CancelledError`: a task that catches every Exception, to try again or to go on
    with the next item, would not stop. It is not a HoraeError, because nothing went wrong.
    """


class StopFlag:
    """Whether the attempt was asked to stop, and how the task reacts. Tasks read it in any thread."""

    __slots__ = ("asked", "is_done", "seen")

    def __init__(self) -> None:
        self.asked = False
        self.seen = False
        """Whether the task knows that it is to stop."""
        self.is_done = False
        """Whether the task has called `done()`."""


class Executor(Protocol):
    """`run.transaction`: `execute` returns rows in sync tasks and is awaited in async ones."""

    def execute(self, sql: str, parameters: Any = None) -> Any: ...


class _RunLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the job, the run, the task and the attempt to every record, and keeps the caller's `extra`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Run:
    """One attempt as its task sees it. A task gets it as its only argument. Times are aware datetimes in UTC.

    @etl.task
    def load(run: Run):
        run.log.info("loading %s", run.scheduled_time)
        run.transaction.execute("INSERT INTO loads VALUES (?)", (run.run_id,))
    """

    __slots__ = ("_facts", "_join", "_log", "_secret", "_stop", "_transaction")

    def __init__(
        self, facts: RunFacts, stop: StopFlag, join: Callable[[], Executor], secret: Callable[[str], Any] | None = None
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
        stop: StopFlag | None = None,
        learnt: Callable[[str], None] | None = None,
    ) -> Run:
        """Builds the run for a task in a child process.

        `ask` sends a request to the engine and waits for the answer. `learnt` receives every secret before the task
        does.
        """
        secret = partial(_asked_secret, ask, learnt)
        return cls(RunFacts(**facts), stop or StopFlag(), lambda: _RemoteTransaction(ask), secret)

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
        """The number of this attempt, from 1."""
        return self._facts.attempt

    @property
    def attempt_id(self) -> str:
        return ids.attempt_id(self.task_run_id, self._facts.attempt)

    @property
    def payload(self) -> Any:
        return self._facts.payload

    @property
    def results(self) -> Mapping[str, Any]:
        """The return values of this run's tasks that have succeeded, by task name."""
        return self._facts.results

    @property
    def scheduled_time(self) -> datetime:
        """The time in the schedule that this run is for. It identifies the run, whenever that starts."""
        return _moment(self._facts.scheduled_ms)

    @property
    def chosen_time(self) -> datetime:
        """When the run was to start: the scheduled time, or the moment chosen inside its window."""
        return _moment(self._facts.chosen_ms)

    @property
    def started_at(self) -> datetime:
        """When this attempt started. It differs between attempts."""
        return _moment(self._facts.started_ms)

    @property
    def last_run_time(self) -> datetime | None:
        """When the job's latest run before this one started."""
        return None if self._facts.last_run_ms is None else _moment(self._facts.last_run_ms)

    @property
    def is_recovery(self) -> bool:
        """Whether this run catches up on a missed scheduled time."""
        return self._facts.is_recovery

    @property
    def covers_from(self) -> datetime | None:
        """The start of the span of scheduled times that this run covers, exclusive: the end of what was covered before.

        None if the run covers its own scheduled time only.
        """
        return None if self._facts.covers_from_ms is None else _moment(self._facts.covers_from_ms)

    @property
    def covers_to(self) -> datetime | None:
        """The end of the span of scheduled times that this run covers, inclusive.

        None if the run covers its own scheduled time only.
        """
        return None if self._facts.covers_to_ms is None else _moment(self._facts.covers_to_ms)

    @property
    def config(self) -> Settings:
        """The settings of this task, merged from the scheduler's, the job's and its own."""
        return self._facts.config

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is to stop. A sync task must check it from time to time, because a thread cannot be
        stopped.

        A task that has read True and returns counts as stopped, not as successful, unless it calls `done()`.
        """
        stop = self._stop
        if stop.asked:
            stop.seen = True
        return stop.asked

    def check_cancelled(self) -> None:
        """Raises `horae.Cancelled` if this attempt is to stop. Call it between two pieces of work.

        for order in orders:
            run.check_cancelled()
            ship(order)
        """
        if self.cancelled:
            raise Cancelled("the task was asked to stop")

    def done(self) -> None:
        """Declares that the task has finished its work although it was asked to stop: it then succeeds when it
        returns."""
        self._stop.is_done = True

    @property
    def transaction(self) -> Executor:
        """The transaction that commits the end of this attempt. What the task writes through it takes effect exactly
        once.

            run.transaction.execute("UPDATE stock SET amount = 0")

        An async task awaits it.

        `execute` raises TransactionExpired after the setting `transaction_limit`, StoreUnavailable if the connection is
        lost, and Conflict after the attempt has ended.
        """
        if self._transaction is None:
            self._transaction = self._join()
        return self._transaction

    def secret(self, name: str) -> Any:
        """Returns the value of a secret that belongs to the job or that its owner may use. Await it in async tasks.

        The value is removed from what this attempt prints, logs and raises. Raises SecretNotFound, AccessDenied,
        SecretError.

            password = run.secret("mail_password")
        """
        return self._secret(name)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records are stored with the attempt."""
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


class _RemoteTransaction:
    """The transaction seen from a child process: every statement is a request to the engine."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def execute(self, sql: str, parameters: Any = None) -> Any:
        return self._ask("execute", sql, parameters)


def _moment(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)
