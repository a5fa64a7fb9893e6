"""The decision: where inside its window one occurrence starts. Pure, deterministic, explained.

The same request gives the same decision in every process, on every machine and in every version with the same major
number of CORE_VERSION. What fixes it:

    seed hash   SHA-256 of identity, period key and salt, joined by line feeds, all of it in hex
    generator   SplitMix64, seeded with the first 8 bytes of that hash, big-endian; one draw per attempt
    draw        u = (next >> 11) / 2**53
    offset      floor(x * (W + 1)) seconds, clamped to [0, W]; x by the distribution, W the window in whole seconds
    attempts    at most 64; a candidate the constraints reject costs one; a window of nothing costs none
    exact       only where asked for: after 64 rejected candidates draw 65 names one of the N seconds that are allowed,
                in their order, the one at floor(u * N); without any the decision is unschedulable all the same
    bounds      both ends at full precision, then floored to whole seconds
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Any, Literal, NamedTuple

from horae.core.allowance import allowed_stretches, second_at
from horae.core.constraint import Constraints, Rules
from horae.core.distribution import UNIFORM, Distribution, sampler
from horae.core.duration import DurationLike, parse_duration
from horae.core.instant import EPOCH, FIRST, LAST, aware, instant, rfc3339
from horae.core.zone import TZDATA_VERSION, UTC_ZONE, Zone, zone
from horae.errors import InvalidConstraint, InvalidDecision, InvalidDuration, InvalidSeed, InvalidWindow, shown

CORE_VERSION = "1.0.0"
MAX_ATTEMPTS = 64
NO_CANDIDATE = "no candidate accepted within MaxAttempts"
NO_SECOND = "no second of the window is allowed"
LONGEST_EXACT = timedelta(days=366)
"""The longest window that exact placement takes: a decision has to be quick."""
MODES = ("after", "before", "around", "center")
SEED_STRATEGIES = ("stable", "daily", "weekly")
_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FREE = Constraints()


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """What a decision depends on, all of it. Checked by `decide`; `center` is another word for `around`. `exact`: where
    every draw is rejected, one of the allowed seconds is picked by the same seed."""

    identity: str
    nominal_time: datetime
    timezone: str = "UTC"
    window_mode: Literal["after", "before", "around", "center"] = "after"
    window_duration: DurationLike = timedelta(0)
    distribution: Distribution = UNIFORM
    seed_strategy: Literal["stable", "daily", "weekly"] = "stable"
    salt: str = ""
    constraints: Constraints = _FREE
    exact: bool = False


@dataclass(frozen=True, slots=True)
class ConstraintMeta:
    """How much the constraints had to say: clause sets and clauses given, candidates they rejected."""

    only: int = 0
    avoid: int = 0
    rejected: int = 0


_NO_META = ConstraintMeta()


class Decision(NamedTuple):
    """The outcome. `chosen_time` is None and `reason` says why when `unschedulable`; all else is always there.

    A named tuple, not a frozen dataclass: made once for every slot, and quicker to make.
    """

    period_id: str
    period_key: str
    nominal_time: datetime
    window_start: datetime
    window_end: datetime
    chosen_time: datetime | None
    seed_hash: str
    distribution: Distribution
    attempts: int
    unschedulable: bool = False
    reason: str | None = None
    constraint_meta: ConstraintMeta = _NO_META
    core_version: str = CORE_VERSION
    tzdata_version: str = TZDATA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain values, times as RFC 3339."""
        data = self._asdict()
        for name in ("nominal_time", "window_start", "window_end", "chosen_time"):
            data[name] = rfc3339(data[name]) if data[name] is not None else None
        data["distribution"] = self.distribution.to_dict()
        meta = self.constraint_meta
        data["constraint_meta"] = {"only": meta.only, "avoid": meta.avoid, "rejected": meta.rejected}
        return data


