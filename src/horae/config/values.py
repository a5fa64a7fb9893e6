"""Readers of configuration values: each checks the type, or raises an error that names the place, never a password."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from horae.core.job.ids import checked_name
from horae.core.program.size import parse_size
from horae.core.time.duration import parse_duration
from horae.errors import HoraeError, InvalidConfiguration, shown

SCHEMES = ("sqlite", "postgresql", "postgres")


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a value comes from, for error messages."""

    source: str
    key: str

    def wrong(self, reason: str, hint: str | None = None) -> InvalidConfiguration:
        where = f"{self.source}: {self.key}" if self.key else self.source
        details = {"source": self.source, "key": self.key}
        return InvalidConfiguration(f"{where} {reason}", hint=hint, details=details)


Read = Callable[[Any, ValueSource], Any]


def name(value: str, place: ValueSource) -> str:
    try:
        return checked_name(value, "connection name")
    except HoraeError as error:
        raise place.wrong(f"has no name that is one: {error.message}") from None


def url(value: Any, place: ValueSource) -> str:
    # The value is never shown: it may contain a password.
    if not isinstance(value, str) or value.partition("://")[0] not in SCHEMES or "://" not in value:
        raise place.wrong(f"must be a url that begins with {', '.join(f'{each}://' for each in SCHEMES)}")
    return value


def flag(value: Any, place: ValueSource) -> bool:
    if type(value) is not bool:
        raise place.wrong(f"must be true or false, not {shown(value)}")
    return value


def word(value: Any, place: ValueSource) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise place.wrong(f"must be text, not {shown(value)}")
    return value


def words(value: Any, place: ValueSource) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise place.wrong(f"must be a list of text, not {shown(value)}")
    return tuple(word(each, place) for each in value)


def paths(value: Any, place: ValueSource) -> tuple[str, ...]:
    return tuple(path(each, place) for each in words(value, place))


def path(value: Any, place: ValueSource) -> str:
    path = word(value, place)
    if not path.startswith("/"):
        raise place.wrong(f"must be an absolute path, not {shown(path)}")
    return path


def variables(value: Any, place: ValueSource) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        # The values may be secret, so they are not shown.
        raise place.wrong('must map variables to text: { NAME = "value" }')
    return dict(value)


def count(value: Any, place: ValueSource) -> int:
    if type(value) is not int or value < 1:
        raise place.wrong(f"must be a whole number from 1, not {shown(value)}")
    return value


def number(value: Any, place: ValueSource) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise place.wrong(f"must be a number above 0, not {shown(value)}")
    return float(value)


def size(value: Any, place: ValueSource) -> int:
    try:
        return parse_size(value, name="size")
    except InvalidConfiguration as error:
        raise place.wrong(f"must be a size, not {shown(value)}", error.hint) from None


def seconds(value: Any, place: ValueSource) -> float:
    try:
        return parse_duration(value, name="duration").total_seconds()
    except HoraeError as error:
        raise place.wrong(f"must be a duration, not {shown(value)}", error.hint) from None


def cpu(value: Any, place: ValueSource) -> int:
    length = seconds(value, place)
    if length < 1 or length != int(length):
        raise place.wrong(f"must be a duration of whole seconds, not {shown(value)}")
    return int(length)


def or_none(read: Read) -> Read:
    """Makes a reader that also accepts "none", for a limit that may be switched off."""
    return lambda value, place: None if value == "none" else read(value, place)


limit_count = or_none(count)


def command(value: Any, place: ValueSource) -> tuple[str, ...]:
    """Reads a list of words, or text that is split as a shell would split it, without running a shell."""
    import shlex

    try:
        found = tuple(shlex.split(value)) if isinstance(value, str) else words(value, place)
    except ValueError:
        found = ()
    if not found:
        raise place.wrong("must be a command: a list of words, or text")
    return found


def one_of(*known: str) -> Read:
    def read(value: Any, place: ValueSource) -> str:
        if value not in known:
            raise place.wrong(f"must be one of {', '.join(known)}, not {shown(value)}")
        return str(value)

    return read
