"""What people do to jobs and runs: pause, disable, trigger, move, backfill, replay, drop."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from tests.engine.world import after, clock, offsets, oldest_first, only_run, reports, simulate, states, tasks

from horae import Cron, Every, Horae, HoraeError, Run, Window
from horae.core.job import ids
from horae.errors import Conflict, InvalidInput, InvalidTime, JobNotFound, RunNotFound
from horae.testing.simulation import Simulation


def hourly(**policies: Any) -> Horae:
    app = Horae("sqlite://")

    @app.job("hourly", Every("1h"), **policies)
    async def work(run: Run) -> Any:
        return run.payload

    return app


def test_while_a_job_is_paused_its_slots_pass_and_are_recorded_as_skipped() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("90m")) == ["1:00:00"]
        await app.pause("hourly", note="the warehouse moves")
        job = await app.get_job("hourly")
        assert (job.state, job.pause_note, job.next_run_time) == ("PAUSED", "the warehouse moves", None)
        assert await sim.advance("2h") == []
        await app.resume("hourly")
        assert offsets(await sim.advance("1h")) == ["4:00:00"]
        assert await states(app) == ["COMPLETED", "SKIPPED (paused)", "SKIPPED (paused)", "COMPLETED"]

    simulate(app, body)


def test_a_pause_with_an_end_is_over_by_itself_also_after_a_crash() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await app.pause("hourly", until=after("2h30m"))
        assert clock(await app.next_run("hourly")) == "3:00:00"
        await sim.advance("1h30m")
        await sim.crash()
        assert offsets(await sim.advance("2h")) == ["3:00:00"]
        assert (await app.get_job("hourly")).state == "ENABLED"
        assert await states(app) == ["SKIPPED (paused)", "SKIPPED (paused)", "COMPLETED"]

    simulate(app, body)


def test_a_disabled_job_leaves_no_trace_and_starts_from_now_when_it_is_enabled() -> None:
    app = hourly(recovery="all")

    async def body(sim: Simulation) -> None:
        await app.disable("hourly")
        assert await sim.advance("5h30m") == []
        await app.enable("hourly")
        assert offsets(await sim.advance("1h")) == ["6:00:00"]
        assert await states(app) == ["COMPLETED"]

    simulate(app, body)


def test_pausing_does_not_disturb_what_runs() -> None:
    app = Horae("sqlite://")

    @app.job("long", Every("1h"))
    async def work() -> None:
        await asyncio.sleep(1800)

    async def body(sim: Simulation) -> None:
        await sim.advance("70m")
        await app.pause("long")
        await sim.advance("30m")
        assert await states(app) == ["COMPLETED"]

    simulate(app, body)


def test_a_trigger_runs_now_never_moves_the_schedule_and_ignores_a_pause() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await app.pause("hourly")
        await sim.advance("10m")
        ref = await app.trigger("hourly", {"by": "hand"})
        assert (ref.state, ref.fresh) == ("PENDING", True)
        assert offsets(await sim.advance("1s")) == ["0:10:00"]
        run = await only_run(app)
        assert (run.run_id, run.origin, run.payload) == (ref, "TRIGGER", {"by": "hand"})
        await app.resume("hourly")
        assert clock(await app.next_run("hourly")) == "1:00:00"

    simulate(app, body)


def test_the_same_key_always_answers_with_the_same_run_whatever_became_of_it() -> None:
    app = Horae("sqlite://")

    @app.job("a", None)
    async def work() -> None:
        raise ValueError("fails")

    async def body(sim: Simulation) -> None:
        first = await app.trigger("a", key="order-7")
        assert first == ids.keyed_run_id(ids.job_uuid("a"), "trigger:order-7")
        await sim.advance("1m")
        again = await app.trigger("a", key="order-7")
        assert (again, again.state, again.fresh) == (first, "FAILED", False)
        assert await sim.advance("1h") == []
        assert await app.trigger("a", key="order-8") != first

    simulate(app, body)


def test_rescheduling_moves_one_slot_and_keeps_its_identity() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        assert clock(await app.reschedule("hourly", after("1h20m"))) == "1:00:00"
        assert clock(await app.next_run("hourly")) == "1:20:00"
        assert offsets(await sim.advance("2h30m")) == ["1:20:00", "2:00:00"]
        moved = (await oldest_first(app))[0]
        assert moved.run_id == ids.run_id(ids.job_uuid("hourly"), after("1h"))
        assert (clock(moved.scheduled_time), clock(moved.started_at)) == ("1:00:00", "1:20:00")

    simulate(app, body)


def test_a_slot_may_be_moved_forward_in_time_too() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await app.reschedule("hourly", after("5m"))
        assert offsets(await sim.advance("2h")) == ["0:05:00", "2:00:00"]

    simulate(app, body)


def test_backfill_covers_past_slots_without_a_started_run_and_leaves_the_old_rows() -> None:
    app = hourly(recovery="none")

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        await sim.jump("4h")
        made = await app.backfill("hourly", after("1h"), after("5h"))
        assert len(made) == 4
        await sim.advance("1m")
        again = await app.backfill("hourly", after("1h"), after("5h"))
        assert [each.fresh for each in again] == [False] * 4
        assert again == made
        runs = await oldest_first(app)
        assert [(clock(run.scheduled_time), str(run.state), str(run.origin)) for run in runs] == [
            ("1:00:00", "COMPLETED", "SCHEDULE"),
            *[
                each
                for hour in (2, 3, 4, 5)
                for each in ((f"{hour}:00:00", "MISSED", "SCHEDULE"), (f"{hour}:00:00", "COMPLETED", "BACKFILL"))
            ],
        ]

    simulate(app, body)


def test_backfilled_runs_line_up_one_after_the_other_in_the_order_of_their_slots() -> None:
    app = Horae("sqlite://")
    done: list[str | None] = []

    @app.job("a", Every("1h"), recovery="none")
    async def work(run: Run) -> None:
        await asyncio.sleep(60)
        done.append(clock(run.scheduled_time))

    async def body(sim: Simulation) -> None:
        await sim.jump("4h30m")
        await app.backfill("a", after("1h"), after("4h"))
        assert offsets(await sim.advance("10m")) == ["4:30:00", "4:31:00", "4:32:00", "4:33:00"]

    simulate(app, body)
    assert done == [f"{hour}:00:00" for hour in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("start", "end", "error"),
    [
        (after("4h"), after("1h"), InvalidInput),
        (datetime(2026, 1, 1), after("1h"), InvalidTime),
        (after("6h"), after("9h"), InvalidInput),
    ],
)
def test_a_backfill_of_nothing_of_naive_times_or_of_the_future_is_refused(
    start: datetime, end: datetime, error: type[HoraeError]
) -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await sim.jump("5h30m")
        count = len(await app.runs())
        with pytest.raises(error):
            await app.backfill("hourly", start, end)
        assert len(await app.runs()) == count

    simulate(app, body)


def test_a_replay_of_some_tasks_sees_what_the_others_returned_in_the_run_it_replays() -> None:
    app = Horae("sqlite://")
    seen: list[tuple[str, dict[str, Any]]] = []
    etl = app.job("etl", Cron("0 1 * * *"))

    @etl.task
    def extract() -> int:
        return len(seen)

    @etl.task
    def transform(run: Run) -> str:
        seen.append((run.task_name, dict(run.results)))
        return f"of {run.results['extract']}"

    @etl.task
    def count() -> int:
        return 7

    @etl.task
    def load(run: Run) -> None:
        seen.append((run.task_name, dict(run.results)))

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        (first,) = await app.runs()
        one = await app.replay(first.run_id, "again", task="load")
        await sim.advance("1m")
        onwards = await app.replay(one, "from there", task="load", onwards=True)
        await sim.advance("1m")
        several = await app.replay(first.run_id, "from there", task="transform", onwards=True)
        await sim.advance("1m")
        assert [task.name for task in (await app.report(several)).tasks] == ["transform", "count", "load"]
        assert [task.name for task in (await app.report(onwards)).tasks] == ["load"]
        with pytest.raises(InvalidInput, match="none is named"):
            await app.replay(first.run_id, "why", onwards=True)
        with pytest.raises(InvalidInput, match="has no task"):
            await app.replay(first.run_id, "why", task="unload", onwards=True)

    simulate(app, body)
    before = {"extract": 0, "transform": "of 0", "count": 7}
    assert seen == [
        ("transform", {"extract": 0}),
        ("load", before),
        ("load", before),
        ("load", before),
        ("transform", {"extract": 0}),
        ("load", before),
    ]


def test_a_run_that_never_started_is_replayed_from_a_task_onwards_too() -> None:
    app = Horae("sqlite://")
    ran: list[str] = []
    etl = app.job("etl", Cron("0 1 * * *"))
    for name in ("one", "two", "three"):
        etl.task(name=name)(lambda run: ran.append(run.task_name))

    async def body(sim: Simulation) -> None:
        await app.pause("etl")
        await sim.advance("2h")
        (skipped,) = await app.runs()
        assert skipped.state == "SKIPPED"
        await app.replay(skipped.run_id, "after all", task="two", onwards=True)
        await sim.advance("1m")

    simulate(app, body)
    assert ran == ["two", "three"]


def test_a_later_task_of_a_run_that_goes_on_elsewhere_sees_all_results_though_the_first_asks_for_none() -> None:
    app = Horae("sqlite://")
    seen: list[dict[str, Any]] = []
    etl = app.job("etl", Cron("0 1 * * *"))

    @etl.task
    def first() -> int:
        return 1

    @etl.task
    async def second() -> int:
        await asyncio.sleep(600)
        return 2

    @etl.task
    def third(run: Run) -> None:
        seen.append(dict(run.results))

    async def body(sim: Simulation) -> None:
        await sim.advance("1h1m")
        await sim.crash()
        await sim.advance("1h")

    simulate(app, body)
    assert seen == [{"first": 1, "second": 2}]


def test_a_replay_is_a_new_run_of_the_old_slot_with_its_payload() -> None:
    app = Horae("sqlite://")
    seen: list[Any] = []

    @app.job("a", None)
    async def work(run: Run) -> None:
        seen.append((run.payload, clock(run.scheduled_time)))
        if len(seen) == 1:
            raise ValueError("the API was down")

    async def body(sim: Simulation) -> None:
        old = await app.trigger("a", {"order": 7})
        await sim.advance("1h")
        ref = await app.replay(old, "the API is back")
        await sim.advance("1m")
        first, second = await reports(app)
        assert (first.outcome, second.outcome) == ("FAILED", "COMPLETED")
        assert (second.run.run_id, second.run.origin, second.run.replay_of) == (ref, "REPLAY", old)

    simulate(app, body)
    assert seen == [({"order": 7}, "0:00:00")] * 2


def test_the_reason_of_a_replay_is_still_known_when_it_has_ended() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        ref = await app.replay((await only_run(app)).run_id, "the API is back")
        await sim.advance("1m")
        assert (await app.report(ref)).run.replay_reason == "the API is back"

    simulate(app, body)


def test_one_task_of_a_run_can_be_replayed_alone() -> None:
    app = Horae("sqlite://")
    etl = app.job("etl", Every("1d"))
    called: list[str] = []

    @etl.task
    async def extract(run: Run) -> None:
        called.append("extract")

    @etl.task
    async def load(run: Run) -> None:
        called.append("load")

    async def body(sim: Simulation) -> None:
        await sim.jump("1d")
        run = await only_run(app)
        ref = await app.replay(run.run_id, "again", task="load")
        await sim.advance("1m")
        assert tasks(await app.report(ref)) == {"load": "SUCCESS"}
        with pytest.raises(InvalidInput, match="nothing"):
            await app.replay(run.run_id, "again", task="nothing")
        with pytest.raises(InvalidInput, match="reason"):
            await app.replay(run.run_id, "  ")

    simulate(app, body)
    assert called == ["extract", "load", "load"]


def test_a_dropped_job_is_gone_its_slots_never_run_again_and_history_goes_unless_it_is_kept() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        await app.drop("hourly", keep_history=True)
        assert [run.job_name for run in await app.runs()] == ["hourly"]
        assert await sim.advance("3h") == []
        for call in (app.get_job("hourly"), app.trigger("hourly"), app.pause("hourly"), app.next_run("hourly")):
            with pytest.raises(JobNotFound):
                await call

    simulate(app, body)


def test_dropping_asks_what_runs_to_stop_and_cancels_what_waits() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"), overlap="queue")
    async def work() -> None:
        await asyncio.sleep(3 * 3600)

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        waiting = await app.trigger("a")
        await app.drop("a", keep_history=True)
        await sim.advance("1m")
        assert (await app.report(waiting)).run.reason == "dropped"
        assert {str(run.state) for run in await app.runs()} == {"CANCELLED"}

    simulate(app, body)


def test_jobs_can_be_listed_by_tag_and_by_state() -> None:
    app = Horae("sqlite://")
    for name, tags in (("a", ["x"]), ("b", ["x", "y"]), ("c", [])):

        @app.job(name, Every("1h"), tags=tags)
        async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await app.pause("b")
        assert [job.name for job in await app.jobs()] == ["a", "b", "c"]
        assert [job.name for job in await app.jobs(tag="x")] == ["a", "b"]
        assert [job.name for job in await app.jobs(state="PAUSED")] == ["b"]
        with pytest.raises(HoraeError, match="SLEEPING"):
            await app.jobs(state="SLEEPING")

    simulate(app, body)


def test_operations_on_what_does_not_exist_say_so() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        nobody = ids.run_id(ids.job_uuid("nobody"), after("1h"))
        calls: list[Any] = [
            app.pause("nobody"),
            app.resume("nobody"),
            app.enable("nobody"),
            app.disable("nobody"),
            app.reschedule("nobody", after("1h")),
            app.backfill("nobody", after("0s"), after("1h")),
            app.drop("nobody"),
            app.is_running("nobody"),
        ]
        for call in calls:
            with pytest.raises(JobNotFound, match="nobody"):
                await call
        for call in (app.report(nobody), app.replay(nobody, "why")):
            with pytest.raises(RunNotFound):
                await call

    simulate(app, body)


def test_a_disabled_job_can_neither_be_paused_nor_resumed_and_none_until_a_time_that_has_passed() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await app.disable("hourly")
        with pytest.raises(Conflict, match="disabled"):
            await app.pause("hourly")
        with pytest.raises(Conflict, match="disabled"):
            await app.resume("hourly")
        assert (await app.get_job("hourly")).state == "DISABLED"
        await app.enable("hourly")
        with pytest.raises(InvalidInput, match="which has passed"):
            await app.pause("hourly", until=sim.now)
        assert (await app.get_job("hourly")).state == "ENABLED"

    simulate(app, body)


def test_a_restart_does_not_undo_what_an_operator_changed() -> None:
    app = hourly()

    async def body(sim: Simulation) -> None:
        await app.pause("hourly", note="leave it")
        await sim.crash()
        job = await app.get_job("hourly")
        assert (job.state, job.pause_note, job.version) == ("PAUSED", "leave it", 1)

    simulate(app, body)


def test_while_paused_the_runs_that_had_been_born_ahead_in_a_window_still_start() -> None:
    app = Horae("sqlite://")

    @app.job("spread", Every("12h"), window=Window.before("4h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("8h1m")
        born = await only_run(app)
        await app.pause("spread")
        assert offsets(await sim.advance("5h")) == [clock(born.chosen_time)]

    simulate(app, body)
