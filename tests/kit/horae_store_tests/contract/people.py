"""The vault's part of the contract: people and their rights, owners of jobs, settings, procedures, secrets.

`contract_trail.VaultContract` is the whole of it: subclass it as you would `StoreContract`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, cast

from horae.core.access import LOCAL, Grant, Principal, Privilege, user_uuid
from horae.core.job.definition import TaskSpec
from horae.core.job.requirements import EXTERNAL, connection_need, procedure_need
from horae.core.rate_limit import OLD_PASSWORDS
from horae.errors import (
    AlreadyExists,
    InUse,
    InvalidDefinition,
    InvalidInput,
    InvalidName,
    JobNotFound,
    PrincipalNotFound,
    SecretNotFound,
)
from horae.store.protocols.people import RIGHTS_DIGESTED, PeopleStore, RoleRecord, SecretRecord, UserRecord
from horae.store.protocols.store import Claim, Store
from horae_store_tests.contract.builders import BEGINNING, Contract, Scene, at, job, raises, scenario

HASH, OTHER_HASH = "$argon2id$one", "$argon2id$other"
CREATE = Grant(Privilege.CREATE_JOB)
RUN_ANY, RUN_A = Grant(Privilege.EXECUTE_JOB), Grant(Privilege.EXECUTE_JOB, "a")
SEE_A = Grant(Privilege.VIEW_JOB_HISTORY, "a")


class Kept(Store, PeopleStore, Protocol):
    """A catalog: jobs and runs, and people and their rights."""


def kept(scene: Scene) -> Kept:
    return cast(Kept, scene.store)


async def peopled(scene: Scene) -> Kept:
    """The scene's store with the users ann and bob, and the role crew."""
    store = kept(scene)
    await store.create_user("ann")
    await store.create_user("bob", password_hash=HASH)
    await store.create_role("crew", description="those who look after things")
    return store


async def seen(store: PeopleStore, name: str) -> Principal:
    found = await store.principal(name)
    assert found is not None
    return found


