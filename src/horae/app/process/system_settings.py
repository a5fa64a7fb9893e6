"""The settings that ALTER SYSTEM knows, with their defaults and descriptions."""

from __future__ import annotations

from typing import Any, NamedTuple

from horae.engine.limits import PREFIX, SYSTEM_CONCURRENCY, SYSTEM_RECOVERY, EngineSettings

_SAID = {
    SYSTEM_CONCURRENCY: "Runs that one node works on at once",
    SYSTEM_RECOVERY: "What new SQL jobs that do not say do about missed slots: none, last or all",
    "heartbeat": "Seconds between two signs of life of a node: from 0.05 to a quarter of take_over_after",
    "spacing": "Seconds between two looks for cancellations, at the least; a heartbeat that is due comes all the same",
    "late_after": "Seconds after its last confirmed heartbeat when a node stops its tasks",
    "take_over_after": "Seconds of silence after which others take over the runs of a node; at least four heartbeats",
    "reap_every": "Seconds between two looks for runs past their time limit",
    "sweep_every": "Seconds between two looks for runs that wait without need",
    "handler_grace": "Seconds that no live node has to have had a handler before it counts as gone",
    "retain_every": "Seconds between two clearings of old history",
    "job_history_retention_days": "Days that the history of runs is kept",
    "owner_max_jobs": "Jobs that an owner other than local may have; none: any number",
    "owner_max_running": "Runs of an owner other than local at once, on all nodes; none: any number",
    "owner_max_starts": "Runs of an owner other than local that may start within a minute; none: any number",
    "owner_max_storage": "Bytes of output, results and payloads kept of an owner other than local; none: any number",
    "plan_batch": "Jobs planned in one transaction, at most",
    "output_limit": "Characters of output kept of one attempt",
    "result_limit": "Characters of JSON that a task may return",
    "transaction_limit": "Seconds that run.transaction may last; none: 5 on SQLite, 60 on PostgreSQL",
    "sqlite_write_limit": "Seconds that text of others may write on SQLite, from its first write on; none: 5",
}
_DEFAULTS = {SYSTEM_CONCURRENCY: 50, SYSTEM_RECOVERY: "last"}


class SystemSetting(NamedTuple):
    name: str
    default: Any
    description: str


def system_settings() -> tuple[SystemSetting, ...]:
    """Every setting, in the order of names."""
    tuning = EngineSettings()
    return tuple(
        SystemSetting(PREFIX + name, _DEFAULTS[name] if name in _DEFAULTS else getattr(tuning, name), said)
        for name, said in sorted(_SAID.items())
    )
