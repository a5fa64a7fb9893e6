"""Our connections and their pools, which are psycopg's with deadlines.

They look before they wait, give up on a server that does not answer, and try again soon. Pools end as their program
does."""

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
from horae.store.postgres.links import ANSWER, CANCELLED, Trust, Unanswered

Answer = TypeVar("Answer")
FRESH = 1.0
"""Seconds for which a connection that was used is taken to be there still."""
AT_ONCE = 16
"""Times in a row that a statement goes on without letting others have the loop."""
FIRST_RENEWAL, LAST_RENEWAL = 1.0, 64.0
"""Seconds after which a connection's plans are made anew; then after twice as many, up to the last."""
LONGEST_PAUSE = 2.0
"""Seconds between two tries to connect. psycopg's own pause doubles for minutes, while the server is back."""
BESIDE = 32 * 1024 * 1024
"""Bytes for what a text says beside its rows."""
_READABLE, _WRITABLE = int(Ready.R), int(Ready.W)
_EVENTS = {Wait.R: POLLIN, Wait.W: POLLOUT, Wait.RW: POLLIN | POLLOUT}


class Connection(AsyncConnection[Row]):
    """Looks whether it has to wait before it has the loop wait: mostly the socket takes what is to be sent, or the
    answer has come, and a turn of the loop costs as much as several rows do.

    A server from which nothing comes for `answer_limit` seconds, while it is waited for, is taken to be gone: the
    socket is closed and Unanswered is raised. Packets that are swallowed would leave an await hanging for ever.
    """

    answer_limit: float = ANSWER
    answer_most: float = float("inf")
    """Bytes that may come while one statement is waited for."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        # The driver's own keeps all notices, for somebody who might ask for them.
        self.pgconn.notify_handler = None
        self.planned_at = monotonic()
        self.plans_stay = FIRST_RENEWAL
        self.heard_at = monotonic()
        self.trust: Trust | None = None
        self._cancels = False

    async def wait(self, gen: Generator[Wait, Ready | int, Answer], *how: Any, **else_how: Any) -> Answer:
        try:
            number, limited = self.pgconn.socket, gen
            if self.answer_most < float("inf"):
                limited = _counted(gen, number, self.answer_most)
            answer = await super().wait(_promptly(limited, number, lambda: self.answer_limit), *how, **else_how)
        except Flooded:
            # What has come is in the connection's own memory, which only its end gives back.
            self.pgconn.finish()
            raise
        except Unanswered:
            self._leave()
            if self._cancels:
                # A statement that does not end when it is cancelled says nothing about the server. The caller asked
                # for the cancellation, and gets it.
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
        """A statement that nobody waits for any more is not waited for long either."""
        self._cancels = True
        self.answer_limit = CANCELLED
        await super()._try_cancel(timeout=min(timeout, CANCELLED))


class _Pipeline(AsyncPipeline):
    """Has the server count, after each statement, how long the transaction stands still: what ends with Sync lets it
    begin to, what comes after that ends it. Of a process that freezes between two statements it would never know
    otherwise, and psycopg's own asks for a flush after the last Sync, which ends the counting too.

    psycopg sends what is queued command by command. A process that froze between a statement and its Sync would keep
    its locks as well, so both are one command here.
    """

    def _communicate_gen(self) -> Generator[Any, Any, None]:
        self._join_with_sync()
        yield from super()._communicate_gen()

    def _exit_gen(self) -> Generator[Any, Any, None]:
        failure: Error | None = None
        try:
            yield from self._communicate_gen()
        except Error as error:
            # What comes after it failed only because of it.
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
        """Makes one command of those that wait, with a Sync at its end."""
        queue, commands = self.command_queue, deque[Callable[[], None]]()
        if not queue or isinstance(queue[-1], _Joined):
            return
        if queue[-1] != self.pgconn.pipeline_sync:
            self._enqueue_sync()
        while queue and not isinstance(queue[-1], _Joined):
            commands.appendleft(queue.pop())
        queue.append(_Joined(tuple(commands)))


class _Joined:
    """Commands of a pipeline that are sent together."""

    def __init__(self, commands: Sequence[Callable[[], None]]) -> None:
        self._commands = commands

    def __call__(self) -> None:
        for command in self._commands:
            command()


class Flooded(psycopg.OperationalError):
    """More came than a statement's answer may have. The connection was closed."""


