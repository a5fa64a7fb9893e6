"""Runs that a crash cut off, and tasks that are no longer registered: both wait for a scheduler that has them."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from tests.declarative.stage import Stage, at, play, standings


def test_a_run_cut_off_by_a_crash_is_started_again_at_once() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 10 * * *", lasts="10m")
        await stage.initialize(task)
        await stage.sim.advance("3m")
        await stage.sim.crash()
        await stage.sim.advance("1h")
        await stage.initialize(task)
        assert standings(stage) == {"a": "orphaned"}
        await stage.sim.advance("1h")
        return stage.told(task="a")

    assert play(body) == [
        "10:00:30 TaskRunStarted a",
        "11:03:30 TaskRunStarted a",
        "11:13:30 TaskRunCompleted a",
    ]


def test_the_restarted_run_stands_for_everything_that_came_due_meanwhile() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0,15,30,45 * * * *", lasts="2m")
        await stage.initialize(task)
        await stage.sim.advance("1m")
        await stage.sim.crash()
        await stage.sim.advance("1h")
        await stage.initialize(task)
        await stage.sim.advance("20m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "11:01:30", "11:15:00"]


def test_a_cut_off_task_takes_its_new_expression_and_is_started_again_at_once() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 * * * *", lasts="10m"))
        await stage.sim.crash()
        await stage.initialize(stage.task("a", "30 * * * *", "1m", lasts="10m"))
        await stage.sim.advance("1h")
        assert (await stage.state("a")).cronExpression == "30 * * * *"
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:00:30", "10:30:00"]


def test_a_retry_cut_off_by_a_crash_is_started_again_at_once() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 10 * * *", "5m", lasts="2m", fails=1)
        await stage.initialize(task)
        await stage.sim.advance("8m")
        assert stage.times("a") == ["10:00:30", "10:07:30"]
        await stage.sim.crash()
        await stage.initialize(task)
        await stage.sim.advance("1h")
        return stage.times("a")[2:]

    assert play(body) == ["10:08:30"]


def test_a_run_that_kills_its_scheduler_again_and_again_is_started_every_time() -> None:
    async def body(stage: Stage) -> int:
        task = stage.task("a", "0 10 * * *", lasts="10m")
        for _ in range(12):
            await stage.initialize(task)
            await stage.sim.advance("1m")
            await stage.sim.crash()
        return len(stage.times("a"))

    assert play(body) == 12


def test_a_crash_between_runs_leaves_no_orphan() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 * * * *", lasts="1m")
        await stage.initialize(task)
        await stage.sim.advance("10m")
        await stage.sim.crash()
        await stage.initialize(task)
        assert standings(stage) == {"a": "preserved"}
        return stage.times("a")

    assert play(body) == ["10:00:30"]


def test_a_run_cut_off_in_one_scheduler_is_found_by_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"

    async def first(stage: Stage) -> str | None:
        await stage.initialize(stage.task("a", "0 10 * * *", lasts="10m"))
        name = stage.scheduler.identifier
        await stage.sim.crash()
        return name

    async def second(stage: Stage) -> str | None:
        await stage.initialize(stage.task("a", "0 10 * * *", lasts="10m"))
        assert standings(stage) == {"a": "orphaned"}
        assert stage.times("a") == ["12:00:00"]
        return stage.scheduler.identifier

    one, two = play(first, store=url), play(second, "2026-01-01 12:00:00", store=url)
    assert one is not None
    assert two is not None
    assert UUID(one) != UUID(two)


def test_a_scheduler_keeps_its_identifier_and_marks_its_node_with_it() -> None:
    async def body(stage: Stage) -> None:
        assert stage.scheduler.identifier is None
        await stage.initialize()
        first = stage.scheduler.identifier
        assert first is not None
        await stage.restart()
        assert stage.scheduler.identifier == first
        nodes = await stage.scheduler.app.home.call(lambda store: store.nodes())
        assert [each.name for each in nodes if each.state == "ALIVE"] == [f"declarative:{first}"]

    play(body)


# ---- tasks that are no longer registered -----------------------------------------------------------------------------


def test_a_task_that_is_no_longer_registered_sleeps_and_keeps_its_history() -> None:
    async def body(stage: Stage) -> None:
        kept, left = stage.task("kept", "0 * * * *"), stage.task("left", "0 * * * *")
        await stage.initialize(kept, left)
        await stage.restart(kept)
        await stage.sim.advance("5h")
        assert stage.times("left") == ["10:00:30"]
        state = await stage.state("left")
        assert (state.registered, state.lastSuccessAt) == (False, at("2026-01-01 10:00:30"))
        assert (await stage.state("kept")).registered

    play(body)


def test_a_task_that_comes_back_goes_on_where_it_stood_and_makes_up_once() -> None:
    async def body(stage: Stage) -> list[str]:
        kept, left = stage.task("kept", "0 * * * *"), stage.task("left", "0 * * * *")
        await stage.initialize(kept, left)
        await stage.restart(kept)
        await stage.sim.advance("5h")
        await stage.restart(kept, left)
        assert (await stage.state("left")).registered
        await stage.sim.advance("1h")
        return stage.times("left")

    assert play(body) == ["10:00:30", "15:00:30", "16:00:00"]


def test_a_retry_of_a_task_that_left_waits_until_it_comes_back() -> None:
    async def body(stage: Stage) -> list[str]:
        left = stage.task("left", "0 10 * * *", "20m", fails=1)
        await stage.initialize(left)
        await stage.restart(stage.task("kept", "0 * * * *"))
        await stage.sim.advance("5h")
        await stage.restart(left)
        return stage.told(task="left")[2:]

    assert play(body) == ["15:00:30 TaskRetryStarted left", "15:00:30 TaskRunCompleted left"]


def test_a_cut_off_run_of_a_task_that_left_waits_until_it_comes_back() -> None:
    async def body(stage: Stage) -> list[str]:
        left = stage.task("left", "0 10 * * *", lasts="5m")
        await stage.initialize(left)
        await stage.sim.crash()
        await stage.initialize(stage.task("kept", "0 * * * *"))
        await stage.sim.advance("5h")
        assert stage.times("left") == ["10:00:30"]
        await stage.restart(left)
        assert standings(stage) == {"left": "orphaned", "kept": "absent"}
        return stage.times("left")

    assert play(body) == ["10:00:30", "15:00:30"]


def test_a_task_that_an_operator_paused_stays_paused_through_restarts_and_overrides() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 * * * *"))
        await stage.scheduler.app.pause("declarative:a")
        await stage.restart(stage.task("a", "0 * * * *"), down="90m")
        await stage.restart(stage.task("a", "0,30 * * * *"), down="90m")
        await stage.sim.advance("5h")
        assert stage.times("a") == ["10:00:30"]
        await stage.scheduler.app.resume("declarative:a")
        await stage.sim.advance("30m")
        return stage.times("a")[1:]

    assert play(body) == ["18:30:00"]
