"""The connection that listens for changes and holds the liveness locks of this process: kept, probed and replaced.

It never sends by itself, so nothing would tell that the other end is gone. Each heartbeat has it answer a SELECT within
PROBE seconds; one that does not is replaced, and its locks are taken from the session it left behind on the server.

Everybody who may run SQL may notify the channel. What comes is read in pieces, between which the loop has its turn, and
nothing is kept of it but that it came. Where more comes than nodes send, the connection is ended, and for a while the
next one looks instead of listening.
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
from horae.store.postgres.limits import PATIENT
from horae.store.postgres.links import PROBE, Trust
from horae.store.postgres.pooling import Connection, Flooded

_log = logging.getLogger("horae.store")
Answer = TypeVar("Answer")
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.3
"""Seconds before the next try to connect, before chance adds or takes half: never more than 2 s."""
LASTED = 5.0
"""Seconds after which a connection that is lost is replaced at once."""
DEAF = 2.0
"""Seconds between two tries to listen on a standby, which tells nobody of changes, but may become the primary. Whoever
waits for a change is told to look each time."""
MOST_AT_ONCE = 2 * 1024 * 1024
"""Bytes of notices that may come at once: 130,000 of a node's own."""
MOST_A_SECOND = 256 * 1024
"""The same, for each second that passes: 16,000 of a node's own."""
PIECE = 16 * 1024
"""Bytes that the driver reads at once."""
UNHEARD = 60.0
"""Seconds after a flood of notices in which this process looks, as on a standby, and does not listen."""
_TAKE = "SELECT pg_try_advisory_lock(%s)"
_FREE = "SELECT pg_advisory_unlock(%s)"
_SUCCEED = """
SELECT CASE WHEN (
    SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND pid = ANY (%s::int[])
        AND (classid::bigint << 32) | objid::bigint = %s
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) >= 0 THEN pg_try_advisory_lock(%s) END
"""
"""Ends those of this process' former sessions that hold a lock still, and takes it: in one statement, else the lock
would be nobody's where the answer between two is lost. A login may always end its own sessions."""


class Notices:
    """What has come of notices: whether any has, and room for how many bytes there is."""

    def __init__(self) -> None:
        self.heard = False
        self._room = float(MOST_AT_ONCE)
        self._counted_at = monotonic()
        self._waiting = array("i", [0])

    def __call__(self, _: object) -> None:
        self.heard = True

    def count(self, number: int) -> None:
        """Called before a socket is read. Raises Flooded where too much has come of late."""
        ioctl(number, FIONREAD, self._waiting)
        now = monotonic()
        self._room = min(MOST_AT_ONCE, self._room + (now - self._counted_at) * MOST_A_SECOND)
        self._counted_at = now
        self._room -= min(self._waiting[0], PIECE)
        if self._room < 0:
            raise Flooded("More notices came than nodes send")

    def counted(self, work: Generator[Wait, Ready | int, Answer], number: int) -> Generator[Wait, Ready | int, Answer]:
        """What `work` does with the socket: notices stand before the answer that it waits for."""
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


