"""Tokens, by which programs sign in. Users manage their own tokens, administrators those of all users."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256

from horae.core.job.ids import checked_name, checked_text
from horae.core.time.duration import DurationLike, parse_duration
from horae.errors import InvalidDuration, InvalidTime, NotFound, shown
from horae.security.access import AccessChecker
from horae.store.protocols.sessions import SessionStore, TokenRecord
from horae.store.protocols.store import Store

PREFIX = "horae_"
"""The beginning of every token, by which scanners for secrets find it in files."""
_BYTES = 32


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its secret, which is not stored and shown only this once."""

    record: TokenRecord
    secret: str = field(repr=False)


def digest(secret: str) -> str:
    """Returns what a catalog keeps of a token, or of a session's secret."""
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


class TokenService:
    """The tokens of the gate's principal; for an administrator, those of all users."""

    def __init__(self, store: Store, visitors: SessionStore, gate: AccessChecker) -> None:
        self._store = store
        self._visitors = visitors
        self._gate = gate

    @property
    def _by(self) -> str:
        return self._gate.who.name

    async def list(self, user: str | None = None) -> tuple[TokenRecord, ...]:
        """Returns the tokens of one user, or all that the caller may see: the newest first, revoked and expired ones
        too."""
        if user is None and not self._gate.is_open:
            user = self._by
        if user is not None and user != self._by:
            await self._gate.require_admin(f"list the tokens of {shown(user)}")
        return await self._visitors.tokens(user)

    async def create(
        self, user: str | None = None, *, label: str = "", lasts: DurationLike | None = "90d"
    ) -> IssuedToken:
        """Creates a token of `user`, or of the caller. `lasts` None: until it is revoked. Raises AccessDenied,
        InvalidDuration, InvalidTime."""
        owner = self._by if user is None else checked_name(user, "user name")
        if owner != self._by:
            await self._gate.require_admin(f"make a token for {shown(owner)}")
        checked_text(label, "label")
        expires_at = None if lasts is None else await self._expiry(lasts)
        secret = PREFIX + secrets.token_urlsafe(_BYTES)
        record = await self._visitors.create_token(
            owner, digest(secret), label=label, expires_at=expires_at, by=self._by
        )
        return IssuedToken(record, secret)

    async def revoke(self, token_id: str) -> TokenRecord:
        """Revokes a token: from now on it is refused. Raises NotFound, AccessDenied."""
        found = next((each for each in await self._visitors.tokens() if each.token_id == token_id), None)
        if found is None:
            raise NotFound(f"There is no token {shown(token_id)}", hint="List them to see their ids.")
        if found.user != self._by:
            await self._gate.require_admin(f"revoke the token {shown(token_id)} of another")
        return await self._visitors.revoke_token(token_id, by=self._by)

    async def _expiry(self, lasts: DurationLike) -> datetime:
        length = parse_duration(lasts, name="lasts")
        if length.total_seconds() <= 0:
            raise InvalidDuration(f"Invalid lasts {shown(lasts)}: must be longer than nothing")
        try:
            return await self._store.now() + length
        except OverflowError:
            raise InvalidTime(
                f"Invalid lasts {shown(lasts)}: ends after the year 9999", hint="Leave it out for a token without end."
            ) from None
