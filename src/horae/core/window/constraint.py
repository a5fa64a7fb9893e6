"""Constraints: the wall times at which a run may start (`only`), and at which it must not start (`avoid`).

`only` is a list of clause sets. A time matches a clause when it matches any of its values, and a set when it matches
every clause in it. It must match at least one set. A time that matches any `avoid` clause is rejected. Clauses given
together as `{"all": {…}}` reject only a time that matches all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from itertools import islice
from typing import Any

from horae.core.schedule.cron import DAY, HOUR, MONTH, WEEKDAY, FieldFault, FieldShape, parse_field
from horae.errors import InvalidConstraint, InvalidTime, shown

ALL = "all"
"""The key under which a dict of `avoid` has clauses that reject only together."""
KINDS = ("hours", "dow", "dom", "months", "between", "dates")
_SHAPES: dict[str, FieldShape] = {"hours": HOUR, "dow": WEEKDAY, "dom": DAY, "months": MONTH}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()
_MOST_VALUES = 10_000
_DAY_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class WallTime:
    """One wall time, split into the values that clauses compare."""

    hours: int
    dow: int
    dom: int
    months: int
    between: int
    """Minute of the day."""
    dates: int
    """Ordinal of the day."""


@dataclass(frozen=True, slots=True)
class ConstraintClause:
    """One clause: a bit mask for numbers, or inclusive ranges of minutes or days. `text` is its canonical form."""

    kind: str
    text: str
    mask: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    def matches(self, at: WallTime) -> bool:
        value: int = getattr(at, self.kind)
        if self.kind in _SHAPES:
            return bool(self.mask >> value & 1)
        # A range whose end comes before its start wraps around midnight.
        return any(
            first <= value <= last if first <= last else value >= first or value <= last for first, last in self.ranges
        )

    def __str__(self) -> str:
        return f"{self.kind}={self.text}"


@dataclass(frozen=True, slots=True)
class Rules:
    """Parsed constraints."""

    only: tuple[tuple[ConstraintClause, ...], ...] = ()
    avoid: tuple[tuple[ConstraintClause, ...], ...] = ()
    """A time that matches every clause of any set is rejected. Sets of one clause come first."""

    def __bool__(self) -> bool:
        return bool(self.only or self.avoid)

    def objection(self, wall: int) -> str | None:
        """Why the wall second `wall` is rejected, or None when it is not."""
        at = split_wall_time(wall)
        if self.only and not any(all(clause.matches(at) for clause in clauses) for clauses in self.only):
            failed = [[str(clause) for clause in clauses if not clause.matches(at)] for clauses in self.only]
            return "not in only " + " nor in only ".join("; ".join(texts) for texts in failed)
        for clauses in self.avoid:
            if all(clause.matches(at) for clause in clauses):
                return f"in avoid {'; '.join(map(str, clauses))}"
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """The constraints of a window, as dicts from the kind of clause to its values.

    The kinds are hours, dow, dom, months, between and dates. A run starts only at wall times that match all clauses of
    `only` (or of one dict, for a list of dicts), and at none that match a clause of `avoid`. The values are checked by
    `rules()`, not here.

        Constraints(only={"hours": "8-10", "dow": "1-5"}, avoid={"dates": "2026-12-24..2026-12-31"})
    """

    only: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None
    avoid: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None
    _rules: Rules | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "only", _kept(self.only))
        object.__setattr__(self, "avoid", _kept(self.avoid))

    def rules(self) -> Rules:
        """The parsed constraints. Raises InvalidConstraint, which names the clause and the value."""
        if self._rules is None:
            sets = [_clauses(each, "only") for each in _dicts(self.only, "only")]
            # Every time matches a set without clauses, and one matching set is enough.
            only = tuple(sets) if all(sets) else ()
            avoid = [found for each in _dicts(self.avoid, "avoid") for found in _avoided(each)]
            object.__setattr__(self, "_rules", Rules(only, tuple(sorted(avoid, key=lambda found: len(found) > 1))))
        assert self._rules is not None
        return self._rules

    def to_dict(self) -> dict[str, Any]:
        """The canonical text of every clause; empty without constraints."""
        rules = self.rules()
        data: dict[str, Any] = {}
        if rules.only:
            data["only"] = [{clause.kind: clause.text for clause in clauses} for clauses in rules.only]
        if rules.avoid:
            sets = [{clause.kind: clause.text for clause in clauses} for clauses in rules.avoid]
            data["avoid"] = [each if len(each) == 1 else {ALL: each} for each in sets]
        return data

    def check_chosen(self) -> None:
        """Raises InvalidConstraint where one dict of `avoid` has clauses of two kinds.

        Such a dict is ambiguous: each clause may be meant to reject alone, or all of them together. `decide` takes the
        first meaning, but the definition of a job must be explicit.
        """
        for each in _dicts(self.avoid, "avoid"):
            kinds = sorted({_kind(kind, "avoid") for kind in each if kind != ALL})
            if len(kinds) > 1:
                named = " and ".join(kinds)
                apart = ", ".join(f'{{"{kind}": …}}' for kind in kinds)
                together = ", ".join(f'"{kind}": …' for kind in kinds)
                raise InvalidConstraint(
                    f"Invalid avoid constraint: one set has {named}, which may mean either of them or both together",
                    hint=f'Write avoid=[{apart}] to keep off each, or avoid={{"{ALL}": {{{together}}}}} to keep off '
                    "the times that match all of them. In SQL: AVOID (…) AVOID (…), or AVOID ALL (…).",
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self.rules() == other.rules()

    def __hash__(self) -> int:
        return hash(self.rules())


def split_wall_time(wall: int) -> WallTime:
    """Splits the wall second `wall`. Raises InvalidTime outside the years 1 to 9999."""
    day, second = divmod(wall, 86_400)
    ordinal = day + _EPOCH_DAY
    if not 1 <= ordinal <= _LAST_DAY:
        raise InvalidTime("Invalid time: lies outside the years 1 to 9999 on the clocks its constraints are read in")
    on = date.fromordinal(ordinal)
    return WallTime(second // 3600, ordinal % 7, on.day, on.month, second // 60, ordinal)


def _kept(given: Any) -> Any:
    """`given` with tuples for iterators, so that it can be read more than once."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return {key: _kept(value) if isinstance(value, Mapping) else _listed(value) for key, value in given.items()}
    return tuple(_kept(each) for each in _listed(given)) if isinstance(given, Iterable) else given


