"""Reads the configuration file and the environment, section by section, into one record."""

from __future__ import annotations

import logging
import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horae.config import values as kinds
from horae.config.server import SERVER_LISTS, ServerSettings, is_foreign, server_keys
from horae.config.values import Read, ValueSource
from horae.core.program.policy import ExternalPolicy, Sandbox, sandbox_from_namespaces
from horae.core.shape import known_words
from horae.errors import InvalidConfiguration

FILE = "horae.toml"
"""The file that is read, if it exists, when no other is named."""
FILE_VARIABLE = "HORAE_CONFIG"
KEY_VARIABLE = "HORAE_MASTER_KEY"
"""The variable that holds the master key when no other source is configured."""
_LISTS = ("commands", "directories", "environment", "hidden", "older_key_files", "modules")
_MOST_READ = 1 << 20
_log = logging.getLogger("horae.config")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """A named database for SQL jobs. Its url may hold a login and is never shown."""

    name: str
    url: str = field(repr=False)

    @property
    def shown_url(self) -> str:
        """The url without user, password and parameters."""
        scheme, _, rest = self.url.partition("://")
        place = re.split(r"[?#]", rest, maxsplit=1)[0].rpartition("@")[2]
        return f"{scheme}://{place}"


@dataclass(frozen=True, slots=True)
class KeySources:
    """Where the master keys are. At most one of the first three is set. Paths are absolute."""

    key_file: str | None = None
    """A file with the master key that only its owner may read."""
    key_environment: str | None = None
    """The environment variable that holds the master key."""
    key_command: tuple[str, ...] | None = None
    """A program that prints the master key."""
    older_key_files: tuple[str, ...] = ()
    """Files with former master keys, which decrypt values that are not yet encrypted with the new one."""
    debuggable: bool = False
    """Whether debuggers and core files may see the memory of a process that holds a key or starts programs."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole configuration. `source` is the file's path, if there is a file.

    `scheduler` holds unchecked values, which `parse_tuning` checks.
    """

    external: ExternalPolicy = field(default_factory=ExternalPolicy)
    connections: Mapping[str, ConnectionSettings] = field(default_factory=dict)
    secrets: KeySources = field(default_factory=KeySources)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    server: ServerSettings = field(default_factory=ServerSettings)


