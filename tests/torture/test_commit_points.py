"""A process dies at each point where something is committed: nothing is torn, nothing runs twice, the dead are dead."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.torture.conftest import MakeUrl
from tests.torture.crew import KEEPER, PATIENCE, SEEDS, Keeper, Member, define, due_jobs, finish_alone, start_worker
from tests.torture.drivers import AFTER, BEFORE, Blow, opened
from tests.torture.evidence import Snapshot, check_finished, dump, integrity, query
from tests.torture.worker import EXPELLED

from horae.core.node_liveness import SILENCE
from horae.core.run.lifecycle import AttemptState
from horae.store.catalog.catalog import Catalog
from horae.store.records import AttemptEnd, Capacity, Settlement, SettlementVerdict

STORES = ("sqlite", "postgres")
TIMES = (1, 2) if len(SEEDS) <= 3 else (1, 2, 3, 4)
"""The first and second time each verb commits; more of them in a long run."""

_SAID = """
SELECT cast(r.job_run_uuid AS text), a.run_no, a.fence, a.position, a.attempt_no,
    cast(r.assigned_node_uuid AS text), r.fence, r.state, cast(a.node_uuid AS text)
FROM sys.task_attempts a JOIN sys.job_runs r ON r.run_no = a.run_no
"""


async def late_words(store: Catalog, url: str, dead: UUID) -> None:
    """Says again everything a dead node could say: each answer is a refusal, and no row of any table changes."""
    rows = [row[:-1] for row in query(url, _SAID) if row[-1] == str(dead)]
    before = dump(url)
    for run, run_no, fence, position, number, owner, latest, state in rows:
        ends = (AttemptEnd(position, number, AttemptState.SUCCESS),)
        ended_by_it = owner == str(dead) and fence == latest and state == "COMPLETED"
        for said in (
            Settlement(f"occ_{run}", run_no, fence, ends),
            Settlement(f"occ_{run}", run_no, fence, stop="cancelled"),
            Settlement(f"occ_{run}", run_no, fence, release=True),
        ):
            answer = (await store.settle(dead, [said]))[0]
            assert answer.verdict is (SettlementVerdict.ALREADY if ended_by_it else SettlementVerdict.FENCED)
    assert (await store.heartbeat(dead, {f"occ_{row[0]}": row[2] for row in rows})).expelled
    assert dump(url) == before


async def recover(url: str, dead: UUID, jobs: int, at_death: Snapshot) -> None:
    """Restarts after a death: takes over, hears the zombie out, does the rest, and hears it out once more."""
    async with opened(url) as store:
        await Keeper(store, sweeps=False).bury()
        taken = Snapshot(url)
        taken.check()
        taken.check_moves(at_death)
        assert str(dead) not in {owner for state, _, owner, _ in taken.runs.values() if state == "RUNNING"}
        await late_words(store, url, dead)
        await finish_alone(store, uuid4())
        check_finished(url, jobs, {str(dead)}).check_moves(taken)
        await late_words(store, url, dead)
        assert await store.sweep() == 0


def check_copy(path: str, at_death: Snapshot) -> str:
    """Copies file and -wal, as a backup right after the death would, and reads the copy."""
    copy = f"{path}-copy"
    for suffix in ("", "-wal"):
        if Path(path + suffix).exists():
            shutil.copyfile(path + suffix, copy + suffix)
    assert integrity(copy) == [("ok",)]
    copied = Snapshot(copy)
    assert (copied.runs, copied.tasks, copied.attempts) == (at_death.runs, at_death.tasks, at_death.attempts)
    return copy


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("where", [BEFORE, AFTER])
@pytest.mark.parametrize("verb", ["create_due_runs", "claim_runs", "settle"])
@pytest.mark.parametrize("store", STORES)
def test_a_process_killed_while_committing_tears_nothing_and_is_recovered_from(
    store: str, verb: str, where: str, times: int, catalog: MakeUrl, tmp_path: Path
) -> None:
    url = catalog(store)
    specs = [*due_jobs(4, "short"), *due_jobs(4, "long", tasks=2)]
    asyncio.run(define(url, specs))
    # Two are born running and one is dispatched, so that each verb has something to write.
    member = start_worker(url, tmp_path, blow=Blow(verb, where, times), HORAE_TORTURE_SLOTS="3")
    assert member.process.wait(PATIENCE) == -signal.SIGKILL, member.errors()
    if store == "postgres":
        wait_for_rollback(url)
    at_death = Snapshot(url)
    at_death.check()
    if store == "sqlite":
        check_copy(url, at_death)
    asyncio.run(recover(url, member.node, len(specs), at_death))


def wait_for_rollback(url: str) -> None:
    """The server notices a moment later that its client is gone."""
    ends = time.monotonic() + PATIENCE
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    while query(url, others)[0][0]:
        assert time.monotonic() < ends, "the dead process is still connected"
        time.sleep(0.02)


@pytest.mark.parametrize("verb", ["create_due_runs", "claim_runs"])
@pytest.mark.parametrize("store", STORES)
def test_a_worker_that_was_stopped_for_too_long_changes_nothing_when_it_goes_on(
    store: str, verb: str, catalog: MakeUrl, tmp_path: Path
) -> None:
    url = catalog(store)
    asyncio.run(define(url, due_jobs(6)))
    blow = Blow(verb, AFTER, 1, signal.SIGSTOP)
    # Nobody but itself is to stop it, and nobody but this test to wake it.
    member = start_worker(url, tmp_path, blow=blow, HORAE_TORTURE_SLOTS="3", HORAE_UNDISTURBED="1")
    try:
        wait_until_stopped(member)
        at_stop = Snapshot(url)
        at_stop.check()
        assert str(member.node) in {owner for state, _, owner, _ in at_stop.runs.values() if state == "RUNNING"}
        asyncio.run(judge_and_finish(url))
        check_finished(url, 6, {str(member.node)}).check_moves(at_stop)
        before = dump(url)
        member.process.send_signal(signal.SIGCONT)
        # Its heartbeat may be told before its settlement is, or it finds nothing left to do.
        assert member.process.wait(PATIENCE) in (0, EXPELLED), member.errors()
        assert {line[3] for line in member.lines() if line[0] == "END"} <= {"FENCED"}
        assert dump(url) == before
    finally:
        member.process.kill()
        member.process.wait(PATIENCE)


def wait_until_stopped(member: Member) -> None:
    ends = time.monotonic() + PATIENCE
    while os.waitid(os.P_PID, member.process.pid, os.WSTOPPED | os.WNOHANG) is None:
        assert time.monotonic() < ends, "the worker did not stop"
        assert member.process.poll() is None, member.errors()
        time.sleep(0.02)


async def judge_and_finish(url: str) -> None:
    """Its lock is held, so only its silence speaks against it."""
    async with opened(url) as store:
        keeper = Keeper(store)
        assert await keeper.look(at=0.0) == 0
        assert await keeper.look(at=SILENCE / 2) == 0
        assert await keeper.look(at=SILENCE - 1) == 0
        assert await keeper.look(at=SILENCE + 1) == 1
        await finish_alone(store, uuid4())


@pytest.mark.parametrize("verb", ["create_due_runs", "claim_runs"])
@pytest.mark.parametrize("store", STORES)
def test_a_node_that_was_declared_dead_is_given_nothing(store: str, verb: str, catalog: MakeUrl) -> None:
    url = catalog(store)

    async def scenario() -> None:
        await define(url, due_jobs(3))
        zombie = uuid4()
        async with opened(url) as catalog:
            await catalog.join(zombie)
            if verb == "claim_runs":
                await catalog.create_due_runs()
            assert await catalog.take_over(KEEPER, zombie, 0) == 0
            if verb == "claim_runs":
                claims = (await catalog.claim_runs(Capacity(str(zombie), 5))).claims
            else:
                claims = (await catalog.create_due_runs(start=Capacity(str(zombie), 5))).claims
            assert claims == ()
            await finish_alone(catalog, uuid4())
        check_finished(url, 3, set())

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_of_the_file_and_its_log_taken_after_a_kill_is_whole_and_goes_on(seed: int, tmp_path: Path) -> None:
    path = str(tmp_path / "horae.db")
    chance = random.Random(seed)
    asyncio.run(define(path, due_jobs(300)))
    members = [start_worker(path, tmp_path, HORAE_TORTURE_SLOTS="4") for _ in range(3)]
    enough = chance.randint(20, 250)
    ends = time.monotonic() + PATIENCE
    try:
        while sum(len(member.lines()) for member in members) < enough:
            assert time.monotonic() < ends, "the workers did not get on"
            time.sleep(0.01)
    finally:
        for member in members:
            member.process.kill()
        for member in members:
            member.process.wait(PATIENCE)
    at_death = Snapshot(path)
    at_death.check()
    copy = check_copy(path, at_death)

    async def go_on() -> None:
        # The copy has no locks beside it: nobody holds any there.
        async with opened(copy) as store:
            await Keeper(store, sweeps=False).bury()
            await finish_alone(store, uuid4())

    asyncio.run(go_on())
    check_finished(copy, 300, {str(member.node) for member in members}).check_moves(at_death)
    assert integrity(copy) == [("ok",)]
