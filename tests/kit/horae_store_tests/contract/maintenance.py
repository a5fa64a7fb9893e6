"""The store contract, keeping: reap, sweep, retain, output, wake-ups, and a clock that misbehaves."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from horae.core.job.policies import Retry
from horae.core.run.lifecycle import RunState
from horae.core.schedule.schedules import Cron
from horae.store.protocols.store import OutputChunk, SettlementVerdict, Store
from horae_store_tests.contract.builders import (
    BEGINNING,
    FAILED,
    HOURLY,
    NODE,
    SUCCESS,
    Contract,
    Scene,
    at,
    job,
    scenario,
)

_SHORT, _LONG = 0.2, 60.0


async def _settled(store: Store, seen: int) -> int:
    """The number after which nothing fires any more."""
    for _ in range(50):
        fired = await store.changed(seen, timeout=_SHORT)
        if fired == seen:
            return seen
        seen = fired
    raise AssertionError("`changed` fires without end in a catalog nobody touches")


class KeepingContract(Contract):
    """What engines do to keep a catalog healthy, and what holds whatever the clock does."""

    @scenario
    async def test_a_run_past_its_execution_timeout_is_asked_to_stop(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, execution_timeout="10m"))
        await scene.until("10:00")
        claim = await scene.claim()
        scene.clock.advance("10m")
        assert await scene.store.reap() == 0
        assert (await scene.run()).cancel_requested_at is None
        scene.clock.advance("1s")
        assert await scene.store.reap() == 0
        run = await scene.run()
        assert (run.state, run.cancel_requested_at, run.cancelled_by) == ("RUNNING", at("10:10:01"), "timeout")
        pulse = await scene.store.heartbeat(NODE, {claim.run_id: 1})
        assert dict(pulse.cancels) == {claim.run_id: "timeout"}

    @scenario
    async def test_a_run_that_does_not_stop_in_time_is_ended_and_fenced(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), overlap="queue", execution_timeout="30s", cancel_grace="20s"))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.later("1m")
        await scene.store.reap()
        scene.clock.advance("20s")
        assert await scene.store.reap() == 0
        scene.clock.advance("1s")
        assert await scene.store.reap() == 1
        assert await scene.story() == ["09:01 FAILED_STALE Execution exceeded timeout", "09:02 QUEUED"]
        # Its owner lives, and may still be at it; once it says otherwise, the next one's turn has come.
        await scene.store.heartbeat(NODE, {}, ())
        assert await scene.story() == ["09:01 FAILED_STALE Execution exceeded timeout", "09:02 PENDING"]
        run = (await scene.runs())[0]
        assert (run.fence, run.completed_at) == (2, at("09:02:21"))
        history = await scene.store.history(run.run_id)
        assert [task.state for task in history.tasks] == ["CANCELLED", "SKIPPED"]
        assert [attempt.state for attempt in history.tasks[0].attempts] == ["LOST"]
        assert (await scene.finish(claim)).verdict == SettlementVerdict.FENCED

    @scenario
    async def test_a_cancelled_run_that_does_not_stop_is_abandoned(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.until("10:00")
        claim = await scene.claim()
        await scene.store.cancel((claim.run_id,), by="ann", reason="enough")
        scene.clock.advance("31s")
        assert await scene.store.reap() == 1
        assert await scene.story() == ["10:00 CANCELLED abandoned"]
        assert (await scene.run()).cancelled_by == "ann"

    @scenario
    async def test_earlier_stretches_count_towards_the_execution_timeout(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, execution_timeout="60s", retry=Retry(1, "10m")))
        await scene.until("10:00")
        claim = await scene.claim()
        scene.clock.advance("40s")
        await scene.finish(claim, FAILED)
        scene.clock.advance("10m")
        assert await scene.store.reap() == 0
        assert (await scene.claim()).spent_ms == 40_000
        scene.clock.advance("20s")
        await scene.store.reap()
        assert (await scene.run()).cancel_requested_at is None
        scene.clock.advance("1s")
        await scene.store.reap()
        assert (await scene.run()).cancelled_by == "timeout"

    @scenario
    async def test_a_run_without_an_execution_timeout_runs_on(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, execution_timeout=None))
        await scene.until("10:00")
        await scene.claim()
        scene.clock.advance("10d")
        assert await scene.store.reap() == 0
        assert (await scene.run()).cancel_requested_at is None

    @scenario
    async def test_reap_ends_no_more_than_its_limit(self, scene: Scene) -> None:
        await scene.define(*(job(name, HOURLY) for name in "abc"))
        await scene.until("10:00", slots=3)
        await scene.store.cancel([run.run_id for run in await scene.runs()])
        scene.clock.advance("31s")
        assert [await scene.store.reap(limit=2), await scene.store.reap(limit=2)] == [2, 1]

    @scenario
    async def test_sweep_finds_nothing_in_a_healthy_catalog(self, scene: Scene) -> None:
        await scene.define(
            job("down", depends_on=("up",)),
            job("up", overlap="queue"),
            job("r", overlap="replace", retry=Retry(1, "50s")),
        )
        for released in (False, True, False, True, False):
            await scene.later("30s")
            assert await scene.store.sweep() == 0
            for claim in await scene.claim_runs(2):
                assert await scene.store.sweep() == 0
                state = FAILED if claim.job_name == "r" else SUCCESS
                await (scene.settle(claim, release=True) if released else scene.finish(claim, state))
                assert await scene.store.sweep() == 0
        assert {run.job_name for run in await scene.runs() if run.state == RunState.COMPLETED} == {"up", "down"}

    @scenario
    async def test_retain_deletes_what_ended_long_ago_and_nothing_else(self, scene: Scene) -> None:
        await scene.define(job("a", HOURLY, overlap="allow"), job("b", Cron("30 9 * * *")))
        await scene.until("09:30")
        await scene.until("10:00")
        (first,) = [claim for claim in await scene.claim_runs() if claim.job_name == "a"]
        await scene.finish(first)
        await scene.until("11:00")
        await scene.run_once()
        scene.clock.set(at("12:00"))
        assert await scene.store.retain(timedelta(minutes=90)) == 1
        assert await scene.story("a") == ["11:00 COMPLETED"]
        assert await scene.story("b") == ["09:30 RUNNING"]
        assert await scene.store.retain(timedelta(minutes=90)) == 0

    @scenario
    async def test_retain_never_lowers_a_cursor(self, scene: Scene) -> None:
        await scene.define(job(recovery="all", overlap="allow"))
        for _ in range(5):
            await scene.later("1m")
            await scene.run_once()
        before = await scene.job()
        assert await scene.store.retain(timedelta(0), limit=3) == 3
        scene.clock.advance("1s")
        assert await scene.store.retain(timedelta(0), limit=3) <= 2
        assert await scene.story() == []
        assert await scene.job() == before
        assert (await scene.plan()).born == 0

    @scenario
    async def test_output_is_kept_in_order_and_a_repeated_chunk_once(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim()
        attempt = (await scene.history()).tasks[0].attempts[0].attempt_id
        chunks = [OutputChunk(claim.run_no, 0, 1, attempt, number, text) for number, text in enumerate(("a\n", "é\n"))]
        await scene.store.write_output(chunks[:1])
        await scene.store.write_output(chunks)
        await scene.store.write_output([OutputChunk(claim.run_no, 0, 1, attempt, 0, "other")])
        assert await scene.store.read_output(attempt) == "a\né\n"
        other = f"attempt_{NODE}"
        assert await scene.store.read_output(other) == ""

    @scenario
    async def test_changed_fires_after_a_commit_and_only_then(self, scene: Scene) -> None:
        seen = await _settled(scene.store, 0)
        waiting = asyncio.create_task(scene.store.changed(seen, timeout=_LONG))
        await asyncio.sleep(0)
        await scene.define(job())
        fired = await waiting
        assert fired != seen
        seen = await _settled(scene.store, fired)
        await scene.trigger(key="now")
        assert await scene.store.changed(seen, timeout=_LONG) != seen
        assert await scene.store.changed(0, timeout=_LONG) != 0

    @scenario
    async def test_changed_fires_for_what_another_store_commits(self, scene: Scene) -> None:
        peer = await scene.second()
        seen = await _settled(scene.store, 0)
        waiting = asyncio.create_task(scene.store.changed(seen, timeout=_LONG))
        await asyncio.sleep(0)
        await peer.define((job(),))
        assert await waiting != seen

    @scenario
    async def test_what_one_store_commits_another_reads(self, scene: Scene) -> None:
        peer = await scene.second()
        await scene.define(job(payload={"x": 1}))
        await scene.later("1m")
        claim = await scene.claim()
        assert await peer.jobs() == await scene.store.jobs()
        assert await peer.history(claim.run_id) == await scene.history()

    @scenario
    async def test_a_clock_that_steps_back_does_not_take_the_store_along(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        await scene.run_once()
        scene.clock.set(BEGINNING)
        assert (await scene.plan()).now == at("09:01")
        await scene.trigger(key="k")
        assert (await scene.runs())[-1].created_at == at("09:01")
        assert (await scene.claim()).started_at == at("09:01")
        assert await scene.count(RunState.RUNNING) == 1

    @scenario
    async def test_stored_times_are_whole_milliseconds(self, scene: Scene) -> None:
        scene.clock.set(BEGINNING + timedelta(microseconds=123_987))
        await scene.define(job(retry=Retry(1, "1s", jitter=0.5)))
        record = await scene.job()
        assert record.created_at == BEGINNING + timedelta(milliseconds=123)
        assert record.planned_until == BEGINNING
        await scene.trigger(key="k")
        await scene.run_once(FAILED)
        run = await scene.run()
        assert run.created_at == BEGINNING + timedelta(milliseconds=123)
        assert (run.scheduled_time, run.chosen_time) == (BEGINNING, run.created_at)
        assert run.not_before is not None
        assert run.not_before.microsecond % 1000 == 0

    @scenario
    async def test_a_store_can_be_closed_twice(self, scene: Scene) -> None:
        await scene.store.close()
        await scene.store.close()
