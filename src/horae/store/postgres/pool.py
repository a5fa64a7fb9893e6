"""Connections and pools: psycopg's, with limits on the wait for an answer, fast reads and short pauses to reconnect."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from fcntl import ioctl
from select import POLLIN, POLLOUT, poll
from termios import FIONREAD
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, AsyncPipeline, Error
from psycopg.generators import send
from psycopg.waiting import Ready, Wait
from psycopg_pool import AsyncConnectionPool
from psycopg_pool.base import AttemptWithBackoff

from horae.errors import StatementFailed
from horae.store.driver import Row
from horae.store.postgres.keepalive import ANSWER, CANCELLED, AnswerTimeout, ConnectionTrust

Answer = TypeVar("Answer")
FRESH = 1.0
"""Seconds after its last use for which a connection counts as alive without a check."""
AT_ONCE = 16
"""Reads and writes in a row that a statement may do before other tasks of the event loop run."""
FIRST_RENEWAL, LAST_RENEWAL = 1.0, 64.0
"""Seconds until a connection's plans are first discarded. The interval doubles each time, up to the last."""
LONGEST_PAUSE = 2.0
"""The most seconds between two attempts to connect. psycopg's own pause grows to minutes."""
MOST_NOTICE_BYTES = 32 * 1024 * 1024
"""Bytes that a text may send beside its rows: notices and errors."""
_READABLE, _WRITABLE = int(Ready.R), int(Ready.W)
_EVENTS = {Wait.R: POLLIN, Wait.W: POLLOUT, Wait.RW: POLLIN | POLLOUT}


