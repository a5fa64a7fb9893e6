"""docs/settings.md: every setting there is, with its default: of a job, of all nodes, of one node, of a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from horae.app.process.system_settings import system_settings
from horae.config.loader import EXTERNAL, KeySources
from horae.config.server import DEFAULT_HTTP, Address, ServerSettings, server_keys
from horae.core.job.definition import TASK_SETTINGS, Settings
from horae.core.program.policy import ExternalPolicy
from horae.core.time.duration import format_duration
from horae.engine.limits import PREFIX, EngineSettings
from horae.formats.toml.keys import SETTINGS
from tools.writing import cell, code, field_words, page, table

_INTRO = """
Everything that can be set, with the value it has where nobody says otherwise.
[configuration.md](configuration.md) says where, what wins, and how a variable is called; [policies.md](policies.md)
what a job's mean.
"""
_JOBS = """
Of `@app.job(…)`, `app.schedule(…)` and `jobs.toml`, whose words these are; `CREATE JOB` has
[words of its own](sql.md). What a job leaves out, the app's `defaults` say (in a job file: `[defaults]`). Those with a
star may be set for one task too.
"""
_SYSTEM = """
`ALTER SYSTEM SET name = value` sets one for all nodes at once, and `= DEFAULT` takes it back; so do the dashboard's
settings page and `PUT /api/v1/settings/{name}`. Without `scheduler.` each is also a key of `[scheduler]` in
`horae.toml` and of `Horae(settings=…)`, for the nodes that read it; `catch_up` and `max_concurrent_jobs` are not.
"""
_NODE = (
    "Keys of `[scheduler]` and of `Horae(settings=…)` that are about one process: `ALTER SYSTEM` does not know them."
)
_SERVER = "Keys of `[server]` in `horae.toml`; `horae serve` and `horae worker` have flags for the usual ones."
_BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SIZES = {"body_limit", "output_limit", "memory", "file_size"}
_LENGTHS = {"session_length", "undecided", "time_limit", "grace", "cpu_seconds"}


def settings_page() -> str:
    system = system_settings()
    own = field_words(EngineSettings)
    known = {each.name.removeprefix(PREFIX) for each in system}
    parts = ["## Of a job", _JOBS, table(["setting", "takes", "default", ""], _job_rows())]
    rows = [[code(each.name), _shown(each.default), cell(each.description)] for each in system]
    parts += ["## Of all nodes", _SYSTEM, table(["setting", "default", ""], rows)]
    left = [
        [code(each.name), _shown(_default(each)), cell(own[each.name])]
        for each in fields(EngineSettings)
        if each.name not in known
    ]
    parts += ["## Of one node", _NODE, table(["setting", "default", ""], left)]
    parts += ["## Of a server", _SERVER, _section(ServerSettings, _named(server_keys(Path())))]
    parts += ["## Of programs", "Keys of `[external]`.", _section(ExternalPolicy, _named(EXTERNAL))]
    keys = [(each.name, each.name) for each in fields(KeySources)]
    parts += ["## Of secrets", "Keys of `[secrets]`.", _section(KeySources, keys)]
    return page("Settings", _INTRO, *parts)


def _named(keys: Any) -> list[tuple[str, str]]:
    return [(key, attribute) for key, (attribute, _) in keys.items()]


def _job_rows() -> list[list[str]]:
    rows = []
    for each in fields(Settings):
        key = SETTINGS[each.name]
        mark = "*" if each.name in TASK_SETTINGS else ""
        # The table has a column for what it is where it is left out.
        said = key.about.rpartition(";")[0] + "." if key.about.endswith("if left out.") else key.about
        rows.append([code(each.name) + mark, cell(key.shape.said), _shown(_default(each)), cell(said)])
    return rows


def _section(kind: Any, keys: Iterable[tuple[str, str]]) -> str:
    said = field_words(kind)
    defaults = {each.name: _default(each) for each in fields(kind)}
    rows = [[code(key), _shown(defaults[name], name), cell(said[name])] for key, name in keys]
    return table(["key", "default", ""], rows)


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _shown(value: Any, name: str = "") -> str:
    """A default as one would write it."""
    if value is None or value in ((), {}) or getattr(value, "max_retries", None) == 0:
        return "none"
    if isinstance(value, timedelta):
        return code(format_duration(value))
    if isinstance(value, Address):
        return code(DEFAULT_HTTP)
    if name == "file_mode":
        # As text: a number would be read in tens.
        return code(f'"{value:04o}"')
    if name in _SIZES:
        return code(next(f"{value // size}{unit}" for size, unit in _BINARY if value % size == 0))
    if name in _LENGTHS:
        return code(format_duration(timedelta(seconds=value)))
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, tuple):
        return ", ".join(map(code, value))
    return code(f"{value:g}" if isinstance(value, float) else str(value))
