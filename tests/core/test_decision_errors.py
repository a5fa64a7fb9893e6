"""What a decision refuses: every bad input by an error of its own class, whose message names the thing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from horae.core.window.constraint import Constraints
from horae.core.window.decision import DecisionRequest, decide, explain
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.errors import (
    HoraeError,
    InvalidConstraint,
    InvalidDecision,
    InvalidDistribution,
    InvalidSeed,
    InvalidTime,
    InvalidWindow,
    UnknownZone,
)

NOON = datetime(2024, 5, 15, 12, tzinfo=UTC)
BASE = DecisionRequest("job", NOON, window_duration="1h")
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(microsecond=0, tzinfo=UTC)

BAD: list[tuple[str, dict[str, Any], type[HoraeError], str]] = [
    ("a zone nobody knows", {"timezone": "Mars/Olympus"}, UnknownZone, "Mars/Olympus"),
    ("an empty zone", {"timezone": ""}, UnknownZone, "time zone"),
    ("a zone that is a path", {"timezone": "../../etc/passwd"}, UnknownZone, "passwd"),
    ("a zone in the wrong case", {"timezone": "europe/berlin"}, UnknownZone, "europe/berlin"),
    ("a zone that is not text", {"timezone": None}, UnknownZone, "None"),
    ("a naive nominal time", {"nominal_time": datetime(2024, 5, 15)}, InvalidTime, "nominal_time"),
    ("a date as nominal time", {"nominal_time": date(2024, 5, 15)}, InvalidTime, "nominal_time"),
    ("a text as nominal time", {"nominal_time": "2024-05-15T12:00:00Z"}, InvalidTime, "nominal_time"),
    ("a number as nominal time", {"nominal_time": 1715774400}, InvalidTime, "nominal_time"),
    ("no nominal time", {"nominal_time": None}, InvalidTime, "nominal_time"),
    (
        "a nominal time before the calendar in UTC",
        {"nominal_time": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
        InvalidTime,
        "nominal_time",
    ),
    ("an empty identity", {"identity": ""}, InvalidDecision, "identity"),
    ("an identity that is not text", {"identity": 5}, InvalidDecision, "identity"),
    ("an identity that is bytes", {"identity": b"job"}, InvalidDecision, "identity"),
    ("an identity with a lone surrogate", {"identity": "job\ud800"}, InvalidDecision, "identity"),
    ("a salt with a lone surrogate", {"salt": "\udfff"}, InvalidDecision, "salt"),
    ("a salt that is not text", {"salt": None}, InvalidSeed, "salt"),
    ("a window mode nobody knows", {"window_mode": "beside"}, InvalidWindow, "beside"),
    ("a window mode in capitals", {"window_mode": "AFTER"}, InvalidWindow, "AFTER"),
    ("a window mode that is a list", {"window_mode": ["after"]}, InvalidWindow, "after"),
    (
        "a window mode nobody knows with no window",
        {"window_mode": "beside", "window_duration": "0s"},
        InvalidWindow,
        "beside",
    ),
    ("a negative window", {"window_duration": timedelta(microseconds=-1)}, InvalidWindow, "negative"),
    ("a negative window in seconds", {"window_duration": -5}, InvalidWindow, "negative"),
    ("a negative window in words", {"window_duration": "-5m"}, InvalidWindow, "-5m"),
    ("a window that is no duration", {"window_duration": "soon"}, InvalidWindow, "soon"),
    ("a window that is a truth value", {"window_duration": True}, InvalidWindow, "bool"),
    ("a window that is missing", {"window_duration": None}, InvalidWindow, "NoneType"),
    ("a window of no number", {"window_duration": float("nan")}, InvalidWindow, "nan"),
    ("a window without end", {"window_duration": float("inf")}, InvalidWindow, "inf"),
    ("a window past the year 9999", {"nominal_time": LAST}, InvalidWindow, "9999"),
    ("a window past the year 9999 by a timedelta", {"window_duration": timedelta.max}, InvalidWindow, "9999"),
    ("a window before the year 1", {"nominal_time": FIRST, "window_mode": "before"}, InvalidWindow, "1 to 9999"),
    ("a window around the year 1", {"nominal_time": FIRST, "window_mode": "around"}, InvalidWindow, "1 to 9999"),
    ("a seed strategy nobody knows", {"seed_strategy": "hourly"}, InvalidSeed, "hourly"),
    ("a seed strategy in capitals", {"seed_strategy": "Daily"}, InvalidSeed, "Daily"),
    ("a seed strategy that is missing", {"seed_strategy": None}, InvalidSeed, "None"),
    ("a distribution nobody knows", {"distribution": Distribution("poisson")}, InvalidDistribution, "poisson"),
    ("a distribution in the wrong case", {"distribution": Distribution("Uniform")}, InvalidDistribution, "Uniform"),
    ("a distribution that is text", {"distribution": "uniform"}, InvalidDistribution, "uniform"),
    ("constraints that are a dict", {"constraints": {"only": {"hours": 1}}}, InvalidConstraint, "constraints"),
    ("constraints that are missing", {"constraints": None}, InvalidConstraint, "constraints"),
    (
        "a clause nobody knows",
        {"constraints": Constraints(only={"minutes": 5})},
        InvalidConstraint,
        "minutes",
    ),
    ("a clause out of range", {"constraints": Constraints(avoid={"hours": 24})}, InvalidConstraint, "hours"),
]


@pytest.mark.parametrize("judge", [decide, explain], ids=["decide", "explain"])
@pytest.mark.parametrize(("change", "error", "named"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_decision_refuses(
    change: dict[str, Any], error: type[HoraeError], named: str, judge: Callable[[DecisionRequest], object]
) -> None:
    with pytest.raises(error) as caught:
        judge(replace(BASE, **change))
    assert type(caught.value) is error
    assert named in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("duration", ["0s", "1h"])
@pytest.mark.parametrize(
    "distribution",
    [Distribution("poisson"), Distribution("uniform", {"shape": 2}), Distribution("normal", {"mu": "noon"})],
    ids=str,
)
def test_a_bad_distribution_is_refused_even_where_nothing_is_drawn(distribution: Distribution, duration: str) -> None:
    with pytest.raises(InvalidDistribution):
        decide(replace(BASE, distribution=distribution, window_duration=duration))


def test_a_distribution_whose_name_is_a_list_is_refused() -> None:
    wrong: Any = ["uniform"]
    with pytest.raises(InvalidDistribution, match="uniform"):
        decide(replace(BASE, distribution=Distribution(wrong)))


@pytest.mark.parametrize(
    ("nominal", "zone"), [(FIRST, "America/New_York"), (LAST, "Asia/Kathmandu")], ids=["first", "last"]
)
@pytest.mark.parametrize("strategy", ["daily", "weekly"])
def test_a_local_day_outside_the_calendar_raises_only_errors_of_ours(
    nominal: datetime, zone: str, strategy: Any
) -> None:
    with suppress(HoraeError):
        decide(DecisionRequest("job", nominal, zone, seed_strategy=strategy))


@pytest.mark.parametrize(
    ("nominal", "zone"), [(FIRST, "America/New_York"), (LAST, "Asia/Kathmandu")], ids=["first", "last"]
)
def test_a_wall_time_outside_the_calendar_raises_only_errors_of_ours(nominal: datetime, zone: str) -> None:
    with suppress(HoraeError):
        decide(DecisionRequest("job", nominal, zone, constraints=Constraints(only={"hours": "0-23"})))


def test_the_first_and_the_last_second_can_be_decided() -> None:
    assert decide(DecisionRequest("job", FIRST)).chosen_time == FIRST
    assert decide(DecisionRequest("job", LAST)).chosen_time == LAST
    assert decide(DecisionRequest("job", FIRST, window_duration="1h")).window_start == FIRST
    assert decide(DecisionRequest("job", LAST, window_mode="before", window_duration="1h")).window_end == LAST


def test_a_hint_offers_what_would_have_been_right() -> None:
    with pytest.raises(UnknownZone) as zone:
        decide(replace(BASE, timezone="Europe/Berln"))
    assert "Europe/Berlin" in str(zone.value.hint)
    wrong: Any = "beside"
    with pytest.raises(InvalidWindow) as mode:
        decide(replace(BASE, window_mode=wrong))
    assert "after, before, around, center" in str(mode.value.hint)


WINDOWS: list[tuple[str, dict[str, Any], type[HoraeError]]] = [
    ("a mode nobody knows", {"mode": "beside"}, InvalidWindow),
    ("a negative duration", {"duration": timedelta(-1)}, InvalidWindow),
    ("a distribution nobody knows", {"distribution": Distribution("poisson")}, InvalidDistribution),
    ("a parameter nobody knows", {"distribution": Distribution("uniform", {"x": 1})}, InvalidDistribution),
    ("a seed nobody knows", {"seed": "hourly"}, InvalidSeed),
    ("a salt that is not text", {"salt": 5}, InvalidSeed),
    ("a salt that no decision could use", {"salt": "\ud800"}, InvalidSeed),
    ("a clause nobody knows", {"constraints": Constraints(only={"minutes": 5})}, InvalidConstraint),
    ("constraints that are missing", {"constraints": None}, InvalidConstraint),
    ("a distribution that is missing", {"distribution": None}, InvalidDistribution),
]


@pytest.mark.parametrize(("change", "error"), [row[1:] for row in WINDOWS], ids=[row[0] for row in WINDOWS])
def test_a_window_is_refused_when_it_is_made(change: dict[str, Any], error: type[HoraeError]) -> None:
    with pytest.raises(error):
        Window(**({"mode": "after", "duration": "1h"} | change))


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"mode": "after"},
        {"duration": "1h"},
        {"mode": "after", "duration": "1h", "shape": 2},
        {"mode": "after", "duration": "1h", "distribution": "poisson"},
        {"mode": "after", "duration": "1h", "distribution": 5},
        {"mode": "after", "duration": "1h", "distribution": {"name": "uniform", "params": 5}},
        {"mode": "after", "duration": "1h", "distribution": {"name": "uniform", "parms": {}}},
        {"mode": "after", "duration": "1h", "only": "hours"},
    ],
    ids=repr,
)
def test_a_window_is_not_read_from_anything_else(data: Any) -> None:
    with pytest.raises(HoraeError):
        Window.from_dict(data)


def test_a_distribution_without_parameters_is_read_from_its_name() -> None:
    data = {"mode": "after", "duration": "1h", "distribution": "skewEarly"}
    assert Window.from_dict(data) == Window.after("1h", Distribution("skewEarly"))


def test_a_window_reads_back_from_its_dict() -> None:
    full = Window.around(
        "90m",
        Distribution("normal", {"sigma": "5m"}),
        "weekly",
        "pepper",
        only=[{"hours": "8-18", "dow": "mon-fri"}, {"dow": "sat"}],
        avoid={"dates": "2024-12-24..2024-12-26"},
    )
    for window in (full, Window.after("1h"), Window.before(0)):
        assert Window.from_dict(window.to_dict()) == window
    request = full.request("job", NOON, "Europe/Berlin")
    assert (request.identity, request.timezone, request.window_duration) == (
        "job",
        "Europe/Berlin",
        timedelta(minutes=90),
    )


@pytest.mark.parametrize(("mode", "lead", "lag"), [("after", 0, 90), ("before", 90, 0), ("around", 45, 45)])
def test_a_window_knows_how_far_it_reaches_on_either_side(mode: Any, lead: int, lag: int) -> None:
    window = Window(mode, "90s")
    assert (window.lead, window.lag) == (timedelta(seconds=lead), timedelta(seconds=lag))