@dataclass(frozen=True, slots=True)
class Candidate:
    """One attempt: the draw, the time it named, and what spoke against it (None: accepted)."""

    attempt: int
    draw: float
    time: datetime
    objection: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with everything that led to it."""

    request: DecisionRequest
    decision: Decision
    seed_input: str
    candidates: tuple[Candidate, ...] = field(default=())


def decide(request: DecisionRequest, clocks: Zone | None = None) -> Decision:
    """The decision for one occurrence. Raises InvalidDecision, UnknownZone or InvalidTime for a bad request. `clocks`
    are other data of the request's zone, for those who ask what would be decided by them."""
    return _decide(request, None, clocks)


def explain(request: DecisionRequest) -> Explanation:
    """The same decision, with the seed's text and every candidate tried."""
    candidates: list[Candidate] = []
    decision = _decide(request, candidates)
    seed_input = f"{request.identity}\n{decision.period_key}\n{request.salt}"
    return Explanation(request, decision, seed_input, tuple(candidates))


def draws(seed_hash: bytes) -> Iterator[float]:
    """The generator's numbers in [0, 1), without end."""
    state = int.from_bytes(seed_hash[:8], "big")
    while True:
        state = (state + _STEP) & _WORD
        yield _number(state)


def _number(state: int) -> float:
    """The number that a state of the generator stands for."""
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD
    return ((mixed ^ (mixed >> 31)) >> 11) / 9007199254740992.0


def _decide(request: DecisionRequest, candidates: list[Candidate] | None, other_clocks: Zone | None = None) -> Decision:
    if not isinstance(request, DecisionRequest):
        raise InvalidDecision(f"Invalid request {shown(request)}: must be a DecisionRequest")
    nominal = aware(request.nominal_time, "nominal_time")
    elapsed = nominal - EPOCH
    second, fraction = elapsed.days * 86_400 + elapsed.seconds, elapsed.microseconds
    clocks = zone(request.timezone) if other_clocks is None else other_clocks
    first, last = _window(second, fraction, request.window_mode, request.window_duration)
    if request.exact is not False:
        check_exact(request.exact, timedelta(seconds=last - first))
    period_id = rfc3339(nominal)
    period_key = period_id if request.seed_strategy == "stable" else _period_key(request.seed_strategy, nominal, clocks)
    seed = sha256(_seed_input(request.identity, period_key, request.salt)).digest()
    if not isinstance(request.constraints, Constraints):
        raise InvalidConstraint(f"Invalid constraints {shown(request.constraints)}: must be Constraints")
    rules = request.constraints.rules()
    width = last - first
    offset_of = sampler(request.distribution, width or 1, second - first, request.window_mode)
    chosen: int | None = None
    attempts = 0
    if width == 0:
        objection = rules.objection(first + clocks.offset_at(first)) if rules else None
        if objection is None:
            chosen = first
        if candidates is not None:
            candidates.append(Candidate(0, 0.0, instant(first), objection))
    else:
        # As `draws` does, written out: most decisions take one draw, and a generator for that would be waste.
        state = int.from_bytes(seed[:8], "big")
        while attempts < MAX_ATTEMPTS:
            attempts += 1
            state = (state + _STEP) & _WORD
            draw = _number(state)
            candidate = first + offset_of(draw)
            objection = rules.objection(candidate + clocks.offset_at(candidate)) if rules else None
            if candidates is not None:
                candidates.append(Candidate(attempts, draw, instant(candidate), objection))
            if objection is None:
                chosen = candidate
                break
    if chosen is None and request.exact and width:
        stretches = allowed_stretches(rules, clocks, first, last)
        if stretches:
            attempts += 1
            draw = next(islice(draws(seed), MAX_ATTEMPTS, None))
            chosen = second_at(stretches, draw)
            if candidates is not None:
                candidates.append(Candidate(attempts, draw, instant(chosen), None))
    return Decision._make(
        (
            period_id,
            period_key,
            nominal,
            nominal if first == second and not fraction else instant(first),
            nominal if last == second and not fraction else instant(last),
            None if chosen is None else instant(chosen),
            seed.hex(),
            request.distribution,
            attempts,
            chosen is None,
            None if chosen is not None else NO_SECOND if request.exact else NO_CANDIDATE,
            _meta(rules, attempts, accepted=chosen is not None, width=width) if rules else _NO_META,
            CORE_VERSION,
            TZDATA_VERSION,
        )
    )


