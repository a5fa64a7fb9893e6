"""How an engine is set up: limits and rhythms, with the values it has where nobody says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from horae.core.duration import parse_duration
from horae.core.liveness import BEATS_OF_SILENCE, HEARTBEAT, SILENCE, check_rhythm, default_late_after
from horae.core.move import HANDLER_GRACE
from horae.core.shape import known_words
from horae.core.shares import KINDS, Limits
from horae.core.size import parse_size
from horae.errors import InvalidPolicy, shown

SHUTDOWNS = ("drain", "cancel")
LATE_AFTER = default_late_after(HEARTBEAT, SILENCE)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Seconds, counts and characters."""

    heartbeat: float = HEARTBEAT
    """How often a node says that it lives, and asks which of its runs are to be cancelled. At least 50 ms."""
    spacing: float = 0.2
    """Changes of the catalog make a node look for cancellations at once, but no more often than this. A heartbeat that
    is due never waits for it."""
    late_after: float | None = LATE_AFTER
    """How long after its last confirmed heartbeat, counted from when that was sent, a node stops its tasks: later,
    others may have taken its runs over. From two heartbeats to less than take_over_after less one heartbeat."""
    take_over_after: float = SILENCE
    """How long this node must be seen silent before others take its runs over: it writes that into its own row. The
    runs of a process that is gone are taken over sooner. At least four heartbeats."""
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
    sqlite_write_limit: float | None = None
    """How long SQL text of anybody but `local` may write on SQLite, from its first write on; None: 5 s."""
    process_memory: int | None = None
    """Bytes of address space for a task with isolation="process"; None: three quarters of the machine's memory."""
    modules: tuple[str, ...] = ()
    """Modules that may be imported for schedules of users' own and for callables that jobs name by their import path,
    with all that lies under them."""
    owner_max_jobs: int | None = None
    """Jobs that an owner may have; None: any number. As the three that follow, never for `local`, and only where
    neither ALTER SYSTEM nor ALTER USER says otherwise."""
    owner_max_running: int | None = None
    """Runs of an owner's jobs at once, on all nodes together."""
    owner_max_starts: int | None = None
    """Runs of an owner's jobs that may start within a minute."""
    owner_max_storage: int | None = None
    """Bytes of output, results and payloads that are kept of an owner's runs."""
    tee: bool = True
    """Whether what tasks print also goes where it would have gone without us; under `horae serve` and `horae worker` as
    records of the log, but to a terminal."""
    audit_head_file: str | None = None
    """A file that gets a line for each new head of the audit trail, for `horae audit verify --head-file`: an absolute
    path, where nobody else may write."""
    audit_head_webhook: str | None = field(default=None, repr=False)
    """An address that each new head of the audit trail is sent to: a POST of JSON with `seal`, `digest`, `time`."""

    @property
    def owner_limits(self) -> Limits:
        return Limits(self.owner_max_jobs, self.owner_max_running, self.owner_max_starts, self.owner_max_storage)


def parse_tuning(given: Mapping[str, Any] | None) -> Tuning:
    """The tuning with what `given` sets; durations may be written as text."""
    known = {each.name for each in fields(Tuning)}
    values: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name not in known:
            raise InvalidPolicy(f"Unknown setting {shown(name)}", hint=known_words(name, sorted(known), "settings"))
        values[name] = _checked(name, value)
    made = _with(Tuning(), values)
    check_rhythm(made.heartbeat, made.late_after, made.take_over_after)
    return made


def _with(tuning: Tuning, values: Mapping[str, Any]) -> Tuning:
    """The tuning with these values. A node stops its tasks some time before others take them over, unless it says when
    it does."""
    follows = tuning.late_after == _late_after(tuning)
    made = replace(tuning, **values)
    if follows and "late_after" not in values:
        made = replace(made, late_after=_late_after(made))
    return made


def _late_after(tuning: Tuning) -> float:
    return default_late_after(tuning.heartbeat, tuning.take_over_after)


