"""What clock changes do to a schedule, told in advance: Berlin by the hour, Lord Howe by the half hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horae import Cron
from horae.core.schedule.clock_changes import DaylightEffect, cron_effects
from horae.errors import InvalidTime

YEAR_BEGINS = datetime(2025, 1, 1, tzinfo=UTC)
YEAR_ENDS = datetime(2026, 1, 1, tzinfo=UTC)
BERLIN_SPRING = datetime(2025, 3, 30, 1, tzinfo=UTC)
BERLIN_AUTUMN = datetime(2025, 10, 26, 1, tzinfo=UTC)
LORD_HOWE_AUTUMN = datetime(2025, 4, 5, 15, tzinfo=UTC)
LORD_HOWE_SPRING = datetime(2025, 10, 4, 15, 30, tzinfo=UTC)


def of_the_year(cron: Cron) -> list[DaylightEffect]:
    return list(cron_effects(cron, YEAR_BEGINS, YEAR_ENDS))


def test_a_time_in_the_skipped_hour_is_skipped_or_shifted_as_the_job_says() -> None:
    skipped = of_the_year(Cron("30 2 * * *", tz="Europe/Berlin"))
    assert skipped[0] == DaylightEffect("skipped", "2025-03-30 02:30", 1, BERLIN_SPRING, "Europe/Berlin")
    shifted = of_the_year(Cron("30 2 * * *", tz="Europe/Berlin", gap="shift"))
    assert shifted[0] == DaylightEffect("shifted", "2025-03-30 02:30", 1, BERLIN_SPRING, "Europe/Berlin")


@pytest.mark.parametrize(("fold", "kind"), [("auto", "once"), ("once", "once"), ("both", "repeated")])
def test_a_time_in_the_repeated_hour_fires_once_or_twice_as_the_job_says(fold: str, kind: str) -> None:
    found = of_the_year(Cron("30 2 * * *", tz="Europe/Berlin", fold=fold))  # type: ignore[arg-type]  # given all the same, to see what becomes of it
    assert found[1] == DaylightEffect(kind, "2025-10-26 02:30", 1, BERLIN_AUTUMN, "Europe/Berlin")
    assert len(found) == 2


def test_an_hourly_job_keeps_its_rhythm_through_the_repeated_hour() -> None:
    spring, autumn = of_the_year(Cron("*/15 * * * *", tz="Europe/Berlin"))
    assert (spring.kind, spring.wall, spring.count) == ("skipped", "2025-03-30 02:00", 4)
    assert (autumn.kind, autumn.wall, autumn.count) == ("repeated", "2025-10-26 02:00", 4)


def test_the_bounds_of_the_hour_belong_to_it_at_its_beginning_and_not_at_its_end() -> None:
    assert [effect.wall for effect in of_the_year(Cron("0 2 * * *", tz="Europe/Berlin"))] == [
        "2025-03-30 02:00",
        "2025-10-26 02:00",
    ]
    assert of_the_year(Cron("0 3 * * *", tz="Europe/Berlin")) == []
    assert of_the_year(Cron("59 1 * * *", tz="Europe/Berlin")) == []


def test_a_schedule_that_does_not_touch_the_changes_has_no_effects() -> None:
    assert of_the_year(Cron("30 2 * * MON", tz="Europe/Berlin")) == []
    assert of_the_year(Cron("30 2 * * *")) == []
    assert of_the_year(Cron("30 2 * * *", tz="Asia/Kolkata")) == []


def test_lord_howe_changes_by_half_an_hour() -> None:
    autumn, spring = of_the_year(Cron("45 1 * * *", tz="Australia/Lord_Howe")) + of_the_year(
        Cron("15 2 * * *", tz="Australia/Lord_Howe")
    )
    assert autumn == DaylightEffect("once", "2025-04-06 01:45", 1, LORD_HOWE_AUTUMN, "Australia/Lord_Howe")
    assert spring == DaylightEffect("skipped", "2025-10-05 02:15", 1, LORD_HOWE_SPRING, "Australia/Lord_Howe")
    assert of_the_year(Cron("15 1 * * *", tz="Australia/Lord_Howe")) == []
    assert of_the_year(Cron("30 2 * * *", tz="Australia/Lord_Howe")) == []
    both = of_the_year(Cron("*/10 * * * *", tz="Australia/Lord_Howe"))
    assert [(effect.kind, effect.wall[11:], effect.count) for effect in both] == [
        ("repeated", "01:30", 3),
        ("skipped", "02:00", 3),
    ]


def test_the_change_itself_lies_after_the_start_and_not_after_the_end() -> None:
    cron = Cron("30 2 * * *", tz="Europe/Berlin")
    second = timedelta(seconds=1)
    assert list(cron_effects(cron, BERLIN_SPRING, BERLIN_AUTUMN - second)) == []
    assert [effect.at for effect in cron_effects(cron, BERLIN_SPRING - second, BERLIN_SPRING)] == [BERLIN_SPRING]


@pytest.mark.parametrize("gap", ["skip", "shift"])
@pytest.mark.parametrize("fold", ["auto", "both", "once"])
@pytest.mark.parametrize("expr", ["30 2 * * *", "*/20 1-3 * * *", "5 * * * *", "0 2 * * SUN"])
@pytest.mark.parametrize("tz", ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York"])
def test_what_is_told_is_what_the_schedule_does(expr: str, tz: str, gap: str, fold: str) -> None:
    cron = Cron(expr, tz=tz, gap=gap, fold=fold)  # type: ignore[arg-type]  # given all the same, to see what becomes of it
    day = timedelta(days=1)
    for effect in of_the_year(cron):
        fired = list(cron.between(effect.at - day, effect.at + day))
        walls = [cron.zone.wall(slot).strftime("%Y-%m-%d %H:%M") for slot in fired]
        times = walls.count(effect.wall)
        assert times == {"skipped": 0, "shifted": 0, "repeated": 2, "once": 1}[effect.kind]
        if effect.kind == "shifted":
            assert effect.at in fired


def test_a_schedule_that_has_ended_or_not_begun_is_not_touched() -> None:
    ended = Cron("30 2 * * *", tz="Europe/Berlin", end=datetime(2025, 2, 1, tzinfo=UTC))
    assert of_the_year(ended) == []
    later = Cron("30 2 * * *", tz="Europe/Berlin", start=datetime(2025, 12, 1, tzinfo=UTC))
    assert of_the_year(later) == []


def test_an_effect_is_told_in_words_and_in_plain_values() -> None:
    skipped, once = of_the_year(Cron("*/30 2 * * *", tz="Europe/Berlin"))
    assert str(skipped) == "2025-03-30 02:00 (and 1 more) in Europe/Berlin: clocks go forward, skipped"
    assert str(once) == "2025-10-26 02:00 (and 1 more) in Europe/Berlin: clocks go back, fires the first time only"
    shifted = of_the_year(Cron("30 2 * * *", tz="Europe/Berlin", gap="shift", fold="both"))
    assert [str(effect) for effect in shifted] == [
        "2025-03-30 02:30 in Europe/Berlin: clocks go forward, fires at 2025-03-30T01:00:00Z",
        "2025-10-26 02:30 in Europe/Berlin: clocks go back, fires both times",
    ]
    assert skipped.to_dict() == {
        "kind": "skipped",
        "wall": "2025-03-30 02:00",
        "count": 2,
        "at": "2025-03-30T01:00:00Z",
    }


def test_times_without_a_zone_are_refused() -> None:
    with pytest.raises(InvalidTime):
        list(cron_effects(Cron("30 2 * * *"), YEAR_BEGINS.replace(tzinfo=None), YEAR_ENDS))
