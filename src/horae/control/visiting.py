"""Who a visitor is: by token, by session, by name and password; and what they were answered before.

What visitors show is compared by its SHA-256 digest, which is all the catalog has of it. Whoever shows something that
opens nothing leaves a LOGIN_FAILED row; a flood of them leaves a few, which say how many there were.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from time import monotonic

from horae.control.service import Kept
from horae.control.tokens import digest
from horae.core.access import LOCAL, LOCAL_NAME, Principal
from horae.errors import Conflict, InvalidInput, KeyReused, LoginFailed, shown
from horae.security.flood import Flood
from horae.security.passwords import login

SESSION = timedelta(hours=12)
STALE = timedelta(seconds=15)
"""A request that was begun longer ago, or noted, and never answered is taken for one whose server is gone. Where it is
not gone after all, both are at it, and whoever is later is undone."""
KEPT = timedelta(days=1)
"""How long an answer is kept for those who ask again with its key."""
MOST_KEPT = 16 << 20
"""Bytes of one user's answers that are kept: beyond it the oldest go first."""
TRIM_EVERY = 16
"""How many requests of a user with a key come between two looks at how much is kept of theirs."""
LONGEST_PROOF = 512
LONGEST_KEY = 255
NOBODY = "?"
"""The actor of what somebody did who did not say, or prove, who they are."""
_OPEN_SECONDS = 1.0
_FORGET_SECONDS = 3600.0
_ROWS = 20
_ROW_SECONDS = 10.0

_log = logging.getLogger("horae.web")


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session that has begun. `secret` is the visitor's alone: the catalog has its digest."""

    secret: str = field(repr=False)
    expires: datetime
    who: Principal


@dataclass(frozen=True, slots=True)
class Begun:
    """A request with an idempotency key. `status` None: it is to be answered now, and then to be finished or dropped
    under `key`, with `body` noted of it before; otherwise what was answered before. `busy`: somebody else is answering
    it."""

    key: str
    fingerprint: str
    begun_at: datetime
    status: int | None = None
    body: bytes = field(default=b"", repr=False)
    busy: bool = False


