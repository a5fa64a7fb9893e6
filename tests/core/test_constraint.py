"""Constraints: which wall times each clause lets through, how sets combine, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.time.zone import zone
from horae.core.window.constraint import KINDS, Constraints
from horae.core.window.decision import DecisionRequest, decide
from horae.errors import InvalidConstraint

NOON = "2024-05-15T12:00:00"  # a Wednesday


def passes(constraints: Constraints, wall: str) -> bool:
    """Whether the wall time goes through, by the rules themselves and by a decision about that one second."""
    at = datetime.fromisoformat(wall).replace(tzinfo=UTC)
    verdict = constraints.rules().objection(int(at.timestamp())) is None
    assert decide(DecisionRequest("job", at, constraints=constraints)).unschedulable is not verdict
    return verdict


def allowed_hours(clauses: Any) -> list[int]:
    return [hour for hour in range(24) if passes(Constraints(only=clauses), f"2024-05-15T{hour:02d}:30:00")]


SAME: list[tuple[str, list[Any]]] = [
    ("hours", [8, "8", [8], (8,), {8}, frozenset({8}), ["8"], "8-8", "08", range(8, 9), "8,8"]),
    ("hours", ["8-10,12", "12,8-10", [8, 9, 10, 12], ["8-10", 12], [12, 10, 9, 8, 8], "8,9,10,12"]),
    ("dow", ["mon-fri", "MON-FRI", "1-5", [1, 2, 3, 4, 5], ["mon", "Tue", 3, "4-5"], "mon,tue,wed,thu,fri"]),
    ("dow", [0, 7, "sun", "SUN", "0", "7", [0, 7], "7,0"]),
    ("dow", ["fri-sun", "5-7", [5, 6, 7], [0, 5, 6], "sat,sun,fri"]),
    ("dow", ["0-6", "1-7", "0-7", "sun-sat", "mon-sun"]),
    ("dom", ["1,15,31", [31, 15, 1], {1, 15, 31}]),
    ("months", ["jan-mar", "1-3", [1, 2, 3], ["JAN", 2, "mar"]]),
    ("between", ["22:00-06:00", ["22:00-06:00"], (" 22:00-06:00 ",)]),
    ("between", ["08:00-09:00,12:00-13:00", ["12:00-13:00", "08:00-09:00"]]),
    ("dates", ["2024-05-15", date(2024, 5, 15), [date(2024, 5, 15)], ["2024-05-15"]]),
    ("dates", ["2024-05-15..2024-05-17,2024-06-01", ["2024-06-01", "2024-05-15..2024-05-17"]]),
]


@pytest.mark.parametrize(("kind", "forms"), SAME, ids=[f"{kind} {forms[0]}" for kind, forms in SAME])
def test_text_numbers_and_lists_of_either_mean_the_same(kind: str, forms: list[Any]) -> None:
    first = Constraints(only={kind: forms[0]}, avoid={kind: forms[0]})
    for form in forms[1:]:
        other = Constraints(only={kind: form}, avoid={kind: form})
        assert other == first
        assert hash(other) == hash(first)
        assert other.to_dict() == first.to_dict()


def test_a_generator_of_values_can_be_asked_twice() -> None:
    constraints = Constraints(only={"hours": (hour for hour in (8, 9))})
    for _ in range(2):
        assert constraints.rules() == Constraints(only={"hours": "8-9"}).rules()


def test_a_generator_of_clause_sets_can_be_asked_twice() -> None:
    constraints = Constraints(only=iter([{"hours": 3}]), avoid=iter([{"dow": 1}]))
    assert not passes(constraints, NOON)
    assert constraints == Constraints(only={"hours": 3}, avoid={"dow": 1})


def test_a_range_of_minutes_includes_its_last_minute_to_the_end() -> None:
    constraints = Constraints(only={"between": "09:30-10:15"})
    inside = [passes(constraints, f"2024-05-15T{clock}") for clock in ("09:30:00", "10:15:00", "10:15:59")]
    outside = [passes(constraints, f"2024-05-15T{clock}") for clock in ("09:29:59", "10:16:00")]
    assert (inside, outside) == ([True, True, True], [False, False])


def test_a_range_of_one_minute_is_that_minute() -> None:
    constraints = Constraints(avoid={"between": "12:00-12:00"})
    assert not passes(constraints, "2024-05-15T12:00:59")
    assert passes(constraints, "2024-05-15T12:01:00")
    assert passes(constraints, "2024-05-15T11:59:59")


def test_a_range_of_minutes_that_ends_before_it_begins_wraps_around_midnight() -> None:
    constraints = Constraints(only={"between": "22:00-06:00"})
    clocks = ("21:59:59", "22:00:00", "23:59:59", "00:00:00", "06:00:59", "06:01:00", "12:00:00")
    assert [passes(constraints, f"2024-05-15T{clock}") for clock in clocks] == [
        False,
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_24_00_ends_a_range_with_the_day() -> None:
    constraints = Constraints(only={"between": "23:00-24:00"})
    assert passes(constraints, "2024-05-15T23:59:59")
    assert not passes(constraints, "2024-05-15T00:00:00")
    whole = Constraints(only={"between": "00:00-24:00"})
    assert passes(whole, "2024-05-15T00:00:00")
    assert passes(whole, "2024-05-15T23:59:59")


def test_a_range_of_dates_includes_both_ends() -> None:
    constraints = Constraints(only={"dates": "2024-02-28..2024-03-01"})
    walls = ["2024-02-27T23:59:59", "2024-02-28T00:00:00", "2024-02-29T12:00:00", "2024-03-01T23:59:59"]
    assert [passes(constraints, wall) for wall in walls] == [False, True, True, True]
    assert not passes(constraints, "2024-03-02T00:00:00")


def test_date_is_another_word_for_dates() -> None:
    assert Constraints(only={"date": "2024-05-15"}) == Constraints(only={"dates": "2024-05-15"})


def test_date_and_dates_in_one_set_lose_nothing_or_are_refused() -> None:
    both = Constraints(only={"date": "2024-05-15", "dates": "2024-05-16"})
    try:
        rules = both.rules()
    except InvalidConstraint:
        return
    data = both.to_dict()
    assert Constraints(data.get("only"), data.get("avoid")).rules() == rules


@pytest.mark.parametrize(
    ("day", "number"),
    [("12", 0), ("13", 1), ("14", 2), ("15", 3), ("16", 4), ("17", 5), ("18", 6)],
)
def test_days_of_the_week_count_from_sunday(day: str, number: int) -> None:
    names = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
    found = [each for each in range(7) if passes(Constraints(only={"dow": each}), f"2024-05-{day}T12:00:00")]
    assert found == [number]
    assert passes(Constraints(only={"dow": names[number]}), f"2024-05-{day}T12:00:00")
    assert passes(Constraints(only={"dow": 7}), f"2024-05-{day}T12:00:00") is (number == 0)


def test_days_of_the_month_and_months_are_those_of_the_calendar() -> None:
    assert passes(Constraints(only={"dom": 31}), "2024-01-31T00:00:00")
    assert not passes(Constraints(only={"dom": 31}), "2024-02-01T00:00:00")
    assert passes(Constraints(only={"months": "feb"}), "2024-02-29T23:59:59")
    assert not passes(Constraints(only={"months": "feb"}), "2024-03-01T00:00:00")


def test_inside_a_set_every_kind_must_hold() -> None:
    constraints = Constraints(only={"hours": "9-17", "dow": "mon-fri", "months": [5, 6]})
    assert passes(constraints, NOON)
    for wall in ("2024-05-15T18:00:00", "2024-05-18T12:00:00", "2024-07-15T12:00:00"):
        assert not passes(constraints, wall)


def test_one_satisfied_set_is_enough() -> None:
    constraints = Constraints(only=[{"dow": "wed", "hours": 9}, {"dow": "sat,sun"}])
    walls = ["2024-05-15T09:00:00", NOON, "2024-05-18T03:00:00", "2024-05-17T09:00:00"]
    assert [passes(constraints, wall) for wall in walls] == [True, False, True, False]


def test_one_dict_is_a_list_of_one() -> None:
    clauses = {"hours": "9-17", "dow": "mon-fri"}
    assert Constraints(only=clauses) == Constraints(only=[clauses]) == Constraints(only=(clauses,))
    assert Constraints(avoid=clauses) == Constraints(avoid=[clauses])


def test_any_clause_to_avoid_rejects() -> None:
    together = Constraints(avoid={"hours": 12, "dow": "sun"})
    apart = Constraints(avoid=[{"dow": "sun"}, {"hours": 12}])
    for constraints in (together, apart):
        assert not passes(constraints, NOON)
        assert not passes(constraints, "2024-05-19T03:00:00")
        assert passes(constraints, "2024-05-15T13:00:00")


def test_what_is_to_be_avoided_wins_over_what_is_allowed() -> None:
    assert not passes(Constraints(only={"hours": "9-17"}, avoid={"between": "12:00-12:59"}), NOON)


@pytest.mark.parametrize("empty", [None, {}, [], (), [{}]])
def test_empty_constraints_constrain_nothing(empty: Any) -> None:
    constraints = Constraints(only=empty, avoid=empty)
    assert not constraints.rules()
    assert constraints == Constraints()
    assert constraints.to_dict() == {}
    assert passes(constraints, NOON)


def test_an_empty_set_among_others_is_satisfied_by_every_time_or_refused() -> None:
    constraints = Constraints(only=[{}, {"hours": 3}])
    with suppress(InvalidConstraint):
        assert passes(constraints, NOON)


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(st.sets(st.integers(0, 23), min_size=1))
def test_hours_let_through_exactly_the_hours_given(hours: set[int]) -> None:
    assert allowed_hours({"hours": hours}) == sorted(hours)
    assert allowed_hours({"hours": ",".join(map(str, hours))}) == sorted(hours)


WALLS = [
    ("2024-03-31T00:59:59Z", "Europe/Berlin", 1),
    ("2024-03-31T01:00:00Z", "Europe/Berlin", 3),
    ("2024-10-27T00:30:00Z", "Europe/Berlin", 2),
    ("2024-10-27T01:30:00Z", "Europe/Berlin", 2),
    ("2024-10-27T02:00:00Z", "Europe/Berlin", 3),
    ("2024-03-10T06:59:59Z", "America/New_York", 1),
    ("2024-03-10T07:00:00Z", "America/New_York", 3),
    ("2024-05-15T18:20:00Z", "Asia/Kathmandu", 0),
]


@pytest.mark.parametrize(("at", "name", "hour"), WALLS)
def test_constraints_read_the_wall_across_clock_changes(at: str, name: str, hour: int) -> None:
    nominal = datetime.fromisoformat(at)
    for candidate in range(24):
        found = decide(DecisionRequest("job", nominal, name, constraints=Constraints(only={"hours": candidate})))
        assert found.unschedulable is (candidate != hour)


def test_a_window_across_the_skipped_hour_never_chooses_it() -> None:
    nominal = datetime(2024, 3, 31, 0, 0, tzinfo=UTC)
    only = Constraints(only={"hours": "1,2"})
    requests = [
        DecisionRequest(f"job {n}", nominal, "Europe/Berlin", "after", "3h", constraints=only) for n in range(60)
    ]
    chosen = {decide(each).chosen_time for each in requests}
    assert None not in chosen
    assert all(at is not None and at < nominal + timedelta(hours=1) for at in chosen)


def test_an_avoided_hour_that_occurs_twice_is_avoided_twice() -> None:
    nominal = datetime(2024, 10, 27, 0, 0, tzinfo=UTC)
    avoid = Constraints(avoid={"hours": 2})
    for number in range(60):
        found = decide(DecisionRequest(f"job {number}", nominal, "Europe/Berlin", "after", "3h", constraints=avoid))
        assert found.chosen_time is not None
        assert found.chosen_time >= nominal + timedelta(hours=2)


def test_dates_are_those_of_the_wall() -> None:
    late = datetime(2024, 5, 15, 22, 30, tzinfo=UTC)
    local = Constraints(only={"dates": "2024-05-16", "dow": "thu", "dom": 16})
    assert not decide(DecisionRequest("job", late, "Europe/Berlin", constraints=local)).unschedulable
    assert decide(DecisionRequest("job", late, "UTC", constraints=local)).unschedulable
    assert zone("Europe/Berlin").offset_at(int(late.timestamp())) == 7200


BAD_VALUES: dict[str, list[Any]] = {
    "hours": [24, -1, "24", "8-", "-8", "8-7", "8:00", "*", "*/2", "8/2", "8-18/2", "", ",", "8,", "eight", "\u0668"],
    "dow": [8, -1, "8", "funday", "sat-mon", "6-1", "1-8", "L", "5#2", "?", "*", "monday", "mon-"],
    "dom": [0, 32, "0", "32", "L", "15W", "1-32", "31-1", "*", "*/5", "1.5"],
    "months": [0, 13, "january", "dec-jan", "*", "1-13", "janfeb"],
    "between": [
        "8:00-9:00",
        "08:00",
        "08:00-",
        "-09:00",
        "08:00-09:00-10:00",
        "24:00-01:00",
        "08:60-09:00",
        "08:00-24:01",
        "08:00-25:00",
        "0800-0900",
        "08:00..09:00",
        "08:00:00-09:00:00",
        "\u0660\u0668:00-09:00",
        "08:00\u201309:00",
        "",
        ",",
        "08:00-09:00,",
        8,
        "*",
        date(2024, 5, 15),
    ],
    "dates": [
        "2024-02-30",
        "2024-13-01",
        "24-05-15",
        "2024-5-15",
        "15.05.2024",
        "2024-05-15..",
        "..2024-05-15",
        "2024-05-16..2024-05-15",
        "2024-05-15...2024-05-16",
        "2024-05-15T00:00:00",
        "2024-05",
        "0000-01-01",
        "10000-01-01",
        "",
        ",",
        "*",
        20240515,
        datetime(2024, 5, 15, tzinfo=UTC),
    ],
}
NO_VALUES: list[Any] = [
    None,
    True,
    False,
    1.5,
    b"8",
    [],
    {},
    {"8": 9},
    [None],
    [True],
    [1.0],
    [[8]],
    object,
    "\ud800",
    "\0",
]
CASES = [(kind, value) for kind in KINDS for value in (*BAD_VALUES[kind], *NO_VALUES)]


@pytest.mark.parametrize("side", ["only", "avoid"])
@pytest.mark.parametrize(("kind", "value"), CASES, ids=[f"{kind} {value!a}"[:50] for kind, value in CASES])
def test_a_malformed_value_is_refused_with_its_side_and_its_kind(kind: str, value: Any, side: str) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        Constraints(**{side: {kind: value}}).rules()
    assert f"Invalid {side} constraint {kind}" in str(caught.value)


@pytest.mark.parametrize("text", ["20240515", "2024-W20-3", "2024W203"])
def test_dates_are_written_with_their_dashes_and_not_as_weeks(text: str) -> None:
    with pytest.raises(InvalidConstraint, match="dates"):
        Constraints(only={"dates": text}).rules()


@pytest.mark.parametrize("kind", KINDS)
def test_blanks_after_a_comma_do_not_count(kind: str) -> None:
    values = {"between": ("08:00-09:00", "10:00-11:00"), "dates": ("2024-05-15", "2024-05-16")}.get(kind, ("3", "5"))
    spaced = Constraints(only={kind: ", ".join(values)})
    assert spaced == Constraints(only={kind: ",".join(values)})
    assert spaced.to_dict() == {"only": [{kind: ",".join(values)}]}


@pytest.mark.parametrize(
    "clauses",
    ["hours=8", 5, True, ["hours"], [None], [["hours", 8]], {"hour": 8}, {"minutes": 5}, {"": 1}, {5: 5}, {None: 1}],
    ids=repr,
)
@pytest.mark.parametrize("side", ["only", "avoid"])
def test_what_is_no_set_of_clauses_is_refused(clauses: Any, side: str) -> None:
    with pytest.raises(InvalidConstraint, match=side):
        Constraints(**{side: clauses}).rules()


def test_more_values_than_anyone_means_are_refused() -> None:
    for value in ([1] * 10_001, "1," * 500_000 + "1", ["1" * 20_000]):
        with pytest.raises(InvalidConstraint, match="hours"):
            Constraints(only={"hours": value}).rules()


def test_clause_sets_beyond_a_limit_are_refused_and_never_left_out() -> None:
    sets = [{"hours": "0-11"}] * 10_001 + [{"hours": 12}]
    for side, verdict in (("only", True), ("avoid", False)):
        with suppress(InvalidConstraint):
            assert passes(Constraints(**{side: sets}), NOON) is verdict


def test_a_number_of_five_thousand_digits_is_refused() -> None:
    with pytest.raises(InvalidConstraint, match="hours"):
        Constraints(only={"hours": 10**5000}).rules()


def test_constraints_read_back_from_their_dict() -> None:
    constraints = Constraints(
        only=[{"hours": "8-18", "dow": [1, 2, 7]}, {"between": "22:00-06:00", "dates": "2024-01-01..2024-06-30"}],
        avoid={"dom": "1,31", "months": "dec"},
    )
    data = constraints.to_dict()
    assert data == {
        "only": [
            {"dow": "0-2", "hours": "8-18"},
            {"between": "22:00-06:00", "dates": "2024-01-01..2024-06-30"},
        ],
        "avoid": [{"dom": "1,31"}, {"months": "12"}],
    }
    assert Constraints(**data) == constraints
