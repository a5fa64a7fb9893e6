"""The store contract, reading: pages, filters and orders of jobs and runs, histories, and what is not there."""

from __future__ import annotations

from horae.core.job.policies import Retry
from horae.core.report.report import build_report
from horae.core.run.lifecycle import JobState, RunState
from horae.errors import RunNotFound
from horae_store_tests.contract.builders import FAILED, Contract, Scene, at, ended, job, raises, scenario, unknown_run


class ReadingContract(Contract):
    """What people and programs are shown."""

    @scenario
    async def test_jobs_are_paged_in_name_order(self, scene: Scene) -> None:
        names = ["Z", "a", "aa", "b", "é"]
        await scene.define(*(job(name) for name in reversed(names)))
        found: list[str] = []
        while page := await scene.store.jobs(after=found[-1] if found else None, limit=2):
            assert len(page) <= 2
            found += [record.name for record in page]
        assert found == names

    @scenario
    async def test_jobs_are_found_by_name_tag_and_state(self, scene: Scene) -> None:
        await scene.define(job("a", tags=("red", "big")), job("b", tags=("red",), state=JobState.PAUSED), job("c"))
        assert [record.name for record in await scene.store.jobs(("c", "nobody", "a"))] == ["a", "c"]
        assert [record.name for record in await scene.store.jobs(tag="red")] == ["a", "b"]
        assert [record.name for record in await scene.store.jobs(tag="re")] == []
        assert [record.name for record in await scene.store.jobs(state=JobState.PAUSED)] == ["b"]
        assert [record.name for record in await scene.store.jobs(tag="red", state=JobState.ENABLED)] == ["a"]
        assert await scene.store.jobs(()) == ()

    @scenario
    async def test_every_job_that_is_asked_for_by_name_is_found_whatever_the_length_of_a_page(
        self, scene: Scene
    ) -> None:
        await scene.define(job("a"), job("b"), job("c"))
        assert [record.name for record in await scene.store.jobs(("c", "a", "b"), limit=1)] == ["a", "b", "c"]

    @scenario
    async def test_runs_are_paged_the_newest_born_first(self, scene: Scene) -> None:
        await scene.define(job("a", overlap="allow"), job("b", overlap="allow"))
        for _ in range(3):
            await scene.later("1m")
        every = await scene.store.runs()
        assert [(run.job_name, run.scheduled_time) for run in every] == [
            (name, at(slot)) for slot in ("09:03", "09:02", "09:01") for name in "ba"
        ]
        paged: list[object] = []
        before = None
        while page := await scene.store.runs(before=before, limit=4):
            paged += page
            before = page[-1].run_id
        assert tuple(paged) == every

    @scenario
    async def test_runs_are_found_by_job_state_and_whether_they_have_ended(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b", overlap="queue"))
        await scene.later("1m")
        first, _ = await scene.claim_runs()
        await scene.finish(first)
        await scene.later("1m")
        assert {run.job_name for run in await scene.store.runs(job="a")} == {"a"}
        assert [run.state for run in await scene.store.runs(state=RunState.COMPLETED)] == ["COMPLETED"]
        assert {run.state for run in await scene.store.runs(active=True)} == {"PENDING", "QUEUED", "RUNNING"}
        assert [run.state for run in await scene.store.runs(job="b", active=True, limit=1)] == ["QUEUED"]
        assert await scene.store.runs(job="nobody") == ()

    @scenario
    async def test_a_history_is_what_a_report_is_built_from(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), retry=Retry(1, "10s"), failure="continue"))
        await scene.later("1m")
        scene.clock.advance("3s")
        claim = await scene.claim()
        await scene.settle(claim, ended(FAILED, error="boom"))
        scene.clock.advance("10s")
        claim = await scene.claim()
        await scene.settle(claim, ended(number=2, result="[1]"))
        await scene.settle(claim, ended(position=1, result='"done"'))
        history = await scene.history()
        assert history.record == await scene.run()
        assert history.results == {"one": [1], "two": "done"}
        assert (history.run.job_name, history.run.mode, history.run.failure) == ("a", "sequential", "continue")
        report = build_report(history.run, history.tasks)
        assert (report.outcome, report.lag, report.duration) == (
            RunState.COMPLETED,
            at("09:01:03") - at("09:01"),
            at("09:01:13") - at("09:01:03"),
        )
        assert [attempt.error for attempt in report.tasks[0].attempts] == ["boom", None]

    @scenario
    async def test_a_run_that_is_not_there_has_no_history(self, scene: Scene) -> None:
        with raises(RunNotFound):
            await scene.store.history(unknown_run())

    @scenario
    async def test_an_empty_catalog_answers_every_question(self, scene: Scene) -> None:
        assert (await scene.store.jobs(), await scene.store.runs()) == ((), ())
        planned = await scene.plan(slots=5)
        assert (planned.jobs, planned.born, planned.claims, planned.wake_at, planned.more) == (0, 0, (), None, False)
        assert await scene.claim_runs() == ()
        assert (await scene.store.reap(), await scene.store.sweep()) == (0, 0)
        assert (await scene.define(), await scene.store.admit(()), await scene.store.cancel(())) == ((), (), ())
        assert await scene.store.drop(()) == 0