class PostgresConnection(AsyncConnection[Row]):
    """A connection that polls its socket before it waits in the event loop, and limits the wait for an answer.

    Usually the socket is writable or the answer has come, and a turn of the event loop costs as much as several rows.

    Where the server sends nothing for `answer_limit` seconds while an answer is awaited, it counts as gone: the socket
    is closed and Unanswered is raised. Otherwise an await would hang for ever where packets are lost.
    """

    answer_limit: float = ANSWER
    answer_most: float = float("inf")
    """The most bytes that may come in answer to one statement."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        # psycopg's own handler keeps all notices in memory.
        self.pgconn.notify_handler = None
        self.planned_at = monotonic()
        self.plans_stay = FIRST_RENEWAL
        self.heard_at = monotonic()
        self.trust: ConnectionTrust | None = None
        self._cancels = False

    async def wait(self, gen: Generator[Wait, Ready | int, Answer], *how: Any, **else_how: Any) -> Answer:
        try:
            number, limited = self.pgconn.socket, gen
            if self.answer_most < float("inf"):
                limited = _counted(gen, number, self.answer_most)
            answer = await super().wait(_promptly(limited, number, lambda: self.answer_limit), *how, **else_how)
        except AnswerTooLarge:
            # The bytes are in the connection's memory, which is freed only when it is closed.
            self.pgconn.finish()
            raise
        except AnswerTimeout:
            self._leave()
            if self._cancels:
                # A statement that does not end when cancelled says nothing about the server. The caller was cancelled,
                # and gets CancelledError.
                raise asyncio.CancelledError from None
            if self.trust is not None:
                self.trust.was_unanswered()
            raise
        finally:
            self._cancels = False
        self.heard_at = monotonic()
        return answer

    def _leave(self) -> None:
        """Ends a connection whose server does not answer."""
        self.pgconn.finish()

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[AsyncPipeline]:
        if self._pipeline is None:
            self._pipeline = _Pipeline(self)
        try:
            async with super().pipeline() as pipeline:
                yield pipeline
        finally:
            if self._pipeline is not None and self._pipeline.level == 0:
                self._pipeline = None

    async def _try_cancel(self, *, timeout: float = CANCELLED) -> None:
        """Cancels the statement, and waits at most CANCELLED seconds for its end, because its caller has gone."""
        self._cancels = True
        self.answer_limit = CANCELLED
        await super()._try_cancel(timeout=min(timeout, CANCELLED))


class _Pipeline(AsyncPipeline):
    """A pipeline that sends a Sync after each statement, so that the server's idle limit applies within it.

    The server begins to count idle time after a Sync, and stops when anything else comes. Without a Sync it would never
    notice a process that freezes between two statements. psycopg's own pipeline asks for a flush after the last Sync,
    which stops the count too; this one does not.

    psycopg sends queued commands one by one. A process that froze between a statement and its Sync would keep its
    locks, so both are sent as one command here.
    """

    def _communicate_gen(self) -> Generator[Any, Any, None]:
        self._join_with_sync()
        yield from super()._communicate_gen()

    def _exit_gen(self) -> Generator[Any, Any, None]:
        failure: Error | None = None
        try:
            yield from self._communicate_gen()
        except Error as error:
            # Later errors are only consequences of the first.
            failure = error
        is_sent = not self.command_queue
        try:
            if is_sent and self.result_queue:
                yield from send(self.pgconn)
            yield from self._fetch_gen(flush=not is_sent)
        except Error as error:
            failure = failure or error
        if failure is not None:
            raise failure

    def _join_with_sync(self) -> None:
        """Joins the waiting commands to one, with a Sync at its end."""
        queue, commands = self.command_queue, deque[Callable[[], None]]()
        if not queue or isinstance(queue[-1], _CommandGroup):
            return
        if queue[-1] != self.pgconn.pipeline_sync:
            self._enqueue_sync()
        while queue and not isinstance(queue[-1], _CommandGroup):
            commands.appendleft(queue.pop())
        queue.append(_CommandGroup(tuple(commands)))


class _CommandGroup:
    """Commands of a pipeline that are sent together."""

    def __init__(self, commands: Sequence[Callable[[], None]]) -> None:
        self._commands = commands

    def __call__(self) -> None:
        for command in self._commands:
            command()


class AnswerTooLarge(psycopg.OperationalError):
    """The server sent more than the answer of a statement may have. The connection was closed."""


@contextmanager
def at_most(connection: AsyncConnection[Row], answered: int) -> Iterator[None]:
    """Limits the bytes of an answer while a text runs whose rows have at most `answered` characters. The server has no
    limit on notices: one may have 1 GB, which the driver keeps in memory until it is complete."""
    # A character may have four bytes, and an escape of as many before it.
    connection.answer_most = 8 * answered + MOST_NOTICE_BYTES  # type: ignore[attr-defined]
    try:
        yield
    finally:
        connection.answer_most = float("inf")  # type: ignore[attr-defined]


def flooded(error: BaseException) -> StatementFailed | None:
    """The error for the user where `error` is Flooded; otherwise None."""
    if not isinstance(error, AnswerTooLarge):
        return None
    return StatementFailed(str(error), hint="Let it say less by RAISE INFO, or in an error.")


def _counted(
    work: Generator[Wait, Ready | int, Answer], number: int, most: float
) -> Generator[Wait, Ready | int, Answer]:
    """Wraps `work` and raises Flooded where more than `most` bytes come. Bytes are counted before they are read, so
    some are counted twice where many short messages come."""
    came, waiting = 0, array("i", [0])
    try:
        wanted = next(work)
        while True:
            ready = yield wanted
            # `ready` is None where psycopg resumes a wait that was cancelled.
            if ready and ready & _READABLE:
                ioctl(number, FIONREAD, waiting)
                came += waiting[0]
                if came > most:
                    work.close()
                    raise AnswerTooLarge(
                        f"The text had the server send too much beside its rows (over {most:,.0f} bytes)"
                    )
            wanted = work.send(ready)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer


def _promptly(
    work: Generator[Wait, Ready | int, Answer], number: int, limit: Callable[[], float] = lambda: ANSWER
) -> Generator[Wait, Ready | int, Answer]:
    """Wraps `work`: resumes it at once where the socket is ready, without the event loop, and raises Unanswered where
    the socket stays silent for `limit()` seconds."""
    waiting, registered, at_once = poll(), None, 0
    silent_since: float | None = None
    try:
        wanted = next(work)
        while True:
            if wanted != registered:
                waiting.register(number, _EVENTS[wanted])
                registered = wanted
            found = waiting.poll(0) if at_once < AT_ONCE else []
            if found:
                at_once += 1
                ready = _ready(found[0][1], wanted)
            else:
                at_once = 0
                if silent_since is None:
                    silent_since = monotonic()
                ready = yield wanted
            if ready or ready is None:  # None: psycopg resumes the wait, after it has sent a cancellation
                silent_since = None
            elif silent_since is not None:
                silent = monotonic() - silent_since
                if silent >= limit():
                    raise AnswerTimeout(f"the server did not answer for {silent:.0f} s, and its connection was closed")
            wanted = work.send(ready)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer


def _ready(events: int, wanted: Wait) -> int:
    """The wanted events that are ready. A broken socket is ready for all of them: its next use raises the error."""
    return ((_READABLE if events & ~POLLOUT else 0) | (_WRITABLE if events & ~POLLIN else 0)) & wanted


class ConnectionPool(AsyncConnectionPool[PostgresConnection]):
    """A pool whose workers end when they are cancelled. psycopg's worker takes a cancellation during its work for an
    error of that work and goes on, so a program that fails without closing its store would never end."""

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]  # a queue in all that a worker asks of it

    async def _add_connection(self, attempt: AttemptWithBackoff | None, growing: bool = False) -> None:  # noqa: FBT001, FBT002 - psycopg's own
        await super()._add_connection(attempt or _Attempt(timeout=self.reconnect_timeout), growing)


class _Attempt(AttemptWithBackoff):
    """Attempts to connect, with pauses that stay short however long the server was away."""

    def update_delay(self, now: float) -> None:
        super().update_delay(now)
        self.delay = min(self.delay, LONGEST_PAUSE)


class _UntilCancelled:
    """A worker's queue, which raises CancelledError once the worker's task is cancelled."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()


async def renew_plans(connection: PostgresConnection) -> None:
    """Makes the server plan the statements of a new connection again, at growing intervals.

    The server keeps plans from when the tables were almost empty and a full scan was cheapest. In a catalog that fills
    fast, such scans soon are most of a settlement's cost, until the server analyzes the tables again, once a minute.
    After some thousand runs, plans stay right.
    """
    if connection.plans_stay > LAST_RENEWAL:
        return
    now = monotonic()
    if now - connection.planned_at >= connection.plans_stay:
        connection.planned_at = now
        connection.plans_stay *= 2
        await connection.execute("DISCARD PLANS", prepare=False)


class IdleCheck:
    """A pool's `check`, which queries the server only where a connection was idle for a while or data has come
    meanwhile: a server that ends a connection sends a message."""

    def __init__(self) -> None:
        self._used: WeakKeyDictionary[PostgresConnection, float] = WeakKeyDictionary()

    async def __call__(self, connection: PostgresConnection) -> None:
        is_old = monotonic() - self._used.get(connection, float("-inf")) > FRESH
        if is_old or has_pending_data(connection):
            await ConnectionPool.check_connection(connection)
        self._used[connection] = monotonic()


def has_pending_data(connection: PostgresConnection) -> bool:
    """Whether unrequested data has come, usually the message that the server ends the connection."""
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    return bool(waiting.poll(0))
