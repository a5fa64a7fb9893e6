"""A large sample of decisions whose digest is frozen: the smallest change of any of them shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, TypeVar

from tests.core.golden_decisions import Mode, Strategy

from horae.core.window.constraint import Constraints
from horae.core.window.decision import CORE_VERSION, Decision, DecisionRequest, decide
from horae.core.window.distribution import Distribution

SIZE = 5_000
DIGESTS = {"1": "c8dfe949ab6e7f152a81b8a45829157864c8ade9509c1b7081aad11ad4239552"}

MODES: tuple[Mode, ...] = ("after", "before", "around", "center")
STRATEGIES: tuple[Strategy, ...] = ("stable", "daily", "weekly")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu")
DURATIONS = ("0s", "400ms", "1s", "59s", "10m", "1h", "1h1m1s", "2h30m", "8h", "1d", "3d12h", "5w")
DISTRIBUTIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("uniform", {}),
    ("skewEarly", {}),
    ("skewEarly", {"shape": "3.5"}),
    ("skewLate", {}),
    ("skewLate", {"shape": "0.7"}),
    ("normal", {}),
    ("normal", {"mu": "start", "sigma": "10m"}),
    ("normal", {"mu": "end"}),
    ("normal", {"mu": "nominal", "sigma": "90"}),
    ("exponential", {}),
    ("exponential", {"lambda": "4"}),
    ("exponential", {"lambda": "0.5", "dir": "late"}),
)
CONSTRAINTS: tuple[tuple[Any, Any], ...] = (
    *[(None, None)] * 7,
    ({"hours": "6-20"}, None),
    ({"dow": "mon-fri", "hours": [9, 10, 11]}, None),
    ([{"dow": "sat,sun"}, {"between": "22:00-06:00"}, {"dom": "1-20"}], None),
    (None, {"between": "11:30-13:30", "dow": 7}),
    (None, [{"dates": "2021-03-01..2021-09-30"}, {"dom": "1,15,31", "months": "feb"}]),
)
_FIRST = datetime(2020, 1, 2, tzinfo=UTC)
_MICROSECONDS = 5 * 365 * 86_400 * 1_000_000
_Option = TypeVar("_Option")


class Picks:
    """Choices that depend on a number alone; `random` may choose differently in another version of Python."""

    def __init__(self, number: int) -> None:
        self._left = int.from_bytes(sha256(f"pick {number}".encode()).digest(), "big")

    def below(self, limit: int) -> int:
        self._left, picked = divmod(self._left, limit)
        return picked

    def of(self, options: Sequence[_Option]) -> _Option:
        return options[self.below(len(options))]


def request(number: int) -> DecisionRequest:
    """The sample's request `number`: years 2020 to 2025, where zone data no longer changes."""
    picks = Picks(number)
    after = picks.below(_MICROSECONDS)
    whole = picks.below(4) != 0
    name, params = picks.of(DISTRIBUTIONS)
    only, avoid = picks.of(CONSTRAINTS)
    return DecisionRequest(
        identity=f"sample/{picks.of(('db', 'mail', 'übersicht', 'report'))}-{number}",
        nominal_time=_FIRST + timedelta(microseconds=after // 1_000_000 * 1_000_000 if whole else after),
        timezone=picks.of(ZONES),
        window_mode=picks.of(MODES),
        window_duration=picks.of(DURATIONS),
        distribution=Distribution(name, params),
        seed_strategy=picks.of(STRATEGIES),
        salt=picks.of(("", "salt", "песок")),
        constraints=Constraints(only, avoid),
    )


def canonical(decision: Decision) -> str:
    """All of a decision but the versions, as one line."""
    data = decision.to_dict()
    del data["core_version"], data["tzdata_version"]
    return json.dumps(data, sort_keys=True) + "\n"


def decisions(size: int) -> Iterator[Decision]:
    return (decide(request(number)) for number in range(size))


def digest(size: int) -> str:
    return sha256("".join(canonical(each) for each in decisions(size)).encode()).hexdigest()


def test_the_digest_of_the_sample_is_the_one_frozen_for_this_major_version() -> None:
    major = CORE_VERSION.partition(".")[0]
    assert major in DIGESTS, f"CORE_VERSION {CORE_VERSION} has no digest: add one beside those of older versions"
    assert digest(SIZE) == DIGESTS[major], (
        f"Decisions for the same requests have changed, but CORE_VERSION still begins with {major}. "
        "Every node and every catalog relies on them: take the change back, or give CORE_VERSION a new major number "
        "and freeze the new digest under it."
    )


def test_the_sample_reaches_every_kind_of_request_and_every_kind_of_outcome() -> None:
    requests = [request(number) for number in range(SIZE)]
    assert {each.window_mode for each in requests} == set(MODES)
    assert {each.seed_strategy for each in requests} == set(STRATEGIES)
    assert {each.timezone for each in requests} == set(ZONES)
    assert {str(each.distribution) for each in requests} == {str(Distribution(*each)) for each in DISTRIBUTIONS}
    kinds = {(each.window_mode, each.distribution.name, each.timezone, each.seed_strategy) for each in requests}
    assert len(kinds) == len(MODES) * 5 * len(ZONES) * len(STRATEGIES)
    assert all(2020 <= each.nominal_time.year <= 2024 for each in requests)
    outcomes = {(each.attempts, each.unschedulable) for each in decisions(600)}
    assert {(0, False), (0, True), (1, False), (2, False), (64, True)} <= outcomes