def load_configuration(path: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Configuration:
    """Loads the configuration from the file at `path`, else from the one that HORAE_CONFIG names, else from
    ./horae.toml if it exists.

    Raises InvalidConfiguration, which names the file or variable, the key and what is expected.
    """
    variables = os.environ if environment is None else environment
    named = path if path is not None else variables.get(FILE_VARIABLE) or None
    file = Path(FILE if named is None else named)
    if named is None and not file.exists():
        return _read({}, None, variables)
    return _read(_parsed(file), file, variables)


def parse_configuration(
    text: str, *, source: str = FILE, environment: Mapping[str, str] | None = None
) -> Configuration:
    """Parses a configuration from text. Relative paths in it start from the folder of `source`."""
    return _read(_toml(text, source), Path(source), environment or {})


def _parsed(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            _refuse_open(file, os.fstat(opened.fileno()).st_mode)
            data = opened.read(_MOST_READ + 1)
        if len(data) > _MOST_READ:
            raise InvalidConfiguration(f"{file}: larger than {_MOST_READ} bytes, which no configuration is")
        text = data.decode()
    except OSError as error:
        raise InvalidConfiguration(
            f"{file}: the configuration cannot be read: {error.strerror}",
            hint=f"Name another file by {FILE_VARIABLE}, or leave it out: there are defaults for everything.",
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidConfiguration(f"{file}: is not UTF-8 text, at byte {error.start}") from None
    return _toml(text, str(file))


def _refuse_open(file: Path, mode: int) -> None:
    """Raises InvalidConfiguration if every user may write the file, because its writers decide which programs run."""
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        raise InvalidConfiguration(
            f"{file}: everybody on this machine may write the configuration (mode {stat.S_IMODE(mode):04o})",
            hint=f"Run: chmod o-w {shlex.quote(str(file))}",
        )


def _toml(text: str, source: str) -> Mapping[str, Any]:
    # Imported here: only programs with a configuration file need it.
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(f"{source}: is not TOML: {error}") from None


# ---- the sections ----------------------------------------------------------------------------------------------------


def _read(data: Mapping[str, Any], file: Path | None, variables: Mapping[str, str]) -> Configuration:
    source = "the configuration" if file is None else str(file)
    for section in data:
        if section not in _SECTIONS:
            raise ValueSource(source, f"[{section}]").wrong(
                "is not known", known_words(f"[{section}]", [f"[{each}]" for each in _SECTIONS], "sections")
            )
    folder = Path.cwd() if file is None else file.absolute().parent
    external = _section(data, "external", source, variables, {**EXTERNAL, **_FORMER})
    keys = _section(data, "secrets", source, variables, _secrets_keys(folder))
    if "key_environment" not in keys and not {"key_file", "key_command"} & keys.keys() and variables.get(KEY_VARIABLE):
        keys["key_environment"] = KEY_VARIABLE
    named = [each for each in ("key_file", "key_environment", "key_command") if each in keys]
    if len(named) > 1:
        raise ValueSource(source, "[secrets]").wrong(
            f"names several master keys: {', '.join(named)}", "Keep one of them."
        )
    return Configuration(
        _policy(external, source),
        _connections(data, source, variables),
        KeySources(**keys),
        _section(data, "scheduler", source, variables, None),
        None if file is None else str(file),
        ServerSettings(**_section(data, "server", source, variables, server_keys(folder))),
    )


def _section(
    data: Mapping[str, Any],
    name: str,
    source: str,
    variables: Mapping[str, str],
    known: Mapping[str, tuple[str, Read]] | None,
) -> dict[str, Any]:
    """The values of one section, by the names of the fields they set. Without `known`, every key is accepted
    unchecked."""
    given = data.get(name, {})
    if not isinstance(given, Mapping):
        raise ValueSource(source, f"[{name}]").wrong("must be a section")
    places: dict[str, tuple[Any, ValueSource]] = {
        key: (value, ValueSource(source, f"{key} in [{name}]")) for key, value in given.items()
    }
    prefix = f"HORAE_{name.upper()}_"
    for variable, value in sorted(variables.items()):
        if variable.startswith(prefix) and not is_foreign(variable):
            key = variable.removeprefix(prefix).lower()
            places[key] = (_from_variable(value, key, known), ValueSource("the environment", variable))
    found: dict[str, Any] = {}
    for key, (value, place) in places.items():
        if known is None:
            found[key] = value
            continue
        if key not in known:
            raise place.wrong("is not known", known_words(key, sorted(known), f"keys of [{name}]"))
        attribute, read = known[key]
        found[attribute] = read(value, place)
    return found


def _from_variable(value: str, key: str, known: Mapping[str, tuple[str, Read]] | None) -> Any:
    """Converts a variable's text to a TOML value: booleans, numbers, and words between colons for lists."""
    read = None if known is None or key not in known else known[key][1]
    if known is not None and known.get(key, ("", None))[0] in SERVER_LISTS:
        # Targets and addresses contain colons.
        return value.replace(",", " ").split()
    if key in _LISTS:
        return [each for each in value.split(":") if each]
    if read in (kinds.flag, None) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if read in (kinds.count, kinds.limit_count, kinds.number, None) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if read is kinds.number and re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", value):
        return float(value)
    return value


def _policy(values: Mapping[str, Any], source: str) -> ExternalPolicy:
    given = dict(values)
    try:
        if "namespaces" in given:
            given["sandbox"] = _former_sandbox(given.pop("namespaces"), given, source)
        policy = ExternalPolicy(**given)
    except InvalidConfiguration as error:
        # The message names the field; the file is added here.
        raise InvalidConfiguration(f"{source}: [external]: {error.message}", details=error.details) from None
    if policy.enabled and not policy.commands and not policy.directories:
        raise ValueSource(source, "[external]").wrong(
            "is enabled and allows nothing", "Name programs in commands, or their folders in directories."
        )
    return policy


def _connections(data: Mapping[str, Any], source: str, variables: Mapping[str, str]) -> dict[str, ConnectionSettings]:
    given = data.get("connections", {})
    if not isinstance(given, Mapping):
        raise ValueSource(source, "[connections]").wrong("must have a section for each: [connections.name]")
    found: dict[str, ConnectionSettings] = {}
    for name, values in given.items():
        place = ValueSource(source, f"[connections.{name}]")
        kinds.name(name, place)
        if not isinstance(values, Mapping):
            raise place.wrong("must be a section with a url")
        for key in values:
            if key != "url":
                raise ValueSource(source, f"{key} in [connections.{name}]").wrong("is not known", "Known keys: url.")
        if "url" not in values:
            raise place.wrong("has no url", f"Known kinds: {', '.join(kinds.SCHEMES)}.")
        found[name] = ConnectionSettings(
            name, kinds.url(values["url"], ValueSource(source, f"url in [connections.{name}]"))
        )
    prefix = "HORAE_CONNECTION_"
    for variable, value in sorted(variables.items()):
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower()
            place = ValueSource("the environment", variable)
            found[kinds.name(name, place)] = ConnectionSettings(name, kinds.url(value, place))
    return found


def _former_sandbox(namespaces: str, given: Mapping[str, Any], source: str) -> Sandbox:
    """The sandbox for the former key `namespaces`. Logs a warning."""
    if "sandbox" in given:
        raise ValueSource(source, "[external]").wrong("says both sandbox and namespaces", "Keep sandbox.")
    meant = sandbox_from_namespaces(namespaces, given.get("user"))
    said = f'{source}: namespaces = "{namespaces}" in [external] is now sandbox = "{meant}": write that instead'
    if namespaces == "auto":
        said += "; a machine without bubblewrap starts no program then"
    _log.warning("%s", said)
    return meant


EXTERNAL: Mapping[str, tuple[str, Read]] = {
    "enabled": ("enabled", kinds.flag),
    "commands": ("commands", kinds.paths),
    "directories": ("directories", kinds.paths),
    "working_directory": ("working_directory", kinds.path),
    "environment": ("environment", kinds.words),
    "variables": ("variables", kinds.variables),
    "output_limit": ("output_limit", kinds.size),
    "cpu_seconds": ("cpu_seconds", kinds.or_none(kinds.cpu)),
    "memory": ("memory", kinds.or_none(kinds.size)),
    "open_files": ("open_files", kinds.limit_count),
    "processes": ("processes", kinds.limit_count),
    "file_size": ("file_size", kinds.or_none(kinds.size)),
    "time_limit": ("time_limit", kinds.or_none(kinds.seconds)),
    "grace": ("grace", kinds.seconds),
    "user": ("user", kinds.word),
    "group": ("group", kinds.word),
    "shell": ("allow_shell", kinds.flag),
    "sandbox": ("sandbox", kinds.word),
    "hidden": ("hidden", kinds.paths),
}
_FORMER: Mapping[str, tuple[str, Read]] = {"namespaces": ("namespaces", kinds.word)}
"""Former keys of [external]."""


def _secrets_keys(folder: Path) -> Mapping[str, tuple[str, Read]]:
    """The keys of [secrets]. Relative paths start from the configuration's folder."""

    def file(value: Any, place: ValueSource) -> str:
        return str(folder / kinds.word(value, place))

    def files(value: Any, place: ValueSource) -> tuple[str, ...]:
        return tuple(str(folder / each) for each in kinds.words(value, place))

    return {
        "key_file": ("key_file", file),
        "key_environment": ("key_environment", kinds.word),
        "key_command": ("key_command", kinds.command),
        "older_key_files": ("older_key_files", files),
        "debuggable": ("debuggable", kinds.flag),
    }


_SECTIONS = ("external", "connections", "secrets", "scheduler", "server")
