"""Clock changes: a minute that does not exist is passed over, one that comes twice counts twice, then life goes on."""

from __future__ import annotations

import pytest
from tests.declarative.stage import Stage, at, local, play

from horae.declarative import next_occurrence, previous_occurrence

BRUSSELS, NEW_YORK, LORD_HOWE, CAIRO = "Europe/Brussels", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"


def called(zone: str, cron: str, start: str, span: str) -> list[str]:
    """When a task was called, on the clocks of its zone."""

    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", cron))
        await stage.sim.advance(span)
        return local(stage.moments("a"), zone)

    return play(body, at(start, zone), tz=zone)


SPRING = [
    (BRUSSELS, "30 2 * * *", "2026-03-28 00:00:00", ["28 02:30 +0100", "30 02:30 +0200"]),
    (NEW_YORK, "30 2 * * *", "2026-03-07 00:00:00", ["07 02:30 -0500", "09 02:30 -0400"]),
    # Half an hour is missing here: from 02:00 to 02:30.
    (LORD_HOWE, "15 2 * * *", "2026-10-03 00:00:00", ["03 02:15 +1030", "05 02:15 +1100"]),
    (LORD_HOWE, "45 2 * * *", "2026-10-03 00:00:00", ["03 02:45 +1030", "04 02:45 +1100", "05 02:45 +1100"]),
    # Here it is midnight that is missing: the day begins at one.
    (CAIRO, "30 0 * * *", "2026-04-23 00:00:00", ["23 00:30 +0200", "25 00:30 +0300"]),
]


@pytest.mark.parametrize(("zone", "cron", "start", "expected"), SPRING)
def test_a_minute_that_does_not_exist_is_passed_over_that_day_only(
    zone: str, cron: str, start: str, expected: list[str]
) -> None:
    assert called(zone, cron, start, "71h") == expected


AUTUMN = [
    (
        BRUSSELS,
        "30 2 * * *",
        "2026-10-24 00:00:00",
        ["24 02:30 +0200", "25 02:30 +0200", "25 02:30 +0100", "26 02:30 +0100"],
    ),
    (
        NEW_YORK,
        "0,59 1 * * *",
        "2026-11-01 00:00:00",
        [
            "01 01:00 -0400",
            "01 01:59 -0400",
            "01 01:00 -0500",
            "01 01:59 -0500",
            "02 01:00 -0500",
            "02 01:59 -0500",
            "03 01:00 -0500",
            "03 01:59 -0500",
        ],
    ),
    # Half an hour comes twice here: from 01:30 to 02:00.
    (
        LORD_HOWE,
        "15,45 1 * * *",
        "2026-04-05 00:00:00",
        [
            "05 01:15 +1100",
            "05 01:45 +1100",
            "05 01:45 +1030",
            "06 01:15 +1030",
            "06 01:45 +1030",
            "07 01:15 +1030",
            "07 01:45 +1030",
        ],
    ),
]


@pytest.mark.parametrize(("zone", "cron", "start", "expected"), AUTUMN)
def test_a_minute_that_comes_twice_counts_both_times(zone: str, cron: str, start: str, expected: list[str]) -> None:
    assert called(zone, cron, start, "73h") == expected


def test_an_hourly_task_goes_through_the_spring_change_hour_by_hour() -> None:
    assert called(BRUSSELS, "0 * * * *", "2026-03-29 00:30:00", "3h") == [
        "29 01:00 +0100",
        "29 03:00 +0200",
        "29 04:00 +0200",
    ]


def test_an_hourly_task_goes_through_the_autumn_change_hour_by_hour() -> None:
    assert called(BRUSSELS, "0 * * * *", "2026-10-25 01:30:00", "4h") == [
        "25 02:00 +0200",
        "25 02:00 +0100",
        "25 03:00 +0100",
        "25 04:00 +0100",
    ]


def test_a_day_of_minutes_is_as_long_as_the_day() -> None:
    assert len(called(BRUSSELS, "* * * * *", "2026-03-29 00:00:00", "22h59m")) == 23 * 60
    assert len(called(BRUSSELS, "* * * * *", "2026-10-25 00:00:00", "24h59m")) == 25 * 60


def test_schedules_go_on_after_both_changes_of_a_year_without_a_restart() -> None:
    found = called(NEW_YORK, "0 9 1 * *", "2026-01-15 00:00:00", "365d")
    assert [each[:8] for each in found] == ["01 09:00"] * 12
    assert [each[9:] for each in found] == ["-0500"] * 2 + ["-0400"] * 7 + ["-0500"] * 3


def test_the_first_start_in_the_second_of_two_equal_minutes_runs_at_once() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "30 2 25 10 *"))
        return local(stage.moments("a"), BRUSSELS)

    assert play(body, at("2026-10-25 01:30:20"), tz=BRUSSELS) == ["25 02:30 +0100"]


def test_a_restart_between_two_equal_minutes_runs_the_second_too() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "30 2 25 10 *")
        await stage.initialize(task)
        await stage.restart(task, down="30m")
        await stage.sim.advance("2h")
        return local(stage.moments("a"), BRUSSELS)

    assert play(body, at("2026-10-25 00:30:20"), tz=BRUSSELS) == ["25 02:30 +0200", "25 02:30 +0100"]


def test_downtime_over_a_minute_that_does_not_exist_owes_nothing() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "30 2 * * *")
        await stage.initialize(task)
        await stage.sim.advance("3h")
        await stage.restart(task, down="24h")
        await stage.sim.advance("23h")
        return local(stage.moments("a"), BRUSSELS)

    assert play(body, at("2026-03-28 00:00:00", BRUSSELS), tz=BRUSSELS) == ["28 02:30 +0100", "30 02:30 +0200"]


def test_the_next_occurrence_is_right_on_both_sides_of_a_change() -> None:
    before = at("2026-03-28 12:00:00", BRUSSELS)
    assert next_occurrence("30 2 * * *", before, BRUSSELS) == at("2026-03-30 02:30:00", BRUSSELS)
    first = next_occurrence("30 2 * * *", at("2026-10-24 12:00:00", BRUSSELS), BRUSSELS)
    second = next_occurrence("30 2 * * *", first, BRUSSELS)
    assert (first, second) == (at("2026-10-25 00:30:00"), at("2026-10-25 01:30:00"))
    assert previous_occurrence("30 2 * * *", second, BRUSSELS) == first
    assert previous_occurrence("30 2 * * *", at("2026-03-29 12:00:00"), BRUSSELS) == at("2026-03-28 01:30:00")