class LockHolder(Connection):
    """The connection that holds liveness locks. Where it has some and its server does not answer, it is left standing,
    without a word: one that only its answers are lost of would free the locks, and others take a node for gone that
    works on. One without locks is ended: the server lets so many sessions of a login be, and tries go on."""

    left: socket.socket | None = None
    """What was left standing. Whoever closes it says that the connection is over."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.notices = Notices()
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
            # The system, too, would say so when its probes are not answered.
            left.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        with socket.socket() as nowhere:
            os.dup2(nowhere.fileno(), number)
            super()._leave()


class Listener:
    """One process' listening connection. `configure` is done to each new one; `heard` is called after each notice, and
    once after every connection: what was said meanwhile is not known."""

    def __init__(
        self,
        url: str,
        place: str,
        configure: Callable[[Connection], Awaitable[None]],
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
        self._trust = Trust()
        self._left: dict[UUID, socket.socket] = {}
        """For each lock the connection that was left standing last with it, since one was last made."""
        self._sessions: set[int] = set()
        """The server's processes for connections that had locks, which may outlive them."""
        self._unheard_until = float("-inf")
        self.fault: Exception | None = None
        """Why this process hears nothing, where that is no lost connection, until it hears again."""

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
        # Given back by hand: the server notices a closed connection only a little later.
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
        """Takes the lock of a node, for as long as it is not freed. False where another has it."""
        self._held.add(node)
        taken = await self._wish(_TAKE, node)
        if not taken:
            self._held.discard(node)
        return taken

    async def free(self, node: UUID) -> None:
        """Gives the lock of a node back; where there is no connection, it went with that."""
        self._held.discard(node)
        if self._ready.is_set():
            await self._wish(_FREE, node)

    def forget(self, node: UUID) -> None:
        """Leaves the lock of a node to end with the session."""
        self._held.discard(node)

    def probe(self) -> None:
        """Has the connection prove that it is there, and that it has its locks."""
        self._probed = True
        self._stir()

    def _stir(self) -> None:
        if self._waiting is not None:
            _settle(self._waiting)

    async def _wish(self, text: str, node: UUID) -> bool:
        """Has the listening connection run a statement about a lock."""
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
            except Flooded:
                self._unheard_until = monotonic() + UNHEARD
                _log.warning(
                    "%s: notices came in a flood on the channel horae, by NOTIFY or pg_notify; for %.0f s this process"
                    " looks for changes every %.0f s instead of listening. Look for who sends them: texts of jobs, and"
                    " pg_stat_activity.query",
                    self._place,
                    UNHEARD,
                    DEAF,
                )
            except (psycopg.Error, OSError):
                pass
            except Exception as error:  # noqa: BLE001 - a task that ends silently would leave the node deaf for ever
                self.fault = error
                # Whoever waits for a change is told of it.
                await self._fire()
            self._ready.clear()
            lasted = monotonic() - connected > LASTED
            pause = SHORTEST_PAUSE if lasted else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads clients, guards nothing

    async def _listen(self, connection: LockHolder) -> None:
        # A server that is slow has as long as it has elsewhere. Tried again before it answers, it would have one more
        # session with each try.
        connection.trust, connection.answer_limit = self._trust, self._trust.limit
        await self._configure(connection)
        await connection.execute(PATIENT)
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
            await self._hear(connection, None if listens else DEAF)
            if not listens:
                listens = await self._begin_to_listen(connection)
                await self._fire()
            if notices.heard:
                notices.heard = False
                await self._fire()

    async def _begin_to_listen(self, connection: Connection) -> bool:
        """False on a standby, where nobody can: what is only read there needs no notices."""
        if monotonic() < self._unheard_until:
            return False
        try:
            await connection.execute("LISTEN horae")
        except psycopg.errors.ReadOnlySqlTransaction:
            return False
        return True

    def _remember(self, connection: LockHolder) -> None:
        """Keeps what a connection left standing, in place of those that had its locks before."""
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
        """Takes what is to be held and is not. A session that this process lost may have it still: the server knows
        nothing of a connection whose packets are swallowed."""
        session = connection.info.backend_pid
        for node in sorted(self._held - connection.locked):
            key = lock_key(node)
            taken = await _answer(connection, _TAKE, key)
            former = sorted(self._sessions - {session})
            if not taken and former:
                # Without an answer it may be either's.
                self._has(connection, node)
                with suppress(psycopg.errors.InsufficientPrivilege):
                    taken = await _answer(connection, _SUCCEED, former, key, key)
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
            # Locks of one session add up, and a reconnection has taken all that are to be held already.
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
        """Waits for a notice, or until somebody asks for something, or so many seconds. The driver's own way wakes up
        ten times a second to look whether it was interrupted, which is most of what an idle node would do."""
        loop, number, notices = asyncio.get_running_loop(), connection.fileno(), connection.notices
        ends = None if seconds is None else loop.time() + seconds
        while not notices.heard and not self._probed and not self._wishes and (ends is None or loop.time() < ends):
            self._waiting = readable = loop.create_future()
            loop.add_reader(number, _settle, readable)
            timer = None if ends is None else loop.call_at(ends, _settle, readable)
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


async def _answer(connection: Connection, text: str, *values: object) -> bool:
    rows: list[Row] = await (await connection.execute(text, values)).fetchall()
    return bool(rows[0][0])


def _settle(readable: asyncio.Future[Any]) -> None:
    if not readable.done():
        readable.set_result(None)


def lock_key(node: UUID) -> int:
    """The key of an incarnation's advisory lock: 8 bytes of its digest, as a signed number."""
    return int.from_bytes(sha256(node.bytes).digest()[:8], "big", signed=True)