class Porter:
    """Whoever comes in goes past one of these. Its own memory is only of what need not be asked again at once."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Kept]],
        *,
        session: timedelta = SESSION,
        most_kept: int = MOST_KEPT,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`session` is how long one lasts, `most_kept` how many bytes of one user's answers are kept."""
        self._store = store
        self._session = session
        self._most_kept = most_kept
        self._begun: dict[str, int] = {}
        self._clock = clock
        self._was_closed = False
        self._open_until = float("-inf")
        self._forgot = clock()
        self._flood = Flood(_ROWS, _ROW_SECONDS, clock=clock)

    # ---- who it is ---------------------------------------------------------------------------------------------------

    async def is_open(self) -> bool:
        """Whether there never was a password or a token: whoever can reach such a catalog's own machine is its
        administrator. Once there was one it is closed, which the catalog keeps: neither the last user's drop nor the
        last token's end lets everybody in. This process goes on as it is when the catalog is opened by hand."""
        if self._was_closed:
            return False
        now = self._clock()
        if now >= self._open_until:
            if await (await self._store()).is_closed():
                self._was_closed = True
                return False
            self._open_until = now + _OPEN_SECONDS
        return True

    def look_again(self) -> None:
        """Somebody may just have been given a password or a token."""
        self._open_until = float("-inf")

    async def of_token(self, token: str, *, address: str = "") -> Principal:
        """Whose token it is. Raises LoginFailed, whatever is wrong with it. Audit: LOGIN_FAILED."""
        store = await self._store()
        user = await store.token_user(digest(token)) if _plausible(token) else None
        who = await self._principal(store, user)
        if who is None:
            await self.note_refusal("LOGIN_FAILED", "a token that is unknown, expired or revoked", address)
            raise LoginFailed(
                "This token opens nothing: it is unknown, expired or revoked, or its user is disabled",
                hint="`horae token create` makes another.",
            )
        return who

    async def of_session(self, secret: str, *, address: str = "") -> Principal:
        """Whose session it is. Raises LoginFailed. Audit: LOGIN_FAILED."""
        store = await self._store()
        user = await store.session_user(digest(secret)) if _plausible(secret) else None
        who = await self._principal(store, user)
        if who is None:
            await self.note_refusal("LOGIN_FAILED", "a session that is unknown or has ended", address)
            raise LoginFailed("This session has ended, or never was", hint="Sign in again.")
        return who

    async def _principal(self, store: Kept, user: str | None) -> Principal | None:
        if user is None:
            return None
        if user == LOCAL_NAME:
            return LOCAL
        found = await store.principal(user)
        return found if found is not None and found.is_enabled else None

    async def sign_in(self, name: str, password: str) -> SignedIn:
        """Begins a session of whoever proves to be `name`. Raises LoginFailed. Audit: LOGIN, LOGIN_FAILED."""
        store = await self._store()
        who = await login(store, name, password)
        secret = token_urlsafe(32)
        expires = await store.open_session(who.name, digest(secret), lasts=self._session)
        self._was_closed = True
        return SignedIn(secret, expires, who)

    async def sign_out(self, secret: str) -> None:
        """Ends a session, if there is one. Audit: LOGOUT."""
        if _plausible(secret):
            await (await self._store()).close_session(digest(secret))

    # ---- other sites -------------------------------------------------------------------------------------------------

    def csrf(self, secret: str) -> str:
        """What a page of this session's own proves itself with. Another one each time, so that nobody learns it from
        how well a page is compressed."""
        salt = token_urlsafe(9)
        return f"{salt}.{_proof(secret, salt)}"

    def is_csrf(self, secret: str, given: str | None) -> bool:
        salt, _, proof = (given or "").partition(".")
        return hmac.compare_digest(_proof(secret, salt).encode(), proof.encode("utf-8", "replace"))

    # ---- the trail ---------------------------------------------------------------------------------------------------

    async def note_refusal(
        self, event: str, reason: str, address: str = "", details: Mapping[str, str] | None = None
    ) -> None:
        """Logs that a stranger was refused, and leaves an audit row: 20 at once, then one every 10 s, which tells how
        many went without one."""
        _log.warning("refused %s: %s", address or "a visitor", reason)
        more = self._flood.admits()
        if more is None:
            return
        told = {"reason": reason, "address": address, **(details or {}), **more}
        await (await self._store()).note(event, by=NOBODY, outcome="REFUSED", details=told)

    # ---- answers given before ----------------------------------------------------------------------------------------

    async def begin(self, who: Principal, method: str, path: str, key: str, body: bytes) -> Begun:
        """Begins to answer a request that came with an idempotency key.

        Raises KeyReused where the key came with another request of the same kind before."""
        if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
            raise InvalidInput(
                f"Invalid Idempotency-Key {shown(key)}: must be 1 to {LONGEST_KEY} printable characters",
                hint="A uuid is a good one.",
            )
        name = digest("\0".join((who.name, method, path, key)))
        # By the key, which is kept nowhere: a body may hold a password that could be guessed from a plain digest.
        fingerprint = hmac.new(key.encode(), body, sha256).hexdigest()
        store = await self._store()
        begun = self._begun.get(who.name, 0)
        self._begun[who.name] = begun + 1
        if begun % TRIM_EVERY == 0:
            await store.trim_answers(who.uuid, self._most_kept)
        kept = await store.begin_answer(name, fingerprint, stale=STALE, user=who.uuid)
        if not kept.is_ours and not hmac.compare_digest(kept.fingerprint, fingerprint):
            raise KeyReused(
                f"The idempotency key {shown(key)} came with another request before",
                hint="Give each request a key of its own, and repeat one only with the very same body.",
            )
        is_busy = not kept.is_ours and kept.status is None
        return Begun(name, fingerprint, kept.begun_at, kept.status, kept.body, is_busy)

    async def finish(self, begun: Begun, status: int, body: bytes, *, was: bytes) -> bool:
        """Keeps the answer for a day, unless another has answered: whether it is kept."""
        return await (await self._store()).finish_answer(begun.key, begun.fingerprint, status, body, was=was)

    async def drop(self, begun: Begun) -> bool:
        """Nothing came of it: whoever asks again is answered anew. False where something did, or another is at it."""
        return await (await self._store()).drop_answer(begun.key, begun.begun_at)

    async def forget(self) -> None:
        """Deletes old answers, now and then."""
        now = self._clock()
        if now - self._forgot >= _FORGET_SECONDS:
            self._forgot = now
            await (await self._store()).forget_answers(KEPT)


def busy_error() -> Conflict:
    return Conflict(
        "A request with this idempotency key is being answered just now",
        hint="Ask again in a moment: you get the same answer.",
    )


def _plausible(secret: str) -> bool:
    return 0 < len(secret) <= LONGEST_PROOF and secret.isascii()


def _proof(secret: str, salt: str) -> str:
    return hmac.new(secret.encode(), f"horae csrf\n{salt}".encode("utf-8", "replace"), sha256).hexdigest()[:43]
