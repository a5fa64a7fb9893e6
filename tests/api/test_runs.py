"""Runs at the desk: listed, shown, what they printed, cancelled, done again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api.stand import Scene, Stand

from horae.core.run.lifecycle import AttemptState
from horae.errors import InvalidIdentifier, InvalidInput, JobNotFound, NotFound, RunNotFound
from horae_store_tests.contract.builders import job

Playing = Callable[[Scene], None]


def test_runs_come_page_by_page_the_newest_first_and_none_twice(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("a"), job("b"))
        for _ in range(3):
            for claim in await stand.later("1m"):
                await stand.end(claim)
        slots: list[tuple[str, str]] = []
        before = None
        while True:
            page = await stand.ask("list_runs", limit=4, **({} if before is None else {"before": before}))
            slots += [(each.scheduled_time[11:16], each.job) for each in page.runs]
            before = page.next_before
            if before is None:
                break
        assert sorted(slots) == [(f"09:0{minute}", name) for minute in (1, 2, 3) for name in "ab"]
        assert [slot for slot, _ in slots] == ["09:03", "09:03", "09:02", "09:02", "09:01", "09:01"]
        of_one = await stand.ask("job_runs", name="b", limit=3)
        assert ([each.job for each in of_one.runs], of_one.next_before) == (["b"] * 3, None)

    playing(scene)


def test_runs_are_found_by_states_origin_and_time(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("a"), job("b", None))
        (first,) = await stand.later("1m")
        await stand.end(first, AttemptState.FAILED, error="no luck")
        await stand.later("1m")
        asked = await stand.ask("trigger", name="b")

        async def found(**asked: object) -> list[str]:
            return sorted(f"{each.job} {each.state}" for each in (await stand.ask("list_runs", **asked)).runs)

        assert await found(state="failed") == ["a FAILED"]
        assert await found(state="Failed, running") == ["a FAILED", "a RUNNING"]
        assert await found(state="active") == ["a RUNNING", "b PENDING"]
        assert await found(origin="trigger") == ["b PENDING"]
        assert await found(since="2026-03-02T09:02:00Z", origin="schedule") == ["a RUNNING"]
        assert await found(until="2026-03-02T10:02:00+01:00") == ["a FAILED"]
        assert await found(job="b", state="") == ["b PENDING"]
        failed = (await stand.ask("list_runs", state="FAILED")).runs[0]
        assert (failed.error, failed.run_id) == ("no luck", first.run_id)
        assert asked.run_id in [each.run_id for each in (await stand.ask("job_runs", name="b")).runs]

    playing(scene)


def test_what_cannot_be_asked_of_runs_is_told(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("a"))
        with pytest.raises(InvalidInput, match="pending, queued, running"):
            await stand.ask("list_runs", state="failed,slow")
        with pytest.raises(InvalidInput, match="schedule, trigger, replay, backfill"):
            await stand.ask("list_runs", origin="moon")
        with pytest.raises(RunNotFound):
            await stand.ask("list_runs", before="occ_00000000-0000-4000-8000-000000000000")
        with pytest.raises(InvalidIdentifier):
            await stand.ask("get_run", run_id="nonsense")
        with pytest.raises(JobNotFound):
            await stand.ask("job_runs", name="mistyped")
        with pytest.raises(RunNotFound):
            await stand.ask("report", run_id="occ_00000000-0000-4000-8000-000000000000")

    playing(scene)


def test_the_history_of_a_dropped_job_can_still_be_read(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("a"))
        (claim,) = await stand.later("1m")
        await stand.end(claim)
        await stand.ask("drop_job", name="a", keep_history=True)
        assert [each.state for each in (await stand.ask("job_runs", name="a")).runs] == ["COMPLETED"]
        assert (await stand.ask("get_run", run_id=claim.run_id)).may == []

    playing(scene)


def test_a_run_is_told_whole_with_who_runs_it_and_what_may_be_done(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", tasks=("extract", "load"), payload={"day": 1}))
        (claim,) = await stand.later("1m")
        under_way = await stand.ask("get_run", run_id=claim.run_id)
        assert (under_way.is_active, under_way.node, under_way.may) == (True, "north", ["cancel"])
        assert under_way.payload == {"day": 1}
        assert [(task.name, task.state) for task in under_way.report.tasks] == [
            ("extract", "RUNNING"),
            ("load", "PENDING"),
        ]
        stand.clock.advance("3s")
        await stand.end(claim, AttemptState.FAILED, error="no luck")
        over = await stand.ask("get_run", run_id=claim.run_id)
        assert (over.is_active, over.may, over.run.state) == (False, ["replay"], "FAILED")
        assert over.report.tasks[0].attempts[0].error == "no luck"
        assert over.report.duration_seconds == 3.0
        assert over.report.text.splitlines()[0] == "etl 2026-03-02T09:01:00Z: FAILED (no luck)"
        assert (over.run.reason, over.report.reason, over.report.working_seconds) == ("no luck", "no luck", 3.0)
        assert (
            over.report.summary == "Failed after 3s. extract failed (no luck); load was skipped because extract failed."
        )
        assert await stand.ask("report", run_id=claim.run_id) == over.report

    playing(scene)


def test_output_is_read_whole_by_task_and_from_a_place_on(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl"))
        (claim,) = await stand.later("1m")
        attempt = await stand.printed(claim, "one\n")
        first = await stand.ask("attempt_output", attempt_id=attempt)
        assert first.text == "one\n"
        assert (await stand.ask("attempt_output", attempt_id=attempt, after=first.next)).text == ""
        await stand.printed(claim, "two\n", 1)
        second = await stand.ask("attempt_output", attempt_id=attempt, after=first.next)
        assert (second.text, second.next > first.next) == ("two\n", True)
        whole = await stand.ask("run_output", run_id=claim.run_id)
        assert [(each.task, each.attempt, each.text) for each in whole.output] == [("work", 1, "one\ntwo\n")]
        assert (await stand.ask("run_output", run_id=claim.run_id, task="work")).output == whole.output
        with pytest.raises(NotFound) as caught:
            await stand.ask("run_output", run_id=claim.run_id, task="other")
        assert caught.value.hint == "Known so far: work."
        with pytest.raises(InvalidIdentifier):
            await stand.ask("attempt_output", attempt_id=claim.run_id)

    playing(scene)


def test_a_run_is_cancelled_and_done_again_with_a_reason(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl"), job("other", None))
        (claim,) = await stand.later("1m")
        asked = await stand.ask("cancel", run_id=claim.run_id, reason="too slow")
        assert (asked.state, asked.message) == ("RUNNING", f"{claim.run_id} is asked to stop")
        waiting = await stand.ask("trigger", name="other")
        ended = await stand.ask("cancel", run_id=waiting.run_id, reason="not now")
        assert (ended.state, ended.message) == ("CANCELLED", f"{waiting.run_id} is CANCELLED")
        assert (await stand.ask("report", run_id=waiting.run_id)).reason == "not now"
        again = await stand.ask("replay", run_id=waiting.run_id, reason="by mistake")
        assert (again.replay_of, again.job, again.fresh) == (waiting.run_id, "other", True)
        assert again.message == f"run {again.run_id} does again what {waiting.run_id} did"
        with pytest.raises(InvalidInput, match="needs a reason"):
            await stand.ask("replay", run_id=waiting.run_id, reason="  ")

    playing(scene)
