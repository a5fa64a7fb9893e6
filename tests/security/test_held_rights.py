"""Rights that somebody wrote into the tables by hand, and those that were given as people give them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.security.test_on_stores import on
from tests.store.catalogs import Place, minutely

from horae.core.access import LOCAL, Grant, Privilege, user_uuid
from horae.security.audit.findings import FindingKind
from horae.security.audit.key import seal_all
from horae.security.audit.verification import TrailVerification, verify
from horae.security.keys import Keyring
from horae.store.catalog.catalog import Catalog
from horae.store.catalog.people import audit_trail
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.testing.clock import ManualClock

KEYS = Keyring(b"k" * 32)
LATER = timedelta(minutes=5)

BY_HAND = {
    "an administrator": "UPDATE sys.users SET is_admin = {yes} WHERE user_name = 'ann'",
    "a password": "UPDATE sys.users SET password_hash = 'hash' WHERE user_name = 'ann'",
    "a user who was disabled": "UPDATE sys.users SET state = 'ENABLED' WHERE user_name = 'carl'",
    "a grant": "INSERT INTO sys.grants (grantee_uuid, privilege, object_kind, object_name, granted_at, granted_by) "
    f"VALUES ('{user_uuid('ann')}', 'EXECUTE EXTERNAL JOB', '', '', 0, 'eve')",
    "a grant taken": "DELETE FROM sys.grants",
    "a member": "INSERT INTO sys.role_members (role_uuid, user_uuid, granted_at, granted_by) "
    f"SELECT role_uuid, '{user_uuid('ann')}', 0, 'eve' FROM sys.roles",
}


async def peopled(store: Catalog, clock: ManualClock) -> None:
    await store.define([minutely("a")])
    await store.create_user("ann", by="eve")
    await store.create_user("carl", by="eve")
    await store.alter_user("carl", is_enabled=False, by="eve")
    await store.create_role("crew", by="eve")
    await store.grant([Grant(Privilege.CREATE_JOB)], ["ann"], by="eve")
    clock.advance(LATER)
    await seal_all(store, KEYS, 5000)
    clock.advance(LATER)


async def verified(store: Catalog) -> TrailVerification:
    return await verify(store)


@pytest.mark.parametrize("what", BY_HAND)
@pytest.mark.parametrize("is_sealed", [False, True], ids=["just now", "and sealed over"])
def test_rights_that_were_written_by_hand_are_found(place: Place, what: str, *, is_sealed: bool) -> None:
    clock = ManualClock()
    found: list[TrailVerification] = []

    async def body(store: Catalog) -> None:
        await peopled(store, clock)
        assert (await verified(store)).ok
        place.sql(BY_HAND[what].format(yes="1" if place.kind == "sqlite" else "true"))
        if is_sealed:
            await store.note("LOGIN", by="ann", outcome="OK")
            await seal_all(store, KEYS, 5000)
        found.append(await verified(store))

    on(place, body, clock)
    (only,) = found[0].findings
    assert only.kind is FindingKind.RIGHTS_CHANGED
    assert "no row tells of it" in only.message


def test_rights_that_change_as_people_change_them_are_no_finding(place: Place) -> None:
    clock = ManualClock()

    async def body(store: Catalog) -> None:
        await peopled(store, clock)
        run = Grant(Privilege.EXECUTE_JOB, "a")
        steps = (
            lambda: store.alter_user("ann", is_admin=True, by="eve"),
            lambda: store.alter_user("ann", password_hash="hash", by="ann"),  # noqa: S106 - no password
            lambda: store.grant([run], ["ann", "crew"], by="eve"),
            lambda: store.add_members(["crew"], ["ann"], by="eve"),
            lambda: store.remove_members(["crew"], ["ann"], by="eve"),
            lambda: store.revoke([run], ["crew"], by="eve"),
            lambda: store.drop(["a"], by="eve"),
            lambda: store.drop_role("crew", by="eve"),
            lambda: store.drop_user("ann", by="eve"),
        )
        for step in steps:
            await step()
            assert (await verified(store)).ok, "not sealed yet"
            clock.advance(LATER)
            await seal_all(store, KEYS, 5000)
            clock.advance(LATER)
            found = await verified(store)
            assert (found.ok, found.unsealed) == (True, 0), found.findings

    on(place, body, clock)


def test_a_change_that_a_digest_knew_of_excuses_no_later_one(place: Place) -> None:
    """A node digests within seconds of each change: the row of that change stands close before the digest."""
    clock = ManualClock()

    async def body(store: Catalog) -> None:
        await peopled(store, clock)
        await store.alter_user("ann", is_enabled=True, by="eve")
        await store.grant([Grant(Privilege.EXECUTE_JOB, "a")], ["ann"], by="eve")
        clock.advance("5s")
        await seal_all(store, KEYS, 5000, thorough=False)
        assert (await verified(store)).ok
        clock.advance("1h")
        place.sql(BY_HAND["an administrator"].format(yes="1" if place.kind == "sqlite" else "true"))
        clock.advance("25s")
        for _ in range(2):
            (only,) = (await verified(store)).findings
            assert only.kind is FindingKind.RIGHTS_CHANGED
            await seal_all(store, KEYS, 5000, thorough=False)
        # Nor does one that came later.
        await store.alter_user("ann", is_enabled=True, by="eve")
        await seal_all(store, KEYS, 5000)
        (only,) = (await verified(store)).findings
        assert only.kind is FindingKind.RIGHTS_CHANGED

    on(place, body, clock)


def test_a_change_and_its_digest_while_the_trail_is_verified_are_no_finding(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()

    async def body(store: Catalog) -> None:
        await peopled(store, clock)

        async def and_then() -> str:
            found = await rights()
            await store.grant([Grant(Privilege.EXECUTE_JOB, "a")], ["ann"], by="eve")
            await seal_all(store, KEYS, 5000, thorough=False)
            return found

        rights = store.rights
        monkeypatch.setattr(store, "rights", and_then)
        found = await verified(store)
        assert found.ok, found.findings

    on(place, body, clock)


def test_rights_that_stand_still_are_told_once(place: Place) -> None:
    clock = ManualClock()

    async def body(store: Catalog) -> None:
        await peopled(store, clock)
        assert not await store.note_rights()
        await store.grant([Grant(Privilege.CREATE_JOB)], ["crew"], by=LOCAL.name)
        assert await store.note_rights()
        rows = [row for row in await store.audit() if row.event == "RIGHTS_DIGESTED"]
        assert (len(rows), rows[0].actor, rows[0].outcome) == (1, "system", "OK")

    on(place, body, clock)


def test_rights_that_nobody_changed_are_not_read_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten thousand users they take a fifth of a second, which every node would spend at every sweep."""
    clock = ManualClock()
    read: list[str] = []

    async def counted(work: UnitOfWork, events: Sequence[str]) -> tuple[str, int, list[tuple[int, str, str]]]:
        read.append("rights")
        return await rights(work, events)

    rights = audit_trail.read_rights
    monkeypatch.setattr(audit_trail, "read_rights", counted)

    async def body(store: Catalog) -> None:
        await peopled(store, clock)
        assert read == ["rights"]
        await store.note("LOGIN", by="ann", outcome="OK")
        await store.define([minutely("b")])
        await seal_all(store, KEYS, 5000, thorough=False)
        assert read == ["rights"]
        for text in BY_HAND.values():
            read.clear()
            place.sql(text.format(yes="1" if place.kind == "sqlite" else "true"))
            await seal_all(store, KEYS, 5000, thorough=False)
            await seal_all(store, KEYS, 5000, thorough=False)
            assert read == ["rights"], text
        await store.create_user("bob")
        await store.drop(["a"])
        await seal_all(store, KEYS, 5000, thorough=False)
        read.clear()
        # Whoever keeps the database from noting a change is found by the look that asks no mark.
        await store.alter_user("bob", is_admin=True)
        place.sql("DELETE FROM sys.rights_marks")
        await seal_all(store, KEYS, 5000, thorough=False)
        assert read == []
        await seal_all(store, KEYS, 5000)
        assert read == ["rights"]

    on(place, body, clock)
