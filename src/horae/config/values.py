"""How values of a configuration are read: each in its own type, or refused with its place, passwords never shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from horae.core.duration import parse_duration
from horae.core.ids import checked_name
from horae.core.size import parse_size
from horae.errors import HoraeError, InvalidConfiguration, shown

SCHEMES = ("sqlite", "postgresql", "postgres")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands, for errors."""

    source: str
    key: str

    def wrong(self, reason: str, hint: str | None = None) -> InvalidConfiguration:
        where = f"{self.source}: {self.key}" if self.key else self.source
        details = {"source": self.source, "key": self.key}
        return InvalidConfiguration(f"{where} {reason}", hint=hint, details=details)


Read = Callable[[Any, Place], Any]


def name(value: str, place: Place) -> str:
    try:
        return checked_name(value, "connection name")
    except HoraeError as error:
        raise place.wrong(f"has no name that is one: {error.message}") from None


def url(value: Any, place: Place) -> str:
    # The value is never shown: it has a password in it, or what was meant to be one.
    if not isinstance(value, str) or value.partition("://")[0] not in SCHEMES or "://" not in value:
        raise place.wrong(f"must be a url that begins with {', '.join(f'{each}://' for each in SCHEMES)}")
    return value


def flag(value: Any, place: Place) -> bool:
    if type(value) is not bool:
        raise place.wrong(f"must be true or false, not {shown(value)}")
    return value


def word(value: Any, place: Place) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise place.wrong(f"must be text, not {shown(value)}")
    return value


def words(value: Any, place: Place) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise place.wrong(f"must be a list of text, not {shown(value)}")
    return tuple(word(each, place) for each in value)


def paths(value: Any, place: Place) -> tuple[str, ...]:
    return tuple(path(each, place) for each in words(value, place))


def path(value: Any, place: Place) -> str:
    path = word(value, place)
    if not path.startswith("/"):
        raise place.wrong(f"must be an absolute path, not {shown(path)}")
    return path


def variables(value: Any, place: Place) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        # Values may be secret: they are not shown.
        raise place.wrong('must map variables to text: { NAME = "value" }')
    return dict(value)


def count(value: Any, place: Place) -> int:
    if type(value) is not int or value < 1:
        raise place.wrong(f"must be a whole number from 1, not {shown(value)}")
    return value


def number(value: Any, place: Place) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise place.wrong(f"must be a number above 0, not {shown(value)}")
    return float(value)


def size(value: Any, place: Place) -> int:
    try:
        return parse_size(value, name="size")
    except InvalidConfiguration as error:
        raise place.wrong(f"must be a size, not {shown(value)}", error.hint) from None


def seconds(value: Any, place: Place) -> float:
    try:
        return parse_duration(value, name="duration").total_seconds()
    except HoraeError as error:
        raise place.wrong(f"must be a duration, not {shown(value)}", error.hint) from None


def cpu(value: Any, place: Place) -> int:
    length = seconds(value, place)
    if length < 1 or length != int(length):
        raise place.wrong(f"must be a duration of whole seconds, not {shown(value)}")
    return int(length)


def or_none(read: Read) -> Read:
    """A limit that may be taken away."""
    return lambda value, place: None if value == "none" else read(value, place)


limit_count = or_none(count)


def command(value: Any, place: Place) -> tuple[str, ...]:
    """A list of words, or text that is split as a shell would, without one."""
    import shlex

    try:
        found = tuple(shlex.split(value)) if isinstance(value, str) else words(value, place)
    except ValueError:
        found = ()
    if not found:
        raise place.wrong("must be a command: a list of words, or text")
    return found


def one_of(*known: str) -> Read:
    def read(value: Any, place: Place) -> str:
        if value not in known:
            raise place.wrong(f"must be one of {', '.join(known)}, not {shown(value)}")
        return str(value)

    return read
