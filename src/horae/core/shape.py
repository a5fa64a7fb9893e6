"""Shapes: the values that a definition file may have, defined once for its reader and for the JSON Schema.

A shape refuses a value with a `ShapeFault`, which has the path to the innermost invalid part. A shape's `check` does
what a JSON Schema cannot, such as whether a cron expression is valid or a zone exists. It refuses at the same path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any, Protocol

from horae.errors import HoraeError, shown

Path = tuple[str | int, ...]
NONE = "none"
"""The word for a setting that is set to none, as opposed to left out."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_WORD = 100


class ShapeFault(Exception):
    """A value that is not valid, and the path to it. `of_shape`: the JSON Schema refuses it, too."""

    def __init__(self, path: Path, reason: str, hint: str | None = None, *, of_shape: bool = True) -> None:
        super().__init__(reason)
        self.path, self.reason, self.hint, self.of_shape = path, reason, hint, of_shape


def path_text(path: Path) -> str:
    """A path as text: `jobs.etl.tasks[1].retry`, with names in quotes where TOML needs them."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if _BARE.fullmatch(step) else shown(step)
            text += f".{name}" if text else name
    return text


def checked(path: Path, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The result of `call`. A HoraeError that it raises becomes a Fault at `path`."""
    try:
        return call(*arguments, **named)
    except HoraeError as error:
        raise ShapeFault(path, error.message, error.hint, of_shape=False) from error


class ValueShape(Protocol):
    """The interface of all shapes. `kinds` are the types of its values; `said` describes them, after "must be"."""

    @property
    def kinds(self) -> tuple[type, ...]: ...

    @property
    def said(self) -> str: ...

    def refuse(self, value: Any, path: Path) -> None:
        """Raises Fault unless the value has the shape."""

    def schema(self) -> dict[str, Any]: ...


def refusal(said: str, value: Any, path: Path, hint: str | None = None) -> ShapeFault:
    """The fault of a value that is not `said`."""
    told = str(value).lower() if isinstance(value, bool | int | float) else None
    told = "null" if value is None else told
    return ShapeFault(path, f"must be {said}, not {shown(value) if told is None else told}", hint)


def did_you_mean(word: Any, known: Sequence[str]) -> str | None:
    """The hint with the known word that is nearest to `word`; None where none is near."""
    lowered = {each.lower().replace("-", "_"): each for each in known}
    text = word.lower() if isinstance(word, str) else ""
    near = get_close_matches(text.replace("-", "_"), list(lowered), 1, 0.6) if len(text) < _LONGEST_WORD else []
    return f"Did you mean {lowered[near[0]]}?" if near else None


def known_words(word: Any, known: Sequence[str], what: str) -> str:
    """The hint for an unknown word: the nearest known word, if one is near, and all known words."""
    near = did_you_mean(word, known)
    return f"{near + ' ' if near else ''}Known {what}: {', '.join(known)}."


@dataclass(frozen=True, slots=True)
class Text:
    """Any text; with `filled`, not the empty text."""

    check: Callable[[str], object] | None = None
    filled: bool = False
    said: str = "text"
    kinds = (str,)

    def refuse(self, value: Any, path: Path) -> None:
        if type(value) is not str:
            raise refusal(self.said, value, path)
        if self.filled and not value:
            raise ShapeFault(path, "must not be empty")
        if self.check is not None:
            checked(path, self.check, value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1} if self.filled else {"type": "string"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words. `hint` is given for a value that is near to none of them."""

    words: tuple[str, ...]
    hint: str | None = None
    kinds = (str,)

    @property
    def said(self) -> str:
        return f"one of {', '.join(self.words)}" if len(self.words) > 1 else f'"{self.words[0]}"'

    def refuse(self, value: Any, path: Path) -> None:
        if type(value) is not str or value not in self.words:
            raise refusal(self.said, value, path, did_you_mean(value, self.words) or self.hint)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)} if len(self.words) > 1 else {"const": self.words[0]}


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number within bounds, both inclusive."""

    least: int
    most: int | None = None
    kinds = (int,)

    @property
    def said(self) -> str:
        return f"a whole number from {self.least}" + ("" if self.most is None else f" to {self.most}")

    def refuse(self, value: Any, path: Path) -> None:
        if type(value) is float and value.is_integer():
            # A schema takes 3.0 for a whole number; TOML does not.
            raise ShapeFault(path, f"must be {self.said}, not {value}", of_shape=False)
        if type(value) is not int or value < self.least or (self.most is not None and value > self.most):
            raise refusal(self.said, value, path)

    def schema(self) -> dict[str, Any]:
        data: dict[str, Any] = {"type": "integer", "minimum": self.least}
        return data if self.most is None else data | {"maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds, both inclusive."""

    least: float
    most: float
    kinds = (int, float)

    @property
    def said(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def refuse(self, value: Any, path: Path) -> None:
        if type(value) not in self.kinds or not self.least <= value <= self.most:
            raise refusal(self.said, value, path)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag:
    kinds = (bool,)
    said = "true or false"

    def refuse(self, value: Any, path: Path) -> None:
        if type(value) is not bool:
            raise refusal(self.said, value, path)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Duration:
    """Text such as "1h30m", or a number of seconds."""

    check: Callable[[Any], object]
    said: str = 'a duration such as "90s" or "1h30m"'
    kinds = (str, int, float)

    def refuse(self, value: Any, path: Path) -> None:
        if type(value) not in self.kinds or not (isinstance(value, str) or 0 <= value < inf):
            raise refusal(self.said, value, path)
        checked(path, self.check, value)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "examples": ["90s", "1h30m", "PT5M"]}, {"type": "number", "minimum": 0}]}


_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?$"
_TIMES = re.compile(_TIME)


@dataclass(frozen=True, slots=True)
class Time:
    """A date and time as TOML writes them, or as text. Without an offset it is wall time in a zone."""

    kinds = (datetime, str)
    said = "a date and time such as 2026-12-24T18:00:00Z"

    def refuse(self, value: Any, path: Path) -> None:
        if isinstance(value, datetime):
            return
        if type(value) is not str or not _TIMES.match(value) or value.endswith("\n"):
            raise refusal(self.said, value, path)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": _TIME, "examples": ["2026-12-24T18:00:00Z"]}


@dataclass(frozen=True, slots=True)
class DayValue:
    """A day as TOML writes it, or a text of days that `check` accepts."""

    check: Callable[[Any], object]
    kinds = (date, str)
    said = "a day such as 2026-12-24"

    def refuse(self, value: Any, path: Path) -> None:
        if type(value) not in self.kinds:
            raise refusal(self.said, value, path)
        checked(path, self.check, value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class Json:
    """Any JSON value. Dates and times must be text."""

    kinds = (object,)
    said = "a value that JSON has"
    hint = "Write dates and times as text, in quotes."

    def refuse(self, value: Any, path: Path) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self.refuse(inner, (*path, key))
        elif isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                self.refuse(inner, (*path, index))
        elif isinstance(value, date | datetime | time):
            raise ShapeFault(path, f"must be {self.said}, not the time {value}", self.hint, of_shape=False)
        elif isinstance(value, float) and not isfinite(value):
            raise ShapeFault(path, f"must be {self.said}, not {value}", of_shape=False)

    def schema(self) -> dict[str, Any]:
        return {}
