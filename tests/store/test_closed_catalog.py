"""A catalog that had a credential is closed: after an upgrade too, and also where it is opened at the very moment."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import psycopg
import pytest
from tests.store.catalogs import PATIENCE, Place
from tests.store.databases import Databases

from horae.core.access import user_uuid
from horae.errors import Conflict
from horae.store.catalog.catalog import Catalog

MADE = {
    "a token": (
        "INSERT INTO sys.tokens (token_uuid, user_uuid, token_hash, label, created_at)"
        f" VALUES ('{uuid4()}', '{user_uuid('ann')}', '{'a' * 64}', '', 0)"
    ),
    "a password": f"UPDATE sys.users SET password_hash = '$argon2id$one' WHERE user_uuid = '{user_uuid('ann')}'",
}
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def closed_before(place: Place) -> Catalog:
    """A catalog with the user ann that is closed, though nobody could come in."""
    store = place.store()
    await store.open()
    await store.create_user("ann")
    token = await store.create_token("ann", "b" * 64, label="")
    await store.revoke_token(token.token_id)
    return store


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_who_opens_a_catalog_while_a_credential_is_being_made_leaves_it_closed(
    databases_18: Databases, made: str
) -> None:
    place = Place("postgres", databases_18.emptied())

    async def main() -> None:
        store = await closed_before(place)
        async with await psycopg.AsyncConnection.connect(place.target) as other:
            await other.execute(made.encode())
            opening = asyncio.create_task(store.reopen())
            async with asyncio.timeout(PATIENCE):
                while not opening.done() and place.sql(WAITING) == [(0,)]:
                    await asyncio.sleep(0.01)
            await other.commit()
        with pytest.raises(Conflict):
            await opening
        assert await store.has_credentials()
        assert await store.is_closed()
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_credential_made_while_a_catalog_is_being_opened_closes_it_again(databases_18: Databases, made: str) -> None:
    place = Place("postgres", databases_18.emptied())

    async def main() -> None:
        store = await closed_before(place)
        async with (
            await psycopg.AsyncConnection.connect(place.target) as opener,
            await psycopg.AsyncConnection.connect(place.target, autocommit=True) as other,
        ):
            await opener.execute("DELETE FROM sys.closed")
            making = asyncio.create_task(other.execute(made.encode()))
            async with asyncio.timeout(PATIENCE):
                while not making.done() and place.sql(WAITING) == [(0,)]:
                    await asyncio.sleep(0.01)
            await opener.commit()
            await making
        assert await store.is_closed()
        await store.close()

    asyncio.run(main())
