"""The trail's part of the contract: what each change writes into the audit, how it is sealed, several verbs at once."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any, cast

from horae.core.access import Grant, Privilege
from horae.core.audit import SealedExtent
from horae.core.run.lifecycle import JobState
from horae.errors import AlreadyExists, HoraeError, InvalidInput, RunNotFound
from horae.store.protocols.people import PeopleStore, SealRow, TrailRow
from horae.store.protocols.store import Capacity, Settlement, Store
from horae_store_tests.contract.builders import (
    NODE,
    Contract,
    Scene,
    at,
    ended,
    job,
    milliseconds,
    raises,
    scenario,
    slot_id,
    unknown_run,
)
from horae_store_tests.contract.people import (
    DigestContract,
    HoldingContract,
    Kept,
    OwnerContract,
    PeopleContract,
    kept,
    peopled,
)

RUN_A = Grant(Privilege.EXECUTE_JOB, "a")
NONE_BEFORE = "0" * 64
HASHES = ("$secret$hash", "$secret$other")
_ALL = 100_000


async def unsealed(store: PeopleStore) -> tuple[TrailRow, ...]:
    return await store.audit(limit=_ALL, sealed=False)


async def quiet(store: Store) -> int:
    """What to wait for changes from, once those of the past have all been heard of."""
    seen = 0
    while (heard := await store.changed(seen, 0.1)) != seen:
        seen = heard
    return seen


def told(row: TrailRow) -> tuple[str, str, str]:
    return row.event, row.actor, row.outcome


def details(row: TrailRow) -> dict[str, Any]:
    return dict(json.loads(row.details or "{}"))


def expected_digest(seal: SealRow, rows: tuple[TrailRow, ...]) -> str:
    """A seal's digest by its description: written out here again, so that a change of it is noticed."""
    under = "\n".join(expected_seal(row) for row in rows if seal.first <= (row.position or 0) <= seal.last)
    assert seal.rows == sha256(under.encode()).hexdigest()
    text = f"{seal.previous}\n{seal.first}\n{seal.last}\n{seal.sealed_at}\n{seal.rows}\n"
    return sha256(text.encode()).hexdigest()


def expected_seal(row: TrailRow) -> str:
    ids = [row.number, row.position, row.at, row.event, row.job_uuid, row.run_uuid]
    line = json.dumps([*ids, row.actor, row.outcome, row.details, row.digest], separators=(",", ":"))
    return sha256(line.encode()).hexdigest()