@contextmanager
def at_most(connection: AsyncConnection[Row], answered: int) -> Iterator[None]:
    """While a text is run whose rows are `answered` characters at most. What a text says beside them has no limit on
    the server: a single notice may have 1 GB, all of which the driver keeps until it is complete."""
    # Letters of four bytes each, and an escape before each letter.
    connection.answer_most = 8 * answered + BESIDE  # type: ignore[attr-defined]
    try:
        yield
    finally:
        connection.answer_most = float("inf")  # type: ignore[attr-defined]


def flooded(error: BaseException) -> StatementFailed | None:
    """What to say where an error is Flooded."""
    if not isinstance(error, Flooded):
        return None
    return StatementFailed(str(error), hint="Let it say less by RAISE INFO, or in an error.")


def _counted(
    work: Generator[Wait, Ready | int, Answer], number: int, most: float
) -> Generator[Wait, Ready | int, Answer]:
    """What `work` does, as long as no more than `most` bytes come. Bytes are counted before they are read, so some of
    them twice where many short messages come."""
    came, waiting = 0, array("i", [0])
    try:
        wanted = next(work)
        while True:
            ready = yield wanted
            # A wait that was cancelled and is taken up again begins with nothing.
            if ready and ready & _READABLE:
                ioctl(number, FIONREAD, waiting)
                came += waiting[0]
                if came > most:
                    work.close()
                    raise Flooded(f"The text had the server send too much beside its rows (over {most:,.0f} bytes)")
            wanted = work.send(ready)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer


def _promptly(
    work: Generator[Wait, Ready | int, Answer], number: int, limit: Callable[[], float] = lambda: ANSWER
) -> Generator[Wait, Ready | int, Answer]:
    """What `work` does with a socket, but that it is told at once where the socket is ready, and ends by Unanswered
    where the socket stays silent beyond the limit."""
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
            if ready or ready is None:  # None: psycopg takes the wait up again, after it has asked for a cancellation
                silent_since = None
            elif silent_since is not None:
                silent = monotonic() - silent_since
                if silent >= limit():
                    raise Unanswered(f"the server did not answer for {silent:.0f} s, and its connection was closed")
            wanted = work.send(ready)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer


def _ready(events: int, wanted: Wait) -> int:
    """A socket that broke is ready for everything: whoever uses it is told."""
    return ((_READABLE if events & ~POLLOUT else 0) | (_WRITABLE if events & ~POLLIN else 0)) & wanted


class Pool(AsyncConnectionPool[Connection]):
    """A worker of psycopg's that is cancelled while it works takes that for a fault of the work, and waits for more: a
    program that ends by an error, without closing its store, would never end."""

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]  # a queue in all that a worker asks of it

    async def _add_connection(self, attempt: AttemptWithBackoff | None, growing: bool = False) -> None:  # noqa: FBT001, FBT002 - psycopg's own
        await super()._add_connection(attempt or _Attempt(timeout=self.reconnect_timeout), growing)


class _Attempt(AttemptWithBackoff):
    """Tries to connect with pauses that stay short, however long the server was away."""

    def update_delay(self, now: float) -> None:
        super().update_delay(now)
        self.delay = min(self.delay, LONGEST_PAUSE)


class _UntilCancelled:
    """What a worker has to do, until its task is cancelled."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()


async def renewed(connection: Connection) -> None:
    """Has the server plan a young connection's statements anew, less and less often.

    It keeps plans from when the tables may have been all but empty, and to read all of one cost least. In a catalog
    that fills fast that is soon most of a settlement, until the server has counted the tables again, which it does
    once a minute. Once there are some thousand runs, plans stay right.
    """
    if connection.plans_stay > LAST_RENEWAL:
        return
    now = monotonic()
    if now - connection.planned_at >= connection.plans_stay:
        connection.planned_at = now
        connection.plans_stay *= 2
        await connection.execute("DISCARD PLANS", prepare=False)


class Checked:
    """A pool's `check`: whether a connection that was idle for a while, or has been told something meanwhile, is there
    still. A server that ends a connection says so, and nobody has to ask."""

    def __init__(self) -> None:
        self._used: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()

    async def __call__(self, connection: Connection) -> None:
        is_old = monotonic() - self._used.get(connection, float("-inf")) > FRESH
        if is_old or has_been_told(connection):
            await Pool.check_connection(connection)
        self._used[connection] = monotonic()


def has_been_told(connection: Connection) -> bool:
    """Whether something has come that nobody asked for: most often, that the server ends the connection."""
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    return bool(waiting.poll(0))
