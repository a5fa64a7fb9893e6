"""The connection that listens for changes and holds the liveness locks of this process.

The connection does not send anything by itself, so it would not notice that the server is gone. So with each heartbeat
it must answer a SELECT within PROBE seconds. Otherwise it is replaced, and the new connection takes the locks over from
the old session on the server.

Every user who may run SQL may notify the channel. Notices are read in pieces, between which other tasks of the event
loop run, and only the fact that one came is kept. Where more notices come than nodes send, the connection is closed,
and for a while this process polls instead of listening.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from array import array
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from fcntl import ioctl
from hashlib import sha256
from termios import FIONREAD
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg.waiting import Ready, Wait

from horae.errors import StoreUnavailable
from horae.store.driver import Row
from horae.store.postgres.keepalive import PROBE, ConnectionTrust
from horae.store.postgres.limits import LOCK_HOLDER_LIMITS
from horae.store.postgres.pool import AnswerTooLarge, PostgresConnection

_log = logging.getLogger("horae.store")
Answer = TypeVar("Answer")
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.3
"""Seconds before the next attempt to connect, without the jitter of up to half of that: never more than 2 s with it."""
LASTED = 5.0
"""A connection that is lost after it lasted this many seconds is replaced with the shortest pause."""
POLL_SECONDS = 2.0
"""Seconds between two attempts to listen on a standby, which sends no notices but may become the primary. Each attempt
wakes the tasks that wait for a change."""
MOST_AT_ONCE = 2 * 1024 * 1024
"""Bytes of notices that may come at once: about 130,000 notices of nodes."""
MOST_A_SECOND = 256 * 1024
"""Bytes of notices that may come in each further second: about 16,000 notices of nodes."""
PIECE = 16 * 1024
"""Bytes that the driver reads at once."""
FLOOD_PAUSE = 60.0
"""Seconds after a flood of notices for which this process polls, as on a standby, and does not listen."""
_TAKE = "SELECT pg_try_advisory_lock(%s)"
_FREE = "SELECT pg_advisory_unlock(%s)"
_TAKE_FROM_FORMER = """
SELECT CASE WHEN (
    SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND pid = ANY (%s::int[])
        AND (classid::bigint << 32) | objid::bigint = %s
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) >= 0 THEN pg_try_advisory_lock(%s) END
"""
"""Ends former sessions of this process that still hold a lock, and takes the lock. It is one statement, because the
lock would be free if the answer between two statements were lost. A login may always end its own sessions."""


class NoticeCounter:
    """Records whether a notice came, and limits the bytes of notices."""

    def __init__(self) -> None:
        self.heard = False
        self._room = float(MOST_AT_ONCE)
        self._counted_at = monotonic()
        self._waiting = array("i", [0])

    def __call__(self, _: object) -> None:
        self.heard = True

    def count(self, number: int) -> None:
        """Called before a socket is read. Raises Flooded where too many bytes have come lately."""
        ioctl(number, FIONREAD, self._waiting)
        now = monotonic()
        self._room = min(MOST_AT_ONCE, self._room + (now - self._counted_at) * MOST_A_SECOND)
        self._counted_at = now
        self._room -= min(self._waiting[0], PIECE)
        if self._room < 0:
            raise AnswerTooLarge("More notices came than nodes send")

    def counted(self, work: Generator[Wait, Ready | int, Answer], number: int) -> Generator[Wait, Ready | int, Answer]:
        """Wraps `work` and counts the bytes that it reads, because notices may precede the answer that it waits for."""
        try:
            wanted = next(work)
            while True:
                ready = yield wanted
                if ready and ready & Ready.R:
                    self.count(number)
                wanted = work.send(ready)
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer
        finally:
            work.close()


class LockHolder(PostgresConnection):
    """The connection that holds liveness locks.

    Where the server does not answer, a connection with locks is left open, without sending anything. Perhaps only the
    answers are lost: then closing it would free the locks, and other nodes would take a live node for dead. A
    connection without locks is closed, because a login may have only so many sessions and attempts go on.
    """

    left: socket.socket | None = None
    """The socket that was left open. Closing it ends the connection."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.notices = NoticeCounter()
        self.locked: set[UUID] = set()
        """The nodes whose locks this session holds, or may hold."""
        self.pgconn.notify_handler = self.notices

    async def wait(self, gen: Generator[Wait, Ready | int, Answer], *how: Any, **else_how: Any) -> Answer:
        return await super().wait(self.notices.counted(gen, self.pgconn.socket), *how, **else_how)

    def _leave(self) -> None:
        if not self.locked:
            super()._leave()
            return
        number = self.pgconn.socket
        self.left = left = socket.socket(fileno=os.dup(number))
        if left.family in (socket.AF_INET, socket.AF_INET6):
            # The operating system would also close the connection when its probes are not answered.
            left.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        with socket.socket() as nowhere:
            os.dup2(nowhere.fileno(), number)
            super()._leave()


