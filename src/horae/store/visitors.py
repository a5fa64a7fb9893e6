"""The Visitors protocol: what a catalog keeps of those who come over the network: tokens, sessions, answers given.

The rules of `store.port` hold. Tokens and sessions are kept as SHA-256 digests (hex) of what the visitor has: whoever
reads the catalog cannot come in with what they find there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

__all__ = ["KeptAnswer", "TokenRecord", "Visitors"]


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
    at it is gone. `fingerprint` tells whether it was the same request."""

    fingerprint: str
    begun_at: datetime
    status: int | None = None
    body: bytes = field(default=b"", repr=False)


class Visitors(Protocol):
    """Every `Catalog` keeps these."""

    async def has_credentials(self) -> bool:
        """Whether anybody could come in: an enabled user with a password, or with a token that is live."""

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

    async def begin_answer(self, key: str, fingerprint: str, *, stale: timedelta) -> KeptAnswer | None:
        """Says that the request with this key (a digest of the principal and the key they gave) is being answered.

        None: go on and answer. Otherwise what is kept: an answer, or that somebody is at it since less than `stale`. A
        request begun longer ago and never answered is begun anew. At most one of two who ask at once is told None."""

    async def finish_answer(self, key: str, status: int, body: bytes) -> None:
        """Keeps the answer for those who ask again."""

    async def drop_answer(self, key: str) -> None:
        """Nothing came of it: whoever asks again is answered anew."""

    async def forget_answers(self, older_than: timedelta) -> int:
        """Deletes those begun longer ago; how many."""
