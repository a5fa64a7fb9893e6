"""Distributions: they map a uniform draw to a position in the window.

Every step is either a single IEEE operation or decimal arithmetic, never the platform's `pow`, `log` or `exp`. The last
bits of those differ between machines, so that two nodes could choose different times for the same slot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from math import erf, expm1, sqrt
from types import MappingProxyType
from typing import Any

from horae.core.time.duration import format_duration, parse_duration
from horae.errors import InvalidDistribution, InvalidDuration, as_text, shown

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "uniform": (),
        "normal": ("mu", "sigma"),
        "skewEarly": ("shape",),
        "skewLate": ("shape",),
        "exponential": ("lambda", "dir"),
    }
)
_ANCHORS = ("nominal", "start", "mid", "end")
_EXACT = Context(prec=40, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[])
_ONE = Decimal(1)
_LEAST_PARAMETER, _GREATEST_PARAMETER = Decimal("0.000001"), Decimal(1_000_000)
_NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """A distribution by name, with its parameters: `Distribution("normal", {"mu": "mid", "sigma": "5m"})`.

    uniform        every second is equally likely
    normal         `mu`: nominal, start, mid or end; `sigma`: a duration, by default a sixth of the window
    skewEarly      `shape`, by default 2: the larger, the earlier
    skewLate       `shape`, by default 2: the larger, the later
    exponential    `lambda`, by default 1; `dir`: early or late

    Name and parameters are checked where the distribution is used, not here. Two are equal when their names and the
    texts of their parameters are equal.
    """

    name: str = "uniform"
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.params, Mapping):
            # A copy, so that a later change of the caller's mapping does not change a decision.
            object.__setattr__(self, "params", dict(self.params))

    def items(self) -> tuple[tuple[str, str], ...]:
        """The parameters as text, sorted by name: the form that is hashed, stored and printed."""
        if not isinstance(self.params, Mapping):
            raise InvalidDistribution(f"Invalid distribution parameters {shown(self.params)}: must be a mapping")
        return tuple(sorted((str(key), _as_text(value)) for key, value in self.params.items()))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "params": dict(self.items())}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and (self.name, self.items()) == (other.name, other.items())

    def __hash__(self) -> int:
        return hash((self.name, self.items()))

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{key}={value}" for key, value in self.items())])


UNIFORM = Distribution()


def _as_text(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Decimal):
        return str(value)
    return as_text(int(value) if isinstance(value, float) and value.is_integer() else value)


def sampler(distribution: Distribution, width: int, nominal: int, mode: str) -> Callable[[float], int]:
    """A function from a draw in [0, 1) to an offset in whole seconds in [0, width].

    `nominal` is the offset of the nominal time. Raises InvalidDistribution.
    """
    if not isinstance(distribution, Distribution) or not isinstance(distribution.name, str):
        raise InvalidDistribution(f"Invalid distribution {shown(distribution)}: must be a Distribution with a name")
    if distribution.name == "uniform" and distribution.params == {}:
        slots = width + 1
        return lambda draw: int(draw * slots)
    return _sampler(distribution.name, distribution.items(), width, nominal, mode)


def likelihood(distribution: Distribution, width: int, nominal: int, mode: str) -> Callable[[int, int], float]:
    """A function from two offsets, both inclusive, to the probability that one draw lands between them.

    For estimates only: it uses the platform's math functions, and no decision depends on it.
    """
    check(distribution)
    params = dict(distribution.items())
    below = _shares(distribution.name, params, width, nominal, mode)

    def chance(first: int, last: int) -> float:
        # Draws beyond an end of the window are clamped to it, so they count for the offset at that end.
        least = 0.0 if first <= 0 else below(first / (width + 1))
        return max((1.0 if last >= width else below((last + 1) / (width + 1))) - least, 0.0)

    return chance


def _shares(name: str, params: dict[str, str], width: int, nominal: int, mode: str) -> Callable[[float], float]:
    """A function from a position in (0, 1) to the share of draws below it: the inverse of `_position`."""
    if name in ("skewEarly", "skewLate"):
        power = 1.0 / float(params.get("shape", "2"))
        return (lambda at: 1.0 - (1.0 - at) ** power) if name == "skewLate" else (lambda at: at**power)
    if name == "exponential":
        rate = float(params.get("lambda", "1"))
        if params.get("dir", "early") == "early":
            return lambda at: expm1(-rate * at) / expm1(-rate)
        return lambda at: 1.0 - expm1(-rate * (1.0 - at)) / expm1(-rate)
    if name == "normal":
        mean, sigma = _mean(params, width, nominal, mode), _sigma(params.get("sigma"), width)
        return lambda at: 0.5 + 0.5 * erf((at * width - mean) / (sigma * sqrt(2.0)))
    return _same


def check(distribution: Distribution) -> None:
    """Raises InvalidDistribution unless name and parameters are valid."""
    sampler(distribution, 1, 0, "after")


@lru_cache(maxsize=1024)
def _sampler(
    name: str, items: tuple[tuple[str, str], ...], width: int, nominal: int, mode: str
) -> Callable[[float], int]:
    if name not in DISTRIBUTIONS:
        known = ", ".join(DISTRIBUTIONS)
        raise InvalidDistribution(f"Invalid distribution {shown(name)}", hint=f"Choose one of: {known}.")
    params = dict(items)
    for key in params:
        if key not in DISTRIBUTIONS[name]:
            known = ", ".join(DISTRIBUTIONS[name]) or "none"
            raise InvalidDistribution(
                f"Invalid distribution parameter {shown(key)} for {name}", hint=f"It takes: {known}."
            )
    position = _position(name, params, width, nominal, mode)
    slots = width + 1

    def offset(draw: float) -> int:
        found = position(draw)
        # Not in the decimal context of the calling thread, which belongs to the host program.
        scaled = _EXACT.multiply(found, Decimal(slots)) if isinstance(found, Decimal) else found * slots
        return min(max(int(scaled), 0), width)

    return offset


def _position(
    name: str, params: dict[str, str], width: int, nominal: int, mode: str
) -> Callable[[float], float | Decimal]:
    if name == "uniform":
        return _same
    if name in ("skewEarly", "skewLate"):
        return _skewed(_positive(params.get("shape", "2"), name, "shape"), late=name == "skewLate")
    if name == "exponential":
        direction = params.get("dir", "early")
        if direction not in ("early", "late"):
            raise InvalidDistribution(
                f"Invalid distribution parameter dir {shown(direction)} for exponential", hint="Choose early or late."
            )
        return _exponential(_positive(params.get("lambda", "1"), name, "lambda"), late=direction == "late")
    return _normal(_mean(params, width, nominal, mode), _sigma(params.get("sigma"), width), width)


def _mean(params: Mapping[str, str], width: int, nominal: int, mode: str) -> float:
    anchor = params.get("mu", "nominal" if mode in ("around", "center") else "mid")
    if anchor not in _ANCHORS:
        raise InvalidDistribution(
            f"Invalid distribution parameter mu {shown(anchor)} for normal",
            hint=f"Choose one of: {', '.join(_ANCHORS)}.",
        )
    return {"nominal": float(nominal), "start": 0.0, "mid": width / 2, "end": float(width)}[anchor]


def _same(draw: float) -> float:
    return draw


def _positive(text: str, name: str, key: str) -> Decimal:
    number = _EXACT.create_decimal(text) if _NUMBER.fullmatch(text) else Decimal("NaN")
    if not number.is_finite() or not _LEAST_PARAMETER <= number <= _GREATEST_PARAMETER:
        reason = f"must be a number from {_LEAST_PARAMETER} to {_GREATEST_PARAMETER}"
        raise InvalidDistribution(f"Invalid distribution parameter {key} {shown(text)} for {name}: {reason}")
    return number


def _sigma(text: str | None, width: int) -> float:
    if text is None:
        return width / 6
    try:
        # A bare number means seconds, as in every other duration.
        duration = parse_duration(float(text) if _NUMBER.fullmatch(text) else text, name="sigma")
    except InvalidDuration as error:
        raise InvalidDistribution(f"Invalid distribution parameter sigma for normal: {error}") from error
    if not duration:
        raise InvalidDistribution("Invalid distribution parameter sigma for normal: must be longer than nothing")
    return (duration.days * 86_400 + duration.seconds) + duration.microseconds / 1_000_000


def _skewed(shape: Decimal, *, late: bool) -> Callable[[float], float | Decimal]:
    if shape == 2:
        return (lambda draw: 1.0 - (1.0 - draw) * (1.0 - draw)) if late else (lambda draw: draw * draw)
    if late:
        return lambda draw: _EXACT.subtract(_ONE, _EXACT.power(_EXACT.subtract(_ONE, Decimal.from_float(draw)), shape))
    return lambda draw: _EXACT.power(Decimal.from_float(draw), shape)


def _exponential(rate: Decimal, *, late: bool) -> Callable[[float], Decimal]:
    """The inverse of the exponential distribution, truncated at the far end of the window."""
    mass = _EXACT.subtract(_ONE, _EXACT.exp(_EXACT.minus(rate)))

    def position(draw: float) -> Decimal:
        remaining = _EXACT.subtract(_ONE, _EXACT.multiply(Decimal.from_float(draw), mass))
        early = _EXACT.divide(_EXACT.minus(_EXACT.ln(remaining)), rate)
        return _EXACT.subtract(_ONE, early) if late else early

    return position


def _normal(mean: float, sigma: float, width: int) -> Callable[[float], float]:
    return lambda draw: (mean + sigma * normal_quantile(draw or 2.0**-54)) / width


def _ratio(at: float, above: tuple[float, ...], below: tuple[float, ...]) -> float:
    top = bottom = 0.0
    for coefficient in above:
        top = top * at + coefficient
    for coefficient in below:
        bottom = bottom * at + coefficient
    return top / bottom


def normal_quantile(draw: float) -> float:
    """The inverse of the standard normal distribution at 0 < draw < 1, by Wichura's AS 241 to about 16 digits."""
    centred = draw - 0.5
    if -0.425 <= centred <= 0.425:
        return _ratio(0.180625 - centred * centred, *_MIDDLE) * centred
    tail = draw if centred < 0 else 1.0 - draw
    depth = sqrt(-float(_EXACT.ln(Decimal.from_float(tail))))
    value = _ratio(depth - 1.6, *_TAIL) if depth <= 5.0 else _ratio(depth - 5.0, *_FAR_TAIL)
    return -value if centred < 0 else value


