"""The same on real stores: what other clients do to the tables by plain SQL is found, and people, secrets and refusals
are where they should be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import pytest
from tests.store.catalogs import Place, minutely

from horae.core.access import Grant, Principal, Privilege
from horae.core.run.lifecycle import AttemptState, JobState
from horae.errors import AccessDenied, LoginFailed, SecretError
from horae.security.access import AccessChecker, identity
from horae.security.audit.findings import FindingKind
from horae.security.audit.verification import TrailVerification, verify
from horae.security.keys import Keyring, key_id, rotate
from horae.security.passwords import HashCost, hashed, login
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import AttemptEnd, Capacity, Settlement
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
CHEAP = HashCost(passes=1, memory=8, lanes=1)
OLD, NEW = b"o" * 32, b"n" * 32


def on(place: Place, body: Callable[[Catalog], Awaitable[None]], clock: ManualClock | None = None) -> None:
    async def whole() -> None:
        store = place.store(clock)
        await store.open()
        try:
            await body(store)
        finally:
            await store.close()

    asyncio.run(whole())


def verified(place: Place, head: str | None = None) -> TrailVerification:
    found: list[TrailVerification] = []

    async def body(store: Catalog) -> None:
        found.append(await verify(store, head=head))

    on(place, body)
    return found[0]


def lived(place: Place) -> None:
    """Jobs, users and runs over a few minutes, sealed every minute; the runs of the first minute forgotten."""
    clock = ManualClock()

    async def body(store: Catalog) -> None:
        await store.join(NODE)
        await store.define([minutely(name) for name in "abc"])
        await store.create_user("ann", by="local")
        for minute in range(4):
            clock.advance("1m")
            claims = (await store.create_due_runs(start=Capacity(str(NODE), 10))).claims
            end = (AttemptEnd(0, 1, AttemptState.SUCCESS),)
            await store.settle(NODE, [Settlement(each.run_id, each.run_no, each.fence, end) for each in claims])
            await store.note("LOGIN", by="ann", outcome="OK", details={"minute": minute})
            await store.seal()
        assert await store.retain(timedelta(minutes=2))
        await store.seal()
        await store.note("LOGIN", by="ann", outcome="OK")

    on(place, body, clock)


def test_a_catalog_that_lived_is_whole(place: Place) -> None:
    lived(place)
    found = verified(place)
    assert found.findings == ()
    assert (found.seals, found.unsealed) == (5, 1)
    assert verified(place, found.head).ok


TAMPERING = [
    ("UPDATE sys.audit SET actor = 'mallory' WHERE position = 4", FindingKind.ROWS_CHANGED),
    ("UPDATE sys.audit SET details = NULL WHERE position = 4", FindingKind.ROWS_CHANGED),
    ("DELETE FROM sys.audit WHERE position = 4", FindingKind.ROWS_GONE),
    ("UPDATE sys.audit SET position = NULL WHERE position = 4", FindingKind.ROWS_MOVED),
    ("UPDATE sys.audit SET position = 5000 WHERE position = 4", FindingKind.ROWS_MOVED),
    ("UPDATE sys.audit_seals SET digest = previous WHERE seal_no = 2", FindingKind.SEALS_CHANGED),
    ("UPDATE sys.audit_seals SET last_position = last_position - 1 WHERE seal_no = 2", FindingKind.SEALS_CHANGED),
    ("UPDATE sys.audit_seals SET sealed_at = sealed_at + 1 WHERE seal_no = 2", FindingKind.SEALS_CHANGED),
    ("UPDATE sys.audit_seals SET rows_digest = digest WHERE seal_no = 2", FindingKind.SEALS_CHANGED),
    ("DELETE FROM sys.audit_seals WHERE seal_no = 2", FindingKind.SEALS_GONE),
    ("DELETE FROM sys.audit_seals WHERE seal_no = 5", FindingKind.ROWS_WITHOUT_SEAL),
    (
        "UPDATE sys.job_runs SET fence = 9 WHERE run_no = (SELECT max(run_no) FROM sys.job_runs)",
        FindingKind.RUNS_CHANGED,
    ),
    ("DELETE FROM sys.audit WHERE event = 'RUNS_FORGOTTEN'", FindingKind.RUNS_GONE),
]


@pytest.mark.parametrize(("statement", "kind"), TAMPERING)
def test_what_another_client_does_to_the_tables_is_found(place: Place, statement: str, kind: FindingKind) -> None:
    lived(place)
    assert verified(place).ok
    place.sql(statement)
    found = verified(place)
    assert kind in {each.kind for each in found.findings}
    assert not found.ok


EDITS = [
    "at = at + 1",
    "event = 'LOGOUT'",
    "job_uuid = '00000000-0000-4000-8000-00000000000a'",
    "job_run_uuid = '00000000-0000-4000-8000-00000000000a'",
    "actor = 'mallory'",
    "outcome = 'REFUSED'",
    "details = '{}'",
    "digest = '0'",
    "seal = '0'",
    "seal = NULL",
]


def test_the_very_row_is_named_whichever_column_another_client_edits(place: Place) -> None:
    lived(place)
    columns = "at, event, job_uuid, job_run_uuid, actor, outcome, details, digest, seal"
    place.sql(f"CREATE TABLE sys.kept AS SELECT audit_no, {columns} FROM sys.audit")
    for edit in EDITS:
        # A row under a seal with others, which says nothing of runs.
        place.sql(f"UPDATE sys.audit SET {edit} WHERE position = 2")
        (found,) = verified(place).findings
        assert (found.kind, found.first, found.last, found.seal) == (FindingKind.ROWS_CHANGED, 2, 2, 1), edit
        place.sql(
            f"UPDATE sys.audit SET ({columns}) = (SELECT {columns} FROM sys.kept WHERE audit_no = audit.audit_no)"
        )
    place.sql("DROP TABLE sys.kept")
    assert verified(place).ok


def test_a_row_that_lost_its_place_is_not_sealed_again(place: Place) -> None:
    lived(place)
    place.sql("UPDATE sys.audit SET position = NULL WHERE position = 4")

    async def body(store: Catalog) -> None:
        assert await store.seal() == 1
        assert await store.seal() == 0
        assert [row.seal is not None for row in await store.audit(sealed=False)] == [True]

    on(place, body)
    (found,) = verified(place).findings
    assert (found.kind, found.first) == (FindingKind.ROWS_MOVED, 4)


def test_a_span_that_was_closed_must_stay_as_it_is(place: Place) -> None:
    clock = ManualClock()

    async def body(store: Catalog) -> None:
        await store.define([minutely("a")])
        await store.set_state("a", JobState.PAUSED)
        for _ in range(5):
            clock.advance("1m")
            await store.create_due_runs()
        await store.set_state("a", JobState.ENABLED)
        await store.seal()

    on(place, body, clock)
    assert verified(place).ok
    place.sql("UPDATE sys.job_runs SET covers_count = 2 WHERE covers_count = 4")
    (found,) = verified(place).findings
    assert found.kind is FindingKind.RUNS_CHANGED


def test_a_run_that_failed_must_still_say_so(place: Place) -> None:
    clock = ManualClock()

    async def body(store: Catalog) -> None:
        await store.join(NODE)
        await store.define([minutely(name) for name in "ab"])
        clock.advance("1m")
        failed, open_ = (await store.create_due_runs(start=Capacity(str(NODE), 10))).claims
        end = (AttemptEnd(0, 1, AttemptState.FAILED, error="no"),)
        await store.settle(NODE, [Settlement(failed.run_id, failed.run_no, failed.fence, end)])
        await store.seal()
        uuids = [each.run_id.removeprefix("occ_") for each in (failed, open_)]
        assert [(run.run_no, run.state) for run in await store.ended_runs(uuids)] == [
            (failed.run_no, "FAILED"),
            (open_.run_no, "RUNNING"),
        ]
        assert await store.ended_runs([str(NODE)]) == ()

    on(place, body, clock)
    assert verified(place).ok
    place.sql("UPDATE sys.job_runs SET state = 'COMPLETED' WHERE state = 'FAILED'")
    (found,) = verified(place).findings
    assert found.kind is FindingKind.RUNS_CHANGED
    assert "JOB_FAILED" in found.message


def test_rows_that_another_client_exchanges_are_named(place: Place) -> None:
    lived(place)
    for change in ("-4 WHERE position = 4", "4 WHERE position = 6", "6 WHERE position = -4"):
        place.sql(f"UPDATE sys.audit SET position = {change}")
    assert [each.message for each in verified(place).findings] == ["rows 4 and 6 changed places"]


def test_logins_are_told_apart_only_in_the_trail(place: Place) -> None:
    async def body(store: Catalog) -> None:
        await store.create_user("ann", password_hash=hashed("right", cost=CHEAP))
        assert (await login(store, "ann", "right")).name == "ann"
        for name, password in (("ann", "wrong"), ("nobody", "right")):
            with pytest.raises(LoginFailed):
                await login(store, name, password)
        rows = await store.audit(sealed=False)
        assert [(row.event, row.actor, row.details and json.loads(row.details)) for row in rows[1:]] == [
            ("LOGIN", "ann", None),
            ("LOGIN_FAILED", "ann", {"reason": "wrong password"}),
            ("LOGIN_FAILED", "nobody", {"reason": "no such user"}),
        ]

    on(place, body)


def test_secrets_are_kept_encrypted_and_move_to_another_key(place: Place) -> None:
    async def body(store: Catalog) -> None:
        await store.define([minutely("etl")])
        for name, job in (("token", None), ("token", "etl")):
            value, key = Keyring(OLD).encrypt(f"value of {job}".encode(), name=name, job=job)
            await store.put_secret(name, value, key_id=key, job=job)
        assert await rotate(store, Keyring(NEW, OLD), by="ann") == 2
        assert await rotate(store, Keyring(NEW, OLD), by="ann") == 0
        own, shared = await store.secret("token", "etl"), await store.secret("token", "other")
        assert own is not None
        assert shared is not None
        assert (own.job, shared.job, own.key_id) == ("etl", None, key_id(NEW))
        assert Keyring(NEW).decrypt(own) == b"value of etl"
        assert Keyring(NEW).decrypt(shared) == b"value of None"
        with pytest.raises(SecretError):
            Keyring(OLD).decrypt(own)

    on(place, body)
    assert "value of" not in str(place.sql("SELECT * FROM sys.job_secrets"))


def test_a_refusal_is_in_the_trail_and_a_right_that_is_given_lets_pass(place: Place) -> None:
    async def body(store: Catalog) -> None:
        await store.define([minutely("etl")])
        await store.create_user("ann")

        async def ann() -> Principal:
            found = await store.principal("ann")
            assert found is not None
            return found

        with pytest.raises(AccessDenied):
            await AccessChecker(store, await ann()).require(
                Privilege.EXECUTE_JOB, "etl", owner="local", action="run it"
            )
        last = (await store.audit(sealed=False))[-1]
        assert (last.event, last.actor) == ("ACCESS_DENIED", "ann")
        await store.grant([Grant(Privilege.EXECUTE_JOB, "etl"), Grant(Privilege.CREATE_JOB)], ["ann"])
        await AccessChecker(store, await ann()).require(Privilege.EXECUTE_JOB, "etl", owner="local")
        await store.set_owner("etl", "ann")
        spec = (await store.jobs(["etl"]))[0].definition.spec
        assert (await identity(store, spec, spec.tasks[0])).name == "ann"
        await AccessChecker(store, await ann()).require_owner("etl", "set its secret")

    on(place, body)
