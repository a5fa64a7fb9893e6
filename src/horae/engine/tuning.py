"""How an engine is set up: limits and rhythms, with the values it has where nobody says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from horae.core.duration import parse_duration
from horae.core.liveness import SILENCE
from horae.core.move import HANDLER_GRACE
from horae.core.shape import known_words
from horae.errors import InvalidPolicy, shown

SHUTDOWNS = ("drain", "cancel")
BEATS_OF_SILENCE = 2
LATE_AFTER = SILENCE - 5.0
HEARTBEAT = 5.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """Seconds, counts and characters."""

    heartbeat: float = HEARTBEAT
    """How often a node says that it lives, and asks which of its runs are to be cancelled."""
    spacing: float = 0.2
    """Changes of the catalog make a node look for cancellations at once, but no more often than this."""
    late_after: float | None = LATE_AFTER
    """A heartbeat that comes later than this may come after others have taken the node's runs: it stops its tasks."""
    take_over_after: float = SILENCE
    """How long a node must be seen silent before others take its runs over; those of a process that is gone are taken
    over at once. At least two heartbeats."""
    reap_every: float = 5.0
    sweep_every: float = 10.0
    handler_grace: float = HANDLER_GRACE.total_seconds()
    """How long no live node has to have had a handler before a run of an earlier version stops waiting for it."""
    retain_every: float = 3600.0
    job_history_retention_days: float | None = 30.0
    plan_batch: int = 200
    output_limit: int = 64 * 1024
    """Characters of output kept for one attempt."""
    result_limit: int = 64 * 1024
    """Characters of JSON a return value may take."""
    transaction_limit: float | None = None
    """How long `run.transaction` may last; None: 5 s where it holds the only writer, else 60 s."""
    process_memory: int | None = None
    """Bytes of address space for a task with isolation="process"; None: three quarters of the machine's memory."""
    modules: tuple[str, ...] = ()
    """Modules that may be imported for schedules of users' own and for callables that jobs name by their import path,
    with all that lies under them."""
    tee: bool = True
    """Whether what tasks print also goes where it would have gone without us."""


def parse_tuning(given: Mapping[str, Any] | None) -> Tuning:
    """The tuning with what `given` sets; durations may be written as text."""
    known = {each.name for each in fields(Tuning)}
    values: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name not in known:
            raise InvalidPolicy(f"Unknown setting {shown(name)}", hint=known_words(name, sorted(known), "settings"))
        values[name] = _checked(name, value)
    if "take_over_after" in values:
        check_take_over(values["take_over_after"], values.get("heartbeat", HEARTBEAT))
    return _with(Tuning(), values)


def check_take_over(take_over_after: float, heartbeat: float) -> None:
    """Raises InvalidPolicy where a node that lives could be taken for dead between two of its heartbeats."""
    if take_over_after < BEATS_OF_SILENCE * heartbeat:
        least, beat = BEATS_OF_SILENCE * heartbeat, take_over_after / BEATS_OF_SILENCE
        raise InvalidPolicy(
            f"Invalid take_over_after {take_over_after:g} s: must be at least two heartbeats, of {heartbeat:g} s each",
            hint=f"Set take_over_after to {least:g} s or more, or heartbeat to {beat:g} s or less.",
        )


def _with(tuning: Tuning, values: Mapping[str, Any]) -> Tuning:
    """The tuning with these values. A node stops its tasks some time before others take them over, unless it says when
    it does."""
    follows = tuning.late_after == _late_after(tuning.take_over_after)
    made = replace(tuning, **values)
    if follows and "late_after" not in values:
        made = replace(made, late_after=_late_after(made.take_over_after))
    return made


def _late_after(take_over_after: float) -> float:
    return take_over_after * LATE_AFTER / SILENCE


_DURATIONS = {
    "take_over_after",
    "heartbeat",
    "spacing",
    "late_after",
    "reap_every",
    "sweep_every",
    "handler_grace",
    "retain_every",
    "transaction_limit",
}
_COUNTS = {"plan_batch", "output_limit", "result_limit", "process_memory"}
_OPTIONAL = {"late_after", "job_history_retention_days", "transaction_limit", "process_memory"}


def _checked(name: str, value: Any) -> Any:
    if value is None and name in _OPTIONAL:
        return None
    if name in _DURATIONS:
        seconds = parse_duration(value, name=name).total_seconds()
        if seconds <= 0:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be longer than nothing")
        return seconds
    if name in _COUNTS:
        if type(value) is not int or value < 1:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a whole number from 1")
        return value
    if name == "modules":
        if isinstance(value, str) or not all(isinstance(each, str) for each in value):
            raise InvalidPolicy(f"Invalid modules {shown(value)}: must be a list of module names")
        return tuple(value)
    if name == "tee":
        if type(value) is not bool:
            raise InvalidPolicy(f"Invalid tee {shown(value)}: must be True or False")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a number of days above 0, or None")
    return float(value)


SYSTEM_SLOTS = "max_concurrent_jobs"
SYSTEM_RECOVERY = "catch_up"
CATCH_UPS = ("none", "last", "all")
PREFIX = "scheduler."


def checked_system(name: str, value: Any, others: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A setting of ALTER SYSTEM, `scheduler.<name>`, in its own type; None takes it back. `others` are set already.
    Raises InvalidPolicy."""
    own = name.removeprefix(PREFIX)
    known = sorted({SYSTEM_SLOTS, SYSTEM_RECOVERY} | {each.name for each in fields(Tuning)} - _NODES_OWN)
    if not name.startswith(PREFIX) or own not in known:
        hint = known_words(name, [PREFIX + each for each in known], "settings")
        raise InvalidPolicy(f"Unknown setting {shown(name)}", hint=hint)
    if value is None:
        return None
    if own == SYSTEM_SLOTS:
        if type(value) is not int or value < 1:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a whole number from 1")
        return value
    if own == SYSTEM_RECOVERY:
        text = value.lower() if isinstance(value, str) else value
        if text not in CATCH_UPS:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be one of {', '.join(CATCH_UPS)}")
        return text
    checked = _checked(own, value)
    if own in ("heartbeat", "take_over_after"):
        both = {PREFIX + "take_over_after": SILENCE, PREFIX + "heartbeat": HEARTBEAT, **others, name: checked}
        check_take_over(both[PREFIX + "take_over_after"], both[PREFIX + "heartbeat"])
    return checked


_NODES_OWN = {"modules", "tee", "process_memory"}
"""What is about one process and its machine, and so not the system's to say."""


def retuned(given: tuple[int, Tuning], system: Mapping[str, Any]) -> tuple[int, Tuning]:
    """Slots and tuning with what ALTER SYSTEM has set, where it is still something this release knows."""
    slots, tuning = given
    values: dict[str, Any] = {}
    for name, value in system.items():
        with suppress(InvalidPolicy):
            checked = checked_system(name, value, system)
            own = name.removeprefix(PREFIX)
            if own == SYSTEM_SLOTS:
                slots = checked
            elif own != SYSTEM_RECOVERY:
                values[own] = checked
    made = _with(tuning, values)
    if "take_over_after" in values:
        # A node's own heartbeat may be slower than the system's silence: it would be taken for dead while it lives.
        made = _with(made, {"take_over_after": max(made.take_over_after, BEATS_OF_SILENCE * made.heartbeat)})
    return slots, made