def _listed(value: Any) -> Any:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    return tuple(islice(value, _MOST_VALUES + 1))


def _dicts(given: Any, side: str) -> list[Mapping[str, Any]]:
    if given is None:
        return []
    listed = [given] if isinstance(given, Mapping) else given
    if not isinstance(listed, list | tuple) or len(listed) > _MOST_VALUES:
        raise InvalidConstraint(f"Invalid {side} constraint {shown(given)}: must be a mapping or a list of mappings")
    for each in listed:
        if not isinstance(each, Mapping):
            raise InvalidConstraint(f"Invalid {side} constraint {shown(each)}: must be a mapping")
    return list(listed)


def _avoided(given: Mapping[str, Any]) -> list[tuple[ConstraintClause, ...]]:
    """The clause sets of one dict of `avoid`: one for each clause, or one with all the clauses under the key ALL."""
    if ALL not in given:
        return [(clause,) for clause in _clauses(given, "avoid")]
    together = given[ALL]
    if len(given) > 1 or not isinstance(together, Mapping):
        reason = f"{ALL} takes a mapping of clauses, and stands alone" if len(given) == 1 else f"{ALL} stands alone"
        hint = f'Write a list: avoid=[{{"{ALL}": {{…}}}}, {{…}}].'
        raise InvalidConstraint(f"Invalid avoid constraint {shown(given)}: {reason}", hint=hint)
    found = _clauses(together, "avoid")
    return [found] if found else []


def clauses_text(clauses: Mapping[str, Any]) -> str:
    """One clause set of `Constraints.to_dict` as readable text: `hours=8-10; dow=1-5`."""
    together = clauses.get(ALL)
    told = clauses if together is None else together
    return "; ".join(f"{kind}={text}" for kind, text in told.items()) + ("" if together is None else " (together)")


def _clauses(given: Mapping[str, Any], side: str) -> tuple[ConstraintClause, ...]:
    values: dict[str, list[str]] = {}
    for kind, value in given.items():
        name = _kind(kind, side)
        values.setdefault(name, []).extend(_texts(name, value, side))
    return tuple(_compile(name, tuple(values[name]), side) for name in sorted(values))


def parse_clause(kind: str, value: Any, side: str = "only") -> ConstraintClause:
    """Parses one clause from its kind and its values: numbers, text, or a list of either. Raises InvalidConstraint."""
    name = _kind(kind, side)
    return _compile(name, tuple(_texts(name, value, side)), side)