class Listener:
    """Keeps one process' listening connection. `configure` is called with each new connection. `heard` is called after
    each notice, and after each connect, because notices may have been missed before."""

    def __init__(
        self,
        url: str,
        place: str,
        configure: Callable[[PostgresConnection], Awaitable[None]],
        heard: Callable[[], Awaitable[None]],
        patience: float,
    ) -> None:
        self._url = url
        self._place = place
        self._configure = configure
        self._fire = heard
        self._patience = patience
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._held: set[UUID] = set()
        """The nodes whose locks are to be held."""
        self._wishes: list[tuple[str, UUID, asyncio.Future[bool]]] = []
        self._probed = False
        self._waiting: asyncio.Future[None] | None = None
        self._trust = ConnectionTrust()
        self._left: dict[UUID, socket.socket] = {}
        """For each node, the last connection with its lock that was left open, until a new connection is made."""
        self._sessions: set[int] = set()
        """The pids of server sessions whose connections had locks. A session may outlive its connection."""
        self._unheard_until = float("-inf")
        self.fault: Exception | None = None
        """The error, other than a lost connection, because of which this process does not listen. None once it listens
        again."""

    async def open(self) -> None:
        self._task = asyncio.create_task(self._run())
        try:
            await asyncio.wait_for(self._ready.wait(), self._patience)
        except TimeoutError:
            raise StoreUnavailable(
                f"Cannot reach {self._place}: it does not let this process listen", hint="It is tried again by itself."
            ) from self.fault

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        # Free the locks explicitly, because the server notices a closed connection a little later.
        for node in sorted(self._held):
            with suppress(StoreUnavailable, TimeoutError):
                await asyncio.wait_for(self.free(node), PROBE)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self._forsake()
        self._held.clear()
        self._ready.clear()

    async def take(self, node: UUID) -> bool:
        """Takes the lock of a node until it is freed. False where another process has it."""
        self._held.add(node)
        taken = await self._wish(_TAKE, node)
        if not taken:
            self._held.discard(node)
        return taken

    async def free(self, node: UUID) -> None:
        """Frees the lock of a node. Without a connection it was freed with the connection."""
        self._held.discard(node)
        if self._ready.is_set():
            await self._wish(_FREE, node)

    def forget(self, node: UUID) -> None:
        """Keeps the lock of a node until its session ends: `close` does not free it."""
        self._held.discard(node)

    def probe(self) -> None:
        """Makes the connection check that the server answers and that it holds its locks. Does not wait."""
        self._probed = True
        self._stir()

    def _stir(self) -> None:
        if self._waiting is not None:
            _finish(self._waiting)

    async def _wish(self, text: str, node: UUID) -> bool:
        """Makes the listening connection run a statement about a lock, and returns its answer."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._wishes.append((text, node, answer))
        self._stir()
        try:
            return await asyncio.wait_for(answer, self._patience)
        except TimeoutError:
            raise StoreUnavailable(f"{self._place} gave no answer about a liveness lock") from None

    # ---- the connection ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            connected = monotonic()
            try:
                connection = await LockHolder.connect(self._url, autocommit=True)
                try:
                    await self._listen(connection)
                finally:
                    await connection.close()
                    self._remember(connection)
            except AnswerTooLarge:
                self._unheard_until = monotonic() + FLOOD_PAUSE
                _log.warning(
                    "%s: notices came in a flood on the channel horae, by NOTIFY or pg_notify; for %.0f s this process"
                    " looks for changes every %.0f s instead of listening. Look for who sends them: texts of jobs, and"
                    " pg_stat_activity.query",
                    self._place,
                    FLOOD_PAUSE,
                    POLL_SECONDS,
                )
            except (psycopg.Error, OSError):
                pass
            except Exception as error:  # noqa: BLE001 - a task that ends silently would leave the node deaf for ever
                self.fault = error
                # Wake the tasks that wait for a change: `PostgresDriver.changed` raises the fault.
                await self._fire()
            self._ready.clear()
            lasted = monotonic() - connected > LASTED
            pause = SHORTEST_PAUSE if lasted else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads clients, guards nothing

    async def _listen(self, connection: LockHolder) -> None:
        # A slow server has as long as on other connections. A new attempt before it answers would add one more session
        # each time.
        connection.trust, connection.answer_limit = self._trust, self._trust.limit
        await self._configure(connection)
        await connection.execute(LOCK_HOLDER_LIMITS)
        listens = await self._begin_to_listen(connection)
        await self._take_missing(connection)
        self._forsake()
        if self._held <= connection.locked:
            self._sessions.clear()
        self._sessions.add(connection.info.backend_pid)
        connection.trust, connection.answer_limit = None, PROBE
        notices = connection.notices
        self.fault = None
        self._ready.set()
        await self._fire()
        while True:
            await self._grant(connection)
            if self._probed:
                self._probed = False
                await connection.execute("SELECT 1")
                await self._take_missing(connection)
            await self._hear(connection, None if listens else POLL_SECONDS)
            if not listens:
                listens = await self._begin_to_listen(connection)
                await self._fire()
            if notices.heard:
                notices.heard = False
                await self._fire()

    async def _begin_to_listen(self, connection: PostgresConnection) -> bool:
        """Listens. False on a standby, where LISTEN is impossible, and for a while after a flood of notices."""
        if monotonic() < self._unheard_until:
            return False
        try:
            await connection.execute("LISTEN horae")
        except psycopg.errors.ReadOnlySqlTransaction:
            return False
        return True

    def _remember(self, connection: LockHolder) -> None:
        """Keeps the socket that a connection left open, and closes the earlier ones that it replaces."""
        if connection.left is None:
            return
        before = {*self._left.values()}
        self._left |= dict.fromkeys(connection.locked, connection.left)
        for each in before - {*self._left.values()}:
            each.close()

    def _forsake(self) -> None:
        for each in {*self._left.values()}:
            each.close()
        self._left.clear()

    async def _take_missing(self, connection: LockHolder) -> None:
        """Takes the locks that this process should hold and does not. A former session may still hold one: the server
        does not notice a connection whose packets are lost."""
        session = connection.info.backend_pid
        for node in sorted(self._held - connection.locked):
            key = lock_key(node)
            taken = await _answer(connection, _TAKE, key)
            former = sorted(self._sessions - {session})
            if not taken and former:
                # If the answer is lost, either session may hold it.
                self._has(connection, node)
                with suppress(psycopg.errors.InsufficientPrivilege):
                    taken = await _answer(connection, _TAKE_FROM_FORMER, former, key, key)
            if taken:
                self._has(connection, node)
            else:
                connection.locked.discard(node)

    def _has(self, connection: LockHolder, node: UUID) -> None:
        connection.locked.add(node)
        self._sessions.add(connection.info.backend_pid)

    async def _grant(self, connection: LockHolder) -> None:
        while self._wishes:
            text, node, answer = self._wishes[0]
            # A session could take its lock twice, and a new connection has taken all wanted locks already.
            if node in connection.locked and text == _TAKE:
                granted = True
            else:
                granted = await _answer(connection, text, lock_key(node))
            self._wishes.pop(0)
            if text == _TAKE and granted:
                self._has(connection, node)
            else:
                connection.locked.discard(node)
            if not answer.done():
                answer.set_result(granted)

    async def _hear(self, connection: LockHolder, seconds: float | None) -> None:
        """Waits for a notice, a probe, a request about a lock, or so many seconds. psycopg's own wait would wake up ten
        times a second to check for an interrupt, which would be most of an idle node's work."""
        loop, number, notices = asyncio.get_running_loop(), connection.fileno(), connection.notices
        ends = None if seconds is None else loop.time() + seconds
        while not notices.heard and not self._probed and not self._wishes and (ends is None or loop.time() < ends):
            self._waiting = readable = loop.create_future()
            loop.add_reader(number, _finish, readable)
            timer = None if ends is None else loop.call_at(ends, _finish, readable)
            try:
                await readable
            finally:
                self._waiting = None
                loop.remove_reader(number)
                if timer is not None:
                    timer.cancel()
            notices.count(number)
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                notices.heard = True


async def _answer(connection: PostgresConnection, text: str, *values: object) -> bool:
    rows: list[Row] = await (await connection.execute(text, values)).fetchall()
    return bool(rows[0][0])


def _finish(readable: asyncio.Future[Any]) -> None:
    if not readable.done():
        readable.set_result(None)


def lock_key(node: UUID) -> int:
    """The key of an incarnation's advisory lock: the first 8 bytes of the uuid's SHA-256, as a signed number."""
    return int.from_bytes(sha256(node.bytes).digest()[:8], "big", signed=True)
