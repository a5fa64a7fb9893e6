"""The rules of a decision, one by one: windows, seeds, attempts, unschedulable slots, what every result carries."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from itertools import islice
from math import floor

import pytest
import tzdata
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.golden_decisions import NO_CANDIDATE, Mode, Strategy, ask
from tests.tier import examples

from horae.core.time.instant import rfc3339
from horae.core.window.constraint import Constraints
from horae.core.window.decision import (
    CORE_VERSION,
    MAX_ATTEMPTS,
    ConstraintMeta,
    DecisionRequest,
    decide,
    draws,
    explain,
)
from horae.core.window.distribution import Distribution

NOON = datetime(2024, 5, 15, 12, tzinfo=UTC)
MODES: tuple[Mode, ...] = ("after", "before", "around", "center")
STRATEGIES: tuple[Strategy, ...] = ("stable", "daily", "weekly")
DISTRIBUTIONS = [
    Distribution("uniform"),
    Distribution("skewEarly", {"shape": "0.2"}),
    Distribution("skewLate", {"shape": 9}),
    Distribution("normal", {"mu": "start", "sigma": "1000d"}),
    Distribution("normal", {"sigma": timedelta(microseconds=1)}),
    Distribution("exponential", {"lambda": "1000000"}),
    Distribution("exponential", {"lambda": "0.000001", "dir": "late"}),
]
every_rule = settings(derandomize=True, deadline=None, max_examples=examples(150))


def window_of(mode: Mode, duration: str | timedelta, nominal: datetime = NOON) -> tuple[str, str]:
    found = decide(DecisionRequest("job", nominal, window_mode=mode, window_duration=duration))
    return rfc3339(found.window_start), rfc3339(found.window_end)


@pytest.mark.parametrize(
    ("mode", "start", "end"),
    [
        ("after", "2024-05-15T12:00:00Z", "2024-05-15T13:00:00Z"),
        ("before", "2024-05-15T11:00:00Z", "2024-05-15T12:00:00Z"),
        ("around", "2024-05-15T11:30:00Z", "2024-05-15T12:30:00Z"),
        ("center", "2024-05-15T11:30:00Z", "2024-05-15T12:30:00Z"),
    ],
)
def test_a_window_lies_where_its_mode_says(mode: Mode, start: str, end: str) -> None:
    assert window_of(mode, "1h") == (start, end)


def test_center_is_another_word_for_around() -> None:
    for duration in ("0s", "1s", "999ms", "1h1m1s", "3w"):
        around, center = (ask("job", "2024-05-15T12:00:00Z", duration, mode) for mode in ("around", "center"))
        assert decide(around) == decide(center)


def test_half_of_an_odd_duration_is_kept_until_both_ends_are_floored() -> None:
    assert window_of("around", "1h1m1s") == ("2024-05-15T11:29:29Z", "2024-05-15T12:30:30Z")
    assert window_of("around", "1s") == ("2024-05-15T11:59:59Z", "2024-05-15T12:00:00Z")
    assert window_of("around", "3s") == ("2024-05-15T11:59:58Z", "2024-05-15T12:00:01Z")
    assert window_of("around", timedelta(microseconds=1)) == ("2024-05-15T11:59:59Z", "2024-05-15T12:00:00Z")


def test_the_bounds_of_a_nominal_time_within_a_second_are_floored() -> None:
    half_past = NOON + timedelta(microseconds=500_000)
    assert window_of("after", "1s", half_past) == ("2024-05-15T12:00:00Z", "2024-05-15T12:00:01Z")
    assert window_of("after", "600ms", half_past) == ("2024-05-15T12:00:00Z", "2024-05-15T12:00:01Z")
    assert window_of("before", "600ms", half_past) == ("2024-05-15T11:59:59Z", "2024-05-15T12:00:00Z")
    assert window_of("around", "1s", half_past) == ("2024-05-15T12:00:00Z", "2024-05-15T12:00:01Z")
    assert window_of("around", "998ms", half_past) == ("2024-05-15T12:00:00Z", "2024-05-15T12:00:00Z")


def test_bounds_before_1970_are_floored_downwards_too() -> None:
    old = datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)
    assert window_of("after", "400ms", old) == ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z")
    assert window_of("before", "600ms", old) == ("1969-12-31T23:59:58Z", "1969-12-31T23:59:59Z")


@every_rule
@given(
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    st.timedeltas(timedelta(0), timedelta(days=400)),
    st.sampled_from(MODES),
)
def test_bounds_are_exact_fractions_floored(naive: datetime, duration: timedelta, mode: Mode) -> None:
    nominal = naive.replace(tzinfo=UTC)
    found = decide(DecisionRequest("job", nominal, window_mode=mode, window_duration=duration))
    at = Fraction((nominal - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), 10**6)
    length = Fraction(duration // timedelta(microseconds=1), 10**6)
    lead = {"after": Fraction(0), "before": length}.get(mode, length / 2)
    assert found.window_start.timestamp() == floor(at - lead)
    assert found.window_end.timestamp() == floor(at - lead + length)


@pytest.mark.parametrize("mode", MODES)
def test_a_window_of_nothing_chooses_the_nominal_time_without_a_draw(mode: Mode) -> None:
    found = decide(DecisionRequest("job", NOON, window_mode=mode, window_duration=0))
    assert (found.window_start, found.chosen_time, found.window_end) == (NOON, NOON, NOON)
    assert (found.attempts, found.unschedulable, found.reason) == (0, False, None)


def test_a_window_of_nothing_within_a_second_chooses_the_floored_second() -> None:
    found = decide(DecisionRequest("job", NOON + timedelta(microseconds=999_999)))
    assert (found.window_start, found.chosen_time, found.window_end) == (NOON, NOON, NOON)


def test_a_window_shorter_than_a_second_within_one_second_costs_no_draw() -> None:
    found = decide(DecisionRequest("job", NOON, window_duration="999ms"))
    assert (found.window_start, found.chosen_time, found.window_end, found.attempts) == (NOON, NOON, NOON, 0)


def test_a_window_shorter_than_a_second_across_two_is_drawn_from() -> None:
    chosen = {decide(DecisionRequest(f"job {n}", NOON, "UTC", "around", "10ms")).chosen_time for n in range(40)}
    assert chosen == {NOON - timedelta(seconds=1), NOON}


def test_a_window_of_nothing_still_checks_its_constraints() -> None:
    allowed = decide(DecisionRequest("job", NOON, constraints=Constraints(only={"hours": 12})))
    assert (allowed.chosen_time, allowed.attempts) == (NOON, 0)
    assert allowed.constraint_meta == ConstraintMeta(only=1, avoid=0, rejected=0)
    refused = decide(DecisionRequest("job", NOON, constraints=Constraints(avoid={"hours": 12})))
    assert (refused.chosen_time, refused.attempts, refused.unschedulable) == (None, 0, True)
    assert refused.reason == NO_CANDIDATE
    assert refused.constraint_meta == ConstraintMeta(only=0, avoid=1, rejected=1)


def test_an_unschedulable_decision_keeps_its_seed_hash_window_and_period() -> None:
    request = ask("job", "2024-05-15T12:00:00Z", "1h", "around", timezone="Asia/Kathmandu", seed="daily")
    free = decide(request)
    stuck = decide(replace(request, constraints=Constraints(only={"months": "dec"})))
    assert (stuck.unschedulable, stuck.chosen_time, stuck.reason) == (True, None, NO_CANDIDATE)
    for name in ("period_id", "period_key", "nominal_time", "window_start", "window_end", "seed_hash"):
        assert getattr(stuck, name) == getattr(free, name)


def test_no_more_than_64_candidates_are_tried() -> None:
    assert MAX_ATTEMPTS == 64
    never = Constraints(only={"dates": "1999-12-31"})
    for duration in ("1s", "1h", "1000d"):
        found = explain(DecisionRequest("job", NOON, window_duration=duration, constraints=never))
        assert found.decision.attempts == len(found.candidates) == 64
        assert found.decision.constraint_meta.rejected == 64


def calls_made(request: DecisionRequest) -> int:
    """How many functions a decision calls, ours and the interpreter's own."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        decide(request)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_the_cost_does_not_grow_with_the_window(distribution: Distribution) -> None:
    never = Constraints(only={"dates": "1999-12-31"})
    requests = [
        DecisionRequest("job", NOON, "UTC", "after", timedelta(seconds=seconds), distribution, constraints=never)
        for seconds in (1, 3600, 7000 * 365 * 86_400)
    ]
    second, hour, ages = [(decide(each), calls_made(each))[1] for each in requests]
    assert max(second, hour, ages) < 1.2 * min(second, hour, ages)
    assert max(second, hour, ages) < 10_000


