"""The configuration: one frozen record, from a TOML file and the environment. Absent is whatever the defaults are.

    [external]            programs for EXTERNAL jobs: off until `enabled`
    [connections.name]    url: a database that SQL jobs reach by ON CONNECTION name
    [secrets]             where the master key is: key_file, key_environment or key_command; older_key_files
    [scheduler]           limits and rhythms of the node

A variable HORAE_SECTION_KEY stands for the key of that section, and wins over the file; HORAE_CONNECTION_NAME is the
url of a connection. Whatever is not known, or of the wrong kind, is refused with its place. Urls and variables may hold
passwords: neither shows in a repr or an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horae.core.duration import parse_duration
from horae.core.external import ExternalPolicy
from horae.core.ids import checked_name
from horae.core.size import parse_size
from horae.errors import HoraeError, InvalidConfiguration, shown

FILE = "horae.toml"
"""What is read where nobody names a file, if it is there."""
FILE_VARIABLE = "HORAE_CONFIG"
KEY_VARIABLE = "HORAE_MASTER_KEY"
"""Has the master key where no source is named."""
_SCHEMES = ("sqlite", "postgresql", "postgres")
_LISTS = ("commands", "directories", "environment", "older_key_files", "modules")
_MOST_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Connection:
    """A database with a login of its own. Its url is for those who connect, and for nobody to see."""

    name: str
    url: str = field(repr=False)

    @property
    def shown_url(self) -> str:
        """Where it leads: without user, password and parameters."""
        scheme, _, rest = self.url.partition("://")
        place = re.split(r"[?#]", rest, maxsplit=1)[0].rpartition("@")[2]
        return f"{scheme}://{place}"


@dataclass(frozen=True, slots=True)
class KeySources:
    """Where the master keys are: at most one of the first three is set. Files are absolute."""

    key_file: str | None = None
    key_environment: str | None = None
    key_command: tuple[str, ...] | None = None
    older_key_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """All of it. `scheduler` has plain values: those who know the settings check them. `source` is the file, if any."""

    external: ExternalPolicy = field(default_factory=ExternalPolicy)
    connections: Mapping[str, Connection] = field(default_factory=dict)
    secrets: KeySources = field(default_factory=KeySources)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None


def load_configuration(path: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Configuration:
    """The configuration in the file at `path`, in the one that HORAE_CONFIG names, or in ./horae.toml if there is one.
    Raises InvalidConfiguration, which names the file or the variable, the key, and what is expected there."""
    variables = os.environ if environment is None else environment
    named = path if path is not None else variables.get(FILE_VARIABLE) or None
    file = Path(FILE if named is None else named)
    if named is None and not file.exists():
        return _read({}, None, variables)
    return _read(_parsed(file), file, variables)


def parse_configuration(
    text: str, *, source: str = FILE, environment: Mapping[str, str] | None = None
) -> Configuration:
    """The same from text; relative paths in it are taken from where `source` lies."""
    return _read(_toml(text, source), Path(source), environment or {})


def _parsed(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
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


def _toml(text: str, source: str) -> Mapping[str, Any]:
    # Imported late: only those with a configuration pay for it.
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(f"{source}: is not TOML: {error}") from None


# ---- the sections ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands, for errors."""

    source: str
    key: str

    def wrong(self, reason: str, hint: str | None = None) -> InvalidConfiguration:
        where = f"{self.source}: {self.key}" if self.key else self.source
        details = {"source": self.source, "key": self.key}
        return InvalidConfiguration(f"{where} {reason}", hint=hint, details=details)


Read = Callable[[Any, _Place], Any]


