"""Shapes that are made of other shapes: lists, tables, one of several.

A table knows which keys it has, and which of them go together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from horae.core.shape import NONE, Choice, Path, ShapeFault, ValueShape, checked, did_you_mean, refusal
from horae.errors import shown


@dataclass(frozen=True, slots=True)
class ListShape:
    """A list whose items all have one shape, with at least `least` items."""

    item: ValueShape
    least: int = 0
    kinds = (list, tuple)

    @property
    def said(self) -> str:
        return "a list" if not self.least else f"a list of at least {self.least}"

    def refuse(self, value: Any, path: Path) -> None:
        if not isinstance(value, list | tuple) or len(value) < self.least:
            raise refusal(self.said, value, path)
        for index, each in enumerate(value):
            self.item.refuse(each, (*path, index))

    def schema(self) -> dict[str, Any]:
        data: dict[str, Any] = {"type": "array", "items": self.item.schema()}
        return data | {"minItems": self.least} if self.least else data


@dataclass(frozen=True, slots=True)
class MappingShape:
    """A table whose keys are names that the writer chose. `check` is called with each name."""

    value: ValueShape
    check: Callable[[str], object] | None = None
    kinds = (dict,)
    said = "a table"

    def refuse(self, value: Any, path: Path) -> None:
        if not isinstance(value, Mapping):
            raise refusal(self.said, value, path)
        for name, inner in value.items():
            if self.check is not None:
                checked((*path, name), self.check, name)
            self.value.refuse(inner, (*path, name))

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.value.schema()}


@dataclass(frozen=True, slots=True)
class EitherShape:
    """One of several shapes. The first shape for the value's type checks it. `table` shows how a word that needs
    arguments is written as a table; the error for a refused text mentions it."""

    shapes: tuple[ValueShape, ...]
    table: str = ""

    @property
    def kinds(self) -> tuple[type, ...]:
        return tuple(kind for each in self.shapes for kind in each.kinds)

    @property
    def said(self) -> str:
        return ", or ".join(each.said for each in self.shapes)

    def refuse(self, value: Any, path: Path) -> None:
        for each in self.shapes:
            if type(value) in each.kinds:
                try:
                    return each.refuse(value, path)
                except ShapeFault as fault:
                    if self.table and type(value) is str:
                        fault.hint = self._with_table(value)
                    raise
        raise refusal(self.said, value, path)

    def _with_table(self, value: str) -> str:
        """The hint for a text that is none of the words."""
        keys = [name for each in self.shapes if isinstance(each, TableShape) for name in each.required]
        if value in keys:
            return f"{value} needs more than a word: write {self.table}."
        words = [word for each in self.shapes if isinstance(each, Choice) for word in each.words]
        near = did_you_mean(value, [*words, *keys])
        return f"{near + ' ' if near else ''}It may also be a table: {self.table}."

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [each.schema() for each in self.shapes]}


@dataclass(frozen=True, slots=True)
class OptionalShape:
    """A shape, or the word that stands for none."""

    shape: ValueShape
    word: str = NONE

    @property
    def kinds(self) -> tuple[type, ...]:
        return (*self.shape.kinds, str)

    @property
    def said(self) -> str:
        return f'{self.shape.said}, or "{self.word}"'

    def refuse(self, value: Any, path: Path) -> None:
        if value == self.word:
            return
        if type(value) in self.shape.kinds:
            self.shape.refuse(value, path)
        else:
            raise refusal(self.said, value, path)

    def schema(self) -> dict[str, Any]:
        inner = self.shape.schema()
        word = {"const": self.word}
        return {"anyOf": [word, *inner["anyOf"]]} if set(inner) == {"anyOf"} else {"anyOf": [word, inner]}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table: the shape of its value, and its meaning."""

    shape: ValueShape
    about: str
    beside: tuple[str, ...] = ()
    """The key needs one of these keys beside it."""


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Keys of which a table has exactly one. `what` is what each of them is; `missing` and `several` are the hints
    where there is none, or more than one."""

    names: tuple[str, ...]
    what: str
    missing: str
    several: str


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table with known keys."""

    keys: Mapping[str, Key]
    required: tuple[str, ...] = ()
    one_of: tuple[KeyGroup, ...] = ()
    title: str = ""
    kinds = (dict,)
    said = "a table"
    _names: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", frozenset(self.keys))

    def refuse(self, value: Any, path: Path) -> None:
        if not isinstance(value, Mapping):
            raise refusal(self.said, value, path)
        for name in value:
            if name not in self._names:
                raise self._unknown(name, path)
        for group in self.one_of:
            found = [name for name in value if name in group.names]
            if len(found) > 1:
                reason = f"there are two kinds of {group.what}: {' and '.join(found[:2])}"
                raise ShapeFault((*path, found[1]), reason, group.several)
            if not found:
                raise ShapeFault(path, f"has no {group.what}", group.missing)
        for name in self.required:
            if name not in value:
                raise ShapeFault(path, f"has no {name}", f"{name}: {self.keys[name].about}")
        for name, inner in value.items():
            key = self.keys[name]
            if key.beside and not any(each in value for each in key.beside):
                words = ", ".join(key.beside)
                raise ShapeFault((*path, name), f"has no meaning here: it goes with {words}", f"{name}: {key.about}")
            key.shape.refuse(inner, (*path, name))

    def _unknown(self, name: Any, path: Path) -> ShapeFault:
        known = list(self.keys)
        hint = did_you_mean(name, known) or f"Known keys: {', '.join(known)}."
        return ShapeFault((*path, name if isinstance(name, str) else shown(name)), "there is no such key", hint)

    def schema(self) -> dict[str, Any]:
        data: dict[str, Any] = {"type": "object", "additionalProperties": False}
        if self.title:
            data = {"title": self.title} | data
        data["properties"] = {name: {"description": key.about} | key.shape.schema() for name, key in self.keys.items()}
        if self.required:
            data["required"] = list(self.required)
        groups = [{"oneOf": [{"required": [name]} for name in group.names]} for group in self.one_of]
        if len(groups) == 1:
            data |= groups[0]
        elif groups:
            data["allOf"] = groups
        beside = {
            name: {"anyOf": [{"required": [each]} for each in key.beside]}
            for name, key in self.keys.items()
            if key.beside
        }
        return data | {"dependentSchemas": beside} if beside else data