class PeopleContract(Contract):
    """Users, roles, grants, members."""

    @scenario
    async def test_whoever_opens_the_store_is_the_one_user_there_is_at_first(self, scene: Scene) -> None:
        store = kept(scene)
        assert await store.principal("local") == LOCAL
        (local,) = await store.users()
        assert (local.name, local.is_admin, local.is_enabled, local.has_password) == ("local", True, True, False)
        assert await store.roles() == ()

    @scenario
    async def test_a_new_user_may_nothing(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert await store.principal("ann") == Principal("ann", user_uuid("ann"))
        assert await store.principal("nobody") is None
        ann, bob, _ = await store.users()
        assert ann == UserRecord("ann", is_admin=False, is_enabled=True, has_password=False, created_at=BEGINNING)
        assert bob.has_password
        assert [await store.password_hash(name) for name in ("ann", "bob", "nobody")] == [None, HASH, None]
        assert await store.roles() == (RoleRecord("crew", "those who look after things", BEGINNING),)

    @scenario
    async def test_users_and_roles_share_one_space_of_names(self, scene: Scene) -> None:
        store = await peopled(scene)
        for taken in ("ann", "crew", "local", "system"):
            with raises(AlreadyExists):
                await store.create_user(taken)
            with raises(AlreadyExists):
                await store.create_role(taken)
        with raises(InvalidName):
            await store.create_user(" ann")

    @scenario
    async def test_altering_a_user_changes_what_is_given_and_nothing_else(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.alter_user("bob", is_admin=True)
        assert (await seen(store, "bob")).is_admin
        assert await store.password_hash("bob") == HASH
        await store.alter_user("bob", is_enabled=False)
        bob = await seen(store, "bob")
        assert (bob.is_admin, bob.is_enabled) == (True, False)
        await store.alter_user("bob", password_hash=OTHER_HASH, is_admin=False, is_enabled=True)
        bob = await seen(store, "bob")
        assert (bob.is_admin, bob.is_enabled, await store.password_hash("bob")) == (False, True, OTHER_HASH)

    @scenario
    async def test_local_cannot_be_dropped_disabled_made_less_or_given_a_password(self, scene: Scene) -> None:
        store = kept(scene)
        with raises(InUse):
            await store.alter_user("local", is_admin=False)
        with raises(InUse):
            await store.alter_user("local", is_enabled=False)
        with raises(InUse):
            await store.drop_user("local")
        with raises(InUse):
            await store.alter_user("local", password_hash=HASH)
        assert await store.principal("local") == LOCAL
        assert await store.password_hash("local") is None

    @scenario
    async def test_whoever_is_not_there_is_told_by_name(self, scene: Scene) -> None:
        store = await peopled(scene)
        await scene.define(job())
        for asked in (
            store.alter_user("carl", is_admin=True),
            store.drop_user("carl"),
            store.drop_user("crew"),
            store.drop_role("carl"),
            store.drop_role("ann"),
            store.grant([CREATE], ["ann", "carl"]),
            store.revoke([CREATE], ["carl"]),
            store.add_members(["carl"], ["ann"]),
            store.add_members(["crew"], ["carl"]),
            store.add_members(["ann"], ["crew"]),
            store.remove_members(["crew"], ["carl"]),
            store.set_owner("a", "carl"),
            store.set_owner("a", "crew"),
        ):
            with raises(PrincipalNotFound):
                await asked
        assert (await seen(store, "ann")).grants == frozenset()
        with raises(JobNotFound):
            await store.set_owner("b", "ann")

    @scenario
    async def test_a_grant_is_counted_when_it_is_new_and_taken_back_by_its_very_words(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert await store.grant([CREATE, RUN_A], ["ann", "crew"]) == 4
        assert await store.grant([CREATE, RUN_ANY, RUN_ANY], ["ann"]) == 1
        assert (await seen(store, "ann")).grants == {CREATE, RUN_A, RUN_ANY}
        assert await store.role_grants("crew") == frozenset({CREATE, RUN_A})
        assert await store.role_grants("ann") is None
        assert await store.revoke([RUN_ANY, SEE_A], ["ann", "crew"]) == 1
        assert (await seen(store, "ann")).grants == {CREATE, RUN_A}
        ann, *_ = await store.users()
        (crew,) = await store.roles()
        assert ann.grants == crew.grants == (CREATE, RUN_A)

    @scenario
    async def test_members_of_a_role_have_what_it_was_granted(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.grant([RUN_A], ["crew"])
        await store.grant([SEE_A], ["ann"])
        assert await store.add_members(["crew"], ["ann", "bob"]) == 2
        assert await store.add_members(["crew"], ["ann"]) == 0
        ann = await seen(store, "ann")
        assert (ann.roles, ann.grants) == (frozenset({"crew"}), frozenset({RUN_A, SEE_A}))
        assert [(user.roles, user.grants) for user in await store.users()] == [
            (("crew",), (SEE_A,)),
            (("crew",), ()),
            ((), ()),
        ]
        assert (await store.roles())[0].members == ("ann", "bob")
        assert await store.remove_members(["crew"], ["ann", "bob"]) == 2
        assert await store.remove_members(["crew"], ["ann"]) == 0
        assert (await seen(store, "ann")).grants == {SEE_A}

    @scenario
    async def test_a_user_who_comes_back_has_nothing_of_what_they_had(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.grant([CREATE], ["bob"])
        await store.add_members(["crew"], ["bob"])
        await store.drop_user("bob")
        assert await store.principal("bob") is None
        assert (await store.roles())[0].members == ()
        await store.create_user("bob")
        assert await store.principal("bob") == Principal("bob", user_uuid("bob"))
        assert await store.password_hash("bob") is None

    @scenario
    async def test_old_passwords_are_tried_so_often_by_whatever_process_and_each_user_for_themselves(
        self, scene: Scene
    ) -> None:
        store = await peopled(scene)
        peer = await scene.peer()
        for turn in range(int(OLD_PASSWORDS.burst)):
            asked = store if peer is None or turn % 2 else cast(Kept, peer)
            assert await asked.take_password_try("bob") == 0
        for each in (store, store if peer is None else cast(Kept, peer)):
            assert await each.take_password_try("bob") == 1 / OLD_PASSWORDS.rate
        assert await store.take_password_try("ann") == 0
        assert await store.take_password_try("nobody") == 0
        scene.clock.advance("1m")
        assert await store.take_password_try("bob") == 0
        assert await store.take_password_try("bob") > 0
        await store.alter_user("bob", is_admin=True)
        assert await store.take_password_try("bob") > 0
        await store.alter_user("bob", password_hash=OTHER_HASH)
        assert await store.take_password_try("bob") == 0

    @scenario
    async def test_a_role_takes_its_grants_and_members_with_it(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.grant([CREATE], ["crew"])
        await store.add_members(["crew"], ["bob"])
        await store.drop_role("crew")
        assert await store.principal("bob") == Principal("bob", user_uuid("bob"))
        await store.create_role("crew")
        assert await store.role_grants("crew") == frozenset()
        assert (await store.roles())[0].members == ()


class DigestContract(Contract):
    """What the trail is told of rights and versions."""

    @scenario
    async def test_rights_have_another_digest_after_each_change_and_the_first_one_when_it_is_undone(
        self, scene: Scene
    ) -> None:
        store = await peopled(scene)
        first = await store.rights()
        seen = {first}
        for change in (
            store.grant([CREATE], ["ann"]),
            store.add_members(["crew"], ["bob"]),
            store.alter_user("bob", is_admin=True),
            store.alter_user("bob", password_hash=OTHER_HASH),
            store.alter_user("ann", is_enabled=False),
            store.create_role("watch"),
        ):
            await change
            seen.add(await store.rights())
        assert len(seen) == 7
        await store.revoke([CREATE], ["ann"])
        await store.remove_members(["crew"], ["bob"])
        await store.alter_user("bob", password_hash=HASH, is_admin=False)
        await store.alter_user("ann", is_enabled=True)
        await store.drop_role("watch")
        assert await store.rights() == first

    @scenario
    async def test_rights_are_noted_once_for_each_change_by_whatever_node(self, scene: Scene) -> None:
        store = await peopled(scene)
        other = cast(Kept, await scene.peer() or store)
        assert await store.note_rights(thorough=False)
        for each in (store, other):
            assert not await each.note_rights(thorough=False)
            assert not await each.note_rights()
        await other.grant([CREATE], ["ann"])
        assert await store.note_rights(thorough=False)
        assert not await other.note_rights(thorough=False)
        await store.grant([RUN_A], ["ann"])
        await store.revoke([RUN_A], ["ann"])
        assert await store.note_rights(thorough=False), "they are what they were, and rows told of changes"
        assert not await store.note_rights()
        told = [row for row in await store.audit(limit=100, sealed=False) if row.event == RIGHTS_DIGESTED]
        assert [row.outcome for row in told] == ["OK", "OK", "OK"]
        notes = [json.loads(row.details or "") for row in told]
        assert [each["rights"] for each in notes[1:]] == [await store.rights()] * 2
        assert [each["told"] for each in notes[1:]] == [
            [[told[0].number + 1] * 2],
            [[told[1].number + 1, told[1].number + 2]],
        ]

    @scenario
    async def test_versions_have_digests_while_they_are_kept_and_the_present_ones_come_in_pages(
        self, scene: Scene
    ) -> None:
        store = kept(scene)
        await scene.define(job("a"), job("b"), job("c"))
        scene.clock.advance("1s")
        await scene.define(job("a", description="new"))
        present = await store.present_versions()
        assert sorted(each.version for each in present) == [1, 1, 2]
        assert list(present) == sorted(present)
        assert (
            *await store.present_versions(limit=1),
            *await store.present_versions(present[0].job_uuid, 5),
        ) == present
        (a,) = (each for each in present if each.version == 2)
        found = await store.version_digests([*present, a._replace(version=1), a._replace(version=3)])
        assert found.keys() == {*present, a._replace(version=1)}
        assert len(set(found.values())) == 4
        rows = await store.audit(limit=100, sealed=False)
        assert {row.digest for row in rows if row.event in ("JOB_CREATED", "JOB_MODIFIED")} == set(found.values())


class OwnerContract(Contract):
    """Whose a job is, whom it runs as, what it needs."""

    @scenario
    async def test_a_job_is_whose_definition_it_was_first(self, scene: Scene) -> None:
        store = await peopled(scene)
        await scene.define(job("a"), by="ann")
        await scene.define(job("b"), job("c", owner="bob"))
        assert [record.owner for record in await store.jobs()] == ["ann", "local", "bob"]
        await scene.define(job("a", description="new"), by="bob")
        record = await scene.job("a")
        assert (record.owner, record.created_by, record.version) == ("ann", "ann", 2)

    @scenario
    async def test_whoever_is_no_user_owns_nothing(self, scene: Scene) -> None:
        store = await peopled(scene)
        with raises(PrincipalNotFound):
            await scene.define(job("a"), by="carl")
        with raises(PrincipalNotFound):
            await scene.define(job("a", owner="crew"))
        assert await store.jobs() == ()
        await scene.define(job("a", owner="local"), by="carl")
        assert (await scene.job()).owner == "local"

    @scenario
    async def test_code_names_the_owner_once_and_people_whenever_they_do(self, scene: Scene) -> None:
        store = await peopled(scene)
        await scene.define(job("a", owner="ann"))
        await store.set_owner("a", "bob", by="ann")
        assert (await scene.define(job("a", owner="ann")))[0].change == "unchanged"
        assert (await scene.job()).owner == "bob"
        scene.clock.advance("1s")
        assert (await scene.define(job("a", owner="ann"), source="sql"))[0].change == "changed"
        record = await scene.job()
        assert (record.owner, record.version, record.updated_at) == ("ann", 3, at("09:00:01"))
        assert (await scene.define(job("a", owner="ann"), source="sql"))[0].change == "unchanged"
        assert (await scene.define(job("a"), source="sql"))[0].change == "unchanged"
        assert (await scene.job()).owner == "ann"

    @scenario
    async def test_nobody_is_dropped_whom_a_job_needs(self, scene: Scene) -> None:
        store = await peopled(scene)
        await scene.define(job("a", run_as="crew"), by="ann")
        with raises(InUse) as refusal:
            await store.drop_user("ann")
        assert '"a"' in str(refusal.error)
        with raises(InUse):
            await store.drop_role("crew")
        await store.set_owner("a", "bob")
        await store.drop_user("ann")
        await scene.define(job("a"), source="sql")
        await store.drop_role("crew")
        await store.drop(["a"])
        await store.drop_user("bob")
        assert [user.name for user in await store.users()] == ["local"]

    @scenario
    async def test_a_job_runs_as_a_role_that_there_is(self, scene: Scene) -> None:
        await peopled(scene)
        for name in ("ann", "pilots"):
            with raises(InvalidDefinition) as refusal:
                await scene.define(job("a", run_as=name))
            assert name in str(refusal.error)
        await scene.define(job("a"))
        assert (await scene.define(job("a", run_as="crew")))[0].change == "changed"
        assert (await scene.job()).definition.spec.run_as == "crew"

    @scenario
    async def test_what_was_granted_on_a_job_goes_with_it(self, scene: Scene) -> None:
        store = await peopled(scene)
        await scene.define(job("a"), job("b"))
        others = [RUN_ANY, Grant(Privilege.EXECUTE_JOB, "b"), Grant(Privilege.USE_SECRET, "a")]
        await store.grant([RUN_A, *others], ["ann"])
        await store.drop(["a"])
        assert (await seen(store, "ann")).grants == set(others)

    @scenario
    async def test_a_run_waits_for_a_node_that_can_do_its_work(self, scene: Scene) -> None:
        steps = {
            "callable": TaskSpec("work", "load"),
            "command": TaskSpec("work", "/bin/true", "EXTERNAL"),
            "here": TaskSpec("work", "SELECT 1", "SQL"),
            "there": TaskSpec("work", "SELECT 1", "SQL", options={"connection": "warehouse"}),
            "procedure": TaskSpec("work", "tidy", "PROCEDURE"),
            "the database's": TaskSpec("work", "tidy", "PROCEDURE", options={"database": True}),
        }
        await scene.define(*(job(name, tasks=(step,)) for name, step in steps.items()))
        await scene.later("1m")
        assert _names(await scene.claim_runs(handlers=frozenset())) == ["here", "the database's"]
        assert _names(await scene.claim_runs(handlers=frozenset({"load", "tidy", "warehouse"}))) == ["callable"]
        able = frozenset({EXTERNAL, procedure_need("tidy"), connection_need("warehouse")})
        assert _names(await scene.claim_runs(handlers=able)) == ["command", "procedure", "there"]


def _names(claims: tuple[Claim, ...]) -> list[str]:
    return sorted(claim.job_name for claim in claims)


class HoldingContract(Contract):
    """Settings, procedures, secrets."""

    @scenario
    async def test_a_setting_is_what_was_last_set_until_it_is_taken_back(self, scene: Scene) -> None:
        store = kept(scene)
        assert await store.settings() == {}
        await store.set_setting("scheduler.max_concurrent_jobs", 5)
        await store.set_setting("scheduler.retention", "30d")
        await store.set_setting("scheduler.max_concurrent_jobs", 7)
        await store.set_setting("scheduler.zones", ["UTC", {"a": None}])
        assert await store.settings() == {
            "scheduler.max_concurrent_jobs": 7,
            "scheduler.retention": "30d",
            "scheduler.zones": ["UTC", {"a": None}],
        }
        await store.set_setting("scheduler.zones", None)
        await store.set_setting("scheduler.retention", None)
        assert await store.settings() == {"scheduler.max_concurrent_jobs": 7}

    @scenario
    async def test_a_setting_that_is_judged_is_judged_beside_what_is_set_and_what_was_refused_was_never_set(
        self, scene: Scene
    ) -> None:
        store = kept(scene)
        await store.set_setting("scheduler.retention", "30d")
        told: list[Mapping[str, Any]] = []

        def judge(others: Mapping[str, Any]) -> None:
            told.append(dict(others))
            if len(told) > 1:
                raise InvalidInput("That does not fit")

        await store.set_setting("scheduler.max_concurrent_jobs", 5, judge=judge)
        rows = len(await store.audit(sealed=False))
        with raises(InvalidInput):
            await store.set_setting("scheduler.max_concurrent_jobs", 6, judge=judge)
        assert told == [
            {"scheduler.retention": "30d"},
            {"scheduler.retention": "30d", "scheduler.max_concurrent_jobs": 5},
        ]
        assert await store.settings() == told[1]
        assert len(await store.audit(sealed=False)) == rows

    @scenario
    async def test_a_changed_setting_wakes_whoever_waits(self, scene: Scene) -> None:
        store = kept(scene)
        seen_so_far = await store.changed(0, 0)
        await store.set_setting("scheduler.retention", "30d")
        assert await store.changed(seen_so_far, 5) != seen_so_far

    @scenario
    async def test_procedures_are_added_and_changed_by_name(self, scene: Scene) -> None:
        store = kept(scene)
        await store.register_procedures({"tidy": "app.tidy", "load": "app.load"})
        await store.register_procedures({"tidy": "app.tidy_more"})
        assert await store.procedures() == {"load": "app.load", "tidy": "app.tidy_more"}
        before = await store.audit(sealed=False)
        await store.register_procedures({"tidy": "app.tidy_more", "load": "app.load"})
        assert await store.audit(sealed=False) == before

    @scenario
    async def test_a_job_s_own_secret_comes_before_the_one_that_is_everybody_s(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"), job("b"))
        await store.put_secret("token", b"\x00common\xff", key_id="k1")
        await store.put_secret("token", b"a's", key_id="k2", job="a")
        own, common = await store.secret("token", "a"), await store.secret("token", "b")
        assert own == SecretRecord("token", "a", b"a's", "k2", BEGINNING)
        assert common == await store.secret("token") == SecretRecord("token", None, b"\x00common\xff", "k1", BEGINNING)
        assert await store.secret("other", "a") is None
        assert await store.secrets() == (common, own)
        assert "common" not in repr(common)

    @scenario
    async def test_a_secret_is_replaced_only_by_those_who_say_so(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"))
        for whose in (None, "a"):
            await store.put_secret("token", b"old", key_id="k1", job=whose)
            with raises(AlreadyExists):
                await store.put_secret("token", b"new", key_id="k1", job=whose)
            found = await store.secret("token", whose)
            assert found is not None
            assert found.value == b"old"
            scene.clock.advance("1s")
            await store.put_secret("token", b"new", key_id="k2", job=whose, replace=True)
            found = await store.secret("token", whose)
            assert found == SecretRecord("token", whose, b"new", "k2", await store.now())
        with raises(JobNotFound):
            await store.put_secret("token", b"x", key_id="k1", job="nobody")
        with raises(InvalidName):
            await store.put_secret("x" * 129, b"x", key_id="k1")

    @scenario
    async def test_secrets_under_another_key_replace_only_what_nobody_changed_meanwhile(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"))
        await store.put_secret("one", b"1", key_id="k1")
        await store.put_secret("two", b"2", key_id="k1")
        await store.put_secret("one", b"a1", key_id="k1", job="a")
        read = await store.secrets()
        await store.put_secret("two", b"changed", key_id="k1", replace=True)
        assert await store.replace_secrets([(each, each.value + b"!", "k2") for each in read]) == 2
        found = {(each.job, each.name): (each.value, each.key_id) for each in await store.secrets()}
        assert found == {(None, "one"): (b"1!", "k2"), (None, "two"): (b"changed", "k1"), ("a", "one"): (b"a1!", "k2")}

    @scenario
    async def test_a_secret_goes_when_it_is_dropped_and_a_job_s_own_with_the_job(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"))
        await store.put_secret("token", b"common", key_id="k1")
        await store.put_secret("token", b"own", key_id="k1", job="a")
        await store.put_secret("other", b"own", key_id="k1", job="a")
        await store.drop_secret("token", job="a")
        for name, whose in (("token", "a"), ("nothing", None), ("token", "nobody")):
            with raises(SecretNotFound):
                await store.drop_secret(name, job=whose)
        assert [(each.job, each.name) for each in await store.secrets()] == [(None, "token"), ("a", "other")]
        await store.drop(["a"])
        await store.drop_secret("token")
        assert await store.secrets() == ()