def _fitted(tuning: Tuning) -> Tuning:
    """The tuning of a node whose own settings do not fit what the system says: it stands by a longer silence, and stops
    its tasks before that is over."""
    silence = max(tuning.take_over_after, BEATS_OF_SILENCE * tuning.heartbeat)
    made = _with(tuning, {"take_over_after": silence})
    try:
        check_rhythm(made.heartbeat, made.late_after, made.take_over_after)
    except InvalidPolicy:
        made = replace(made, late_after=_late_after(made))
    return made


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
    "sqlite_write_limit",
}
_HEADS = {"audit_head_file", "audit_head_webhook"}
_OWNERS = {f"owner_{kind}" for kind in KINDS}
_COUNTS = {"plan_batch", "output_limit", "result_limit", "process_memory"} | _OWNERS
_OPTIONAL = (
    {
        "late_after",
        "job_history_retention_days",
        "transaction_limit",
        "sqlite_write_limit",
        "process_memory",
    }
    | _HEADS
    | _OWNERS
)


def _checked(name: str, value: Any) -> Any:
    if value is None and name in _OPTIONAL:
        return None
    if name in _DURATIONS:
        seconds = parse_duration(value, name=name).total_seconds()
        if seconds <= 0:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be longer than nothing")
        return seconds
    if name == "owner_max_storage" and isinstance(value, str):
        return parse_size(value, name=name)
    if name in _COUNTS:
        if type(value) is not int or value < 1:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a whole number from 1")
        return value
    if name == "modules":
        if isinstance(value, str) or not all(isinstance(each, str) for each in value):
            raise InvalidPolicy(f"Invalid modules {shown(value)}: must be a list of module names")
        return tuple(value)
    if name == "audit_head_file":
        if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be an absolute path")
        return value
    if name == "audit_head_webhook":
        return _webhook(value)
    if name == "tee":
        if type(value) is not bool:
            raise InvalidPolicy(f"Invalid tee {shown(value)}: must be True or False")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a number of days above 0, or None")
    return float(value)


def _webhook(value: Any) -> str:
    # The value is never shown: there may be a secret in it.
    invalid = InvalidPolicy("Invalid audit_head_webhook: must be an address that begins with http:// or https://")
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise invalid
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise invalid from None
    if not is_good or parts.username is not None or parts.password is not None:
        raise (
            invalid
            if not is_good
            else InvalidPolicy(
                "Invalid audit_head_webhook: has a user or a password in it",
                hint="Give a secret as a part of the path.",
            )
        )
    return value


SYSTEM_SLOTS = "max_concurrent_jobs"
SYSTEM_RECOVERY = "catch_up"
CATCH_UPS = ("none", "last", "all")
PREFIX = "scheduler."
RHYTHM = ("heartbeat", "late_after", "take_over_after")
"""Settings that are bounded against each other."""


def checked_system(name: str, value: Any, others: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A setting of ALTER SYSTEM, `scheduler.<name>`, in its own type; None takes it back. `others` are set already.
    Raises InvalidPolicy."""
    own = name.removeprefix(PREFIX)
    known = sorted({SYSTEM_SLOTS, SYSTEM_RECOVERY} | {each.name for each in fields(Tuning)} - _NODES_OWN)
    if not name.startswith(PREFIX) or own not in known:
        hint = known_words(name, [PREFIX + each for each in known], "settings")
        raise InvalidPolicy(f"Unknown setting {shown(name)}", hint=hint)
    checked = None if value is None else _system_value(name, own, value)
    if own in RHYTHM:
        # Also where one is taken back: what is left must fit.
        _check_system_rhythm({**others, name: checked})
    return checked


def unheeded(system: Mapping[str, Any]) -> dict[str, str]:
    """What ALTER SYSTEM has set and `retuned` passes over, with the reason: another release took it, or a hand wrote
    it."""
    found = {}
    for name, value in system.items():
        try:
            checked_system(name, value, system)
        except InvalidPolicy as error:
            found[name] = error.message
    return found


def _system_value(name: str, own: str, value: Any) -> Any:
    if own == SYSTEM_SLOTS:
        if type(value) is not int or value < 1:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a whole number from 1")
        return value
    if own == SYSTEM_RECOVERY:
        text = value.lower() if isinstance(value, str) else value
        if text not in CATCH_UPS:
            raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be one of {', '.join(CATCH_UPS)}")
        return text
    return _checked(own, value)


def _check_system_rhythm(system: Mapping[str, Any]) -> None:
    values = {own: system[PREFIX + own] for own in RHYTHM if system.get(PREFIX + own) is not None}
    made = _with(Tuning(), values)
    check_rhythm(made.heartbeat, made.late_after, made.take_over_after)


_NODES_OWN = {"modules", "tee", "process_memory"} | _HEADS
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
    return slots, _fitted(_with(tuning, values)) if values.keys() & set(RHYTHM) else _with(tuning, values)