def _read(data: Mapping[str, Any], file: Path | None, variables: Mapping[str, str]) -> Configuration:
    source = "the configuration" if file is None else str(file)
    for section in data:
        if section not in _SECTIONS:
            raise _Place(source, f"[{section}]").wrong(
                "is not known", f"Known sections: {', '.join(f'[{each}]' for each in _SECTIONS)}."
            )
    folder = Path.cwd() if file is None else file.absolute().parent
    external = _section(data, "external", source, variables, _EXTERNAL)
    keys = _section(data, "secrets", source, variables, _secrets_keys(folder))
    if "key_environment" not in keys and not {"key_file", "key_command"} & keys.keys() and variables.get(KEY_VARIABLE):
        keys["key_environment"] = KEY_VARIABLE
    named = [each for each in ("key_file", "key_environment", "key_command") if each in keys]
    if len(named) > 1:
        raise _Place(source, "[secrets]").wrong(f"names several master keys: {', '.join(named)}", "Keep one of them.")
    return Configuration(
        _policy(external, source),
        _connections(data, source, variables),
        KeySources(**keys),
        _section(data, "scheduler", source, variables, None),
        None if file is None else str(file),
    )


def _section(
    data: Mapping[str, Any],
    name: str,
    source: str,
    variables: Mapping[str, str],
    known: Mapping[str, tuple[str, Read]] | None,
) -> dict[str, Any]:
    """The values of one section, by the names of the fields they are for. `known` None: any name, as it is."""
    given = data.get(name, {})
    if not isinstance(given, Mapping):
        raise _Place(source, f"[{name}]").wrong("must be a section")
    places: dict[str, tuple[Any, _Place]] = {
        key: (value, _Place(source, f"{key} in [{name}]")) for key, value in given.items()
    }
    prefix = f"HORAE_{name.upper()}_"
    for variable, value in sorted(variables.items()):
        if variable.startswith(prefix):
            key = variable.removeprefix(prefix).lower()
            places[key] = (_from_variable(value, key, known), _Place("the environment", variable))
    found: dict[str, Any] = {}
    for key, (value, place) in places.items():
        if known is None:
            found[key] = value
            continue
        if key not in known:
            raise place.wrong("is not known", f"Known keys of [{name}]: {', '.join(sorted(known))}.")
        attribute, read = known[key]
        found[attribute] = read(value, place)
    return found


def _from_variable(value: str, key: str, known: Mapping[str, tuple[str, Read]] | None) -> Any:
    """A variable's text as TOML would have it: true and false, whole numbers, and for lists words between colons."""
    read = None if known is None or key not in known else known[key][1]
    if key in _LISTS:
        return [each for each in value.split(":") if each]
    if read in (_flag, None) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if read in (_count, _limit_count, None) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return value


def _policy(values: Mapping[str, Any], source: str) -> ExternalPolicy:
    try:
        policy = ExternalPolicy(**values)
    except InvalidConfiguration as error:
        # Its own words name the field; the file is ours to add.
        raise InvalidConfiguration(f"{source}: [external]: {error.message}", details=error.details) from None
    if policy.enabled and not policy.commands and not policy.directories:
        raise _Place(source, "[external]").wrong(
            "is enabled and allows nothing", "Name programs in commands, or their folders in directories."
        )
    return policy


def _connections(data: Mapping[str, Any], source: str, variables: Mapping[str, str]) -> dict[str, Connection]:
    given = data.get("connections", {})
    if not isinstance(given, Mapping):
        raise _Place(source, "[connections]").wrong("must have a section for each: [connections.name]")
    found: dict[str, Connection] = {}
    for name, values in given.items():
        place = _Place(source, f"[connections.{name}]")
        _name(name, place)
        if not isinstance(values, Mapping):
            raise place.wrong("must be a section with a url")
        for key in values:
            if key != "url":
                raise _Place(source, f"{key} in [connections.{name}]").wrong("is not known", "Known keys: url.")
        if "url" not in values:
            raise place.wrong("has no url", f"Known kinds: {', '.join(_SCHEMES)}.")
        found[name] = Connection(name, _url(values["url"], _Place(source, f"url in [connections.{name}]")))
    prefix = "HORAE_CONNECTION_"
    for variable, value in sorted(variables.items()):
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower()
            place = _Place("the environment", variable)
            found[_name(name, place)] = Connection(name, _url(value, place))
    return found


# ---- the values ------------------------------------------------------------------------------------------------------


def _name(value: str, place: _Place) -> str:
    try:
        return checked_name(value, "connection name")
    except HoraeError as error:
        raise place.wrong(f"has no name that is one: {error.message}") from None


