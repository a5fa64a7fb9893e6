"""The settings of an engine, with their defaults: intervals, timeouts and limits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from horae.core.change.run_move import HANDLER_GRACE
from horae.core.job.owner_limits import KINDS, OwnerLimits
from horae.core.node_liveness import BEATS_OF_SILENCE, HEARTBEAT, SILENCE, check_timing, default_late_after
from horae.core.program.size import parse_size
from horae.core.shape import known_words
from horae.core.time.duration import parse_duration
from horae.errors import InvalidPolicy, shown

SHUTDOWNS = ("drain", "cancel")
LONGEST_RETENTION = 36_500
"""Days: a century. More means that history is kept for ever: such times cannot be subtracted from every date."""
LATE_AFTER = default_late_after(HEARTBEAT, SILENCE)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of one node. Durations are seconds, sizes are bytes unless a field says otherwise."""

    heartbeat: float = HEARTBEAT
    """Interval between heartbeats. A heartbeat also reads which runs are to be cancelled. At least 50 ms."""
    spacing: float = 0.2
    """A change of the catalog makes a node look for cancellations immediately, but never sooner than this after its
    last look. A due heartbeat is never delayed."""
    late_after: float | None = LATE_AFTER
    """How long after its last confirmed heartbeat a node stops its tasks, counted from when that heartbeat was sent:
    later, other nodes may have taken its runs over. At least two heartbeats, and less than take_over_after minus one
    heartbeat."""
    take_over_after: float = SILENCE
    """How long this node must be silent before other nodes take its runs over. The node writes the value into its own
    row. Runs of a process that has ended are taken over sooner. At least four heartbeats."""
    reap_every: float = 5.0
    sweep_every: float = 10.0
    handler_grace: float = HANDLER_GRACE.total_seconds()
    """How long no live node must have had a handler before a waiting run of an earlier version stops waiting for it."""
    retain_every: float = 3600.0
    job_history_retention_days: float | None = 30.0
    """None, or more than 36,500: history is kept for ever."""
    plan_batch: int = 200
    output_limit: int = 64 * 1024
    """Characters of output kept for one attempt."""
    result_limit: int = 64 * 1024
    """Characters of JSON that a return value may have."""
    transaction_limit: float | None = None
    """How long `run.transaction` may last. None: 5 s where it holds the only writer, otherwise 60 s."""
    sqlite_write_limit: float | None = None
    """How long SQL text of users other than `local` may write on SQLite, counted from its first write. None: 5 s."""
    process_memory: int | None = None
    """Bytes of address space for a task with isolation="process". None: three quarters of the machine's memory."""
    modules: tuple[str, ...] = ()
    """Modules that may be imported, with their submodules: for users' own schedules, and for handlers that jobs name by
    import path."""
    owner_max_jobs: int | None = None
    """How many jobs an owner may have. None: no limit. This and the next three limits never apply to `local`, and ALTER
    SYSTEM and ALTER USER take precedence over them."""
    owner_max_running: int | None = None
    """Runs of an owner's jobs that may be RUNNING at once, on all nodes together."""
    owner_max_starts: int | None = None
    """Runs of an owner's jobs that may start within a minute."""
    owner_max_storage: int | None = None
    """Bytes of output, results and payloads that are stored for an owner's runs."""
    tee: bool = True
    """Whether the output of tasks also goes where it would go without Horae. Under `horae serve` and `horae worker` it
    becomes log records, unless it goes to a terminal."""
    audit_head_file: str | None = None
    """A file that gets one line for each new head of the audit trail, for `horae audit verify --head-file`. An absolute
    path in a place where no other user may write."""
    audit_head_webhook: str | None = field(default=None, repr=False)
    """An address that gets each new head of the audit trail: a POST of JSON with `seal`, `digest`, `time`."""

    @property
    def owner_limits(self) -> OwnerLimits:
        return OwnerLimits(self.owner_max_jobs, self.owner_max_running, self.owner_max_starts, self.owner_max_storage)


