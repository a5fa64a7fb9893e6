"""The store contract, dispatching: who is given which run, in which order, and what the claim says."""

from __future__ import annotations

import asyncio

from horae.core.job.definition import TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import RunState
from horae.core.schedule.schedules import Cron
from horae.store.protocols.store import Capacity
from horae_store_tests.contract.builders import (
    FAILED,
    HOURLY,
    NODE,
    OTHER,
    Contract,
    Scene,
    at,
    job,
    milliseconds,
    scenario,
    starts,
)


class DispatchContract(Contract):
    """Order, slots, handlers, pools, limits, modes, and runs that resume."""

    @scenario
    async def test_a_claim_says_all_a_node_needs(self, scene: Scene) -> None:
        await scene.define(job(payload={"x": 1}))
        await scene.later("1m")
        scene.clock.advance("5s")
        claim = await scene.claim()
        run = await scene.run()
        assert (claim.run_id, claim.job_name, claim.fence, claim.origin) == (run.run_id, "a", 1, "SCHEDULE")
        assert claim.scheduled_ms == claim.chosen_ms == milliseconds(at("09:01"))
        assert (claim.started_at, claim.spent_ms) == (at("09:01:05"), 0)
        assert (claim.starts, claim.payload) == (starts((0, 1)), {"x": 1})
        assert claim.definition == (await scene.job()).definition

    @scenario
    async def test_a_claimed_run_is_running_owned_and_has_its_tasks(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        assert (await scene.history()).tasks == ()
        await scene.claim()
        run = await scene.run()
        assert (run.state, run.owner, run.fence, run.started_at) == ("RUNNING", str(NODE), 1, at("09:01"))
        assert (run.not_before, run.waiting_for) == (None, None)
        assert await scene.tasks() == [("one", "RUNNING", None), ("two", "PENDING", None)]
        assert await scene.attempts() == ["RUNNING"]

    @scenario
    async def test_a_run_is_given_out_once(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        await scene.claim()
        assert await scene.claim_runs() == ()
        await scene.store.join(OTHER)
        assert await scene.claim_runs(node=OTHER) == ()

    @scenario
    async def test_two_stores_on_one_catalog_never_give_out_one_run_twice(self, scene: Scene) -> None:
        peer = await scene.second()
        await peer.join(OTHER)
        await scene.define(*(job(f"job{number:02}") for number in range(20)))
        await scene.later("1m")
        given: list[str] = []
        while len(given) < 20:
            answers = await asyncio.gather(
                scene.store.claim_runs(Capacity(str(NODE), 3)), peer.claim_runs(Capacity(str(OTHER), 3))
            )
            got = [claim.run_id for answer in answers for claim in answer.claims]
            assert got
            given += got
        assert len(set(given)) == len(given) == 20

    @scenario
    async def test_the_oldest_come_first_and_no_more_than_there_are_slots(self, scene: Scene) -> None:
        await scene.define(
            *(job(name, Cron(f"{minute} * * * *")) for name, minute in zip("abc", (3, 1, 2), strict=True))
        )
        for minute in ("09:01", "09:02", "09:03"):
            await scene.until(minute)
        first = await scene.claim_runs(2)
        assert [claim.job_name for claim in first] == ["b", "c"]
        assert [claim.job_name for claim in await scene.claim_runs(2)] == ["a"]

    @scenario
    async def test_runs_of_one_time_go_in_the_order_they_were_born(self, scene: Scene) -> None:
        await scene.define(*(job(name) for name in "cab"))
        await scene.later("1m")
        born = [run.run_id for run in reversed(await scene.store.runs())]
        assert [claim.run_id for claim in await scene.claim_runs()] == born

    @scenario
    async def test_no_slots_no_runs(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        assert await scene.claim_runs(0) == ()
        assert await scene.story() == ["09:01 PENDING"]

    @scenario
    async def test_a_node_gets_only_runs_it_has_the_handlers_for(self, scene: Scene) -> None:
        await scene.define(
            job("a", tasks=("one", "two")),
            job("b", tasks=("two",)),
            job("c", tasks=(TaskSpec("sql", "SELECT 1", "SQL"),)),
        )
        await scene.later("1m")
        claims = await scene.claim_runs(handlers=frozenset({"two"}))
        assert [claim.job_name for claim in claims] == ["b", "c"]
        assert [claim.job_name for claim in await scene.claim_runs(handlers=frozenset({"one", "two"}))] == ["a"]

    @scenario
    async def test_a_pool_is_shared_by_jobs_and_nodes_and_blocks_nobody_else(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.store.set_pool("narrow", 1)
        await scene.define(job("a", pool="narrow"), job("b", pool="narrow"), job("c"))
        await scene.later("1m")
        first, beside = await scene.claim_runs()
        assert (first.job_name, beside.job_name) == ("a", "c")
        assert await scene.claim_runs(node=OTHER) == ()
        await scene.finish(first)
        assert (await scene.claim(OTHER)).job_name == "b"

    @scenario
    async def test_a_wider_pool_lets_more_run_and_a_removed_one_all(self, scene: Scene) -> None:
        await scene.store.set_pool("narrow", 1)
        await scene.define(*(job(name, pool="narrow") for name in "abcd"))
        await scene.later("1m")
        assert len(await scene.claim_runs()) == 1
        await scene.store.set_pool("narrow", 2)
        assert len(await scene.claim_runs()) == 1
        await scene.store.set_pool("narrow", None)
        assert len(await scene.claim_runs()) == 2

    @scenario
    async def test_a_parked_run_holds_no_place_in_its_pool(self, scene: Scene) -> None:
        await scene.store.set_pool("narrow", 1)
        await scene.define(job("a", pool="narrow", retry=Retry(1, "5m")), job("b", pool="narrow"))
        await scene.later("1m")
        await scene.run_once(FAILED)
        assert (await scene.claim()).job_name == "b"

    @scenario
    async def test_no_more_runs_of_a_job_than_it_allows_at_once(self, scene: Scene) -> None:
        await scene.define(job(overlap="allow", max_concurrent=2))
        for _ in range(3):
            await scene.later("1m")
        claims = await scene.claim_runs()
        assert [claim.scheduled_time for claim in claims] == [at("09:01"), at("09:02")]
        await scene.finish(claims[0])
        assert (await scene.claim()).scheduled_time == at("09:03")

    @scenario
    async def test_sequential_tasks_start_with_the_first_and_parallel_ones_all(self, scene: Scene) -> None:
        tasks = ("one", "two", "three")
        await scene.define(job("a", tasks=tasks), job("b", tasks=tasks, mode="parallel"))
        await scene.later("1m")
        first, second = await scene.claim_runs()
        assert first.starts == starts((0, 1))
        assert second.starts == starts((0, 1), (1, 1), (2, 1))

    @scenario
    async def test_a_parked_run_resumes_when_its_time_has_come(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, retry=Retry(2, "30s")))
        await scene.until("10:00")
        claim = await scene.claim()
        scene.clock.advance("10s")
        await scene.finish(claim, FAILED)
        waiting = await scene.store.claim_runs(Capacity(str(NODE), 1))
        assert (waiting.claims, waiting.next_at) == ((), at("10:00:40"))
        scene.clock.set(at("10:00:40"))
        again = await scene.claim()
        assert (again.run_id, again.fence, again.starts) == (claim.run_id, 2, starts((0, 2)))
        assert (again.spent_ms, again.started_at) == (10_000, at("10:00:40"))
        run = await scene.run()
        assert (run.state, run.retry_count, run.started_at, run.fence) == ("RUNNING", 1, at("10:00"), 2)
        assert await scene.attempts() == ["FAILED", "RUNNING"]

    @scenario
    async def test_a_run_that_has_started_once_has_no_deadline_any_more(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, retry=Retry(1, "5m"), deadline="30s"))
        await scene.until("10:00")
        await scene.run_once(FAILED)
        await scene.until("10:05")
        assert (await scene.claim()).fence == 2

    @scenario
    async def test_the_next_time_is_that_of_runs_that_only_wait_for_it(self, scene: Scene) -> None:
        await scene.define(job("a", HOURLY, retry=Retry(1, "9m")), job("b", HOURLY, retry=Retry(1, "7m")))
        assert (await scene.store.claim_runs(Capacity(str(NODE), 1))).next_at is None
        await scene.until("10:00")
        for claim in await scene.claim_runs():
            await scene.finish(claim, FAILED)
        assert (await scene.store.claim_runs(Capacity(str(NODE), 1))).next_at == at("10:07")

    @scenario
    async def test_runs_that_are_queued_or_wait_for_others_are_not_given_out(self, scene: Scene) -> None:
        await scene.define(
            job("down", HOURLY, depends_on=("up",)), job("up", HOURLY), job("q", HOURLY, overlap="queue")
        )
        await scene.until("10:00", slots=9)
        await scene.trigger("q", "second")
        assert await scene.claim_runs() == ()
        assert await scene.count(RunState.RUNNING) == 2