class AuditContract(Contract):
    """What is written, by whom, and what never is."""

    @scenario
    async def test_every_change_of_people_rights_and_secrets_leaves_its_row(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job())
        (created,) = await unsealed(store)
        await store.create_user("ann", password_hash=HASHES[0], by="eve")
        await store.alter_user("ann", password_hash=HASHES[1], is_enabled=True, by="eve")
        await store.create_role("crew", by="eve")
        await store.grant([RUN_A, Grant(Privilege.CREATE_JOB)], ["ann", "crew"], by="eve")
        await store.revoke([RUN_A], ["crew"], by="eve")
        await store.add_members(["crew"], ["ann"], by="eve")
        await store.remove_members(["crew"], ["ann"], by="eve")
        await store.set_owner("a", "ann", by="eve")
        await store.set_owner("a", "local", by="eve")
        await store.set_setting("scheduler.retention", "30d", by="eve")
        await store.register_procedures({"tidy": "app.tidy"}, by="eve")
        await store.put_secret("token", b"$secret$value", key_id="k1", by="eve")
        await store.put_secret("token", b"$secret$value2", key_id="k1", job="a", by="eve")
        await store.put_secret("token", b"$secret$value3", key_id="k1", replace=True, by="eve")
        await store.replace_secrets([(each, b"$secret$value4", "k2") for each in await store.secrets()], by="eve")
        await store.drop_secret("token", by="eve")
        await store.drop_role("crew", by="eve")
        await store.drop_user("ann", by="eve")
        rows = await store.audit(created.number, sealed=False)
        assert [row.event for row in rows] == [
            "USER_CREATED",
            "USER_MODIFIED",
            "ROLE_CREATED",
            "PRIVILEGE_GRANTED",
            "PRIVILEGE_GRANTED",
            "PRIVILEGE_REVOKED",
            "ROLE_GRANTED",
            "ROLE_REVOKED",
            "JOB_MODIFIED",  # its owner
            "JOB_MODIFIED",  # its version, which names them
            "JOB_MODIFIED",
            "JOB_MODIFIED",
            "SETTING_CHANGED",
            "PROCEDURE_REGISTERED",
            "SECRET_CREATED",
            "SECRET_CREATED",
            "SECRET_CHANGED",
            "SECRETS_ROTATED",
            "SECRET_DROPPED",
            "ROLE_DROPPED",
            "USER_DROPPED",
        ]
        assert {(row.actor, row.outcome, row.at) for row in rows} == {("eve", "OK", milliseconds(at("09:00")))}
        assert "$secret$" not in "".join(row.details or "" for row in rows)
        assert details(rows[1]) == {"name": "ann", "password": "changed", "state": "ENABLED"}
        assert details(rows[3]) == {"name": "ann", "privileges": ["EXECUTE JOB ON JOB a", "CREATE JOB"]}
        assert details(rows[8]) == {"name": "a", "owner": "ann", "owner_before": "local"}
        assert rows[8].job_uuid == rows[15].job_uuid == str(job().uuid)

    @scenario
    async def test_what_is_refused_writes_nothing(self, scene: Scene) -> None:
        store = await peopled(scene)
        before = await unsealed(store)
        for asked in (
            store.create_user("ann"),
            store.drop_user("local"),
            store.grant([RUN_A], ["ann", "carl"]),
            store.drop_secret("token"),
            scene.define(job(), by="carl"),
        ):
            with suppress(HoraeError):
                await asked
        assert await unsealed(store) == before
        assert (await store.users())[0].grants == ()

    @scenario
    async def test_a_note_is_a_row_by_itself(self, scene: Scene) -> None:
        store, run_id, given = kept(scene), unknown_run(), {"event": "\ud800"}
        await store.note("JOB_MODIFIED", by="ann", outcome="DENIED", job="a", run_id=run_id, details=given)
        await store.note("LOGIN", by="ann", outcome="FAILED")
        first, second = await unsealed(store)
        assert (told(first), first.job_uuid, first.run_uuid) == (
            ("JOB_MODIFIED", "ann", "DENIED"),
            str(job().uuid),
            run_id.removeprefix("occ_"),
        )
        assert details(first) == given
        assert (told(second), second.job_uuid, second.details) == (("LOGIN", "ann", "FAILED"), None, None)

    @scenario
    async def test_a_span_of_a_pause_is_told_once_it_is_closed(self, scene: Scene) -> None:
        store = kept(scene)

        async def closed() -> list[tuple[str | None, int, int, int]]:
            found = [row for row in await unsealed(store) if row.event == "SPAN_CLOSED"]
            for row in found:
                assert told(row) == ("SPAN_CLOSED", "horae", "SKIPPED")
                (span,) = await store.closed_spans([details(row)["run_no"]])
                assert (span.run_uuid, span.state, span.told) == (row.run_uuid, row.outcome, details(row))
            names = ("covers_from", "covers_to", "covers_count")
            return [(row.run_uuid, *(details(row)[name] for name in names)) for row in found]

        def said(begin: str, first: str, end: str, count: int) -> tuple[str | None, int, int, int]:
            uuid = slot_id("a", at(first)).removeprefix("occ_")
            return uuid, milliseconds(at(begin)), milliseconds(at(end)), count

        async def pause(minutes: int) -> None:
            await store.set_state("a", JobState.PAUSED)
            for _ in range(minutes):
                await scene.later("1m")

        await scene.define(job())
        await pause(1)
        await store.set_state("a", JobState.ENABLED)
        assert await closed() == []
        await pause(4)
        assert await closed() == []
        await store.set_state("a", JobState.PAUSED, until=at("09:07:30"), note="longer")
        await scene.until("09:08")
        expected = [said("09:02", "09:03", "09:07", 5)]
        assert await closed() == expected
        await pause(3)
        await store.set_state("a", JobState.DISABLED)
        expected.append(said("09:09", "09:10", "09:11", 2))
        assert await closed() == expected
        await pause(3)
        await scene.define(job(description="new", state=JobState.PAUSED))
        expected.append(said("09:12", "09:13", "09:14", 2))
        assert await closed() == expected
        await pause(3)
        await store.drop(["a"], keep_history=True, by="ann")
        expected.append(said("09:15", "09:16", "09:17", 2))
        assert await closed() == expected

    @scenario
    async def test_runs_that_retention_deletes_are_named_by_number(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job())
        numbers = []
        for _ in range(3):
            (claim,) = (await scene.later("1m", slots=1)).claims
            await scene.finish(claim)
            numbers.append(claim.run_no)
        scene.clock.advance("1d")
        assert await store.retain(timedelta(hours=1)) == 3
        assert await store.retain(timedelta(hours=1)) == 0
        (row,) = [row for row in await unsealed(store) if row.event == "RUNS_FORGOTTEN"]
        assert (row.actor, row.outcome) == ("system", "OK")
        assert [number for first, last in details(row)["runs"] for number in range(first, last + 1)] == numbers
        assert await store.settled_runs(numbers) == ()

    @scenario
    async def test_a_job_dropped_with_its_history_names_its_runs_and_one_that_keeps_it_does_not(
        self, scene: Scene
    ) -> None:
        store = kept(scene)
        await scene.define(job("a"), job("b"))
        claims = {claim.job_name: claim for claim in (await scene.later("1m", slots=2)).claims}
        for claim in claims.values():
            await scene.finish(claim)
        await store.drop(["b"], keep_history=True, by="ann")
        await store.drop(["a"], by="ann")
        (row,) = [row for row in await unsealed(store) if row.event == "RUNS_FORGOTTEN"]
        number = claims["a"].run_no
        assert (row.actor, details(row)) == ("ann", {"runs": [[number, number]]})
        assert [run.run_no for run in await store.settled_runs([number, claims["b"].run_no])] == [claims["b"].run_no]

    @scenario
    async def test_the_digest_of_what_ran_is_over_the_runs_as_they_are_kept(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"), job("b"), job("c"))
        claims = (await scene.later("1m", slots=3)).claims
        words = [Settlement(each.run_id, each.run_no, each.fence, (ended(),)) for each in reversed(claims)]
        await store.settle(NODE, words)
        (row,) = [row for row in await unsealed(store) if row.event == "JOB_EXECUTED"]
        numbers = json.loads(row.details or "")
        assert numbers == sorted(claim.run_no for claim in claims)
        runs = await store.settled_runs(numbers)
        assert [run.run_no for run in runs] == numbers
        lines = [" ".join(map(str, run)) for run in runs]
        assert sha256("\n".join(lines).encode()).hexdigest() == row.digest

    @scenario
    async def test_runs_that_completed_by_a_moment_are_listed_by_number(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"), job("b"), job("c"))
        claims = sorted((await scene.later("1m", slots=3)).claims, key=lambda each: each.run_no)
        words = [Settlement(each.run_id, each.run_no, each.fence, (ended(),)) for each in claims[:2]]
        await store.settle(NODE, words)
        (row,) = [row for row in await unsealed(store) if row.event == "JOB_EXECUTED"]
        first, second = [each.run_no for each in claims[:2]]
        assert await store.completed_runs(row.at) == (first, second)
        assert await store.completed_runs(row.at, limit=1) == (first,)
        assert await store.completed_runs(row.at, after=first) == (second,)
        assert await store.completed_runs(row.at - 1) == ()


class SealContract(Contract):
    """Places and seals."""

    @scenario
    async def test_rows_get_their_places_in_order_and_one_seal(self, scene: Scene) -> None:
        store = await peopled(scene)
        before = await unsealed(store)
        assert [(row.position, row.seal) for row in before] == [(None, None)] * 3
        scene.clock.advance("1s")
        assert await store.seal() == 3
        assert await store.seal() == 0
        rows = await store.audit()
        placed = [row._replace(position=place) for place, row in enumerate(before, 1)]
        assert rows == tuple(row._replace(seal=expected_seal(row)) for row in placed)
        assert await unsealed(store) == ()
        (seal,) = await store.seals()
        assert seal[:3] == (1, 1, 3)
        assert (seal.previous, seal.sealed_at) == (NONE_BEFORE, milliseconds(at("09:00:01")))
        assert seal.digest == expected_digest(seal, rows)

    @scenario
    async def test_seals_are_a_chain(self, scene: Scene) -> None:
        store = await peopled(scene)
        await scene.define(*(job(name) for name in "abcd"))
        assert [await store.seal(limit=3) for _ in range(4)] == [3, 3, 1, 0]
        await store.drop(["d"])
        assert await store.seal() == 1
        rows, seals = await store.audit(limit=_ALL), await store.seals()
        assert [(seal.first, seal.last) for seal in seals] == [(1, 3), (4, 6), (7, 7), (8, 8)]
        assert [seal.previous for seal in seals] == [NONE_BEFORE, *(seal.digest for seal in seals[:-1])]
        assert [seal.digest for seal in seals] == [expected_digest(seal, rows) for seal in seals]

    @scenario
    async def test_each_seal_is_recorded_as_the_newest_under_the_key_it_has(self, scene: Scene) -> None:
        store = kept(scene)
        assert await store.reach() is None
        for key in (None, b"k" * 32):
            await store.note("LOGIN", by="ann", outcome="OK")
            if key is not None:
                assert await store.keep_audit_key(b"wrapped", "id", was=None, key=key)
            await store.seal(key=key)
            newest = (await store.seals())[-1]
            reach = SealedExtent(newest.number, newest.last, newest.digest).under(key)
            assert await store.reach() == reach
            assert (reach.mac is None) is (key is None)

    @scenario
    async def test_rows_and_seals_are_read_in_pages(self, scene: Scene) -> None:
        store = await peopled(scene)
        await scene.define(job("a"), job("b"))
        loose = await unsealed(store)
        assert await store.audit(loose[1].number, 2, sealed=False) == loose[2:4]
        while await store.seal(limit=1):
            pass
        rows, seals = await store.audit(), await store.seals()
        assert (await store.audit(2, 2), await store.audit(5)) == (rows[2:4], ())
        assert (await store.seals(2, 2), await store.seals(5)) == (seals[2:4], ())
        assert await store.audit(sealed=False) == ()

    @scenario
    async def test_many_who_seal_at_once_seal_every_row_once(self, scene: Scene) -> None:
        store = await peopled(scene)
        other = await scene.second()
        await scene.define(*(job(f"job {number}") for number in range(40)))
        sealers = [store, cast(PeopleStore, other)] * 4
        assert sum(await asyncio.gather(*(each.seal(limit=6) for each in sealers))) == 43
        rows, seals = await store.audit(limit=_ALL), await store.seals()
        assert [row.position for row in rows] == list(range(1, 44))
        assert [seal.previous for seal in seals] == [NONE_BEFORE, *(seal.digest for seal in seals[:-1])]
        assert [seal.digest for seal in seals] == [expected_digest(seal, rows) for seal in seals]


class TogetherContract(Contract):
    """Several verbs, one transaction."""

    @scenario
    async def test_what_is_done_together_is_seen_at_once_inside_and_afterwards_outside(self, scene: Scene) -> None:
        store = kept(scene)
        other = await scene.peer()
        async with store.together() as whole:
            both = cast(Kept, whole)
            await both.create_user("ann")
            await both.define([job("a")], by="ann")
            await both.define([job("a", description="new"), job("b", depends_on=("a",))], by="ann")
            await both.set_state("b", JobState.PAUSED)
            scene.clock.advance("90s")
            assert [(each.name, each.version, each.owner) for each in await both.jobs()] == [
                ("a", 2, "ann"),
                ("b", 1, "ann"),
            ]
            assert {each.updated_at for each in await both.jobs()} == {at("09:00")}
            if other is not None:
                assert await other.jobs() == ()
        assert [each.version for each in await store.jobs()] == [2, 1]
        assert [row.event for row in await unsealed(store)] == [
            "USER_CREATED",
            "JOB_CREATED",
            "JOB_CREATED",
            "JOB_MODIFIED",
            "JOB_MODIFIED",
        ]
        assert [claim.job_name for claim in (await scene.plan(slots=5)).claims] == ["a"]

    @scenario
    async def test_a_block_that_raises_leaves_nothing_behind(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"))
        before = await scene.everything(), await unsealed(store)
        with raises(RunNotFound):
            async with store.together() as whole:
                both = cast(Kept, whole)
                await both.create_user("ann")
                await both.define([job("a", description="never"), job("b")])
                await both.drop(["a"])
                raise RunNotFound("of the block's own")
        assert (await scene.everything(), await unsealed(store)) == before
        # Another meaning of the version that was never committed.
        await scene.define(job("a", description="this"))
        assert (await scene.job()).definition.spec.description == "this"
        assert (await scene.job()).version == 2

    @scenario
    async def test_a_verb_that_fails_inside_spoils_the_whole(self, scene: Scene) -> None:
        store = kept(scene)
        with raises(InvalidInput):
            async with store.together() as whole:
                both = cast(Kept, whole)
                await both.create_user("ann")
                with raises(AlreadyExists):
                    await both.create_user("ann")
                with raises(InvalidInput):
                    await both.create_user("bob")
        assert [user.name for user in await store.users()] == ["local"]
        assert await unsealed(store) == ()

    @scenario
    async def test_a_question_that_finds_nothing_spoils_nothing(self, scene: Scene) -> None:
        store = kept(scene)
        async with store.together() as whole:
            with raises(RunNotFound):
                await whole.history(unknown_run())
            await whole.define([job("a")])
        assert [each.name for each in await store.jobs()] == ["a"]

    @scenario
    async def test_it_is_over_when_its_block_ends(self, scene: Scene) -> None:
        store = kept(scene)
        async with store.together() as whole:
            await whole.define([job("a")])
        with raises(InvalidInput):
            await whole.define([job("b")])
        with raises(InvalidInput):
            await whole.jobs()

    @scenario
    async def test_what_needs_a_transaction_of_its_own_is_refused_inside(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"))
        (claim,) = (await scene.later("1m", slots=1)).claims
        async with store.together() as whole:
            with raises(InvalidInput):
                async with whole.transact(NODE, claim.run_id, claim.run_no, claim.fence):
                    raise AssertionError("a transaction within a transaction")
            with raises(InvalidInput):
                await cast(Kept, whole).select("SELECT 1")
            await whole.define([job("b")])
        assert len(await store.jobs()) == 2

    @scenario
    async def test_nobody_is_woken_before_the_commit(self, scene: Scene) -> None:
        store = kept(scene)
        for kept_in_the_end in (False, True):
            seen = await quiet(store)
            with suppress(RunNotFound):
                async with store.together() as whole:
                    await whole.define([job("a")])
                    if not kept_in_the_end:
                        raise RunNotFound("of the block's own")
            woken = await store.changed(seen, 5 if kept_in_the_end else 0.1)
            assert (woken != seen) == kept_in_the_end

    @scenario
    async def test_several_can_be_within_another(self, scene: Scene) -> None:
        store = kept(scene)
        async with store.together() as whole:
            await whole.define([job("a")])
            async with cast(Kept, whole).together() as inner:
                await inner.define([job("b")])
            await whole.define([job("c", depends_on=("b",))])
        assert [each.name for each in await store.jobs()] == ["a", "b", "c"]

    @scenario
    async def test_what_was_defined_together_is_run_by_those_who_knew_it_before(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"))
        async with store.together() as whole:
            await whole.define([job("a", tasks=("other",))], source="sql")
        scene.clock.advance("1m")
        (claim,) = (await store.create_due_runs(start=Capacity(str(NODE), 1))).claims
        assert (claim.definition.version, claim.definition.handlers) == (2, frozenset({"other"}))


class VaultContract(
    PeopleContract, OwnerContract, DigestContract, HoldingContract, AuditContract, SealContract, TogetherContract
):
    """All of it. Subclass as you would `StoreContract`, with a store that is a Vault."""
