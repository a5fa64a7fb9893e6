"""Durations as people write them, and what is no duration."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.time.duration import format_duration, parse_duration, whole_seconds
from horae.errors import InvalidDuration

LONGEST = timedelta(days=366 * 1000)

READ: list[tuple[Any, timedelta]] = [
    ("90s", timedelta(seconds=90)),
    ("1h30m", timedelta(hours=1, minutes=30)),
    ("1h 30m", timedelta(hours=1, minutes=30)),
    (" 1 h 30 m ", timedelta(hours=1, minutes=30)),
    ("2 days", timedelta(days=2)),
    ("5 minutes", timedelta(minutes=5)),
    ("1 hour 1 minute 1 second", timedelta(hours=1, minutes=1, seconds=1)),
    ("1hr2mins3secs", timedelta(hours=1, minutes=2, seconds=3)),
    ("3W2D", timedelta(weeks=3, days=2)),
    ("2 weeks", timedelta(weeks=2)),
    ("1.5h", timedelta(minutes=90)),
    ("0.5s", timedelta(milliseconds=500)),
    ("0.000001s", timedelta(microseconds=1)),
    ("250ms", timedelta(milliseconds=250)),
    ("7us", timedelta(microseconds=7)),
    ("7µs", timedelta(microseconds=7)),
    ("0s", timedelta(0)),
    ("0 seconds", timedelta(0)),
    ("00090s", timedelta(seconds=90)),
    ("1000 w", timedelta(weeks=1000)),
    ("PT5M", timedelta(minutes=5)),
    ("P1D", timedelta(days=1)),
    ("P2W", timedelta(weeks=2)),
    ("P1W2DT3H4M5S", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
    ("PT1.5S", timedelta(milliseconds=1500)),
    ("PT0.000001S", timedelta(microseconds=1)),
    ("PT90M", timedelta(minutes=90)),
    ("P0D", timedelta(0)),
    (0, timedelta(0)),
    (90, timedelta(seconds=90)),
    (0.25, timedelta(milliseconds=250)),
    (1e-6, timedelta(microseconds=1)),
    (-0.0, timedelta(0)),
    (LONGEST.days * 86_400, LONGEST),
    (timedelta(microseconds=1), timedelta(microseconds=1)),
    (LONGEST, LONGEST),
]


@pytest.mark.parametrize(("given", "expected"), READ, ids=[repr(given) for given, _ in READ])
def test_a_duration_is_read(given: Any, expected: timedelta) -> None:
    assert parse_duration(given) == expected


BAD: list[Any] = [
    "",
    " ",
    "s",
    "h1",
    "1h30",
    "1x",
    "1 fortnight",
    "1month",
    "1y",
    "-5m",
    "+5m",
    "5m-",
    "1,5h",
    ".5h",
    "1.h",
    "1e3s",
    "1_0s",
    "0x10s",
    "\u0665m",
    "1h30m!",
    "soon",
    "inf",
    "nan",
    "1" * 16 + "s",
    "1." + "1" * 10 + "s",
    "P",
    "PT",
    "P1",
    "PT5",
    "P1DT",
    "P5M",
    "P1Y",
    "P1Y2M10D",
    "P1M",
    "PT1H5",
    "PT5M1H",
    "PT1.5H",
    "PT1,5S",
    "P-1D",
    "-P1D",
    "pt5m",
    "P1D ago",
    "P999999999W",
    "999999999999999w",
    "366001d",
    "\ud800",
    "5\0m",
    "5m" * 200,
    "1" * 100_000,
    " " * 100_000,
    -1,
    -0.5,
    timedelta(microseconds=-1),
    LONGEST + timedelta(microseconds=1),
    timedelta.max,
    LONGEST.days * 86_400 + 1,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    True,
    False,
    None,
    b"5m",
    [],
    {},
    1j,
    Decimal(5),
    Fraction(1, 2),
    object,
]


@pytest.mark.parametrize("given", BAD, ids=[f"{given!a}"[:40] for given in BAD])
def test_what_is_no_duration_is_refused_with_a_hint(given: Any) -> None:
    with pytest.raises(InvalidDuration) as caught:
        parse_duration(given, name="timeout")
    assert str(caught.value).startswith("Invalid timeout ")
    assert caught.value.details == {"name": "timeout"}
    assert "90s" in str(caught.value.hint)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("digits", [400, 5000])
def test_an_integer_too_long_for_a_float_is_refused(digits: int) -> None:
    for number in (10**digits, -(10**digits)):
        with pytest.raises(InvalidDuration):
            parse_duration(number)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1s" * 125, timedelta(seconds=125)),
        ("1s" * 100 + "1h", timedelta(hours=1, seconds=100)),
        ("1s" + " " * 250 + "1h", timedelta(hours=1, seconds=1)),
        ("1s" * 100 + "junk", None),
        ("1s" * 149 + "1x", None),
        ("1s" + " " * 250 + "junk", None),
    ],
    ids=["125 seconds", "an hour at the end", "an hour far off", "junk at the end", "a wrong unit", "junk far off"],
)
def test_a_long_text_is_read_to_its_end_or_refused(text: str, meant: timedelta | None) -> None:
    try:
        found = parse_duration(text)
    except InvalidDuration:
        return
    assert found == meant


def test_a_negative_number_too_small_for_a_microsecond_is_refused_as_negative() -> None:
    with pytest.raises(InvalidDuration, match="negative"):
        parse_duration(-1e-9)


def test_years_and_months_are_refused_because_their_length_varies() -> None:
    for text in ("P1Y", "P3M", "P1Y2M10D"):
        with pytest.raises(InvalidDuration, match="varies"):
            parse_duration(text)


@settings(derandomize=True, deadline=None, max_examples=examples(400))
@given(st.timedeltas(timedelta(0), LONGEST))
def test_a_printed_duration_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(st.integers(0, LONGEST.days * 86_400))
def test_seconds_read_the_same_as_a_number_a_text_and_iso(seconds: int) -> None:
    expected = timedelta(seconds=seconds)
    assert parse_duration(seconds) == expected
    assert parse_duration(f"{seconds}s") == expected
    assert parse_duration(f"{seconds} seconds") == expected
    if seconds < 10**9:
        assert parse_duration(f"PT{seconds}S") == expected


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(st.integers(0, 999), st.text("0123456789", min_size=1, max_size=9), st.sampled_from("smhdw"))
def test_a_fraction_is_exact_and_cut_at_the_microsecond(whole: int, fraction: str, unit: str) -> None:
    size = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[unit]
    exact = (Fraction(whole) + Fraction(int(fraction), 10 ** len(fraction))) * size
    found = parse_duration(f"{whole}.{fraction}{unit}")
    assert found // timedelta(microseconds=1) == exact * 10**6 // 1


PRINTED = [
    (timedelta(0), "0s"),
    (timedelta(hours=1, minutes=30), "1h30m"),
    (timedelta(milliseconds=1500), "1s500ms"),
    (timedelta(days=8, microseconds=1), "8d1us"),
    (timedelta(seconds=86_399), "23h59m59s"),
    (timedelta(seconds=-90), "-1m30s"),
]


@pytest.mark.parametrize(("duration", "text"), PRINTED)
def test_a_duration_is_printed_in_its_units(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


def test_whole_seconds_are_counted() -> None:
    assert whole_seconds("1h30m", name="interval") == 5400
    assert whole_seconds(1, name="interval") == 1
    assert whole_seconds(LONGEST, name="interval") == 366_000 * 86_400


@pytest.mark.parametrize("given", [0, "0s", "500ms", 1.5, timedelta(seconds=1, microseconds=1), "1us"])
def test_parts_of_a_second_and_nothing_are_no_whole_seconds(given: Any) -> None:
    with pytest.raises(InvalidDuration, match="whole number of seconds"):
        whole_seconds(given, name="interval")