def _figures(text: str) -> tuple[float, ...]:
    return tuple(float(figure) for figure in text.split())


# Coefficients of AS 241 (Wichura 1988), highest power first: numerator, denominator.
_MIDDLE = (
    _figures(
        "2509.0809287301226727 33430.575583588128105 67265.770927008700853 45921.953931549871457 "
        "13731.693765509461125 1971.5909503065514427 133.14166789178437745 3.3871328727963666080"
    ),
    _figures(
        "5226.4952788528545610 28729.085735721942674 39307.895800092710610 21213.794301586595867 "
        "5394.1960214247511077 687.18700749205790830 42.313330701600911252 1"
    ),
)
_TAIL = (
    _figures(
        "7.7454501427834140764e-4 0.0227238449892691845833 0.241780725177450611770 1.27045825245236838258 "
        "3.64784832476320460504 5.76949722146069140550 4.63033784615654529590 1.42343711074968357734"
    ),
    _figures(
        "1.05075007164441684324e-9 5.475938084995344946e-4 0.0151986665636164571966 0.148103976427480074590 "
        "0.689767334985100004550 1.67638483018380384940 2.05319162663775882187 1"
    ),
)
_FAR_TAIL = (
    _figures(
        "2.01033439929228813265e-7 2.71155556874348757815e-5 0.00124266094738807843860 0.0265321895265761230930 "
        "0.296560571828504891230 1.78482653991729133580 5.46378491116411436990 6.65790464350110377720"
    ),
    _figures(
        "2.04426310338993978564e-15 1.42151175831644588870e-7 1.84631831751005468180e-5 7.86869131145613259100e-4 "
        "0.0148753612908506148525 0.136929880922735805310 0.599832206555887937690 1"
    ),
)
