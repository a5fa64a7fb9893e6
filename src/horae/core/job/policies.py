"""Policies as values: retry, overlap and recovery, and the allowed words of the other policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from math import isfinite
from typing import Any

from horae.core.time.duration import DurationLike, format_duration, parse_duration
from horae.errors import InvalidPolicy, shown

OVERLAPS = ("skip", "allow", "queue", "coalesce", "replace")
RECOVERIES = ("last", "all", "none", "bounded", "compressed")
FAILURE_STRATEGIES = ("fail_fast", "continue", "retry_on_failure")
MODES = ("sequential", "parallel")
DELIVERIES = ("at_least_once", "at_most_once")
ISOLATIONS = ("auto", "process")
COMPLETIONS = ("preserve", "drop")
UPDATE_POLICIES = ("immediate", "graceful", "windowed")
_LONGEST_DELAY = timedelta(days=366)
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Retry:
    """How a failed task is retried: `Retry(3, "30s", factor=2.0)` waits 30 s, 60 s and 120 s.

    `max_retries` does not count the first attempt. None retries until the job's next scheduled time. The wait before
    retry n (from 0) is `interval * factor**n`, at most `max_interval`, by default 366 days. `jitter` is the share of
    the wait that varies: 0.1 spreads it over 90 % to 110 %, always the same for the same attempt.

    Raises InvalidPolicy or InvalidDuration.
    """

    max_retries: int | None
    interval: DurationLike
    factor: float = 1.0
    max_interval: DurationLike | None = None
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.max_retries is not None and (type(self.max_retries) is not int or not 0 <= self.max_retries <= _MOST):
            raise InvalidPolicy(f"Invalid max_retries {shown(self.max_retries)}: must be None or from 0 to {_MOST}")
        if not _number(self.factor) or not 1.0 <= self.factor <= 1000.0:
            raise InvalidPolicy(f"Invalid retry factor {shown(self.factor)}: must be a number from 1 to 1000")
        if not _number(self.jitter) or not 0.0 <= self.jitter <= 1.0:
            raise InvalidPolicy(f"Invalid retry jitter {shown(self.jitter)}: must be a number from 0 to 1")
        object.__setattr__(self, "interval", parse_duration(self.interval, name="retry interval"))
        if self.max_interval is not None:
            object.__setattr__(self, "max_interval", parse_duration(self.max_interval, name="retry max_interval"))

    def delay(self, retry: int, attempt_id: str) -> timedelta:
        """The wait before retry number `retry` (from 0). The jitter is derived from `attempt_id`."""
        longest = _LONGEST_DELAY if self.max_interval is None else parse_duration(self.max_interval)
        wait = parse_duration(self.interval).total_seconds()
        limit = longest.total_seconds()
        try:
            wait = min(wait * self.factor**retry, limit)
        except OverflowError:
            wait = limit if wait else 0.0
        if self.jitter:
            draw = int.from_bytes(sha256(attempt_id.encode()).digest()[:8], "big") / 2.0**64
            wait *= 1.0 + self.jitter * (2.0 * draw - 1.0)
        return timedelta(seconds=min(wait, limit))

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "max_retries": self.max_retries,
            "interval": format_duration(parse_duration(self.interval)),
        }
        if self.factor != 1.0:
            data["factor"] = self.factor
        if self.max_interval is not None:
            data["max_interval"] = format_duration(parse_duration(self.max_interval))
        if self.jitter:
            data["jitter"] = self.jitter
        return data


@dataclass(frozen=True, slots=True)
class Queue:
    """The overlap policy by which overlapping runs wait in order: `Queue(10)`.

    With a `limit`, a run that would make the queue longer is skipped. Raises InvalidPolicy.
    """

    limit: int | None = None

    def __post_init__(self) -> None:
        _check_count(self.limit, "queue limit")

    def to_dict(self) -> dict[str, Any]:
        return {"queue": self.limit}


@dataclass(frozen=True, slots=True)
class Bounded:
    """The recovery policy that limits catch-up: `Bounded(max_occurrences=100, max_age="1d")`.

    Of the missed scheduled times, at most the last `max_occurrences` are caught up, and none older than `max_age`.
    Raises InvalidPolicy, also where neither is given, or InvalidDuration.
    """

    max_occurrences: int | None = None
    max_age: DurationLike | None = None

    def __post_init__(self) -> None:
        _check_count(self.max_occurrences, "max_occurrences")
        if self.max_age is not None:
            object.__setattr__(self, "max_age", parse_duration(self.max_age, name="max_age"))
        if self.max_occurrences is None and self.max_age is None:
            raise InvalidPolicy("Invalid bounded recovery: give max_occurrences, max_age, or both")

    def to_dict(self) -> dict[str, Any]:
        age = None if self.max_age is None else format_duration(parse_duration(self.max_age))
        return {"max_occurrences": self.max_occurrences, "max_age": age}


Overlap = str | Queue
Recovery = str | Bounded


def parse_overlap(value: object) -> Overlap:
    """Parses an overlap policy. `"queue"` becomes `Queue()`. Raises InvalidPolicy for an unknown one."""
    if isinstance(value, Queue):
        return value
    if isinstance(value, Mapping) and set(value) == {"queue"}:
        return Queue(value["queue"])
    if value == "queue":
        return Queue()
    if isinstance(value, str) and value in OVERLAPS:
        return value
    raise InvalidPolicy(f"Invalid overlap {shown(value)}", hint=f"Choose one of: {', '.join(OVERLAPS)}, Queue(10).")


def parse_recovery(value: object) -> Recovery:
    if isinstance(value, Bounded):
        return value
    if isinstance(value, Mapping) and set(value) <= {"max_occurrences", "max_age"}:
        return Bounded(value.get("max_occurrences"), value.get("max_age"))
    if value == "bounded":
        raise InvalidPolicy("Invalid recovery bounded: it needs bounds", hint="Write Bounded(max_occurrences=100).")
    if isinstance(value, str) and value in RECOVERIES:
        return value
    words = ", ".join(each for each in RECOVERIES if each != "bounded")
    raise InvalidPolicy(
        f"Invalid recovery {shown(value)}", hint=f"Choose one of: {words}, Bounded(max_occurrences=100)."
    )


def parse_retry(value: object) -> Retry:
    if isinstance(value, Retry):
        return value
    if value is None:
        return NO_RETRY
    known = {"max_retries", "interval", "factor", "max_interval", "jitter"}
    if isinstance(value, Mapping) and {"max_retries", "interval"} <= set(value) <= known:
        return Retry(**value)
    raise InvalidPolicy(f"Invalid retry {shown(value)}: must be a Retry", hint='For example Retry(3, "30s").')


def checked_choice(value: object, known: tuple[str, ...], name: str) -> str:
    """Returns `value` if it is one of `known`. Raises InvalidPolicy, which lists them."""
    if isinstance(value, str) and value in known:
        return str(value)
    raise InvalidPolicy(f"Invalid {name} {shown(value)}", hint=f"Choose one of: {', '.join(known)}.")


def _check_count(value: object, name: str) -> None:
    if value is not None and (type(value) is not int or not 1 <= value <= _MOST):
        raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a whole number from 1 to {_MOST}")


def _number(value: object) -> bool:
    return type(value) is int or (isinstance(value, float) and isfinite(value))


NO_RETRY = Retry(0, 0)
