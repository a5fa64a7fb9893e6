"""Constraints: at which wall times a chosen time may lie (`only`), and at which it must not (`avoid`).

`only` is a list of clause sets. A time satisfies a set when it satisfies every clause in it, a clause when it matches
any of its values; one satisfied set is enough. A time that matches any `avoid` clause is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import islice
from typing import Any

from horae.core.cron import DAY, HOUR, MONTH, WEEKDAY, FieldFault, FieldShape, parse_field
from horae.errors import InvalidConstraint, shown

KINDS = ("hours", "dow", "dom", "months", "between", "dates")
_SHAPES: dict[str, FieldShape] = {"hours": HOUR, "dow": WEEKDAY, "dom": DAY, "months": MONTH}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """One wall time, taken apart once for all clauses."""

    hours: int
    dow: int
    dom: int
    months: int
    between: int
    """Minute of the day."""
    dates: int
    """Ordinal of the day."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One kind of clause: a mask for numbers, or inclusive ranges of minutes or days. `text` is its canonical form."""

    kind: str
    text: str
    mask: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    def matches(self, at: Moment) -> bool:
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
    """Constraints, understood."""

    only: tuple[tuple[Clause, ...], ...] = ()
    avoid: tuple[Clause, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.only or self.avoid)

    def objection(self, wall: int) -> str | None:
        """Why the wall second `wall` is rejected, or None when it is not."""
        at = moment_of(wall)
        if self.only and not any(all(clause.matches(at) for clause in clauses) for clauses in self.only):
            failed = [[str(clause) for clause in clauses if not clause.matches(at)] for clauses in self.only]
            return "not in only " + " nor in only ".join("; ".join(texts) for texts in failed)
        for clause in self.avoid:
            if clause.matches(at):
                return f"in avoid {clause}"
        return None


NO_RULES = Rules()


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """As given by a person: dicts from clause kind to values. Understood, and refused if need be, by `rules()`."""

    only: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None
    avoid: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None

    def rules(self) -> Rules:
        """Raises InvalidConstraint, which names the clause and the value."""
        if self.only is None and self.avoid is None:
            return NO_RULES
        only = tuple(clauses for each in _dicts(self.only, "only") if (clauses := _clauses(each, "only")))
        avoid = tuple(clause for each in _dicts(self.avoid, "avoid") for clause in _clauses(each, "avoid"))
        return Rules(only, avoid)

    def to_dict(self) -> dict[str, Any]:
        """Canonical text for every clause; empty when nothing is constrained."""
        rules = self.rules()
        data: dict[str, Any] = {}
        if rules.only:
            data["only"] = [{clause.kind: clause.text for clause in clauses} for clauses in rules.only]
        if rules.avoid:
            data["avoid"] = [{clause.kind: clause.text} for clause in rules.avoid]
        return data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self.rules() == other.rules()

    def __hash__(self) -> int:
        return hash(self.rules())


def moment_of(wall: int) -> Moment:
    day, second = divmod(wall, 86_400)
    ordinal = day + _EPOCH_DAY
    on = date.fromordinal(ordinal)
    return Moment(second // 3600, ordinal % 7, on.day, on.month, second // 60, ordinal)


def _dicts(value: Any, side: str) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    given = [value] if isinstance(value, Mapping) else value
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidConstraint(f"Invalid {side} constraint {shown(value)}: must be a mapping or a list of mappings")
    listed = list(islice(given, _MOST_VALUES))
    for each in listed:
        if not isinstance(each, Mapping):
            raise InvalidConstraint(f"Invalid {side} constraint {shown(each)}: must be a mapping")
    return listed


def _clauses(given: Mapping[str, Any], side: str) -> tuple[Clause, ...]:
    return tuple(
        parse_clause(kind, value, side) for kind, value in sorted(given.items(), key=lambda item: str(item[0]))
    )


def parse_clause(kind: str, value: Any, side: str = "only") -> Clause:
    """One clause from its kind and its values: numbers, text, or a list of either."""
    name = "dates" if kind == "date" else kind
    if name not in KINDS:
        raise InvalidConstraint(
            f"Invalid {side} constraint: unknown clause {shown(kind)}", hint=f"Known clauses: {', '.join(KINDS)}."
        )
    if isinstance(value, str | int | date) and not isinstance(value, bool):
        values: list[Any] = [value]
    elif isinstance(value, Iterable) and not isinstance(value, Mapping):
        values = list(islice(value, _MOST_VALUES + 1))
    else:
        raise InvalidConstraint(f"Invalid {side} constraint {name}: {shown(value)} is not a list of values")
    if not values or len(values) > _MOST_VALUES:
        raise InvalidConstraint(f"Invalid {side} constraint {name}: it must list 1 to {_MOST_VALUES} values")
    texts = sorted({text for each in values for text in _value_text(each, name, side).split(",")})
    return _compile(name, ",".join(texts), side)


def _value_text(value: Any, name: str, side: str) -> str:
    text = value.isoformat() if isinstance(value, date) else value
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or len(text) > _MOST_VALUES:
        raise InvalidConstraint(f"Invalid {side} constraint {name}: {shown(value)} is not a value it takes")
    return text.strip()


@lru_cache(maxsize=1024)
def _compile(name: str, text: str, side: str) -> Clause:
    try:
        if name in _SHAPES:
            if "*" in text or "/" in text:
                raise FieldFault("takes numbers and ranges only")
            mask = parse_field(text, _SHAPES[name], extended=True)
            return Clause(name, _ranges_text(mask), mask=mask)
        parse = _minutes if name == "between" else _days
        pairs = tuple(parse(part.strip()) for part in text.split(","))
        return Clause(name, text, ranges=pairs)
    except FieldFault as fault:
        raise InvalidConstraint(f"Invalid {side} constraint {name}={text[:120]}: {fault}") from fault


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
        begin = date.fromisoformat(first.strip())
        end = date.fromisoformat(last.strip()) if dots else begin
    except ValueError:
        raise FieldFault(f"has {text[:40]!a}, which is not YYYY-MM-DD or YYYY-MM-DD..YYYY-MM-DD") from None
    if end < begin:
        raise FieldFault(f"has a range of days that ends before it begins: {text[:40]}")
    return begin.toordinal(), end.toordinal()
