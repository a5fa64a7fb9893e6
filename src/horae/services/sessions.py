"""Authentication of network callers by token, session or password, and their answers by idempotency key.

Tokens and secrets are compared by their SHA-256 digests: the catalog has only these. A failed authentication writes an
audit row LOGIN_FAILED. A flood of them writes a few rows, which have the number of the others.
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

from horae.core.access import LOCAL, LOCAL_NAME, Principal
from horae.errors import Conflict, InvalidInput, KeyReused, LoginFailed, shown
from horae.security.passwords import login
from horae.security.refusal_flood import RefusalLimiter
from horae.services.service import ServiceCatalog
from horae.services.tokens import digest

SESSION = timedelta(hours=12)
STALE = timedelta(seconds=15)
"""A request that was begun, or last noted, longer ago and never answered counts as abandoned by its server. If that
server still works on it, the later one of the two is undone."""
KEPT = timedelta(days=1)
"""How long an answer is kept for repeats with its key."""
MOST_KEPT = 16 << 20
"""Bytes of one user's answers that are kept. Beyond that the oldest are deleted first."""
TRIM_EVERY = 16
"""Requests of a user with a key between two checks of how much is kept of theirs."""
LONGEST_PROOF = 512
LONGEST_KEY = 255
UNAUTHENTICATED = "?"
"""The actor, in the audit trail, of a caller who is not authenticated."""
_OPEN_SECONDS = 1.0
_FORGET_SECONDS = 3600.0
_ROWS = 20
_ROW_SECONDS = 10.0

_log = logging.getLogger("horae.web")


@dataclass(frozen=True, slots=True)
class NewSession:
    """A new session. Only the caller has its `secret`: the catalog has the digest."""

    secret: str = field(repr=False)
    expires: datetime
    who: Principal


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key. `status` None: it is to be answered now, and then finished or dropped; `body`
    is what an earlier try has noted. Otherwise `status` and `body` are the answer given before. `busy`: another server
    or task is answering it."""

    key: str
    fingerprint: str
    begun_at: datetime
    status: int | None = None
    body: bytes = field(default=b"", repr=False)
    busy: bool = False


class SessionService:
    """Authenticates network callers. Its own state is only a cache."""

    def __init__(
        self,
        store: Callable[[], Awaitable[ServiceCatalog]],
        *,
        session: timedelta = SESSION,
        most_kept: int = MOST_KEPT,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`session` is how long a session lasts, `most_kept` how many bytes of one user's answers are kept."""
        self._store = store
        self._session = session
        self._most_kept = most_kept
        self._begun: dict[str, int] = {}
        self._clock = clock
        self._was_closed = False
        self._open_until = float("-inf")
        self._forgot = clock()
        self._flood = RefusalLimiter(_ROWS, _ROW_SECONDS, clock=clock)

    # ---- authentication ----------------------------------------------------------------------------------------------

    async def is_open(self) -> bool:
        """Whether the catalog never had a password or a token: then callers on the server's own machine are
        administrators. The first one closes the catalog, and it stays closed after the last user is dropped or the last
        token ends. A process that has seen it closed does not notice when an operator opens it again."""
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
        """Forgets that the catalog was open: a user may just have got a password or a token."""
        self._open_until = float("-inf")

    async def of_token(self, token: str, *, address: str = "") -> Principal:
        """Returns the principal of a token. Raises LoginFailed for any invalid token. Audit: LOGIN_FAILED."""
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
        """Returns the principal of a session. Raises LoginFailed. Audit: LOGIN_FAILED."""
        store = await self._store()
        user = await store.session_user(digest(secret)) if _plausible(secret) else None
        who = await self._principal(store, user)
        if who is None:
            await self.note_refusal("LOGIN_FAILED", "a session that is unknown or has ended", address)
            raise LoginFailed("This session has ended, or never was", hint="Sign in again.")
        return who

    async def _principal(self, store: ServiceCatalog, user: str | None) -> Principal | None:
        if user is None:
            return None
        if user == LOCAL_NAME:
            return LOCAL
        found = await store.principal(user)
        return found if found is not None and found.is_enabled else None

    async def sign_in(self, name: str, password: str) -> NewSession:
        """Checks the password of `name`, and begins a session. Raises LoginFailed. Audit: LOGIN, LOGIN_FAILED."""
        store = await self._store()
        who = await login(store, name, password)
        secret = token_urlsafe(32)
        expires = await store.open_session(who.name, digest(secret), lasts=self._session)
        self._was_closed = True
        return NewSession(secret, expires, who)

    async def sign_out(self, secret: str) -> None:
        """Ends a session, if there is one. Audit: LOGOUT."""
        if _plausible(secret):
            await (await self._store()).close_session(digest(secret))

    # ---- other sites -------------------------------------------------------------------------------------------------

    def csrf(self, secret: str) -> str:
        """Returns a CSRF token for a page of this session. It is another one each time: otherwise the sizes of
        compressed pages would reveal it."""
        salt = token_urlsafe(9)
        return f"{salt}.{_proof(secret, salt)}"

    def is_csrf(self, secret: str, given: str | None) -> bool:
        salt, _, proof = (given or "").partition(".")
        return hmac.compare_digest(_proof(secret, salt).encode(), proof.encode("utf-8", "replace"))

    # ---- audit trail -------------------------------------------------------------------------------------------------

    async def note_refusal(
        self, event: str, reason: str, address: str = "", details: Mapping[str, str] | None = None
    ) -> None:
        """Logs that a caller was refused, and writes an audit row: 20 at once, then one every 10 s, with the number of
        those left out."""
        _log.warning("refused %s: %s", address or "a visitor", reason)
        more = self._flood.admits()
        if more is None:
            return
        told = {"reason": reason, "address": address, **(details or {}), **more}
        await (await self._store()).note(event, by=UNAUTHENTICATED, outcome="REFUSED", details=told)

    # ---- answers given before ----------------------------------------------------------------------------------------

    async def begin(self, who: Principal, method: str, path: str, key: str, body: bytes) -> KeyedRequest:
        """Begins to answer a request with an idempotency key.

        Raises KeyReused where the user gave the key with another body before (same method and path), InvalidInput for
        an invalid key.
        """
        if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
            raise InvalidInput(
                f"Invalid Idempotency-Key {shown(key)}: must be 1 to {LONGEST_KEY} printable characters",
                hint="A uuid is a good one.",
            )
        name = digest("\0".join((who.name, method, path, key)))
        # Keyed by the idempotency key, which is not stored: a body may hold a password that could be guessed from a
        # plain digest.
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
        return KeyedRequest(name, fingerprint, kept.begun_at, kept.status, kept.body, is_busy)

    async def finish(self, begun: KeyedRequest, status: int, body: bytes, *, was: bytes) -> bool:
        """Keeps the answer for a day. Returns whether it is kept: False where another server has answered. `was` is
        what was noted of the request before."""
        return await (await self._store()).finish_answer(begun.key, begun.fingerprint, status, body, was=was)

    async def drop(self, begun: KeyedRequest) -> bool:
        """Forgets a request that changed nothing: a repeat is answered anew. Returns False where something was noted or
        answered, or where another server has begun it anew."""
        return await (await self._store()).drop_answer(begun.key, begun.begun_at)

    async def forget(self) -> None:
        """Deletes old answers, once an hour at most."""
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
