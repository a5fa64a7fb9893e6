"""The golden decisions, byte for byte; and our own ones, held against the mathematics they claim to be."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import NormalDist

import pytest
from tests.core.golden_decisions import FROZEN, NO_CANDIDATE, NOON, PUBLISHED, Frozen, Published
from tests.core.test_decision_oracle import draws, slow_decision

from horae.core.time.duration import parse_duration
from horae.core.window.decision import decide, explain


def frozen_by(ending: str) -> Frozen:
    (found,) = (each for each in FROZEN if each.request.identity == f"frozen/{ending}")
    return found


def first_draw(case: Frozen) -> float:
    return next(draws(case.seed_hash))


def offset_after(case: Frozen, start: str) -> int:
    return int((datetime.fromisoformat(case.chosen_time) - datetime.fromisoformat(start)).total_seconds())


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_a_published_decision_holds_in_every_figure(case: Published) -> None:
    found = decide(case.request).to_dict()
    assert found["period_id"] == case.period_id
    assert found["period_key"] == case.period_key
    assert found["nominal_time"] == case.period_id
    assert found["window_start"] == case.window_start
    assert found["window_end"] == case.window_end
    assert found["seed_hash"] == case.seed_hash
    assert found["chosen_time"] == case.chosen_time
    assert found["attempts"] == case.attempts
    assert found["unschedulable"] is (case.chosen_time is None)
    assert found["reason"] == case.reason


def test_the_published_decisions_are_all_there_under_names_of_their_own() -> None:
    assert len(PUBLISHED) == 16
    assert len({case.name for case in PUBLISHED}) == 16
    assert {case.reason for case in PUBLISHED} == {None, NO_CANDIDATE}


@pytest.mark.parametrize("case", FROZEN, ids=lambda case: case.request.identity)
def test_a_frozen_decision_holds_in_every_figure(case: Frozen) -> None:
    found = decide(case.request)
    assert found.to_dict()["chosen_time"] == case.chosen_time
    assert found.seed_hash == case.seed_hash
    assert (found.attempts, found.unschedulable, found.reason) == (1, False, None)


@pytest.mark.parametrize("case", FROZEN, ids=lambda case: case.request.identity)
def test_a_frozen_decision_is_what_the_mathematics_of_floats_gives(case: Frozen) -> None:
    request = replace(case.request, window_duration=parse_duration(case.request.window_duration))
    _, _, _, _, seed_hash, chosen, attempts, unschedulable = slow_decision(request, [], [])
    assert (seed_hash, chosen, attempts, unschedulable) == (case.seed_hash, case.chosen_time, 1, False)


def test_the_frozen_decisions_cover_every_anchor_direction_mode_and_parameter() -> None:
    requests = [case.request for case in FROZEN]
    assert {each.window_mode for each in requests} == {"after", "before", "around", "center"}
    assert {each.seed_strategy for each in requests} == {"stable", "daily", "weekly"}
    normal = [each for each in requests if each.distribution.name == "normal"]
    assert {each.distribution.params.get("mu") for each in normal} == {None, "nominal", "start", "mid", "end"}
    assert {"sigma" in each.distribution.params for each in normal} == {True, False}
    assert {each.window_mode for each in normal} == {"after", "before", "around", "center"}
    exponential = [each for each in requests if each.distribution.name == "exponential"]
    assert {each.distribution.params.get("dir") for each in exponential} == {None, "early", "late"}
    assert {"lambda" in each.distribution.params for each in exponential} == {True, False}
    assert {each.window_mode for each in exponential} == {"after", "before", "around", "center"}


def test_a_normal_decision_is_the_quantile_of_its_draw_around_the_middle() -> None:
    case = frozen_by("normal-after")
    offset = offset_after(case, NOON)
    second = (1800 + 600 * NormalDist().inv_cdf(first_draw(case))) / 3600 * 3601
    assert offset == math.floor(second)


def test_a_normal_decision_around_the_nominal_time_has_its_middle_there() -> None:
    case = frozen_by("normal-center")
    offset = offset_after(case, "2024-05-15T11:15:00Z")
    assert offset == math.floor((2700 + 600 * NormalDist().inv_cdf(first_draw(case))) / 5400 * 5401)


def test_an_exponential_decision_is_the_truncated_quantile_of_its_draw() -> None:
    case = frozen_by("exponential-steep")
    offset = offset_after(case, "2024-05-15T10:00:00Z")
    cut = 1 - math.exp(-5)
    assert offset == math.floor(-math.log(1 - first_draw(case) * cut) / 5 * 7201)


def test_a_late_exponential_decision_is_measured_from_the_end() -> None:
    case = frozen_by("exponential-late")
    early = -math.log(1 - first_draw(case) * (1 - math.exp(-1)))
    assert offset_after(case, NOON) == math.floor((1 - early) * 3601)


def test_skews_of_other_shapes_are_powers_of_their_draw() -> None:
    early, late = frozen_by("skew-early-half"), frozen_by("skew-late-three")
    assert offset_after(early, "2024-05-15T10:00:00Z") == math.floor(math.sqrt(first_draw(early)) * 7201)
    assert offset_after(late, "2024-05-15T11:15:00Z") == math.floor((1 - (1 - first_draw(late)) ** 3) * 5401)


def test_the_published_first_draw_is_the_explained_one() -> None:
    case = PUBLISHED[0]
    (candidate,) = explain(case.request).candidates
    assert candidate.draw == next(draws(case.seed_hash))
    assert candidate.time == datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=math.floor(candidate.draw * 3601))
