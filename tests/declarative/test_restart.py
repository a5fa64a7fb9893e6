"""Later starts: what a registration is to the catalog, and which of the minutes that passed meanwhile it is owed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.declarative.stage import ALWAYS, Stage, at, play, standings

from horae.core.declarative import RegistrationStatus
from horae.declarative import Registration

# ---- what was missed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["16m", "1h", "25h", "400d"])
def test_a_task_that_missed_any_number_of_occurrences_runs_once_when_the_scheduler_is_back(down: str) -> None:
    async def body(stage: Stage) -> int:
        task = stage.task("a", "0,15,30,45 * * * *")
        await stage.initialize(task)
        await stage.restart(task, down=down)
        return len(stage.times("a"))

    assert play(body) == 2


def test_after_the_make_up_run_the_schedule_goes_on_as_before() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0,15,30,45 * * * *")
        await stage.initialize(task)
        await stage.restart(task, down="62m")
        await stage.sim.advance("30m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "11:02:30", "11:15:00", "11:30:00"]


def test_a_make_up_run_and_an_occurrence_of_this_minute_are_one_run() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0,15,30,45 * * * *")
        await stage.initialize(task)
        await stage.restart(task, down="1h")
        await stage.sim.advance("10m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "11:00:30"]


def test_nothing_is_made_up_if_nothing_was_missed() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 * * * *")
        await stage.initialize(task)
        await stage.restart(task, down="30m")
        await stage.sim.advance("29m")
        return stage.times("a")

    assert play(body) == ["10:00:30"]


def test_a_task_that_ran_this_minute_does_not_run_again_in_it_after_a_restart() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "* * * * *")
        await stage.initialize(task)
        await stage.restart(task, down="10s")
        await stage.sim.advance("15s")
        return stage.times("a")

    assert play(body) == ["10:00:30"]


def test_a_task_that_never_ran_makes_nothing_up() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "15,30,45 * * * *")
        await stage.initialize(task)
        await stage.restart(task, down="50m")
        assert stage.times("a") == []
        assert (await stage.state("a")).lastAttemptAt is None
        await stage.sim.advance("30m")
        return stage.times("a")

    assert play(body) == ["11:15:00"]


def test_a_task_that_never_ran_runs_at_once_if_this_minute_matches_at_a_later_start() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "15,30,45 * * * *")
        await stage.initialize(task)
        await stage.restart(task, down="30m")
        return stage.times("a")

    assert play(body) == ["10:30:30"]


def test_a_task_that_only_ever_failed_has_run_and_makes_up_for_what_it_missed() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 * * * *", "10h", fails=1)
        await stage.initialize(task)
        await stage.restart(task, down="2h")
        return stage.times("a")

    assert play(body) == ["10:00:30", "12:00:30"]


# ---- what a registration is to the catalog ---------------------------------------------------------------------------


def test_every_task_is_told_apart_when_a_scheduler_begins() -> None:
    async def body(stage: Stage) -> dict[str, str]:
        cut = stage.task("cut", "0 10 * * *", lasts="5h")
        same, gone = stage.task("same", "5 * * * *", "1m"), stage.task("gone", "5 * * * *")
        await stage.initialize(cut, same, gone, stage.task("other", "5 * * * *"), stage.task("slower", "5 * * * *"))
        assert set((standings(stage)).values()) == {"new"}
        await stage.sim.crash()
        await stage.initialize(
            cut,
            same,
            stage.task("other", "6 * * * *"),
            stage.task("slower", "5 * * * *", "1s"),
            stage.task("new", "5 * * * *"),
        )
        return standings(stage)

    found = play(body)
    assert found == {
        "cut": "orphaned",
        "same": "preserved",
        "other": "overridden",
        "slower": "overridden",
        "new": "new",
        "gone": "absent",
    }
    assert set(found.values()) == {str(each) for each in RegistrationStatus}


@pytest.mark.parametrize(
    ("cron", "delay", "standing"),
    [
        ("0,30 * * * *", "5m", "preserved"),
        ("30,0 * * * *", "5m", "overridden"),
        ("0,30  * * * *", "5m", "overridden"),
        ("0,30 * * * *", "300s", "preserved"),
        ("0,30 * * * *", "5m1ms", "overridden"),
        ("0,30 * * * *", 0, "overridden"),
    ],
)
def test_a_task_is_the_same_only_if_expression_and_delay_are_the_same_to_the_letter(
    cron: str, delay: str | int, standing: str
) -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0,30 * * * *", "5m"))
        await stage.restart(stage.task("a", cron, delay))
        assert standings(stage) == {"a": standing}
        assert (await stage.state("a")).cronExpression == cron

    play(body)


def test_names_that_differ_in_case_are_two_tasks() -> None:
    async def body(stage: Stage) -> dict[str, str]:
        await stage.initialize(stage.task("a", "0 * * * *"))
        await stage.restart(stage.task("A", "0 * * * *"))
        return standings(stage)

    assert play(body) == {"A": "new", "a": "absent"}


def test_another_callback_is_no_change_and_is_the_one_that_is_called() -> None:
    calls: list[str] = []

    async def second() -> None:
        calls.append("second")

    async def body(stage: Stage) -> dict[str, str]:
        first = stage.task("a", "0 * * * *", "5m")
        await stage.initialize(first)
        await stage.restart((*first[:2], second, first[3]))
        await stage.sim.advance("1h")
        assert stage.times("a") == ["10:00:30"]
        return standings(stage)

    assert play(body) == {"a": "preserved"}
    assert calls == ["second"]


def test_an_override_keeps_the_history() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 * * * *", "1h"))
        stage.failures["a"] = ALWAYS
        await stage.sim.advance("1h")
        before = await stage.state("a")
        assert (before.lastAttemptAt, before.lastSuccessAt) == (at("2026-01-01 11:00:00"), at("2026-01-01 10:00:30"))
        await stage.restart(stage.task("a", "5 * * * *", "2h"))
        after = await stage.state("a")
        assert (after.lastAttemptAt, after.lastSuccessAt) == (before.lastAttemptAt, before.lastSuccessAt)
        assert (after.cronExpression, after.retryDelay) == ("5 * * * *", timedelta(hours=2))

    play(body)


def test_an_override_counts_from_now_on() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 * * * *"))
        await stage.restart(stage.task("a", "20 * * * *"))
        await stage.sim.advance("90m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:20:00", "11:20:00"]


@pytest.mark.parametrize(("cron", "when"), [("20 * * * *", ["10:30:30"]), ("59 9 * * *", []), ("0 10 * * *", [])])
def test_a_minute_of_the_new_expression_was_missed_only_if_it_came_after_the_last_attempt(
    cron: str, when: list[str]
) -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,1 * * * *"))
        await stage.restart(stage.task("a", cron), down="30m")
        return stage.times("a")[1:]

    # It first runs at 10:00:30; what the old expression missed at 10:01 is no longer asked for.
    assert play(body) == when


def test_an_overridden_delay_leaves_a_waiting_retry_where_it_was() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 10 * * *", "20m", fails=2))
        await stage.restart(stage.task("a", "0 10 * * *", "3m"))
        await stage.sim.advance("1h")
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:20:30", "10:23:30"]


def test_to_register_the_same_again_and_again_writes_no_versions() -> None:
    async def body(stage: Stage) -> None:
        task = stage.task("a", "0 * * * *", "5m")
        await stage.initialize(task)
        for _ in range(3):
            await stage.restart(task)
        assert stage.sim.store is not None
        (declared,) = await stage.scheduler.app.home.call(lambda store: store.declared())
        assert declared.version == 1
        assert stage.times("a") == ["10:00:30"]

    play(body)


def test_the_same_registrations_and_clock_lead_to_the_same_runs() -> None:
    def lives() -> tuple[list[str], list[tuple[str, str]]]:
        async def body(stage: Stage) -> tuple[list[str], list[tuple[str, str]]]:
            tasks: list[Registration] = [
                stage.task(f"t{n}", f"{n},{n + 20} * * * *", "7m", lasts="3m", fails=n % 3) for n in range(12)
            ]
            await stage.initialize(*tasks)
            await stage.sim.advance("40m")
            await stage.sim.crash()
            await stage.sim.advance("31m")
            await stage.initialize(*tasks[3:])
            await stage.sim.advance("2h")
            return sorted(stage.told()), sorted((name, str(time)) for name, time in stage.calls)

        return play(body)

    assert lives() == lives()
