"""The catalog's verbs for clients on the network. Their contract is `store.protocols.sessions.Visitors`.

Every request reads who its caller is. Those reads use the connections for pages, not the engine's: where there is only
one connection that writes, no request waits for it to be authenticated.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from horae.core.access import user_uuid
from horae.core.job import ids
from horae.core.time.instant import rfc3339
from horae.errors import AlreadyExists, Conflict, NotFound, StoreConflict, shown
from horae.store.catalog.references import kept_name, principal_not_found
from horae.store.catalog.row_codec import length, milliseconds, moment, optional_milliseconds, optional_moment
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.catalog.verb_group import VerbGroup
from horae.store.driver import KeyTaken
from horae.store.protocols.sessions import ROW_BYTES, KeptAnswer, TokenRecord

MOST_TRIES = 20


class SessionVerbs(VerbGroup):
    """Implements Visitors."""

    # ---- tokens ------------------------------------------------------------------------------------------------------

    async def has_credentials(self) -> bool:
        async with self._looking() as work:
            return bool((await work.transaction.rows("has_credentials"))[0][0])

    async def is_closed(self) -> bool:
        async with self._looking() as work:
            return bool((await work.transaction.rows("is_closed"))[0][0])

    async def reopen(self, *, by: str = "local") -> bool:
        async with self._work() as work:
            # Take the row first. A transaction that creates a credential takes it too, so either this one waits and
            # sees the credential, or that one waits and closes the catalog again.
            was_closed = bool(await work.transaction.rows("open_catalog"))
            if (await work.transaction.rows("has_credentials"))[0][0]:
                raise Conflict(
                    "The catalog stays closed: somebody has a password, or a token that is live",
                    hint="First drop or disable those users (`horae user list`) and revoke those tokens "
                    "(`horae token list`).",
                )
            if not was_closed:
                return False
            work.audit("CATALOG_OPENED", None, None, by, "OK")
            return True

    async def create_token(
        self, user: str, token_hash: str, *, label: str, expires_at: datetime | None = None, by: str = "local"
    ) -> TokenRecord:
        ids.checked_text(label, "label")
        expires = optional_milliseconds(expires_at)
        try:
            async with self._work() as work:
                user, owner = await _user(work, user)
                token = str(ids.uuid7(work.now, os.urandom(10)))
                await work.transaction.rows(
                    "insert_token", token=token, user=owner, hash=token_hash, label=label, expires=expires
                )
                record = TokenRecord(token, user, label, work.moment, optional_moment(expires))
                ends = None if record.expires_at is None else rfc3339(record.expires_at)
                work.audit("TOKEN_CREATED", None, None, by, "OK", name=user, token=token, label=label, expires_at=ends)
        except KeyTaken as error:
            raise AlreadyExists("There is such a token already", hint="Make another one.") from error
        return record

    async def tokens(self, user: str | None = None) -> tuple[TokenRecord, ...]:
        async with self._looking() as work:
            owner = None if user is None else str(user_uuid(await kept_name(work, user)))
            return await _tokens(work, user=owner, token=None)

    async def revoke_token(self, token_id: str, *, by: str = "local") -> TokenRecord:
        token = _token_uuid(token_id)
        async with self._work() as work:
            if token is None or not await work.transaction.rows("lock_token", token=token):
                raise NotFound(f"No token {shown(token_id)}", hint="Look at the list of tokens for its id.")
            (before,) = await _tokens(work, user=None, token=token)
            if before.revoked_at is not None:
                return before
            await work.transaction.rows("revoke_token", token=token)
            work.audit("TOKEN_REVOKED", None, None, by, "OK", name=before.user, token=token, label=before.label)
            (record,) = await _tokens(work, user=None, token=token)
            return record

    async def token_user(self, token_hash: str) -> str | None:
        async with self._looking() as work:
            return _only(await work.transaction.rows("token_user", hash=token_hash))

    # ---- sessions ----------------------------------------------------------------------------------------------------

    async def open_session(self, user: str, session_hash: str, *, lasts: timedelta) -> datetime:
        try:
            async with self._work() as work:
                _, owner = await _user(work, user)
                await work.transaction.rows("end_old_sessions")
                expires = work.now + (length(lasts) or 0)
                await work.transaction.rows("insert_session", hash=session_hash, user=owner, expires=expires)
        except KeyTaken as error:
            raise AlreadyExists("There is such a session already", hint="Begin another one.") from error
        return moment(expires)

    async def session_user(self, session_hash: str) -> str | None:
        async with self._looking() as work:
            return _only(await work.transaction.rows("session_user", hash=session_hash))

    async def close_session(self, session_hash: str) -> None:
        async with self._work() as work:
            user = _only(await work.transaction.rows("delete_session", hash=session_hash))
            if user is not None:
                work.audit("LOGOUT", None, None, user, "OK")

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def begin_answer(
        self, key: str, fingerprint: str, *, stale: timedelta, user: UUID | None = None
    ) -> KeptAnswer:
        whose = None if user is None else str(user)
        async with self._work() as work:
            for _ in range(MOST_TRIES):
                if await work.transaction.rows("insert_answer", key=key, fingerprint=fingerprint, user=whose):
                    return KeptAnswer(fingerprint, work.moment, is_ours=True)
                found = await work.transaction.rows("read_answer", key=key)
                if not found:
                    # Another caller has just dropped it. Now this caller or another can begin it.
                    continue
                print_of, begun, status, body = found[0]
                is_over = status is not None or (body is not None and print_of != fingerprint)
                if is_over or work.now - begun < (length(stale) or 0):
                    return KeptAnswer(print_of, moment(begun), status, bytes(body or b"") if is_over else b"")
                if await work.transaction.rows("take_over_answer", key=key, fingerprint=fingerprint, was=begun):
                    return KeptAnswer(fingerprint, work.moment, None, bytes(body or b""), is_ours=True)
        raise StoreConflict("Others begin and drop the same request all the time")

    async def note_answer(self, key: str, fingerprint: str, body: bytes, *, was: bytes = b"") -> bool:
        async with self._work() as work:
            return bool(
                await work.transaction.rows("note_answer", key=key, fingerprint=fingerprint, body=body, was=was or None)
            )

    async def finish_answer(self, key: str, fingerprint: str, status: int, body: bytes, *, was: bytes = b"") -> bool:
        async with self._work() as work:
            return bool(
                await work.transaction.rows(
                    "finish_answer", key=key, fingerprint=fingerprint, status=status, body=body, was=was or None
                )
            )

    async def drop_answer(self, key: str, begun_at: datetime) -> bool:
        async with self._work() as work:
            return bool(await work.transaction.rows("drop_answer", key=key, begun=milliseconds(begun_at)))

    async def trim_answers(self, user: UUID, most: int) -> int:
        async with self._work() as work:
            return len(await work.transaction.rows("trim_answers", user=str(user), most=most, row=ROW_BYTES))

    async def forget_answers(self, older_than: timedelta) -> int:
        async with self._work() as work:
            before = work.now - (length(older_than) or 0)
            return len(await work.transaction.rows("forget_answers", before=before))


async def _user(work: UnitOfWork, name: str) -> tuple[str, str]:
    """Returns the name and uuid of a user, who cannot be dropped before this transaction ends. Raises
    PrincipalNotFound."""
    name = await kept_name(work, name)
    if not await work.transaction.rows("lock_users", names=[name]):
        raise principal_not_found(name, "user")
    return name, str(user_uuid(name))


async def _tokens(work: UnitOfWork, **chosen: Any) -> tuple[TokenRecord, ...]:
    return tuple(
        TokenRecord(token, user, label, moment(created), optional_moment(expires), optional_moment(revoked))
        for token, user, label, created, expires, revoked in await work.transaction.rows("read_tokens", **chosen)
    )


def _token_uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None


def _only(rows: list[tuple[Any, ...]]) -> str | None:
    return rows[0][0] if rows else None
