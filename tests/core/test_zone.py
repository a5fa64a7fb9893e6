"""Every zone of the pinned data, held against `zoneinfo` reading the same files."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import tzdata

from horae.core.time import zone_file
from horae.core.time.instant import FIRST, LAST, instant
from horae.core.time.zone import LARGEST_OFFSET_GAP, TZDATA_VERSION, UTC_ZONE, Zone, zone, zone_names
from horae.errors import HoraeError, UnknownZone

FILES = Path(str(tzdata.__file__)).parent / "zoneinfo"
CHUNKS = 8
LISTED = (-5_000_000_000, 2_200_000_000)
BY_RULE = (2_200_000_000, 250_000_000_000)


def reference(name: str) -> ZoneInfo:
    with (FILES / name).open("rb") as source:
        return ZoneInfo.from_file(source, key=name)


def expected_offset(clocks: ZoneInfo, second: int) -> int:
    offset = instant(second).astimezone(clocks).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_zone_has_the_offsets_zoneinfo_gives_it(chunk: int) -> None:
    chance = random.Random(chunk)
    for name in zone_names()[chunk::CHUNKS]:
        clocks, ours = reference(name), zone(name)
        seconds = [chance.randrange(*LISTED) for _ in range(150)] + [chance.randrange(*BY_RULE) for _ in range(3)]
        # Just before, at and just after each change is where a mistake would show.
        changes = ours.transitions(*LISTED)
        for change in chance.sample(changes, min(len(changes), 40)):
            seconds += [change.at - 1, change.at, change.at + 1]
        for second in seconds:
            assert ours.offset_at(second) == expected_offset(clocks, second), (name, second)


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Manila", "Antarctica/Troll"]
)
def test_the_instants_of_a_wall_time_are_those_that_show_it(name: str) -> None:
    chance = random.Random(name)
    clocks = zone(name)
    for change in clocks.transitions(-4_000_000_000, 3_000_000_000):
        for _ in range(6):
            wall = change.at + change.before + chance.randrange(-7200, 7200)
            found = clocks.instants(wall)
            assert all(utc + clocks.offset_at(utc) == wall for utc in found)
            offsets = {clocks.offset_at(wall + shift) for shift in range(-LARGEST_OFFSET_GAP, LARGEST_OFFSET_GAP, 600)}
            assert set(found) == {wall - offset for offset in offsets if clocks.offset_at(wall - offset) == offset}


def test_a_wall_time_in_a_gap_has_no_instant() -> None:
    skipped = int((datetime(2026, 3, 29, 2, 30, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    assert zone("Europe/Berlin").instants(skipped) == ()


def offsets_in_order(clocks: Zone, seconds: list[int]) -> list[int]:
    return [clocks.offset_at(second) for second in seconds]


def test_threads_that_meet_in_a_new_zone_all_see_true_offsets() -> None:
    data = zone_file.parse((FILES / "Europe" / "Dublin").read_bytes())
    seconds = [2_000_000_000 + step * 400_000_000 for step in range(40)]
    expected = [zone("Europe/Dublin").offset_at(second) for second in seconds]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            fresh = Zone("Europe/Dublin", data)
            with ThreadPoolExecutor(4) as pool:
                orders = [seconds, seconds[::-1], seconds[::2] + seconds[1::2], seconds]
                for found in pool.map(offsets_in_order, [fresh] * 4, orders):
                    assert sorted(found) == sorted(expected)
            assert [fresh.offset_at(second) for second in seconds] == expected
    finally:
        sys.setswitchinterval(interval)


def test_a_fold_has_two_instants_an_hour_apart() -> None:
    berlin = zone("Europe/Berlin")
    repeated = int((datetime(2026, 10, 25, 2, 30, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    first, second = berlin.instants(repeated)
    assert second - first == 3600


def test_no_two_offsets_of_a_zone_lie_further_apart_than_the_searches_assume() -> None:
    for name in zone_names():
        clocks = zone(name)
        for change in clocks.transitions(FIRST, LISTED[1]):
            assert abs(change.after - change.before) < LARGEST_OFFSET_GAP, name


def test_the_same_name_gives_the_same_zone_object() -> None:
    assert zone("Europe/Berlin") is zone("Europe/Berlin")
    assert zone("UTC") is UTC_ZONE


def test_the_calendar_s_ends_are_covered() -> None:
    berlin = zone("Europe/Berlin")
    assert berlin.offset_at(LAST) == 3600
    assert berlin.offset_at(FIRST) == berlin.cover(FIRST).offsets[0]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Europe",
        "europe/berlin",
        "../../etc/passwd",
        "/etc/localtime",
        "UTC\0",
        "x" * 10**6,
        "Ünïx",
        7,
        None,
        ["UTC"],
    ],
    ids=range(11),
)
def test_an_unknown_zone_is_refused_at_once(name: object) -> None:
    with pytest.raises(UnknownZone) as caught:
        zone(name)  # type: ignore[arg-type]  # what people pass is not always text
    assert isinstance(caught.value, HoraeError)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("Europe/Belrin", "Europe/Berlin"), ("berlin", "Europe/Berlin"), ("New York", "America/New_York")],
)
def test_a_misspelt_zone_gets_a_suggestion(wrong: str, right: str) -> None:
    with pytest.raises(UnknownZone) as caught:
        zone(wrong)
    assert caught.value.hint is not None
    assert right in caught.value.hint


def test_the_data_s_version_is_told() -> None:
    assert TZDATA_VERSION == tzdata.IANA_VERSION


@pytest.mark.parametrize(
    ("text", "year", "expected"),
    [
        ("CET-1CEST,M3.5.0,M10.5.0/3", 2026, ["2026-03-29T01:00", "2026-10-25T01:00"]),
        ("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", 2026, ["2026-03-29T01:00", "2026-10-25T01:00"]),
        ("AAA0BBB,J60,J300", 2024, ["2024-03-01T02:00", "2024-10-27T01:00"]),
        ("AAA0BBB,59,299/4", 2024, ["2024-02-29T02:00", "2024-10-26T03:00"]),
    ],
)
def test_the_rule_at_a_file_s_end_gives_each_year_s_changes(text: str, year: int, expected: list[str]) -> None:
    rule = zone_file.parse_rule(text, 0)
    assert [instant(at).isoformat()[:16] for at, _ in rule.transitions(year)] == expected


def test_a_zone_that_stopped_changing_has_no_later_changes() -> None:
    tokyo = zone("Asia/Tokyo")
    assert tokyo.transitions(0, LAST) == ()
    assert tokyo.wall(datetime(2026, 1, 1, tzinfo=UTC)).utcoffset() == timedelta(hours=9)


def test_a_rule_that_is_longer_than_a_catalog_keeps_is_refused_with_that_reason() -> None:
    longest = f"{'X' * 20}-1{'Y' * 18},M3.5.0/02:00:00,M10.5.0"
    assert len(longest) == zone_file.LONGEST_RULE == 64
    assert zone(longest).key == longest
    with pytest.raises(UnknownZone, match="at most 64 characters") as refused:
        zone("X" + longest)
    assert "Shorten" in (refused.value.hint or "")
