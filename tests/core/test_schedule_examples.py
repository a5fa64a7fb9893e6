"""Schedules at the moments people get wrong, with the expected instants written out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.core.oracle import FIRST, LAST, SECOND, CronOracle, Fold, Gap
from tests.core.test_schedule_samples import cron_of

from horae import Cron, Every, Iso8601, Schedule
from horae.errors import InvalidCron, InvalidIso8601


def instant(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def times(schedule: Schedule, start: str, end: str) -> list[str]:
    """The times after `start` and until `end`, asked for in three ways that have to agree."""
    first, last = instant(start), instant(end)
    found = list(schedule.between(first, last))
    forwards, at = [], schedule.next(first)
    while at is not None and at <= last:
        forwards.append(at)
        at = schedule.next(at)
    backwards, at = [], schedule.previous(last + SECOND)
    while at is not None and at > first:
        backwards.append(at)
        at = schedule.previous(at)
    assert found == forwards == backwards[::-1]
    return [f"{at:%Y-%m-%dT%H:%M}" if not at.second else f"{at:%Y-%m-%dT%H:%M:%S}" for at in found]


@pytest.mark.parametrize("fold", ["auto", "both", "once"])
def test_a_minute_the_clocks_skip_never_fires(fold: Fold) -> None:
    schedule = Cron("30 2 * * *", tz="Europe/Berlin", gap="skip", fold=fold)
    assert times(schedule, "2025-03-29T00:00", "2025-03-31T12:00") == ["2025-03-29T01:30", "2025-03-31T00:30"]


@pytest.mark.parametrize("fold", ["auto", "both", "once"])
def test_a_skipped_minute_may_be_shifted_to_the_first_instant_after_the_gap(fold: Fold) -> None:
    schedule = Cron("30 2 * * *", tz="Europe/Berlin", gap="shift", fold=fold)
    expected = ["2025-03-29T01:30", "2025-03-30T01:00", "2025-03-31T00:30"]
    assert times(schedule, "2025-03-29T00:00", "2025-03-31T12:00") == expected


def test_many_skipped_minutes_are_one_firing_after_the_gap() -> None:
    schedule = Cron("*/5 2 * * *", tz="Europe/Berlin", gap="shift")
    assert times(schedule, "2025-03-29T12:00", "2025-03-30T12:00") == ["2025-03-30T01:00"]


def test_a_shifted_firing_and_a_regular_one_at_the_same_instant_are_one() -> None:
    schedule = Cron("*/30 1-3 * * *", tz="Europe/Berlin", gap="shift")
    expected = ["2025-03-30T00:00", "2025-03-30T00:30", "2025-03-30T01:00", "2025-03-30T01:30"]
    assert times(schedule, "2025-03-29T12:00", "2025-03-30T12:00") == expected


@pytest.mark.parametrize("gap", ["skip", "shift"])
@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("both", ["2025-10-26T00:30", "2025-10-26T01:30"]),
        ("once", ["2025-10-26T00:30"]),
        ("auto", ["2025-10-26T00:30"]),
    ],
)
def test_a_minute_the_clocks_repeat_fires_as_its_policy_says(fold: Fold, gap: Gap, expected: list[str]) -> None:
    schedule = Cron("30 2 * * *", tz="Europe/Berlin", gap=gap, fold=fold)
    assert times(schedule, "2025-10-25T12:00", "2025-10-26T12:00") == expected


@pytest.mark.parametrize(
    ("expr", "fold", "expected"),
    [
        ("0 * * * *", "auto", ["23:00", "00:00", "01:00", "02:00"]),
        ("0 * * * *", "once", ["23:00", "00:00", "02:00"]),
        ("@hourly", "auto", ["23:00", "00:00", "01:00", "02:00"]),
        ("0 0-23 * * *", "auto", ["23:00", "00:00", "02:00"]),
        ("0 0-23 * * *", "both", ["23:00", "00:00", "01:00", "02:00"]),
        ("*/30 */2 * * *", "auto", ["22:30", "00:00", "00:30", "01:00", "01:30"]),
        ("*/30 */2 * * *", "once", ["22:30", "00:00", "00:30"]),
        ("0 */2,3 * * *", "auto", ["00:00", "02:00"]),
        ("30 2 * * *", "auto", ["00:30"]),
    ],
)
def test_by_default_a_rhythm_of_hours_goes_on_and_a_time_of_day_comes_once(
    expr: str, fold: Fold, expected: list[str]
) -> None:
    schedule = Cron(expr, tz="Europe/Berlin", fold=fold)
    found = times(schedule, "2025-10-25T22:00", "2025-10-26T02:00")
    assert [text[11:] for text in found] == expected


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("skip", ["2025-10-03T15:45", "2025-10-05T15:15"]),
        ("shift", ["2025-10-03T15:45", "2025-10-04T15:30", "2025-10-05T15:15"]),
    ],
)
def test_lord_howe_skips_half_an_hour(gap: Gap, expected: list[str]) -> None:
    schedule = Cron("15 2 * * *", tz="Australia/Lord_Howe", gap=gap)
    assert times(schedule, "2025-10-03T00:00", "2025-10-06T00:00") == expected


def test_lord_howe_does_not_skip_the_other_half_hour() -> None:
    schedule = Cron("45 2 * * *", tz="Australia/Lord_Howe")
    expected = ["2025-10-03T16:15", "2025-10-04T15:45", "2025-10-05T15:45"]
    assert times(schedule, "2025-10-03T00:00", "2025-10-06T00:00") == expected


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("both", ["2025-04-04T14:45", "2025-04-05T14:45", "2025-04-05T15:15", "2025-04-06T15:15"]),
        ("once", ["2025-04-04T14:45", "2025-04-05T14:45", "2025-04-06T15:15"]),
        ("auto", ["2025-04-04T14:45", "2025-04-05T14:45", "2025-04-06T15:15"]),
    ],
)
def test_lord_howe_repeats_half_an_hour(fold: Fold, expected: list[str]) -> None:
    schedule = Cron("45 1 * * *", tz="Australia/Lord_Howe", fold=fold)
    assert times(schedule, "2025-04-04T00:00", "2025-04-07T00:00") == expected


@pytest.mark.parametrize(
    ("tz", "start", "end", "before", "after_gap", "later"),
    [
        ("America/Santiago", "2025-09-06T00:00", "2025-09-08T12:00", "06T04:00", "07T04:00", "08T03:00"),
        ("Africa/Cairo", "2025-04-23T12:00", "2025-04-26T12:00", "23T22:00", "24T22:00", "25T21:00"),
    ],
)
def test_a_day_without_midnight_has_no_midnight_firing_unless_shifted(
    tz: str, start: str, end: str, before: str, after_gap: str, later: str
) -> None:
    month = start[:8]
    skipping = Cron("0 0 * * *", tz=tz)
    shifting = Cron("0 0 * * *", tz=tz, gap="shift")
    assert times(skipping, start, end) == [month + before, month + later]
    assert times(shifting, start, end) == [month + before, month + after_gap, month + later]


def test_apia_went_without_december_30_2011() -> None:
    skipping = Cron("0 12 * * *", tz="Pacific/Apia")
    shifting = Cron("0 12 * * *", tz="Pacific/Apia", gap="shift")
    assert times(skipping, "2011-12-29T12:00", "2011-12-31T12:00") == ["2011-12-29T22:00", "2011-12-30T22:00"]
    expected = ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00"]
    assert times(shifting, "2011-12-29T12:00", "2011-12-31T12:00") == expected


def test_a_day_that_a_zone_left_out_is_left_out_that_year_only() -> None:
    schedule = Cron("0 0 30 12 *", tz="Pacific/Apia")
    assert times(schedule, "2010-01-01T00:00", "2013-01-01T00:00") == ["2010-12-30T10:00", "2012-12-29T10:00"]
    series = Iso8601("2011-12-28T12:00/P1D", tz="Pacific/Apia")
    expected = ["2011-12-28T22:00", "2011-12-29T22:00", "2011-12-30T22:00"]
    assert times(series, "2011-12-01T00:00", "2011-12-31T12:00") == expected


def test_juneau_had_two_days_called_october_18_1867() -> None:
    both = Cron("0 20 18 10 *", tz="America/Juneau", fold="both")
    once = Cron("0 20 18 10 *", tz="America/Juneau", fold="once")
    expected = ["1867-10-18T04:57:41", "1867-10-19T04:57:41"]
    assert times(both, "1867-10-01T00:00", "1867-11-01T00:00") == expected
    assert times(once, "1867-10-01T00:00", "1867-11-01T00:00") == expected[:1]


def test_the_days_after_a_repeated_day_are_not_repeated_once_more() -> None:
    once = Cron("0 9 * * *", tz="America/Juneau", fold="once")
    expected = ["1867-10-17T17:57:41", "1867-10-18T17:57:41", "1867-10-20T17:57:41"]
    assert times(once, "1867-10-17T00:00", "1867-10-21T00:00") == expected


def test_local_mean_time_has_minutes_that_are_no_whole_minutes_of_utc() -> None:
    schedule = Cron("0 0 1 * *", tz="Europe/Berlin", gap="shift")
    expected = ["1893-02-28T23:06:32", "1893-03-31T23:06:32", "1893-04-30T23:00"]
    assert times(schedule, "1893-02-15T00:00", "1893-05-15T00:00") == expected


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("*,5 * * * *", "* * * * *"),
        ("5,* 3 * * *", "* 3 * * *"),
        ("0 0 *,15 * 1", "0 0 * * 1"),
        ("0 *,3 * 2 *", "0 * * 2 *"),
    ],
)
def test_vixie_takes_a_star_among_the_elements_of_a_list_as_the_system_s_cron_does(text: str, same: str) -> None:
    begin, end = "2026-01-01T12:00", "2026-03-02T00:00"
    assert times(Cron(text, dialect="vixie"), begin, end) == times(Cron(same, dialect="vixie"), begin, end)
    for dialect in ("extended", "posix"):
        with pytest.raises(InvalidCron, match="inside a list"):
            Cron(text, dialect=dialect)


def test_vixie_lets_a_day_field_that_begins_with_a_star_leave_the_choice_to_the_other() -> None:
    extended = times(Cron("0 0 */2 * 1"), "2026-01-01T12:00", "2026-01-13T00:00")
    vixie = times(Cron("0 0 */2 * 1", dialect="vixie"), "2026-01-01T12:00", "2026-01-31T00:00")
    assert [text[8:10] for text in extended] == ["03", "05", "07", "09", "11", "12", "13"]
    assert [text[8:10] for text in vixie] == ["05", "19"]


def test_no_february_29_comes_between_2096_and_2104() -> None:
    expected = ["2092-02-29T00:00", "2096-02-29T00:00", "2104-02-29T00:00"]
    assert times(Cron("0 0 29 2 *"), "2090-01-01T00:00", "2105-01-01T00:00") == expected


def test_a_monthly_series_from_january_31_clamps_and_comes_back() -> None:
    series = Iso8601("R5/2025-01-31T09:00:00Z/P1M")
    expected = ["2025-01-31T09:00", "2025-02-28T09:00", "2025-03-31T09:00", "2025-04-30T09:00", "2025-05-31T09:00"]
    assert times(series, "2025-01-01T00:00", "2026-01-01T00:00") == expected


def test_a_series_with_an_end_counts_back_from_it() -> None:
    series = Iso8601("R3/P1M/2025-03-31T09:00:00Z")
    expected = ["2025-01-31T09:00", "2025-02-28T09:00", "2025-03-31T09:00"]
    assert times(series, "2020-01-01T00:00", "2030-01-01T00:00") == expected


def test_an_anchor_is_counted_from_but_is_no_time_itself() -> None:
    anchor = instant("2025-01-31T09:00")
    assert times(Iso8601("R2/P1M", anchor=anchor), "2025-01-01T00:00", "2026-01-01T00:00") == [
        "2025-02-28T09:00",
        "2025-03-31T09:00",
    ]
    assert times(Every("10m", anchor=anchor), "2025-01-01T00:00", "2025-01-31T09:20") == [
        "2025-01-31T09:10",
        "2025-01-31T09:20",
    ]


def test_a_start_in_the_second_pass_of_a_repeated_hour_is_itself_the_first_time() -> None:
    series = Iso8601("R2/2025-10-26T02:30:00+01:00/P1D", tz="Europe/Berlin")
    assert times(series, "2025-10-25T00:00", "2025-10-30T00:00") == ["2025-10-26T01:30", "2025-10-27T01:30"]


def test_a_slot_the_clocks_skip_is_counted_but_does_not_fire() -> None:
    series = Iso8601("R3/2025-03-29T02:30/P1D", tz="Europe/Berlin")
    assert times(series, "2025-03-01T00:00", "2025-05-01T00:00") == ["2025-03-29T01:30", "2025-03-31T00:30"]


def test_the_calendar_has_a_first_and_a_last_minute_and_nothing_beyond() -> None:
    schedule = Cron("* * * * *")
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    assert schedule.matches(FIRST)
    assert schedule.previous(FIRST) is None
    assert schedule.previous(FIRST + SECOND) == FIRST
    assert schedule.next(FIRST) == FIRST + timedelta(minutes=1)
    assert schedule.matches(last)
    assert schedule.next(last - SECOND) == last
    assert schedule.next(last) is None
    assert schedule.previous(LAST) == last


def test_the_years_1_and_9999_have_their_january_firsts() -> None:
    schedule = Cron("0 0 1 1 *")
    assert schedule.previous(datetime(1, 6, 1, tzinfo=UTC)) == FIRST
    assert schedule.next(datetime(9998, 6, 1, tzinfo=UTC)) == datetime(9999, 1, 1, tzinfo=UTC)
    assert schedule.next(datetime(9999, 1, 1, tzinfo=UTC)) is None
    assert schedule.previous(LAST) == datetime(9999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("tz", ["Asia/Tokyo", "America/New_York", "Pacific/Kiritimati", "Europe/Berlin"])
@pytest.mark.parametrize("expr", ["* * * * *", "0 20 31 12 *", "0 9 1 1 *", "0 */6 * * *"])
@pytest.mark.parametrize(
    ("start", "end"), [("0001-01-01T00:00", "0001-01-03T12:00"), ("9999-12-29T00:00", "9999-12-31T23:59:58")]
)
def test_at_the_ends_of_the_calendar_all_searches_agree(expr: str, tz: str, start: str, end: str) -> None:
    times(Cron(expr, tz=tz), start, end)


def test_a_series_begins_and_ends_with_the_calendar() -> None:
    yearly = Iso8601("0001-01-01T00:00:00Z/P1Y")
    assert yearly.matches(FIRST)
    assert yearly.previous(FIRST) is None
    assert yearly.next(datetime(9998, 1, 1, tzinfo=UTC)) == datetime(9999, 1, 1, tzinfo=UTC)
    assert yearly.next(datetime(9999, 1, 1, tzinfo=UTC)) is None
    assert Iso8601("P1Y/0003-01-01T00:00:00Z").previous(datetime(2, 1, 1, tzinfo=UTC)) == FIRST
    assert Iso8601("P1Y/0003-01-01T00:00:00Z").previous(FIRST) is None
    assert Every("1h", start=LAST - SECOND).next(FIRST) == LAST - SECOND
    assert Every("1h", start=LAST - SECOND).next(LAST - SECOND) is None


@pytest.mark.parametrize(
    ("text", "tz"), [("9999-12-31T23:00:00Z/P1D", "Asia/Tokyo"), ("0001-01-01T00:00:01Z/P1D", "America/New_York")]
)
def test_a_start_whose_wall_clock_has_left_the_calendar_is_refused(text: str, tz: str) -> None:
    with pytest.raises(InvalidIso8601, match="outside the years 1 to 9999 on the clocks of"):
        Iso8601(text, tz=tz)


def test_a_zone_read_anew_knows_the_changes_that_follow_its_last_listed_one() -> None:
    schedule = cron_of(CronOracle("0 0 1 12 *", "America/New_York"), fresh=True)
    assert schedule.next(instant("2007-03-11T06:00")) == instant("2007-12-01T05:00")
