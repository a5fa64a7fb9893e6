"""Floods of refusals: a few audit rows, which say how many there were."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.security.vaults import Job, MemoryVault

from horae.core.job.ids import job_uuid
from horae.errors import AccessDenied
from horae.security import access
from horae.security.access import AccessChecker
from horae.security.refusal_flood import RefusalLimiter


def test_so_many_pass_at_once_and_then_one_now_and_then_which_counts_the_others() -> None:
    now = 100.0
    flood = RefusalLimiter(3, 10.0, clock=lambda: now)
    assert [flood.admits() for _ in range(5)] == [{}, {}, {}, None, None]
    now += 9.0
    assert flood.admits() is None
    now += 1.0
    assert [flood.admits(), flood.admits()] == [{"and_before": 3}, None]
    now += 3600.0
    assert [flood.admits() for _ in range(4)] == [{"and_before": 1}, {}, {}, None]


def test_one_users_refusals_leave_a_few_rows_and_anothers_still_leave_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long this takes, it is not long enough for one more.
    monkeypatch.setattr(access, "REFUSAL_ROW_SECONDS", 1e9)
    vault, other = MemoryVault(), MemoryVault()
    for name in ("ann", "bob"):
        vault.add_user(name)
    other.add_user("ann")

    async def refused(of: MemoryVault, name: str) -> None:
        # Another gate each time, as requests have: what was refused before is not its own to remember.
        with pytest.raises(AccessDenied):
            await AccessChecker(of.kept, of.people[name]).require_admin("list users")

    async def flood() -> None:
        for _ in range(200):
            await refused(vault, "ann")
        await refused(vault, "bob")
        await refused(other, "ann")

    asyncio.run(flood())
    assert [row.actor for row in vault.rows] == ["ann"] * 20 + ["bob"]
    assert len(other.rows) == 1


def test_a_flood_of_one_refusal_does_not_hide_another_of_the_same_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REFUSAL_ROW_SECONDS", 1e9)
    vault = MemoryVault()
    vault.add_user("ann")
    vault.jobs_kept = {name: Job(name, "bob") for name in ("pay", "safe")}

    async def flood() -> None:
        gate = AccessChecker(vault.kept, vault.people["ann"])
        for _ in range(200):
            with pytest.raises(AccessDenied):
                await gate.require_owner("pay", "set its secret")
        for job, action in (("safe", "set its secret"), ("pay", "run it with another payload")):
            with pytest.raises(AccessDenied):
                await gate.require_owner(job, action)

    asyncio.run(flood())
    assert len(vault.rows) == access.REFUSAL_ROWS + 2
    assert [row.job_uuid for row in vault.rows[-2:]] == [str(job_uuid("safe")), str(job_uuid("pay"))]


def test_refusals_of_very_many_things_share_what_is_left_with_their_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are anybody's to make up: a hundred of them must not hide what is done to something that is there."""
    monkeypatch.setattr(access, "REFUSAL_ROW_SECONDS", 1e9)
    vault = MemoryVault()
    vault.add_user("ann")
    vault.jobs_kept = {"pay": Job("pay", "bob")}

    async def flood() -> None:
        gate = AccessChecker(vault.kept, vault.people["ann"])
        for number in range(1000):
            with pytest.raises(AccessDenied):
                await gate.require_admin(f'create the user "u{number}"')
        with pytest.raises(AccessDenied):
            await gate.require_owner("pay", "set its secret")
        # Not even kinds that no code has take more room than there is.
        for number in range(1000):
            with pytest.raises(AccessDenied):
                await gate.require_admin(f"do {number}")

    asyncio.run(flood())
    one = access.MOST_BUCKETS + access.REFUSAL_ROWS
    assert vault.rows[one].job_uuid == str(job_uuid("pay"))
    assert len(vault.rows) < 3 * access.MOST_BUCKETS


def test_how_many_had_no_row_is_told_when_the_flood_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REFUSAL_ROW_SECONDS", 1e9)
    now = 0.0
    monkeypatch.setattr(
        access, "RefusalLimiter", lambda rows, seconds: RefusalLimiter(rows, seconds, clock=lambda: now)
    )
    vault = MemoryVault()
    vault.add_user("ann")

    async def refused(action: str, times: int) -> None:
        for _ in range(times):
            with pytest.raises(AccessDenied):
                await AccessChecker(vault.kept, vault.people["ann"]).require_admin(action)

    async def flood() -> None:
        nonlocal now
        await refused("list users", 50)
        await refused("list roles", 1)
        now = access.REFUSAL_ROWS * 1e9
        await refused("list roles", 1)

    asyncio.run(flood())
    told = [json.loads(row.details or "{}") for row in vault.rows]
    (over,) = [each for each in told if "and_before" in each]
    assert over == {"user": "ann", "action": "list users", "and_before": 29}
    assert len(vault.rows) == 20 + 1 + 1 + 1