def _meta(rules: Rules, attempts: int, *, accepted: bool, width: int) -> ConstraintMeta:
    tried = attempts if width else 1
    return ConstraintMeta(len(rules.only), len(rules.avoid), tried - 1 if accepted else tried)


def check_exact(exact: object, length: timedelta) -> None:
    """Raises InvalidWindow unless `exact` is True or False, and True for a window that is not too long for it."""
    if not isinstance(exact, bool):
        raise InvalidWindow(f"Invalid exact {shown(exact)}: must be True or False")
    if exact and length > LONGEST_EXACT:
        reason = f"exact placement takes windows of at most {LONGEST_EXACT.days} days"
        raise InvalidWindow(f"Invalid window duration {shown(str(length))}: {reason}", hint="Make the window shorter.")


def bounds_of(request: DecisionRequest) -> tuple[int, int, int]:
    """The first and the last second of a request's window, and that of its nominal time."""
    elapsed = aware(request.nominal_time, "nominal_time") - EPOCH
    second = elapsed.days * 86_400 + elapsed.seconds
    return *_window(second, elapsed.microseconds, request.window_mode, request.window_duration), second


def _window(second: int, fraction: int, mode: str, given: DurationLike) -> tuple[int, int]:
    """The window's first and last second around a nominal time given in seconds and microseconds."""
    if type(given) is timedelta:
        duration = given
    else:
        try:
            duration = parse_duration(given, name="window duration")
        except InvalidDuration as error:
            raise InvalidWindow(str(error), hint=error.hint) from error
    if duration.days < 0:
        raise InvalidWindow(f"Invalid window duration {shown(str(given))}: is negative")
    length, part = duration.days * 86_400 + duration.seconds, duration.microseconds
    # Floor division settles both bounds at full precision; around halves twice the microseconds, so nothing is lost.
    match mode:
        case "after":
            first, last = second, second + length + (fraction + part) // 1_000_000
        case "before":
            first, last = second - length + (fraction - part) // 1_000_000, second
        case "around" | "center":
            middle, whole = 2 * (second * 1_000_000 + fraction), length * 1_000_000 + part
            first, last = (middle - whole) // 2_000_000, (middle + whole) // 2_000_000
        case _:
            raise InvalidWindow(f"Invalid window mode {shown(mode)}", hint=f"Choose one of: {', '.join(MODES)}.")
    if first < FIRST or last > LAST:
        raise InvalidWindow(f"Invalid window duration {shown(str(given))}: reaches outside the years 1 to 9999")
    return first, last


def _period_key(strategy: str, nominal: datetime, clocks: Zone) -> str:
    local = nominal if clocks is UTC_ZONE else clocks.wall(nominal)
    match strategy:
        case "daily":
            return local.date().isoformat()
        case "weekly":
            year, week, _ = local.isocalendar()
            return f"{year:04d}-W{week:02d}"
        case _:
            raise InvalidSeed(
                f"Invalid seed strategy {shown(strategy)}", hint=f"Choose one of: {', '.join(SEED_STRATEGIES)}."
            )


def _seed_input(identity: str, period_key: str, salt: str) -> bytes:
    if not isinstance(identity, str) or not identity:
        raise InvalidDecision(
            f"Invalid identity {shown(identity)}: must be text, not empty", hint="Use the job's name."
        )
    if not isinstance(salt, str):
        raise InvalidSeed(f"Invalid salt {shown(salt)}: must be text")
    try:
        return f"{identity}\n{period_key}\n{salt}".encode()
    except UnicodeEncodeError as error:
        wrong = f"identity {shown(identity)}" if unwritable(identity) else f"salt {shown(salt)}"
        raise InvalidDecision(f"Invalid {wrong}: cannot be written as UTF-8") from error


def unwritable(text: str) -> bool:
    """Whether `text` has lone surrogates, which UTF-8 cannot write: seeds are hashed as UTF-8."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)