def _kind(kind: str, side: str) -> str:
    name = "dates" if kind == "date" else kind
    if name not in KINDS:
        raise InvalidConstraint(
            f"Invalid {side} constraint: unknown clause {shown(kind)}", hint=f"Known clauses: {', '.join(KINDS)}."
        )
    return name


def _texts(name: str, value: Any, side: str) -> list[str]:
    """The values of one clause as texts without commas."""
    if isinstance(value, str | int | date) and not isinstance(value, bool):
        values: Iterable[Any] = [value]
    elif isinstance(value, Iterable) and not isinstance(value, Mapping):
        values = value
    else:
        raise InvalidConstraint(f"Invalid {side} constraint {name}: {shown(value)} is not a list of values")
    found = [part.strip() for each in values for part in _value_text(each, name, side).split(",")]
    if not 1 <= len(found) <= _MOST_VALUES:
        raise InvalidConstraint(f"Invalid {side} constraint {name}: it must list 1 to {_MOST_VALUES} values")
    return found


def _value_text(value: Any, name: str, side: str) -> str:
    if type(value) is date and name == "dates":
        return value.isoformat()
    if type(value) is int and name in _SHAPES and abs(value) < _MOST_VALUES:
        return str(value)
    if not isinstance(value, str) or len(value) > _MOST_VALUES:
        raise InvalidConstraint(f"Invalid {side} constraint {name}: {shown(value)} is not a value it takes")
    return value


@lru_cache(maxsize=1024)
def _compile(name: str, texts: tuple[str, ...], side: str) -> ConstraintClause:
    try:
        if name in _SHAPES:
            if any("*" in text or "/" in text for text in texts):
                raise FieldFault("takes numbers and ranges only")
            mask = parse_field(",".join(texts), _SHAPES[name], extended=True)
            return ConstraintClause(name, _ranges_text(mask), mask=mask)
        if name == "between":
            pairs = sorted({_minutes(text) for text in texts})
            return ConstraintClause(
                name, ",".join(f"{_clock_text(a)}-{_clock_text(b)}" for a, b in pairs), ranges=tuple(pairs)
            )
        pairs = sorted({_days(text) for text in texts})
        return ConstraintClause(name, ",".join(_days_text(first, last) for first, last in pairs), ranges=tuple(pairs))
    except FieldFault as fault:
        raise InvalidConstraint(f"Invalid {side} constraint {name} {shown(','.join(texts))}: {fault}") from fault


def _clock_text(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def _days_text(first: int, last: int) -> str:
    begin = date.fromordinal(first).isoformat()
    return begin if first == last else f"{begin}..{date.fromordinal(last).isoformat()}"


def _ranges_text(mask: int) -> str:
    parts = []
    first = None
    for value in range(mask.bit_length() + 1):
        if mask >> value & 1:
            first = value if first is None else first
        elif first is not None:
            parts.append(str(first) if first == value - 1 else f"{first}-{value - 1}")
            first = None
    return ",".join(parts)


def _minutes(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not dash:
        raise FieldFault(f"has {text[:40]!a}, which is not HH:MM-HH:MM")
    return _clock(first, 1439), _clock(last, 1440)


def _clock(text: str, highest: int) -> int:
    hours, colon, minutes = text.partition(":")
    if not (colon and len(hours) == 2 and len(minutes) == 2 and (hours + minutes).isascii()):
        raise FieldFault(f"has {text[:40]!a}, which is not a time HH:MM")
    if not (hours + minutes).isdecimal() or int(minutes) > 59 or int(hours) * 60 + int(minutes) > highest:
        raise FieldFault(f"has {text[:40]!a}, which is not a time HH:MM")
    return int(hours) * 60 + int(minutes)


def _days(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    try:
        begin = _day(first)
        end = _day(last) if dots else begin
    except ValueError:
        raise FieldFault(f"has {text[:40]!a}, which is not YYYY-MM-DD or YYYY-MM-DD..YYYY-MM-DD") from None
    if end < begin:
        raise FieldFault(f"has a range of days that ends before it begins: {text[:40]}")
    return begin.toordinal(), end.toordinal()


def _day(text: str) -> date:
    # date.fromisoformat also reads 20260301 and 2026-W09-7, which would be surprising here.
    if not _DAY_TEXT.fullmatch(text.strip()):
        raise ValueError(text)
    return date.fromisoformat(text.strip())
