"""The decision: when one run starts inside its window.

The same request gives the same decision in every process, on every machine and in every version with the same major
number of CORE_VERSION. These rules define it:

    seed hash   SHA-256 of identity, period key and salt, joined by line feeds, all of it in hex
    generator   SplitMix64, seeded with the first 8 bytes of that hash, big-endian; one draw per attempt
    draw        u = (next >> 11) / 2**53
    offset      floor(x * (W + 1)) seconds, clamped to [0, W]; the distribution maps u to x, W is the window's length in
                whole seconds
    attempts    at most 64, one for each candidate; a window without length has one candidate and takes no attempt
    exact       only on request: after 64 rejected candidates, draw 65 picks one of the N allowed seconds in order, at
                index floor(u * N); without an allowed second the decision is unschedulable
    bounds      both ends are computed at full precision, then floored to whole seconds
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Any, Literal, NamedTuple

from horae.core.time.duration import DurationLike, parse_duration
from horae.core.time.instant import EPOCH, FIRST, LAST, aware, instant, rfc3339
from horae.core.time.zone import TZDATA_VERSION, UTC_ZONE, Zone, zone
from horae.core.window.allowed_time import allowed_stretches, second_at
from horae.core.window.constraint import Constraints, Rules
from horae.core.window.distribution import UNIFORM, Distribution, sampler
from horae.errors import InvalidConstraint, InvalidDecision, InvalidDuration, InvalidSeed, InvalidWindow, shown

CORE_VERSION = "1.0.0"
MAX_ATTEMPTS = 64
NO_CANDIDATE = "no candidate accepted within MaxAttempts"
NO_SECOND = "no second of the window is allowed"
LONGEST_EXACT = timedelta(days=366)
"""The longest window for exact placement, because a decision must be quick."""
MODES = ("after", "before", "around", "center")
SEED_STRATEGIES = ("stable", "daily", "weekly")
_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FREE = Constraints()


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """Everything that a decision depends on. `decide` checks it.

    `identity` is the job's name and `nominal_time` the scheduled time. `timezone` is the zone of the constraints and of
    the seed's period. `window_mode` "center" means "around". `seed_strategy`: the period in the seed is the nominal
    time ("stable"), its local date ("daily") or its local ISO week ("weekly"). `exact`: where all 64 draws are
    rejected, the same seed picks one of the allowed seconds.
    """

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
    """The number of clause sets in `only` and in `avoid`, and of candidates that they rejected."""

    only: int = 0
    avoid: int = 0
    rejected: int = 0


_NO_META = ConstraintMeta()


class Decision(NamedTuple):
    """The outcome of a decision. Where it is `unschedulable`, `chosen_time` is None and `reason` says why.

    Every other field is always set. `seed_hash` is in hex.
    """

    # A named tuple, not a frozen dataclass, because one is made for every slot, and a named tuple is quicker to make.

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
    """One attempt: the draw, the time it gave, and why the constraints rejected that time (None: accepted)."""

    attempt: int
    draw: float
    time: datetime
    objection: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with its request, the text that its seed was hashed from, and every candidate tried."""

    request: DecisionRequest
    decision: Decision
    seed_input: str
    candidates: tuple[Candidate, ...] = field(default=())


def decide(request: DecisionRequest, clocks: Zone | None = None) -> Decision:
    """Decides when the run of one scheduled time starts.

        request = DecisionRequest("nightly", datetime(2026, 3, 1, 2, tzinfo=UTC), window_duration="30m")
        decide(request).chosen_time

    `clocks` replaces the data of the request's zone, to find out what other zone data would decide. Raises
    InvalidDecision, UnknownZone or InvalidTime for an invalid request.
    """
    return _decide(request, None, clocks)


def explain(request: DecisionRequest) -> Explanation:
    """Decides like `decide`, and also returns the seed's text and every candidate tried."""
    candidates: list[Candidate] = []
    decision = _decide(request, candidates)
    seed_input = f"{request.identity}\n{decision.period_key}\n{request.salt}"
    return Explanation(request, decision, seed_input, tuple(candidates))


def draws(seed_hash: bytes) -> Iterator[float]:
    """The endless sequence of the generator's numbers in [0, 1)."""
    state = int.from_bytes(seed_hash[:8], "big")
    while True:
        state = (state + _STEP) & _WORD
        yield _number(state)


def _number(state: int) -> float:
    """The number in [0, 1) for a state of the generator."""
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
        # `draws`, inlined: most decisions take one draw, and a generator for one number is slower.
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
    """Raises InvalidWindow unless `exact` is a bool, and where it is True for a window longer than LONGEST_EXACT."""
    if not isinstance(exact, bool):
        raise InvalidWindow(f"Invalid exact {shown(exact)}: must be True or False")
    if exact and length > LONGEST_EXACT:
        reason = f"exact placement takes windows of at most {LONGEST_EXACT.days} days"
        raise InvalidWindow(f"Invalid window duration {shown(str(length))}: {reason}", hint="Make the window shorter.")


def bounds_of(request: DecisionRequest) -> tuple[int, int, int]:
    """The first and the last second of the request's window, and the second of its nominal time."""
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
    # Floor division keeps full precision. `around` computes in half microseconds, so that halving loses nothing.
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
    """Whether `text` has lone surrogates. UTF-8 cannot encode them, and seeds are hashed as UTF-8."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)