def _url(value: Any, place: _Place) -> str:
    # The value is never shown: it has a password in it, or what was meant to be one.
    if not isinstance(value, str) or value.partition("://")[0] not in _SCHEMES or "://" not in value:
        raise place.wrong(f"must be a url that begins with {', '.join(f'{each}://' for each in _SCHEMES)}")
    return value


def _flag(value: Any, place: _Place) -> bool:
    if type(value) is not bool:
        raise place.wrong(f"must be true or false, not {shown(value)}")
    return value


def _word(value: Any, place: _Place) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise place.wrong(f"must be text, not {shown(value)}")
    return value


def _words(value: Any, place: _Place) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise place.wrong(f"must be a list of text, not {shown(value)}")
    return tuple(_word(each, place) for each in value)


def _paths(value: Any, place: _Place) -> tuple[str, ...]:
    return tuple(_path(each, place) for each in _words(value, place))


def _path(value: Any, place: _Place) -> str:
    path = _word(value, place)
    if not path.startswith("/"):
        raise place.wrong(f"must be an absolute path, not {shown(path)}")
    return path


def _variables(value: Any, place: _Place) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        # Values may be secret: they are not shown.
        raise place.wrong('must map variables to text: { NAME = "value" }')
    return dict(value)


def _count(value: Any, place: _Place) -> int:
    if type(value) is not int or value < 1:
        raise place.wrong(f"must be a whole number from 1, not {shown(value)}")
    return value


def _size(value: Any, place: _Place) -> int:
    try:
        return parse_size(value, name="size")
    except InvalidConfiguration as error:
        raise place.wrong(f"must be a size, not {shown(value)}", error.hint) from None


def _seconds(value: Any, place: _Place) -> float:
    try:
        return parse_duration(value, name="duration").total_seconds()
    except HoraeError as error:
        raise place.wrong(f"must be a duration, not {shown(value)}", error.hint) from None


def _cpu(value: Any, place: _Place) -> int:
    seconds = _seconds(value, place)
    if seconds < 1 or seconds != int(seconds):
        raise place.wrong(f"must be a duration of whole seconds, not {shown(value)}")
    return int(seconds)


def _or_none(read: Read) -> Read:
    """A limit that may be taken away."""
    return lambda value, place: None if value == "none" else read(value, place)


_limit_count = _or_none(_count)


def _command(value: Any, place: _Place) -> tuple[str, ...]:
    """A list of words, or text that is split as a shell would, without one."""
    import shlex

    try:
        words = tuple(shlex.split(value)) if isinstance(value, str) else _words(value, place)
    except ValueError:
        words = ()
    if not words:
        raise place.wrong("must be a command: a list of words, or text")
    return words


_EXTERNAL: Mapping[str, tuple[str, Read]] = {
    "enabled": ("enabled", _flag),
    "commands": ("commands", _paths),
    "directories": ("directories", _paths),
    "working_directory": ("working_directory", _path),
    "environment": ("environment", _words),
    "variables": ("variables", _variables),
    "output_limit": ("output_limit", _size),
    "cpu_seconds": ("cpu_seconds", _or_none(_cpu)),
    "memory": ("memory", _or_none(_size)),
    "open_files": ("open_files", _limit_count),
    "processes": ("processes", _limit_count),
    "file_size": ("file_size", _or_none(_size)),
    "time_limit": ("time_limit", _or_none(_seconds)),
    "grace": ("grace", _seconds),
    "user": ("user", _word),
    "group": ("group", _word),
    "shell": ("allow_shell", _flag),
    "namespaces": ("namespaces", _word),
}


def _secrets_keys(folder: Path) -> Mapping[str, tuple[str, Read]]:
    """Files may be named from where the configuration lies."""

    def file(value: Any, place: _Place) -> str:
        return str(folder / _word(value, place))

    def files(value: Any, place: _Place) -> tuple[str, ...]:
        return tuple(str(folder / each) for each in _words(value, place))

    return {
        "key_file": ("key_file", file),
        "key_environment": ("key_environment", _word),
        "key_command": ("key_command", _command),
        "older_key_files": ("older_key_files", files),
    }


_SECTIONS = ("external", "connections", "secrets", "scheduler")
