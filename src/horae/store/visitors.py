"""The Visitors protocol: what a catalog keeps of those who come over the network: tokens, sessions, answers given.

The rules of `store.port` hold. Tokens and sessions are kept as SHA-256 digests (hex) of what the visitor has: whoever
reads the catalog cannot come in with what they find there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

__all__ = ["ROW_BYTES", "KeptAnswer", "TokenRecord", "Visitors"]

ROW_BYTES = 256
"""What the row of a kept answer counts for besides its body."""


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
    """What was answered to a request with an idempotency key. `status` None: it is still being answered, or whoever was
    at it is gone. `fingerprint` tells whether it was the same request. `is_ours`: whoever asked is to answer it now,
    and `body` is what was noted of it by another who was at it before."""

    fingerprint: str
    begun_at: datetime
    status: int | None = None
    body: bytes = field(default=b"", repr=False)
    is_ours: bool = False


class Visitors(Protocol):
    """Every `Catalog` keeps these."""

    async def has_credentials(self) -> bool:
        """Whether anybody could come in: an enabled user with a password, or with a token that is live."""

    async def is_closed(self) -> bool:
        """Whether the catalog had a password or a token at any time since it was made, or since `reopen`: then nobody
        comes in who shows none, also when the last of them has expired or is gone."""

    async def reopen(self, *, by: str = "local") -> bool:
        """Lets whoever is on the server's own machine come in without showing anything, until there is a password or a
        token again; whether it was closed. Audit: CATALOG_OPENED. Raises Conflict while `has_credentials`."""

    async def create_token(
        self, user: str, token_hash: str, *, label: str, expires_at: datetime | None = None, by: str = "local"
    ) -> TokenRecord:
        """Audit: TOKEN_CREATED (never the hash). Raises PrincipalNotFound. `local` may have tokens too."""

    async def tokens(self, user: str | None = None) -> tuple[TokenRecord, ...]:
        """All of them, or one user's, the newest first; revoked and expired ones too."""

    async def revoke_token(self, token_id: str, *, by: str = "local") -> TokenRecord:
        """Audit: TOKEN_REVOKED; nothing where it was before. Raises NotFound."""

    async def token_user(self, token_hash: str) -> str | None:
        """Whose live token it is; None where there is none, or its user is disabled."""

    async def open_session(self, user: str, session_hash: str, *, lasts: timedelta) -> datetime:
        """Begins a session and answers when it expires; sessions that have expired are deleted. Raises
        PrincipalNotFound. (Audit is LOGIN, which `security.passwords.login` writes.)"""

    async def session_user(self, session_hash: str) -> str | None:
        """Whose session it is, unless it has expired or its user is disabled."""

    async def close_session(self, session_hash: str) -> None:
        """Audit: LOGOUT, where there was one."""

    async def begin_answer(
        self, key: str, fingerprint: str, *, stale: timedelta, user: UUID | None = None
    ) -> KeptAnswer:
        """Says that the request with this key (a digest of the principal and the key they gave) is being answered.

        With `is_ours` go on and answer. Otherwise what is kept: an answer, or that somebody is at it since less than
        `stale`. A request begun longer ago and never answered is begun anew, where something of it was noted only by
        whoever asks the same. At most one of two who ask at once is told to go on."""

    async def note_answer(self, key: str, fingerprint: str, body: bytes, *, was: bytes = b"") -> bool:
        """Keeps what is done so far of a request that is done in several transactions, with each of them. `was` is what
        was noted before. False where the request stands elsewhere by now: then another is at it, and what was done in
        this transaction must be undone. What was noted just now is not stale."""

    async def finish_answer(self, key: str, fingerprint: str, status: int, body: bytes, *, was: bytes = b"") -> bool:
        """Keeps the answer for those who ask again; otherwise as `note_answer`. In one transaction with what was asked
        (`together`) it makes that happen once: of two who do the same, one is told False and undone."""

    async def drop_answer(self, key: str, begun_at: datetime) -> bool:
        """Nothing came of it: whoever asks again is answered anew. Does nothing, and answers False, where another began
        it anew since `begun_at`, or something was noted or answered."""

    async def trim_answers(self, user: UUID, most: int) -> int:
        """Deletes the oldest of a user's that were given, until the user's take no more than `most` bytes; how many. A
        row counts for `ROW_BYTES` besides what was answered."""

    async def forget_answers(self, older_than: timedelta) -> int:
        """Deletes those begun longer ago; how many."""
