"""People at the desk: users, roles, tokens, secrets, settings, the trail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.api.stand import VIEW, Scene, Stand

from horae.core.access import Grant
from horae.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidDuration,
    InvalidInput,
    InvalidPolicy,
    NotFound,
    PrincipalNotFound,
    SecretNotFound,
)
from horae.services.tokens import digest
from horae_store_tests.contract.builders import job

Playing = Callable[[Scene], None]
FOR_ADMINISTRATORS: dict[str, dict[str, Any]] = {
    "users": {},
    "create_user": {"name": "x"},
    "alter_user": {"name": "local", "is_enabled": True},
    "drop_user": {"name": "x"},
    "roles": {},
    "create_role": {"name": "x"},
    "drop_role": {"name": "x"},
    "tokens": {"user": "local"},
    "create_token": {"user": "local"},
    "secrets": {},
    "put_secret": {"name": "x", "value": "y"},
    "drop_secret": {"name": "x"},
    "rotate_secrets": {},
    "settings": {},
    "set_setting": {"name": "scheduler.max_concurrent_jobs", "value": 3},
    "list_audit": {},
    "verify_audit": {},
}


def test_whoever_asks_is_told_who_they_are(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        local = await stand.ask("me")
        assert (local.name, local.is_admin, local.sign_in, local.version) == ("local", True, "local", "1.2.3")
        await stand.store.create_role("ops")
        await stand.user("ann", Grant(VIEW, "etl"))
        await stand.store.add_members(["ops"], ["ann"])
        ann = await (await stand.again("ann")).ask("me")
        assert (ann.name, ann.is_admin, ann.roles) == ("ann", False, ["ops"])
        assert (ann.grants, ann.sign_in) == (["VIEW JOB HISTORY ON JOB etl"], "session")

    playing(scene)


def test_users_and_roles_come_change_and_go(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        made = await stand.ask("create_user", name="ann")
        assert made.message.startswith("created user ann, without a password")
        with pytest.raises(AlreadyExists):
            await stand.ask("create_user", name="ann", is_admin=True)
        assert (await stand.ask("alter_user", name="ann", is_enabled=False)).message == "altered user ann"
        with pytest.raises(InvalidInput, match="Nothing is to be changed"):
            await stand.ask("alter_user", name="ann")
        assert (await stand.ask("create_role", name="ops", description="On call")).message == "created role ops"
        await stand.store.add_members(["ops"], ["ann"])
        users = {each.name: each for each in (await stand.ask("users")).users}
        assert (users["ann"].is_enabled, users["ann"].has_password, users["ann"].roles) == (False, False, ["ops"])
        assert users["local"].created_at is None
        (role,) = (await stand.ask("roles")).roles
        assert (role.name, role.description, role.members) == ("ops", "On call", ["ann"])
        assert (await stand.ask("drop_role", name="ops")).message == "dropped role ops"
        assert (await stand.ask("drop_user", name="ann")).message == "dropped user ann"
        with pytest.raises(PrincipalNotFound):
            await stand.ask("drop_user", name="ann")

    playing(scene)


def test_a_token_is_told_once_kept_as_a_digest_and_opens_nothing_when_it_is_revoked(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann")
        made = await ann.ask("create_token", label="deploy")
        assert made.secret.startswith("horae_")
        assert len(made.secret) == len("horae_") + 43
        assert (made.token.user, made.token.label, made.token.is_live) == ("ann", "deploy", True)
        assert made.token.expires_at == "2026-05-31T09:00:00Z"
        assert await stand.store.token_user(digest(made.secret)) == "ann"
        assert await stand.store.token_user(made.secret) is None
        assert made.secret not in repr(await stand.store.audit(sealed=False))
        (listed,) = (await ann.ask("tokens")).tokens
        assert listed == made.token
        stand.clock.advance("91d")
        assert [each.is_live for each in (await ann.ask("tokens")).tokens] == [False]
        endless = await ann.ask("create_token", lasts=None)
        assert endless.token.expires_at is None
        gone = await ann.ask("revoke_token", token_id=endless.token.token_id)
        assert (gone.is_live, gone.revoked_at) == (False, "2026-06-01T09:00:00Z")
        assert await stand.store.token_user(digest(endless.secret)) is None

    playing(scene)


def test_tokens_of_others_are_the_administrators_business(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann, bob = await stand.user("ann"), await stand.user("bob")
        mine = await ann.ask("create_token")
        theirs = await stand.ask("create_token", user="bob", lasts="1h")
        assert theirs.token.user == "bob"
        assert [each.user for each in (await bob.ask("tokens")).tokens] == ["bob"]
        assert sorted(each.user for each in (await stand.ask("tokens")).tokens) == ["ann", "bob"]
        assert [each.user for each in (await stand.ask("tokens", user="ann")).tokens] == ["ann"]
        for name, asked in (("tokens", {"user": "ann"}), ("create_token", {"user": "ann"})):
            with pytest.raises(AccessDenied):
                await bob.ask(name, **asked)
        with pytest.raises(AccessDenied):
            await bob.ask("revoke_token", token_id=mine.token.token_id)
        assert (await stand.ask("revoke_token", token_id=mine.token.token_id)).revoked_at is not None
        for none in ("00000000-0000-4000-8000-000000000000", "nonsense"):
            with pytest.raises(NotFound):
                await stand.ask("revoke_token", token_id=none)
        with pytest.raises(PrincipalNotFound):
            await stand.ask("create_token", user="nobody")

    playing(scene)


@pytest.mark.parametrize("lasts", ["soon", "0s", ""])
def test_a_token_lasts_for_some_time(playing: Playing, lasts: str) -> None:
    async def scene(stand: Stand) -> None:
        with pytest.raises(InvalidDuration):
            await stand.ask("create_token", lasts=lasts)

    playing(scene)


def test_secrets_are_listed_by_name_and_never_shown(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl"))
        assert (await stand.ask("put_secret", name="api", value="s3cret")).message == "secret api is kept"
        assert (await stand.ask("put_secret", name="api", value="other")).message == "secret api is kept"
        own = await stand.ask("put_secret", name="db", value="s3cret", job="etl")
        assert own.message == "secret db of job etl is kept"
        listed = await stand.ask("secrets")
        assert sorted((each.name, each.job) for each in listed.secrets) == [("api", None), ("db", "etl")]
        assert (await stand.ask("rotate_secrets")).rotated == 0
        assert (await stand.ask("drop_secret", name="db", job="etl")).message == "secret db of job etl is gone"
        with pytest.raises(SecretNotFound):
            await stand.ask("drop_secret", name="db", job="etl")

    playing(scene)


def test_settings_are_told_with_their_defaults_set_and_taken_back(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        (before,) = (await stand.ask("settings")).settings
        assert (before.name, before.value, before.default) == ("scheduler.max_concurrent_jobs", None, 50)
        assert before.description == "Runs at once on each node"
        assert (await stand.ask("nodes")).nodes[0].slots == 8
        changed = await stand.ask("set_setting", name=before.name, value=3)
        assert (changed.value, changed.default) == (3, 50)
        assert (await stand.ask("nodes")).nodes[0].slots == 3
        await stand.ask("set_setting", name="scheduler.catch_up", value="ALL")
        named = {each.name: each.value for each in (await stand.ask("settings")).settings}
        assert named == {"scheduler.catch_up": "all", "scheduler.max_concurrent_jobs": 3}
        assert (await stand.ask("set_setting", name=before.name)).value is None
        with pytest.raises(InvalidPolicy, match="whole number"):
            await stand.ask("set_setting", name=before.name, value="many")
        with pytest.raises(InvalidPolicy, match="Unknown setting"):
            await stand.ask("set_setting", name="scheduler.colour", value=1)

    playing(scene)


def test_the_trail_is_read_page_by_page_and_verified(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl"))
        for _ in range(3):
            await stand.ask("pause", name="etl", note="n")
            await stand.ask("resume", name="etl")
        numbers: list[int] = []
        before = None
        while True:
            page = await stand.ask("list_audit", limit=2, **({} if before is None else {"before": before}))
            numbers += [each.number for each in page.rows]
            before = page.next_before
            if before is None:
                break
        assert numbers == sorted(numbers, reverse=True)
        assert len(numbers) == len(set(numbers)) == 7
        paused = await stand.ask("list_audit", event="job_modified", job="etl", actor="local")
        assert [each.event for each in paused.rows] == ["JOB_MODIFIED"] * 6
        assert (paused.rows[0].job, paused.rows[0].is_sealed) == ("etl", False)
        verified = await stand.ask("verify_audit")
        # With the rows of the audit key and of the rights, which the first who seals makes.
        assert (verified.ok, verified.rows, verified.findings) == (True, 9, [])
        assert (verified.keyed, verified.codes_checked) == (verified.seals, True)
        assert (await stand.ask("verify_audit", head=verified.head)).ok
        assert (await stand.ask("list_audit")).rows[-1].is_sealed

    playing(scene)


def test_what_is_for_administrators_is_refused_to_others_and_leaves_a_row(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann", Grant(VIEW))
        for name, asked in FOR_ADMINISTRATORS.items():
            with pytest.raises(AccessDenied):
                await ann.ask(name, **asked)
        refused = await stand.ask("list_audit", event="ACCESS_DENIED", limit=100)
        assert [(each.actor, each.outcome) for each in refused.rows] == [("ann", "REFUSED")] * len(FOR_ADMINISTRATORS)

    playing(scene)
