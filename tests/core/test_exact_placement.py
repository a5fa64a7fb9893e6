"""Exact placement: what 64 draws miss is picked among the allowed seconds, as a slow oracle that counts them says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from random import Random

import pytest
from tests.core.oracle import load_zone
from tests.core.test_decision_oracle import EPOCH, Clauses, allowed, any_distribution, any_request, draws, window

from horae import Cron, Every, Window
from horae.core.time.zone import zone
from horae.core.window.allowed_time import allowed_stretches, seconds_in
from horae.core.window.constraint import Constraints
from horae.core.window.decision import NO_SECOND, DecisionRequest, bounds_of, decide, explain
from horae.core.window.distribution import Distribution, likelihood, sampler
from horae.core.window.probability import odds_of, room_of
from horae.errors import InvalidKrontab, InvalidWindow
from horae.formats.krontab.parser import parse_line

NIGHT = datetime(2026, 1, 1, tzinfo=UTC)
NARROW = {"between": "03:00-03:10"}
CLOCK_CHANGES = ("2024-03-31T00:00", "2024-10-27T00:00", "2024-03-10T06:00", "2024-11-03T05:00", "2024-04-06T14:00")


def second_by_second(request: DecisionRequest, only: list[Clauses], avoid: list[Clauses]) -> list[int]:
    """Every allowed second of a window, looked at one by one on clocks of the standard library."""
    assert isinstance(request.window_duration, timedelta)
    first, last = window(request.nominal_time, request.window_mode, request.window_duration)
    clocks = load_zone(request.timezone)
    walls = ((second, (EPOCH + timedelta(seconds=second)).astimezone(clocks)) for second in range(first, last + 1))
    return [second for second, wall in walls if allowed(only, avoid, wall)]


def test_allowed_seconds_and_the_one_that_is_picked_are_those_of_an_oracle_that_counts() -> None:
    chooser = Random(2027)
    picked = empty = 0
    for number in range(60):
        request, only, avoid = any_request(chooser)
        near = datetime.fromisoformat(f"{chooser.choice(CLOCK_CHANGES)}+00:00")
        length = timedelta(seconds=chooser.randrange(1, 9_000), microseconds=chooser.choice((0, 250_000)))
        request = replace(request, nominal_time=near, window_duration=length, exact=True)
        if number % 2:
            wall = (near + length * chooser.random()).astimezone(load_zone(request.timezone))
            minute = wall.hour * 60 + wall.minute
            only, avoid = [Clauses(minutes=[(minute, minute)])], []
            request = replace(request, constraints=Constraints([each.given(chooser) for each in only]))
        seconds = second_by_second(request, only, avoid)
        first, last, _ = bounds_of(request)
        stretches = allowed_stretches(request.constraints.rules(), zone(request.timezone), first, last)
        assert [second for low, high in stretches for second in range(low, high + 1)] == seconds
        assert all(later[0] > before[1] + 1 for before, later in pairwise(stretches))
        decision, plain = decide(request), decide(replace(request, exact=False))
        if not plain.unschedulable:
            assert decision == plain
        elif not seconds:
            empty += 1
            assert (decision.chosen_time, decision.reason, decision.attempts) == (None, NO_SECOND, plain.attempts)
        else:
            picked += 1
            draw = next(islice(draws(decision.seed_hash), 64, None))
            assert decision.chosen_time == EPOCH + timedelta(seconds=seconds[int(draw * len(seconds))])
            assert (decision.attempts, decision.constraint_meta.rejected, decision.reason) == (65, 64, None)
    assert picked >= 5
    assert empty >= 5


def test_days_of_a_year_are_told_apart_as_the_oracle_does_it_for_whole_minutes() -> None:
    chooser = Random(5)
    for _ in range(20):
        request, only, avoid = any_request(chooser)
        start = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=chooser.randrange(1500))
        request = replace(request, nominal_time=start, window_mode="after", window_duration=timedelta(days=200))
        first, last, _ = bounds_of(request)
        stretches = allowed_stretches(request.constraints.rules(), zone(request.timezone), first, last)
        inside = {minute for low, high in stretches for minute in range(-(-low // 60), high // 60 + 1)}
        clocks = load_zone(request.timezone)
        for minute in chooser.sample(range(first // 60, last // 60), 2_000):
            wall = (EPOCH + timedelta(minutes=minute)).astimezone(clocks)
            assert (minute in inside) == allowed(only, avoid, wall)


def test_a_narrow_window_starts_every_night_of_a_year_when_it_is_exact() -> None:
    plain, exact = (Window.after("24h", only=NARROW, exact=each) for each in (False, True))
    nights = [NIGHT + timedelta(days=day) for day in range(365)]
    assert sum(decide(plain.request("backup", night, "UTC")).unschedulable for night in nights) == 234
    chosen = [decide(exact.request("backup", night, "UTC")).chosen_time for night in nights]
    assert all(each is not None and each.hour == 3 and each.minute <= 10 for each in chosen)
    assert len({each - night for each, night in zip(chosen, nights, strict=True) if each is not None}) > 200
    assert chosen == [decide(exact.request("backup", night, "UTC")).chosen_time for night in nights]


def test_the_only_second_that_is_left_of_a_year_is_found() -> None:
    only = {"dates": "2026-11-01", "between": "23:59-23:59"}
    request = Window.after("366d", only=only, exact=True).request("rare", NIGHT, "UTC")
    first, _, _ = bounds_of(request)
    tight = replace(request, window_duration=datetime(2026, 11, 1, 23, 59, tzinfo=UTC) - NIGHT)
    assert decide(tight).chosen_time == datetime(2026, 11, 1, 23, 59, tzinfo=UTC)
    assert first == int(NIGHT.timestamp())


def test_a_slot_without_a_window_has_one_candidate_however_exact() -> None:
    request = Window.after(0, only={"hours": 5}, exact=True).request("job", NIGHT, "UTC")
    assert decide(request)._replace(reason=None) == decide(replace(request, exact=False))._replace(reason=None)
    assert decide(request).reason == NO_SECOND


def test_the_trace_ends_with_the_second_that_was_picked() -> None:
    trace = explain(Window.after("30d", only={"dates": "2026-01-20", **NARROW}, exact=True).request("a", NIGHT, "UTC"))
    assert [each.attempt for each in trace.candidates] == list(range(1, 66))
    assert (trace.candidates[-1].objection, trace.candidates[-1].time) == (None, trace.decision.chosen_time)


@pytest.mark.parametrize("exact", [1, "yes", None])
def test_exact_is_true_or_false(exact: object) -> None:
    with pytest.raises(InvalidWindow, match="must be True or False"):
        Window.after("1h", exact=exact)  # type: ignore[arg-type]
    with pytest.raises(InvalidWindow, match="must be True or False"):
        decide(DecisionRequest("a", NIGHT, exact=exact))  # type: ignore[arg-type]


def test_a_window_of_many_years_is_not_exact() -> None:
    with pytest.raises(InvalidWindow, match="at most 366 days"):
        Window.after("367d", only=NARROW, exact=True)
    with pytest.raises(InvalidWindow, match="at most 366 days"):
        decide(DecisionRequest("a", NIGHT, window_duration="367d", exact=True))
    assert Window.after("367d", only=NARROW).exact is False


def test_exact_survives_every_written_form() -> None:
    made = Window.after("24h", only=NARROW, exact=True)
    assert Window.from_dict(made.to_dict()) == made
    assert "exact" not in Window.after("24h", only=NARROW).to_dict()
    line = "0 0 * * * @win(after,1d,exact) @only(between=03:00-03:10) name=a command=b"
    job = parse_line(line)
    assert job is not None
    assert job.window == made
    assert str(job) == line


@pytest.mark.parametrize("given", ["@win(after)", "@win(after,1h,exactly)", "@win(after,1h,exact,exact)", "@win(,1h)"])
def test_a_krontab_window_takes_exact_and_nothing_else(given: str) -> None:
    with pytest.raises(InvalidKrontab, match="@win takes 2 arguments: @win"):
        parse_line(f"0 0 * * * {given} name=a command=b")


def test_the_chance_of_a_stretch_is_the_share_of_draws_that_land_there() -> None:
    chooser = Random(99)
    samples = 1_000
    for _ in range(60):
        distribution = any_distribution(chooser)
        width, mode = chooser.choice((3_599, 86_400, 11)), chooser.choice(("after", "around"))
        nominal = width // 2 if mode == "around" else 0
        land = sampler(distribution, width, nominal, mode)
        chance = likelihood(distribution, width, nominal, mode)
        first = chooser.randrange(width)
        last = chooser.randrange(first, width + 1)
        share = sum(first <= land((each + 0.5) / samples) <= last for each in range(samples)) / samples
        assert abs(chance(first, last) - share) <= 2 / samples, distribution
        assert chance(0, width) == 1.0


def test_the_rate_that_is_told_is_the_rate_that_comes_true() -> None:
    window = Window.after("24h", Distribution("skewEarly"), only={"between": "18:00-18:30"})
    odds = odds_of("job", Cron("0 0 * * *"), window, NIGHT)
    assert odds is not None
    lost = sum(
        decide(window.request(f"job {name}", NIGHT + timedelta(days=name % 28), "UTC")).unschedulable
        for name in range(2_000)
    )
    assert abs(lost / 2_000 - odds.missed) < 0.04
    assert str(odds).startswith(f"about {odds.rate} of its slots will be UNSCHEDULABLE by chance: only and avoid leave")


def test_slots_without_any_allowed_time_are_counted_apart_from_those_that_have_bad_luck() -> None:
    weekends = Window.after("2h", avoid={"dow": "sat,sun"})
    odds = odds_of("job", Cron("0 12 * * *"), weekends, NIGHT)
    assert odds is not None
    assert (odds.slots, odds.closed, odds.is_narrow) == (28, 8, False)
    assert odds_of("job", Cron("0 12 * * *"), Window.after("2h"), NIGHT) is None
    assert odds_of("job", None, weekends, NIGHT) is None
    exact = odds_of("job", Every("1d"), Window.after("24h", only=NARROW, exact=True), NIGHT)
    assert exact is not None
    assert not exact.is_narrow
    assert seconds_in([(1, 1), (3, 9)]) == 8
    assert room_of(DecisionRequest("a", NIGHT, constraints=Constraints(only={"hours": 1}))).missed == 1.0