def parse_tuning(given: Mapping[str, Any] | None) -> EngineSettings:
    """Returns the default settings with the `given` values. Durations may be text. Raises InvalidPolicy."""
    known = {each.name for each in fields(EngineSettings)}
    values: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name not in known:
            raise InvalidPolicy(f"Unknown setting {shown(name)}", hint=known_words(name, sorted(known), "settings"))
        values[name] = _checked(name, value)
    made = _with(EngineSettings(), values)
    check_timing(made.heartbeat, made.late_after, made.take_over_after)
    return made


def _with(tuning: EngineSettings, values: Mapping[str, Any]) -> EngineSettings:
    """Returns the settings with these values. A default `late_after` is adjusted to the new heartbeat and silence."""
    follows = tuning.late_after == _late_after(tuning)
    made = replace(tuning, **values)
    if follows and "late_after" not in values:
        made = replace(made, late_after=_late_after(made))
    return made


def _late_after(tuning: EngineSettings) -> float:
    return default_late_after(tuning.heartbeat, tuning.take_over_after)


def _fitted(tuning: EngineSettings) -> EngineSettings:
    """Returns settings in which the rhythm is valid, for a node whose own settings contradict those of ALTER SYSTEM.

    The silence is lengthened to the least number of heartbeats. If that is not enough, `late_after` gets its default.
    """
    silence = max(tuning.take_over_after, BEATS_OF_SILENCE * tuning.heartbeat)
    made = _with(tuning, {"take_over_after": silence})
    try:
        check_timing(made.heartbeat, made.late_after, made.take_over_after)
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidPolicy(f"Invalid {name} {shown(value)}: must be a number of days above 0, or None")
    return None if value > LONGEST_RETENTION else float(value)


def _webhook(value: Any) -> str:
    # The value is never shown, because it may contain a secret.
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


SYSTEM_CONCURRENCY = "max_concurrent_jobs"
SYSTEM_RECOVERY = "catch_up"
CATCH_UPS = ("none", "last", "all")
PREFIX = "scheduler."
RHYTHM = ("heartbeat", "late_after", "take_over_after")
"""Settings whose values restrict each other."""


def checked_system(name: str, value: Any, others: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Returns the value of a setting of ALTER SYSTEM, `scheduler.<name>`, in its own type.

    `value` None resets the setting. `others` are the settings that are stored already. Raises InvalidPolicy.
    """
    own = name.removeprefix(PREFIX)
    known = sorted({SYSTEM_CONCURRENCY, SYSTEM_RECOVERY} | {each.name for each in fields(EngineSettings)} - _NODES_OWN)
    if not name.startswith(PREFIX) or own not in known:
        hint = known_words(name, [PREFIX + each for each in known], "settings")
        raise InvalidPolicy(f"Unknown setting {shown(name)}", hint=hint)
    checked = None if value is None else _system_value(name, own, value)
    if own in RHYTHM:
        # A reset is checked too, because the remaining values must fit.
        _check_system_rhythm({**others, name: checked})
    return checked


def ignored_settings(system: Mapping[str, Any]) -> dict[str, str]:
    """Returns stored settings that `retuned` ignores, with the reason: another release accepted them, or an operator
    wrote them into the table directly."""
    found = {}
    for name, value in system.items():
        try:
            checked_system(name, value, system)
        except InvalidPolicy as error:
            found[name] = error.message
    return found


def _system_value(name: str, own: str, value: Any) -> Any:
    if own == SYSTEM_CONCURRENCY:
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
    made = _with(EngineSettings(), values)
    check_timing(made.heartbeat, made.late_after, made.take_over_after)


_NODES_OWN = {"modules", "tee", "process_memory"} | _HEADS
"""Settings that belong to one process and its machine, so ALTER SYSTEM cannot set them."""


def retuned(given: tuple[int, EngineSettings], system: Mapping[str, Any]) -> tuple[int, EngineSettings]:
    """Returns the concurrency limit and the settings after ALTER SYSTEM. Settings that this release rejects are
    ignored."""
    slots, tuning = given
    values: dict[str, Any] = {}
    for name, value in system.items():
        with suppress(InvalidPolicy):
            checked = checked_system(name, value, system)
            own = name.removeprefix(PREFIX)
            if own == SYSTEM_CONCURRENCY:
                slots = checked
            elif own != SYSTEM_RECOVERY:
                values[own] = checked
    return slots, _fitted(_with(tuning, values)) if values.keys() & set(RHYTHM) else _with(tuning, values)
