"""What other zone data do to a schedule, held against an oracle that walks every minute with `zoneinfo`."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.change import zone_data
from horae.core.change.zone_data import (
    OwnedSpan,
    RereadSchedule,
    ZoneMove,
    first_difference,
    is_opaque,
    on_clocks,
    zone_moves,
    zones_of,
)
from horae.core.schedule.custom import Custom
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.time.zone import Zone, zone
from horae.core.time.zone_file import parse
from horae.core.window.window import Window
from horae.errors import InvalidIso8601, UnknownZone

NOW = datetime(2027, 1, 11, 9, 0, tzinfo=UTC)
ZONES = (
    *("Europe/Berlin", "Europe/Moscow", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Asia/Tehran"),
    *("Africa/Casablanca", "Pacific/Apia", "America/Santiago", "UTC"),
)


def data(name: str) -> bytes:
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def as_though(**clocks: str) -> Callable[[str], Zone]:
    """Data in which zones (Europe/Berlin is `Europe_Berlin` here) have the clocks of others."""
    taken = {name.replace("_", "/", 1): other for name, other in clocks.items()}

    def find(name: str) -> Zone:
        if taken.get(name) == "":
            raise UnknownZone(f"There is no {name}")
        return Zone(name, parse(data(taken.get(name, name))))

    return find


def told(move: ZoneMove) -> tuple[str, str, str | None, str | None]:
    return (
        move.change,
        move.wall.isoformat(timespec="minutes"),
        None if move.before is None else move.before.strftime("%m-%dT%H:%MZ"),
        None if move.after is None else move.after.strftime("%m-%dT%H:%MZ"),
    )


def moves(
    schedule: Schedule, find: Callable[[str], Zone], days: int = 10, window: Window | None = None
) -> list[ZoneMove]:
    return list(zone_moves("job", schedule, window, find, NOW, NOW + timedelta(days=days)).moves)


# ---- by an oracle ----------------------------------------------------------------------------------------------------


def minutes(minute: int, hour: int | None, clocks: ZoneInfo, begin: datetime, end: datetime) -> set[datetime]:
    """Every slot of `minute hour * * *` in (begin, end], found by looking at each minute; an hour of None is every
    one. A wall time that is shown twice counts once, unless the hour is `*`."""
    found = set()
    at = begin + timedelta(minutes=1)
    while at <= end:
        wall = at.astimezone(clocks)
        if wall.minute == minute and (hour is None or (wall.hour == hour and not wall.fold)):
            found.add(at)
        at += timedelta(minutes=1)
    return found


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(
    st.sampled_from(ZONES),
    st.sampled_from(ZONES),
    st.integers(0, 59),
    st.none() | st.integers(0, 23),
    st.sampled_from(
        [datetime(2027, 3, 26, tzinfo=UTC), datetime(2027, 10, 29, tzinfo=UTC), datetime(2027, 4, 1, tzinfo=UTC)]
    ),
)
def test_what_moves_is_what_an_oracle_finds_minute_by_minute(
    old: str, new: str, minute: int, hour: int | None, begin: datetime
) -> None:
    end = begin + timedelta(days=4)
    edge = timedelta(days=2)
    was, will = (ZoneInfo.from_file(io.BytesIO(data(name))) for name in (old, new))
    before = minutes(minute, hour, was, begin - edge, end + edge)
    after = minutes(minute, hour, will, begin - edge, end + edge)
    gone = {at.astimezone(was).replace(tzinfo=None, fold=0): at for at in sorted(before - after, reverse=True)}
    expected: set[tuple[datetime | None, datetime | None]] = set()
    for at in sorted(after - before):
        partner = gone.pop(at.astimezone(will).replace(tzinfo=None, fold=0), None)
        expected.add((partner, at))
    expected |= {(at, None) for at in gone.values()}
    seen = {pair for pair in expected if any(at is not None and begin < at <= end for at in pair)}

    expression = f"{minute} {'*' if hour is None else hour} * * *"
    found = zone_moves("job", Cron(expression, old), None, lambda name: Zone(name, parse(data(new))), begin, end)
    if old == "UTC":
        assert found.moves == ()
        return
    assert {(each.before, each.after) for each in found.moves} == seen
    for each in found.moves:
        kind = "moved" if each.before and each.after else "appears" if each.after else "vanishes"
        assert each.change == kind


# ---- examples --------------------------------------------------------------------------------------------------------


def test_a_wall_time_that_comes_at_another_instant_is_one_move_and_not_a_loss_and_a_gain() -> None:
    # Moscow is two hours ahead of Berlin in winter.
    found = moves(Cron("0 9 * * 1", "Europe/Berlin"), as_though(Europe_Berlin="Europe/Moscow"))
    assert [told(each) for each in found] == [("moved", "2027-01-18T09:00", "01-18T08:00Z", "01-18T06:00Z")]
    assert found[0].zone == "Europe/Berlin"


def test_an_hourly_job_keeps_its_slots_though_every_wall_time_moves() -> None:
    assert moves(Cron("0 * * * *", "Europe/Berlin"), as_though(Europe_Berlin="Europe/Moscow")) == []
    # Half an hour is no hour.
    assert moves(Cron("0 * * * *", "Europe/Berlin"), as_though(Europe_Berlin="Asia/Kolkata"), 1) != []


def test_a_gap_that_goes_lets_a_slot_appear_and_one_that_comes_swallows_it() -> None:
    schedule = Cron("30 2 * * *", "Europe/Berlin")
    without = as_though(Europe_Berlin="Africa/Lagos")
    spring = datetime(2027, 3, 27, 12, tzinfo=UTC)
    (appears,) = zone_moves("job", schedule, None, without, spring, spring + timedelta(hours=20)).moves
    assert told(appears) == ("appears", "2027-03-28T02:30", None, "03-28T01:30Z")
    lagos = Cron("30 2 * * *", "Africa/Lagos")
    with_summer = as_though(Africa_Lagos="Europe/Berlin")
    (vanishes,) = zone_moves("job", lagos, None, with_summer, spring, spring + timedelta(hours=20)).moves
    assert told(vanishes) == ("vanishes", "2027-03-28T02:30", "03-28T01:30Z", None)


def test_a_slot_that_moves_over_the_present_is_told_with_what_that_means() -> None:
    late = moves(Cron("30 10 * * *", "Europe/Berlin"), as_though(Europe_Berlin="Europe/Moscow"), 1)
    assert told(late[0]) == ("moved", "2027-01-11T10:30", "01-11T09:30Z", "01-11T07:30Z")
    assert late[0].remark == "by the other data it has passed already"
    again = moves(Cron("30 9 * * *", "Europe/Moscow"), as_though(Europe_Moscow="America/New_York"), 1)
    assert told(again[0]) == ("moved", "2027-01-11T09:30", "01-11T06:30Z", "01-11T14:30Z")
    assert again[0].remark == "it has been, and would come again"


def test_what_goes_by_no_clocks_never_moves_and_zones_are_told() -> None:
    find = as_though(Europe_Berlin="Europe/Moscow")
    for schedule in (Every("1h", anchor=NOW), Once(NOW + timedelta(hours=1)), Cron("0 9 * * *"), Iso8601("PT1H")):
        assert moves(schedule, find) == []
        assert zones_of(schedule) == ()
    both = Cron("0 9 * * *", "Europe/Berlin") | Cron("0 9 * * *", "Asia/Tehran") | Every("7h", anchor=NOW)
    assert zones_of(both) == ("Europe/Berlin", "Asia/Tehran")
    assert {each.zone for each in moves(both, find, 2)} == {"Europe/Berlin"}
    assert is_opaque(both | Custom("shop.times:Holidays"))
    assert not is_opaque(both)


def test_a_slot_that_another_part_of_the_schedule_keeps_does_not_vanish() -> None:
    # 09:00 in Berlin is 08:00 UTC, which the other part has as well.
    both = Cron("0 9 * * *", "Europe/Berlin") | Cron("0 8 * * *")
    found = moves(both, as_though(Europe_Berlin="Europe/Moscow"), 2)
    assert [told(each) for each in found] == [
        ("appears", "2027-01-12T09:00", None, "01-12T06:00Z"),
        ("appears", "2027-01-13T09:00", None, "01-13T06:00Z"),
    ]


def test_calendar_intervals_move_by_their_wall_time_also_where_their_start_was_written_without_an_offset() -> None:
    find = as_though(Europe_Berlin="Europe/Moscow")
    for text in ("R/2027-01-05T09:00/P1W", "R/2026-01-06T09:00:00+01:00/P1W"):
        found = moves(Iso8601(text, "Europe/Berlin"), find)
        if text.endswith("+01:00/P1W"):
            # 09:00+01:00 is 11:00 in Moscow: the base itself stays, and so do the slots.
            assert found == []
        else:
            assert [told(each) for each in found] == [
                ("moved", "2027-01-12T09:00", "01-12T08:00Z", "01-12T06:00Z"),
                ("moved", "2027-01-19T09:00", "01-19T08:00Z", "01-19T06:00Z"),
            ]


def test_a_start_that_the_other_clocks_skip_and_a_zone_that_they_lack_are_told() -> None:
    skipped = Iso8601("R/2027-03-28T02:30/P1D", "Africa/Lagos")
    with pytest.raises(InvalidIso8601, match="skip it"):
        moves(skipped, as_though(Africa_Lagos="Europe/Berlin"))
    with pytest.raises(UnknownZone):
        moves(Cron("0 9 * * *", "Europe/Berlin"), as_though(Europe_Berlin=""))


def test_a_window_may_choose_otherwise_though_the_slot_stays() -> None:
    # The slot is hourly and stays; by Moscow's clocks other hours are those before ten.
    window = Window.after("3h", only={"hours": "9-10"})
    schedule = Cron("0 * * * *", "Europe/Berlin")
    found = moves(schedule, as_though(Europe_Berlin="Europe/Moscow"), 1, window)
    assert {each.change for each in found} == {"redrawn", "appears", "vanishes"}
    for each in found:
        assert each.starts_before != each.starts_after
        # A slot without a start is no run by those data.
        assert (each.before is None, each.after is None) == (each.starts_before is None, each.starts_after is None)
        if each.change == "redrawn":
            assert each.before == each.after
        for start, name in ((each.starts_before, "Europe/Berlin"), (each.starts_after, "Europe/Moscow")):
            assert start is None or start.astimezone(ZoneInfo(name)).hour in (9, 10)
    plain = Window.after("3h")
    assert moves(schedule, as_though(Europe_Berlin="Europe/Moscow"), 1, plain) == []


def test_a_slot_for_which_a_window_finds_no_start_is_no_run() -> None:
    find = as_though(Europe_Berlin="Europe/Moscow")
    never = Window.after("1h", only={"hours": "3"})
    assert moves(Cron("0 9 * * *", "Europe/Berlin"), find, 3, never) == []
    # The slots are hourly and stay; by one of the data, others of them are in the evening.
    evening = Window.after("1h", only={"hours": "22"})
    stays = moves(Cron("30 * * * *", "Europe/Berlin"), find, 1, evening)
    gone = [each for each in stays if each.change == "vanishes"]
    come = [each for each in stays if each.change == "appears"]
    assert {each.remark for each in gone} == {"its window finds no start by the other data"}
    assert {each.remark for each in come} == {"its window finds no start by the present data"}
    assert [each.wall.hour for each in gone] == [21, 22]
    assert [each.wall.hour for each in come] == [19, 20]


def test_a_slot_belongs_to_the_version_that_speaks_for_it() -> None:
    # By the other data the slot of 08:00 UTC comes at 06:00: before the version speaks, or after its last moment.
    schedule, find = Cron("0 9 * * *", "Europe/Berlin"), as_though(Europe_Berlin="Europe/Moscow")
    begin, until = NOW, NOW + timedelta(days=3)
    seven = datetime(2027, 1, 12, 7, tzinfo=UTC)
    late = zone_moves("job", schedule, None, find, seven, until, spoken=OwnedSpan(since=seven)).moves
    assert [told(each)[0] for each in late] == ["vanishes", "moved", "moved"]
    early = zone_moves("job", schedule, None, find, begin, seven, spoken=OwnedSpan(last=seven)).moves
    assert [told(each) for each in early] == [("appears", "2027-01-12T09:00", None, "01-12T06:00Z")]


def test_times_without_an_offset_are_read_on_the_other_clocks_too() -> None:
    find = as_though(Europe_Berlin="Europe/Moscow")

    def at(hour: int, day: int = 12) -> datetime:
        return datetime(2027, 1, day, hour, tzinfo=UTC)

    def found(before: Schedule, after: Schedule) -> list[ZoneMove]:
        reread = RereadSchedule(after, ("Europe/Berlin",))
        return list(zone_moves("job", before, None, find, NOW, NOW + timedelta(days=5), reread=reread).moves)

    (once,) = found(Once(at(8)), Once(at(6)))
    assert (told(once), once.zone) == (("moved", "2027-01-12T09:00", "01-12T08:00Z", "01-12T06:00Z"), "Europe/Berlin")
    every = found(Every("1d", start=at(8), end=at(9, 13)), Every("1d", start=at(6), end=at(7, 13)))
    assert [told(each)[0] for each in every] == ["moved", "moved"]
    hourly = Cron("30 * * * *", "Europe/Berlin")
    bounded = found(replace(hourly, start=at(8)), replace(hourly, start=at(6)))
    assert [told(each)[0] for each in bounded] == ["appears", "appears"]


def test_a_slot_that_moves_is_told_with_the_starts_that_its_window_chooses() -> None:
    window = Window.after("1h")
    (found,) = moves(Cron("0 9 * * 1", "Europe/Berlin"), as_though(Europe_Berlin="Europe/Moscow"), 8, window)
    assert found.before is not None
    assert found.after is not None
    assert found.starts_before is not None
    assert found.starts_after is not None
    assert timedelta(0) <= found.starts_before - found.before <= timedelta(hours=1)
    assert timedelta(0) <= found.starts_after - found.after <= timedelta(hours=1)


def test_our_own_zones_are_not_touched_by_the_comparison() -> None:
    schedule = Cron("0 9 * * *", "Europe/Berlin")
    other = on_clocks(schedule, as_though(Europe_Berlin="Europe/Moscow"))
    assert other.next(NOW) == datetime(2027, 1, 12, 6, tzinfo=UTC)
    assert schedule.next(NOW) == datetime(2027, 1, 12, 8, tzinfo=UTC)
    assert Cron("0 9 * * *", "Europe/Berlin").zone is schedule.zone is zone("Europe/Berlin")


def test_the_first_moment_at_which_clocks_differ_is_found() -> None:
    berlin, lagos = zone("Europe/Berlin"), zone("Africa/Lagos")
    until = NOW + timedelta(days=365)
    assert first_difference(berlin, lagos, NOW, until) == datetime(2027, 3, 28, 1, tzinfo=UTC)
    assert first_difference(berlin, berlin, NOW, until) is None


def test_of_too_many_slots_the_first_are_compared_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Cron("*/5 * * * *", "Asia/Kolkata")
    find = as_though(Asia_Kolkata="Asia/Kathmandu")
    monkeypatch.setattr(zone_data, "MOST_SLOTS", 1_000)
    found = zone_moves("job", schedule, None, find, NOW, NOW + timedelta(days=30))
    assert found.is_cut
    assert NOW < found.until < NOW + timedelta(days=4)
    assert found.moves == ()