def test_a_rejected_candidate_costs_one_draw_of_the_same_sequence() -> None:
    request = ask("job", "2024-05-15T12:00:00Z", "6h", only={"between": "17:00-17:59"})
    found = explain(request)
    numbers = list(islice(draws(bytes.fromhex(found.decision.seed_hash)), found.decision.attempts))
    assert len(numbers) > 1
    assert [each.draw for each in found.candidates] == numbers
    assert [each.time for each in found.candidates] == [
        NOON + timedelta(seconds=floor(number * 21_601)) for number in numbers
    ]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@settings(derandomize=True, deadline=None, max_examples=examples(40))
@given(
    identity=st.text("abc-/é漢 \n", min_size=1, max_size=20),
    duration=st.timedeltas(timedelta(0), timedelta(days=4000)),
    micro=st.integers(0, 999_999),
    mode=st.sampled_from(MODES),
)
def test_the_chosen_time_never_leaves_the_window(
    distribution: Distribution, identity: str, duration: timedelta, micro: int, mode: Mode
) -> None:
    nominal = NOON + timedelta(microseconds=micro)
    found = decide(DecisionRequest(identity, nominal, "UTC", mode, duration, distribution))
    assert found.chosen_time is not None
    assert found.window_start <= found.chosen_time <= found.window_end
    assert not found.chosen_time.microsecond
    assert found.chosen_time.tzinfo is UTC


