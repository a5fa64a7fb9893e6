"""The decision written a second time, from its description: slow, obvious, in fractions, floats and `zoneinfo`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from random import Random
from statistics import NormalDist

from tests.core.golden_decisions import Mode, Strategy
from tests.core.oracle import load_zone

from horae.core.window.constraint import Constraints
from horae.core.window.decision import DecisionRequest, decide
from horae.core.window.distribution import Distribution

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REQUESTS = 2_500
NEAR = 1e-9
MOST_ATTEMPTS = 64


class TooClose(Exception):
    """A position so near to a whole second that floats cannot tell on which side it lies."""


@dataclass(slots=True)
class Clauses:
    """Clauses as plain sets and pairs: hours, days, … that match, and inclusive pairs of minutes and dates."""

    numbers: dict[str, set[int]] = field(default_factory=dict)
    minutes: list[tuple[int, int]] = field(default_factory=list)
    dates: list[tuple[date, date]] = field(default_factory=list)

    def verdicts(self, wall: datetime) -> list[bool]:
        """For each kind of clause there is, whether `wall` matches one of its values."""
        shown = {"hours": wall.hour, "dow": wall.isoweekday() % 7, "dom": wall.day, "months": wall.month}
        found = [shown[kind] in allowed for kind, allowed in self.numbers.items()]
        if self.minutes:
            minute = wall.hour * 60 + wall.minute
            found.append(any(minute in around_midnight(*pair) for pair in self.minutes))
        if self.dates:
            found.append(any(first <= wall.date() <= last for first, last in self.dates))
        return found

    def given(self, chooser: Random) -> dict[str, object]:
        """As a person would write them: numbers, lists or text."""
        written: dict[str, object] = {}
        for kind, allowed in self.numbers.items():
            values = [7 if kind == "dow" and value == 0 and chooser.random() < 0.5 else value for value in allowed]
            texts = ",".join(str(value) for value in values)
            written[kind] = chooser.choice((values, tuple(str(value) for value in values), texts))
        pairs = [f"{first // 60:02d}:{first % 60:02d}-{last // 60:02d}:{last % 60:02d}" for first, last in self.minutes]
        if pairs:
            written["between"] = chooser.choice((pairs, ",".join(pairs)))
        days = [f"{first}..{last}" if first != last else str(first) for first, last in self.dates]
        if days:
            written["dates"] = chooser.choice((days, ",".join(days)))
        return written


def around_midnight(first: int, last: int) -> set[int]:
    if first <= last:
        return set(range(first, last + 1))
    return set(range(first, 1440)) | set(range(last + 1))


def allowed(only: list[Clauses], avoid: list[Clauses], wall: datetime) -> bool:
    if only and not any(all(clauses.verdicts(wall)) for clauses in only):
        return False
    return not any(any(clauses.verdicts(wall)) for clauses in avoid)


def draws(seed_hash: str) -> Iterator[float]:
    """SplitMix64 from the first eight bytes, its upper 53 bits as a number below 1."""
    state = int(seed_hash[:16], 16)
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        word = state
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        word ^= word >> 31
        yield (word >> 11) / 2**53


def seconds(text: str) -> float:
    """The few forms of sigma that are asked for here."""
    units = {"s": 1, "m": 60, "h": 3600}
    text = text.removeprefix("PT").lower()
    return float(text[:-1]) * units[text[-1]] if text[-1] in units else float(text)


def position(distribution: Distribution, draw: float, width: int, nominal: int, mode: Mode) -> float:
    params = {key: str(value) for key, value in distribution.params.items()}
    if distribution.name == "uniform":
        return draw
    if distribution.name == "skewEarly":
        return math.pow(draw, float(params.get("shape", "2")))
    if distribution.name == "skewLate":
        return 1 - math.pow(1 - draw, float(params.get("shape", "2")))
    if distribution.name == "exponential":
        rate = float(params.get("lambda", "1"))
        early = -math.log1p(draw * math.expm1(-rate)) / rate
        return 1 - early if params.get("dir", "early") == "late" else early
    anchor = params.get("mu", "nominal" if mode in ("around", "center") else "mid")
    mean = {"nominal": nominal, "start": 0, "mid": width / 2, "end": width}[anchor]
    sigma = seconds(params["sigma"]) if "sigma" in params else width / 6
    return (mean + sigma * NormalDist().inv_cdf(draw or 2.0**-54)) / width


def offset(distribution: Distribution, draw: float, width: int, nominal: int, mode: Mode) -> int:
    exact = position(distribution, draw, width, nominal, mode) * (width + 1)
    if 0 < round(exact) <= width and abs(exact - round(exact)) < NEAR:
        raise TooClose
    return min(max(math.floor(exact), 0), width)


def window(nominal: datetime, mode: Mode, duration: timedelta) -> tuple[int, int]:
    at = Fraction((nominal - EPOCH) // timedelta(microseconds=1), 1_000_000)
    length = Fraction(duration // timedelta(microseconds=1), 1_000_000)
    before = {"after": Fraction(0), "before": length}.get(mode, length / 2)
    return math.floor(at - before), math.floor(at - before + length)


def instant(second: int) -> str:
    return f"{EPOCH + timedelta(seconds=second):%Y-%m-%dT%H:%M:%SZ}"


def period_key(strategy: Strategy, nominal: datetime, timezone: str) -> str:
    local = nominal.astimezone(load_zone(timezone))
    if strategy == "stable":
        return f"{nominal:%Y-%m-%dT%H:%M:%SZ}"
    return f"{local:%Y-%m-%d}" if strategy == "daily" else f"{local:%G-W%V}"


def slow_decision(request: DecisionRequest, only: list[Clauses], avoid: list[Clauses]) -> tuple[object, ...]:
    """Period id and key, bounds, seed hash, chosen time, attempts, unschedulable."""
    nominal = request.nominal_time
    assert isinstance(request.window_duration, timedelta)
    first, last = window(nominal, request.window_mode, request.window_duration)
    key = period_key(request.seed_strategy, nominal, request.timezone)
    seed_hash = hashlib.sha256("\n".join((request.identity, key, request.salt)).encode("utf-8")).hexdigest()
    zone = load_zone(request.timezone)
    chosen, attempts = None, 0
    numbers = draws(seed_hash)
    for attempt in range(MOST_ATTEMPTS if last > first else 1):
        second = first
        if last > first:
            attempts = attempt + 1
            here = math.floor(nominal.timestamp()) - first
            second += offset(request.distribution, next(numbers), last - first, here, request.window_mode)
        if allowed(only, avoid, (EPOCH + timedelta(seconds=second)).astimezone(zone)):
            chosen = instant(second)
            break
    stable = period_key("stable", nominal, "UTC")
    return stable, key, instant(first), instant(last), seed_hash, chosen, attempts, chosen is None


def any_clauses(chooser: Random) -> Clauses:
    clauses = Clauses()
    for kind, low, high in (("hours", 0, 23), ("dow", 0, 6), ("dom", 1, 31), ("months", 1, 12)):
        if chooser.random() < 0.3:
            clauses.numbers[kind] = set(chooser.sample(range(low, high + 1), chooser.randint(1, high - low)))
    if chooser.random() < 0.3:
        clauses.minutes = [
            (chooser.randrange(1440), chooser.randrange(1440)) for _ in range(chooser.choice((1, 1, 2, 3)))
        ]
    if chooser.random() < 0.2:
        first = date(2020, 1, 1) + timedelta(days=chooser.randrange(2000))
        clauses.dates = [(first, first + timedelta(days=chooser.choice((0, 3, 700))))]
    return clauses


def any_distribution(chooser: Random) -> Distribution:
    number = chooser.choice(("0.001", "0.3", "1", "1.5", "2", "2.0", "3", "7.25", "40"))
    name = chooser.choice(("uniform", "skewEarly", "skewLate", "normal", "exponential"))
    params: dict[str, str] = {}
    if name in ("skewEarly", "skewLate") and chooser.random() < 0.7:
        params["shape"] = number
    if name == "exponential":
        params |= {"lambda": number} if chooser.random() < 0.7 else {}
        params |= {"dir": chooser.choice(("early", "late"))} if chooser.random() < 0.7 else {}
    if name == "normal":
        params |= {"mu": chooser.choice(("nominal", "start", "mid", "end"))} if chooser.random() < 0.7 else {}
        params |= {"sigma": chooser.choice(("1s", "0.5s", "90", "12.5", "10m", "3h"))} if chooser.random() < 0.6 else {}
    return Distribution(name, params)


def any_request(chooser: Random) -> tuple[DecisionRequest, list[Clauses], list[Clauses]]:
    only = [clauses for _ in range(chooser.choice((0, 0, 1, 2))) if (clauses := any_clauses(chooser)) != Clauses()]
    avoid = [clauses for _ in range(chooser.choice((0, 0, 0, 1))) if (clauses := any_clauses(chooser)) != Clauses()]
    length = chooser.choice((0, 1, 1, chooser.randrange(2_000_000), chooser.randrange(40 * 86_400 * 1_000_000)))
    nominal = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=chooser.randrange(2000 * 86_400))
    strategies: tuple[Strategy, ...] = ("stable", "daily", "weekly")
    modes: tuple[Mode, ...] = ("after", "before", "around", "center")
    request = DecisionRequest(
        identity="".join(chooser.choices("abcXYZ0189-/_äß漢", k=chooser.randint(1, 12))),
        nominal_time=nominal + timedelta(microseconds=chooser.choice((0, 0, 1, 500_000, chooser.randrange(10**6)))),
        timezone=chooser.choice(("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")),
        window_mode=chooser.choice(modes),
        window_duration=timedelta(microseconds=length)
        if chooser.random() < 0.3
        else timedelta(seconds=length // 10**6),
        distribution=any_distribution(chooser),
        seed_strategy=chooser.choice(strategies),
        salt=chooser.choice(("", "", "pepper", "Sôl\n")),
        constraints=Constraints(
            [each.given(chooser) for each in only] or None, [each.given(chooser) for each in avoid] or None
        ),
    )
    return request, only, avoid


def test_decisions_equal_those_of_a_second_obvious_implementation() -> None:
    chooser = Random(20240515)
    compared, outcomes = 0, set()
    for _ in range(REQUESTS):
        request, only, avoid = any_request(chooser)
        try:
            expected = slow_decision(request, only, avoid)
        except TooClose:
            continue
        found = decide(request).to_dict()
        names = ("period_id", "period_key", "window_start", "window_end", "seed_hash", "chosen_time", "attempts")
        assert (*(found[name] for name in names), found["unschedulable"]) == expected, request
        compared += 1
        outcomes.add((found["attempts"], found["unschedulable"]))
    assert compared > REQUESTS * 0.99, "too many were left out for the comparison to mean anything"
    assert {(0, False), (0, True), (1, False), (2, False), (64, True)} <= outcomes
