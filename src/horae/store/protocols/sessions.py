"""The Visitors protocol: the tokens, sessions and kept answers of clients that come over the network.

The rules of `store.protocols.store` hold. Tokens and sessions are stored as SHA-256 digests (hex) of what the client
has: reading the catalog is not enough to come in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

__all__ = ["ROW_BYTES", "KeptAnswer", "SessionStore", "TokenRecord"]

ROW_BYTES = 256
"""How many bytes the row of a kept answer counts for, besides its body."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    token_id: str
    user: str
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None = None

    def is_live(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer to a request with an idempotency key. `status` None: the request is still being answered, or its
    server is gone. `fingerprint` tells whether it was the same request. `is_ours`: the caller is to answer it now, and
    `body` is what an earlier server noted of it."""

    fingerprint: str
    begun_at: datetime
    status: int | None = None
    body: bytes = field(default=b"", repr=False)
    is_ours: bool = False


class SessionStore(Protocol):
    """Tokens, sessions and kept answers. Every `Catalog` implements it."""

    async def has_credentials(self) -> bool:
        """Whether any credential works: an enabled user has a password, or a live token."""

    async def is_closed(self) -> bool:
        """Whether the catalog has had a password or a token at any time since it was created, or since `reopen`. Then a
        request without credentials is refused, even when the last of them has expired or is gone."""

    async def reopen(self, *, by: str = "local") -> bool:
        """Admits requests from the server's own machine without credentials, until there is a password or a token
        again. Returns whether the catalog was closed. Audit: CATALOG_OPENED. Raises Conflict while
        `has_credentials`."""

    async def create_token(
        self, user: str, token_hash: str, *, label: str, expires_at: datetime | None = None, by: str = "local"
    ) -> TokenRecord:
        """Stores a token. `local` may have tokens too. Audit: TOKEN_CREATED (never the hash). Raises PrincipalNotFound,
        and AlreadyExists where there is such a token."""

    async def tokens(self, user: str | None = None) -> tuple[TokenRecord, ...]:
        """All tokens, or those of one user, the newest first; revoked and expired ones included."""

    async def revoke_token(self, token_id: str, *, by: str = "local") -> TokenRecord:
        """Revokes a token. Audit: TOKEN_REVOKED; nothing is written where it was revoked before. Raises NotFound."""

    async def token_user(self, token_hash: str) -> str | None:
        """The user of a live token; None where there is no such token, or its user is disabled."""

    async def open_session(self, user: str, session_hash: str, *, lasts: timedelta) -> datetime:
        """Begins a session and returns when it expires. Deletes expired sessions. Raises PrincipalNotFound, and
        AlreadyExists where there is such a session. (The audit row is LOGIN, which `security.passwords.login`
        writes.)"""

    async def session_user(self, session_hash: str) -> str | None:
        """The user of a session; None where it has expired, or its user is disabled."""

    async def close_session(self, session_hash: str) -> None:
        """Ends a session. Audit: LOGOUT, where there was one."""

    async def begin_answer(
        self, key: str, fingerprint: str, *, stale: timedelta, user: UUID | None = None
    ) -> KeptAnswer:
        """Records that the request with this key (a digest of the principal and their key) is being answered.

        With `is_ours` the caller goes on and answers. Otherwise the result is what is stored: an answer, or that
        another caller has been answering for less than `stale`. A request that was begun longer ago and never answered
        is begun anew; where a part of it was noted, only by a caller with the same fingerprint. At most one of two
        concurrent callers is told to go on.
        """

    async def note_answer(self, key: str, fingerprint: str, body: bytes, *, was: bytes = b"") -> bool:
        """Stores what is done so far of a request that takes several transactions, in each of them. `was` is what was
        noted before. Returns False where the request has another state by now: then another caller is at it, and what
        was done in this transaction must be undone. A request noted just now is not stale."""

    async def finish_answer(self, key: str, fingerprint: str, status: int, body: bytes, *, was: bytes = b"") -> bool:
        """Stores the answer for callers that repeat the request; otherwise as `note_answer`. In one transaction with
        the requested change (`together`) it makes the change happen once: of two callers that make it, one gets False
        and is undone."""

    async def drop_answer(self, key: str, begun_at: datetime) -> bool:
        """Deletes the record of a request that led to nothing, so that a repeated request is answered anew. Does
        nothing, and returns False, where another caller has begun it anew since `begun_at`, or something was noted or
        answered."""

    async def trim_answers(self, user: UUID, most: int) -> int:
        """Deletes a user's oldest answers until the rest takes no more than `most` bytes; returns how many. A row
        counts for `ROW_BYTES` besides its answer."""

    async def forget_answers(self, older_than: timedelta) -> int:
        """Deletes the answers of requests that began longer ago than `older_than`; returns how many."""