def test_the_seed_is_the_identity_the_period_key_and_the_salt_on_lines_of_their_own() -> None:
    text = "jöb\n2024-05-15T12:00:00Z\npepper"
    found = explain(ask("jöb", "2024-05-15T12:00:00Z", "1h", salt="pepper"))
    assert found.seed_input == text
    assert found.decision.seed_hash == hashlib.sha256(text.encode("utf-8")).hexdigest()


def test_the_period_is_the_instant_however_it_was_written() -> None:
    east = timezone(timedelta(hours=5, minutes=45))
    written = [NOON, NOON.astimezone(east), NOON.astimezone(timezone(timedelta(hours=-9)))]
    found = [decide(DecisionRequest("job", nominal, window_duration="1h")) for nominal in written]
    assert found[0] == found[1] == found[2]
    assert found[0].period_id == "2024-05-15T12:00:00Z"


def test_the_period_drops_the_fraction_of_a_second() -> None:
    found = decide(DecisionRequest("job", NOON + timedelta(microseconds=900_000)))
    assert found.period_id == found.period_key == "2024-05-15T12:00:00Z"


@pytest.mark.parametrize(
    ("nominal", "zone", "daily", "weekly"),
    [
        ("2024-05-15T12:00:00Z", "UTC", "2024-05-15", "2024-W20"),
        ("2024-03-31T22:30:00Z", "Europe/Berlin", "2024-04-01", "2024-W14"),
        ("2024-01-01T04:59:59Z", "America/New_York", "2023-12-31", "2023-W52"),
        ("2024-12-29T18:15:00Z", "Asia/Kathmandu", "2024-12-30", "2025-W01"),
        ("2021-01-03T23:59:59Z", "UTC", "2021-01-03", "2020-W53"),
    ],
)
def test_daily_and_weekly_keys_are_those_of_the_wall(nominal: str, zone: str, daily: str, weekly: str) -> None:
    assert decide(ask("job", nominal, timezone=zone, seed="daily")).period_key == daily
    assert decide(ask("job", nominal, timezone=zone, seed="weekly")).period_key == weekly


