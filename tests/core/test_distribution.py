"""Distributions: where in the window each draw falls, and which parameters are refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import NormalDist, fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.golden_decisions import Mode
from tests.tier import examples

from horae.core.window.decision import DecisionRequest
from horae.core.window.distribution import DISTRIBUTIONS, Distribution, check, normal_quantile, sampler
from horae.core.window.window import Window
from horae.errors import InvalidDistribution

LOWEST, HIGHEST = 0.0, 1 - 2.0**-53
GRID = [number / 997 for number in range(997)]
EVERY = [
    Distribution("uniform"),
    Distribution("skewEarly"),
    Distribution("skewEarly", {"shape": "0.25"}),
    Distribution("skewEarly", {"shape": "1000000"}),
    Distribution("skewLate"),
    Distribution("skewLate", {"shape": "5.5"}),
    Distribution("skewLate", {"shape": "0.000001"}),
    Distribution("normal"),
    Distribution("normal", {"mu": "start", "sigma": "500w"}),
    Distribution("normal", {"mu": "end", "sigma": "1us"}),
    Distribution("exponential"),
    Distribution("exponential", {"lambda": "1000000"}),
    Distribution("exponential", {"lambda": "1000000", "dir": "late"}),
    Distribution("exponential", {"lambda": "0.0001", "dir": "late"}),
]


def offsets(name: str, params: dict[str, Any] | None = None, width: int = 10_000, mode: Mode = "after") -> list[int]:
    """Where the grid's draws fall."""
    offset = sampler(Distribution(name, params or {}), width, width // 4, mode)
    return [offset(draw) for draw in GRID]


@pytest.mark.parametrize(
    "draw", [2.0**-54, 2.0**-53, 1e-12, 1e-4, 0.01, 0.074999, 0.075, 0.075001, 0.3, 0.4999999, 0.5]
)
def test_the_normal_quantile_agrees_with_the_standard_library_on_both_sides(draw: float) -> None:
    assert normal_quantile(draw) == pytest.approx(NormalDist().inv_cdf(draw), rel=1e-14, abs=1e-15)
    if 1 - draw < 1:
        assert normal_quantile(1 - draw) == pytest.approx(NormalDist().inv_cdf(1 - draw), rel=1e-14, abs=1e-15)


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(st.integers(1, 2**53 - 1))
def test_the_normal_quantile_of_any_draw_agrees_with_the_standard_library(bits: int) -> None:
    draw = bits / 2**53
    assert normal_quantile(draw) == pytest.approx(NormalDist().inv_cdf(draw), rel=1e-14, abs=1e-15)


@pytest.mark.parametrize("distribution", EVERY, ids=str)
@pytest.mark.parametrize("width", [1, 2, 59, 86_400, 300_000_000_000])
def test_every_draw_falls_into_the_window(distribution: Distribution, width: int) -> None:
    for nominal in (0, width // 2, width):
        offset = sampler(distribution, width, nominal, "around")
        for draw in (LOWEST, 2.0**-53, 0.25, 0.5, 0.75, HIGHEST):
            found = offset(draw)
            assert type(found) is int
            assert 0 <= found <= width


@pytest.mark.parametrize("distribution", EVERY, ids=str)
def test_positions_follow_their_draws_in_order(distribution: Distribution) -> None:
    found = offsets(distribution.name, dict(distribution.params))
    backwards = distribution.params.get("dir") == "late"
    assert found == sorted(found, reverse=backwards)


def test_uniform_gives_each_second_the_same_share() -> None:
    offset = sampler(Distribution("uniform"), 9, 0, "after")
    assert [offset(number / 100) for number in range(100)] == [second for second in range(10) for _ in range(10)]
    assert offset(HIGHEST) == 9


@pytest.mark.parametrize("width", [1, 2, 6, 3600, 2**31, 2**38 - 1, 300_000_000_000])
def test_the_default_distribution_is_uniform_to_its_last_second(width: int) -> None:
    usual = DecisionRequest("job", datetime(2024, 5, 15, tzinfo=UTC)).distribution
    assert usual == Distribution("uniform")
    offset, named = (sampler(each, width, 0, "after") for each in (usual, Distribution("uniform", {})))
    assert [offset(draw) for draw in (*GRID, HIGHEST)] == [named(draw) for draw in (*GRID, HIGHEST)]
    assert (offset(LOWEST), offset(HIGHEST)) == (0, width)


def test_skews_square_their_draw_by_default() -> None:
    early, late = offsets("skewEarly"), offsets("skewLate")
    assert early == [math.floor(draw * draw * 10_001) for draw in GRID]
    assert late == [math.floor((1 - (1 - draw) * (1 - draw)) * 10_001) for draw in GRID]
    for shape in ("2", "2.0", 2, 2.0, Decimal(2), "2.000", "0.2e1"):
        assert offsets("skewEarly", {"shape": shape}) == early
        assert offsets("skewLate", {"shape": shape}) == late


@pytest.mark.parametrize("shape", [0.3, 1.5, 3, 8])
def test_skews_have_the_mean_of_their_shape(shape: float) -> None:
    assert fmean(offsets("skewEarly", {"shape": shape})) / 10_000 == pytest.approx(1 / (shape + 1), abs=0.01)
    assert fmean(offsets("skewLate", {"shape": shape})) / 10_000 == pytest.approx(shape / (shape + 1), abs=0.01)


@pytest.mark.parametrize("rate", ["0.5", "1", "3", "20"])
def test_the_exponential_has_the_mean_of_its_rate_within_the_window(rate: str) -> None:
    number = float(rate)
    mean = 1 / number - 1 / math.expm1(number)
    assert fmean(offsets("exponential", {"lambda": rate})) / 10_000 == pytest.approx(mean, abs=0.01)
    late = fmean(offsets("exponential", {"lambda": rate, "dir": "late"})) / 10_000
    assert late == pytest.approx(1 - mean, abs=0.01)


def test_the_exponential_rate_is_one_per_window_and_early_by_default() -> None:
    assert offsets("exponential") == offsets("exponential", {"lambda": "1", "dir": "early"})


@pytest.mark.parametrize("rate", ["1e-3", "1e-9", "1e-25", "1e-39", "1e-45"])
def test_an_ever_smaller_rate_comes_ever_nearer_to_uniform_or_is_refused(rate: str) -> None:
    try:
        early, late = offsets("exponential", {"lambda": rate}), offsets("exponential", {"lambda": rate, "dir": "late"})
    except InvalidDistribution:
        return
    for expected, first, last in zip(offsets("uniform"), early, late, strict=True):
        assert abs(first - expected) <= 3
        assert abs(10_000 - last - expected) <= 3


@pytest.mark.parametrize(("anchor", "middle"), [("nominal", 250), ("start", 0), ("mid", 500), ("end", 1000)])
def test_half_of_a_normal_lies_before_its_anchor(anchor: str, middle: int) -> None:
    offset = sampler(Distribution("normal", {"mu": anchor, "sigma": "1s"}), 1000, 250, "after")
    assert offset(0.5) == middle
    assert offset(0.15) < max(middle, 1)
    assert offset(0.95) > min(middle, 999)


@pytest.mark.parametrize(("mode", "middle"), [("after", 500), ("before", 500), ("around", 250), ("center", 250)])
def test_a_normal_without_an_anchor_follows_its_mode(mode: Mode, middle: int) -> None:
    assert sampler(Distribution("normal"), 1000, 250, mode)(0.5) == middle


def test_a_normal_without_a_sigma_takes_a_sixth_of_the_window() -> None:
    assert offsets("normal", width=6000) == offsets("normal", {"sigma": "1000s"}, width=6000)


@pytest.mark.parametrize("sigma", ["90", 90, 90.0, "90.0", "90s", "1m30s", "1.5m", "PT90S", timedelta(seconds=90)])
def test_sigma_is_any_duration_and_a_bare_number_is_seconds(sigma: object) -> None:
    assert offsets("normal", {"sigma": sigma}, width=600) == offsets("normal", {"sigma": "90s"}, width=600)


def test_the_lowest_draw_of_a_normal_is_read_as_half_of_the_smallest_one() -> None:
    offset = sampler(Distribution("normal", {"sigma": "100s"}), 3600, 0, "after")
    assert offset(0.0) == math.floor((1800 + 100 * NormalDist().inv_cdf(2.0**-54)) / 3600 * 3601)


NOT_ABOVE_ZERO: list[object] = ["", "x", "0", 0, -1, "-0.5", "nan", "inf", "-inf", "sNaN", None, True, [], "0x2"]
NO_SIGMA: list[object] = ["", "0", 0, "0s", "-1s", -1, "x", None, True, [], "nan"]
BAD: list[tuple[Any, Any, str]] = [
    ("uniform", {"shape": 2}, "shape"),
    ("uniform", {"": ""}, "parameter"),
    ("uniform", {5: 5}, "5"),
    ("skewEarly", {"Shape": 2}, "Shape"),
    ("skewEarly", {"shape": 2, "sigma": 2}, "sigma"),
    ("skewLate", {"lambda": 2}, "lambda"),
    ("normal", {"mean": "mid"}, "mean"),
    ("exponential", {"rate": 1}, "rate"),
    *[
        (name, {key: value}, key)
        for name, key in (("skewEarly", "shape"), ("skewLate", "shape"), ("exponential", "lambda"))
        for value in (*NOT_ABOVE_ZERO, "1000001", "1e7")
    ],
    *[("exponential", {"dir": value}, "dir") for value in ("", "Early", "left", None, 1)],
    *[("normal", {"mu": value}, "mu") for value in ("", "Mid", "middle", "12:00", None, 0)],
    *[("normal", {"sigma": value}, "sigma") for value in NO_SIGMA],
    ("normal", {"sigma": timedelta(0)}, "sigma"),
    ("normal", {"sigma": timedelta(seconds=-1)}, "negative"),
    ("normal", {"sigma": "9" * 400}, "sigma"),
    ("normal", {"sigma": "P1Y"}, "sigma"),
    ("Normal", {}, "Normal"),
    ("", {}, "distribution"),
    (5, {}, "5"),
    (None, {}, "None"),
    ("uniform", "shape", "parameters"),
    ("uniform", [("shape", 2)], "parameters"),
    ("uniform", None, "parameters"),
]


@pytest.mark.parametrize(("name", "params", "named"), BAD, ids=[f"{name} {params}"[:60] for name, params, _ in BAD])
def test_a_distribution_is_refused_by_the_name_of_its_fault(name: Any, params: Any, named: str) -> None:
    with pytest.raises(InvalidDistribution) as caught:
        check(Distribution(name, params))
    assert named in str(caught.value)


@pytest.mark.parametrize("text", ["1_0", " 2", "\u0663"])
def test_a_parameter_is_a_number_in_plain_digits(text: str) -> None:
    with pytest.raises(InvalidDistribution, match="shape"):
        check(Distribution("skewEarly", {"shape": text}))


def test_sigma_is_a_number_in_plain_digits() -> None:
    with pytest.raises(InvalidDistribution, match="sigma"):
        check(Distribution("normal", {"sigma": "\u0663"}))


def test_a_number_of_five_thousand_digits_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidDistribution, match="shape"):
        check(Distribution("skewEarly", {"shape": "9" * 5000}))
    with pytest.raises(InvalidDistribution):
        check(Distribution("skewEarly", {"shape": 10**5000}))


def test_the_names_and_parameters_are_the_documented_ones() -> None:
    assert dict(DISTRIBUTIONS) == {
        "uniform": (),
        "normal": ("mu", "sigma"),
        "skewEarly": ("shape",),
        "skewLate": ("shape",),
        "exponential": ("lambda", "dir"),
    }


def test_parameters_are_printed_sorted_and_as_text() -> None:
    distribution = Distribution("normal", {"sigma": timedelta(minutes=5), "mu": "mid"})
    assert str(distribution) == "normal,mu=mid,sigma=5m"
    assert distribution.to_dict() == {"name": "normal", "params": {"mu": "mid", "sigma": "5m"}}
    assert str(Distribution()) == "uniform"


@pytest.mark.parametrize(
    "distribution",
    [
        Distribution("skewEarly", {"shape": "2.5"}),
        Distribution("skewEarly", {"shape": 3}),
        Distribution("skewLate", {"shape": 2.5}),
        Distribution("exponential", {"lambda": Decimal("0.5"), "dir": "late"}),
        Distribution("normal", {"sigma": timedelta(minutes=5)}),
    ],
    ids=repr,
)
def test_a_distribution_equals_what_is_read_back_from_its_dict(distribution: Distribution) -> None:
    window = Window.after("1h", distribution)
    assert Distribution(**distribution.to_dict()) == distribution
    assert Window.from_dict(window.to_dict()) == window


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"shape": 2}, {"shape": 2}),
        ({"shape": 2}, {"shape": 2.0}),
        ({"shape": Decimal(3)}, {"shape": 3}),
        ({"shape": 2}, {"shape": "2"}),
        ({"mu": "mid", "sigma": 5}, {"sigma": 5, "mu": "mid"}),
    ],
)
def test_distributions_that_are_equal_have_equal_hashes(left: dict[str, Any], right: dict[str, Any]) -> None:
    one, other = Distribution("normal", left), Distribution("normal", right)
    assert one != other or hash(one) == hash(other)
