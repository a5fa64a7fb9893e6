"""The picture of one decision: the window, the probability over it, and the candidates in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horae.core.window.constraint import clauses_text
from horae.core.window.distribution import Distribution, sampler
from horae.errors import HoraeError
from horae.web.pictures.moments import moment
from horae.web.words import length_text

MOST_CANDIDATES = 65
_SAMPLES, _BINS = 4_000, 60
_HEIGHT = 100.0


@dataclass(frozen=True, slots=True)
class DrawnCandidate:
    """One candidate. `left` is its place in the window in percent."""

    attempt: int
    left: float
    draw: str
    time: str
    local: str
    objection: str | None

    @property
    def is_accepted(self) -> bool:
        return self.objection is None


@dataclass(frozen=True, slots=True)
class Trace:
    """The decision for one slot. `curve` is a polygon in a field of 100 by 100, empty without a window."""

    nominal: str
    nominal_local: str
    nominal_left: float | None
    chosen: str | None
    chosen_left: float | None
    window: str
    window_start: str
    window_end: str
    has_window: bool
    curve: str
    candidates: tuple[DrawnCandidate, ...]
    facts: tuple[tuple[str, str], ...]
    is_occurrence: bool
    reason: str | None


def trace_of(found: dict[str, Any]) -> Trace:
    """Returns the picture of a trace in an API response."""
    begin, end = moment(found["window_start"]), moment(found["window_end"])
    nominal = moment(found["nominal_time"])
    assert begin is not None
    assert end is not None
    assert nominal is not None
    width = int((end - begin).total_seconds())
    chosen = moment(found.get("chosen_time"))
    candidates = tuple(
        DrawnCandidate(
            each["attempt"],
            _left(moment(each["time"]), begin, width),
            f"{each['draw']:.6f}" if width else "-",
            each["time"],
            each["local"],
            None if each["accepted"] else str(each["objection"]),
        )
        for each in found["candidates"][:MOST_CANDIDATES]
    )
    inside = begin <= nominal <= end
    return Trace(
        nominal=found["nominal_time"],
        nominal_local=found["nominal_local"],
        nominal_left=_left(nominal, begin, width) if inside and width else None,
        chosen=found.get("chosen_time"),
        chosen_left=None if chosen is None else _left(chosen, begin, width),
        window=f"{found['window_mode']} {length_text(width)}" if width else "none: it starts at its slot",
        window_start=found["window_start"],
        window_end=found["window_end"],
        has_window=bool(width),
        curve=_curve(found, width, int((nominal - begin).total_seconds())) if width else "",
        candidates=candidates,
        facts=_facts(found),
        is_occurrence=bool(found.get("is_occurrence", True)),
        reason=found.get("reason"),
    )


def _facts(found: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    params = ", ".join(f"{key}={value}" for key, value in found["distribution"]["params"].items())
    facts = [
        ("distribution", found["distribution"]["name"] + (f" ({params})" if params else "")),
        ("seed", f"{found['seed_strategy']}, period key {found['period_key']}"),
        ("seed input", found["seed_input"].replace("\n", " ⏎ ")),
        ("seed hash", found["seed_hash"]),
    ]
    facts += [
        (side, clauses_text(clauses))
        for side in ("only", "avoid")
        for clauses in found.get("constraints", {}).get(side, ())
    ]
    facts.append(("decided by", f"core {found['core_version']}, zone data {found['tzdata_version']}"))
    return tuple(facts)


def _left(at: datetime | None, begin: datetime, width: int) -> float:
    if at is None or not width:
        return 50.0
    return round(min(max((at - begin).total_seconds() / width, 0.0), 1.0) * 100, 3)


def _curve(found: dict[str, Any], width: int, nominal: int) -> str:
    """Returns the probability over the window as a polygon, from a histogram of evenly spaced draws."""
    try:
        distribution = Distribution(found["distribution"]["name"], dict(found["distribution"]["params"]))
        land = sampler(distribution, 10_000, int(nominal / width * 10_000), found["window_mode"])
        if distribution.name == "normal" and "sigma" in distribution.params:
            land = _scaled(distribution, width, nominal, found["window_mode"])
    except (HoraeError, OverflowError):
        return ""
    bins = [0] * _BINS
    for index in range(_SAMPLES):
        bins[min(land((index + 0.5) / _SAMPLES) * _BINS // 10_001, _BINS - 1)] += 1
    if distribution.name == "normal":
        # Draws outside the window are moved to its edges. Drawn as they are, those two bins would dwarf all others.
        bins[0], bins[-1] = bins[1], bins[-2]
    most = max(bins)
    points = [f"{index * 100 / (_BINS - 1):.2f},{_HEIGHT - 92 * count / most:.2f}" for index, count in enumerate(bins)]
    return " ".join(["0,100", *points, "100,100"])


def _scaled(distribution: Distribution, width: int, nominal: int, mode: str) -> Any:
    """Returns a sampler for the real window, with its results scaled to 10,000. An absolute sigma does not allow to
    sample a window of another size."""
    land = sampler(distribution, width, nominal, mode)
    return lambda draw: land(draw) * 10_000 // width