def test_every_occurrence_of_a_day_or_a_week_shares_its_draw() -> None:
    days = [ask("job", f"2024-05-15T{hour:02d}:00:00Z", "30m", seed="daily") for hour in range(24)]
    assert len({explain(each).candidates[0].draw for each in days}) == 1
    weeks = [ask("job", f"2024-05-{day}T06:00:00Z", "30m", seed="weekly") for day in range(13, 20)]
    assert len({explain(each).candidates[0].draw for each in weeks}) == 1
    stable = [ask("job", f"2024-05-{day}T06:00:00Z", "30m") for day in range(13, 20)]
    assert len({explain(each).candidates[0].draw for each in stable}) == 7


def test_the_salt_and_the_identity_move_the_choice() -> None:
    pairs = (("job", ""), ("job", "x"), ("kob", ""))
    requests = [ask(identity, "2024-05-15T12:00:00Z", "1d", salt=salt) for identity, salt in pairs]
    assert len({decide(each).chosen_time for each in requests}) == 3


def test_draws_are_numbers_from_0_up_to_but_not_1() -> None:
    numbers = list(islice(draws(bytes(32)), 2000))
    assert all(0 <= number < 1 for number in numbers)
    assert 0.45 < sum(numbers) / len(numbers) < 0.55


def test_the_generator_is_split_mix_64() -> None:
    # The reference implementation's first numbers from seed 1234567, as published with it.
    reference = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431)
    expected = [(word >> 11) / 2**53 for word in reference]
    assert list(islice(draws((1234567).to_bytes(8, "big") + b"ignored"), 4)) == expected


def test_a_decision_names_the_versions_it_was_made_with() -> None:
    found = decide(DecisionRequest("job", NOON))
    assert found.core_version == CORE_VERSION
    assert [part.isdecimal() for part in CORE_VERSION.split(".")] == [True, True, True]
    assert found.tzdata_version == tzdata.IANA_VERSION


def test_a_decision_as_a_dict_is_plain_json() -> None:
    five_minutes = {"sigma": timedelta(minutes=5)}
    request = ask("job", "2024-05-15T12:00:00Z", "1h", "around", "normal", five_minutes, avoid={"hours": "0-3"})
    data = json.loads(json.dumps(decide(request).to_dict()))
    assert data["distribution"] == {"name": "normal", "params": {"sigma": "5m"}}
    assert data["constraint_meta"] == {"only": 0, "avoid": 1, "rejected": 0}
    assert data["window_start"] == "2024-05-15T11:30:00Z"
    assert data["chosen_time"].endswith("Z")


def test_decisions_and_requests_are_values() -> None:
    request = ask("job", "2024-05-15T12:00:00Z", "1h", only={"hours": "12,13"})
    same = ask("job", "2024-05-15T12:00:00+00:00", "1h", only={"hours": [13, 12]})
    assert (request, hash(request)) == (same, hash(same))
    assert decide(request) == decide(same)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_explanation_gives_the_same_decision_and_every_candidate(strategy: Strategy) -> None:
    for number in range(30):
        request = ask(f"job {number}", "2024-05-15T12:00:00Z", "4h", seed=strategy, avoid={"between": "12:30-15:30"})
        found = explain(request)
        assert found.request is request
        assert found.decision == decide(request)
        *rejected, last = found.candidates
        assert [each.attempt for each in found.candidates] == list(range(1, found.decision.attempts + 1))
        assert all(each.objection == "in avoid between=12:30-15:30" for each in rejected)
        assert (last.objection, last.time) == (None, found.decision.chosen_time)


def test_an_explanation_says_which_clause_of_each_set_failed() -> None:
    found = explain(ask("job", "2024-05-15T12:00:00Z", only={"hours": "8-9", "dow": "wed", "months": "jan"}))
    (candidate,) = found.candidates
    assert (candidate.attempt, candidate.draw, candidate.time) == (0, 0.0, NOON)
    assert candidate.objection == "not in only hours=8-9; months=1"
