"""What generated pages are written with: tables, words out of the code, places to link to."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Sequence
from textwrap import dedent

NOTE = "<!-- Made from the code by `make golden`; edit the code instead. -->"


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", NOTE, *(part.strip() for part in parts)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|" for line in lines)


def cell(text: str) -> str:
    """Text on one line, its bars not taken for the table's."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`"


def slug(heading: str) -> str:
    """The name that a heading's place gets, on the site and on GitHub alike."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def field_words(kind: type) -> dict[str, str]:
    """What a class says of its fields, by the text that stands below each; those above it count first."""
    found: dict[str, str] = {}
    for each in reversed([one for one in kind.__mro__ if one.__module__.startswith("horae")]):
        (defined,) = ast.parse(dedent(inspect.getsource(each))).body
        assert isinstance(defined, ast.ClassDef)
        for field, below in zip(defined.body, defined.body[1:], strict=False):
            said = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and below.value.value
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(said, str):
                found[field.target.id] = " ".join(said.split())
    return found


def own_words(kind: type) -> str:
    """A class' own docstring, on one line; nothing where it has none of its own."""
    said = kind.__dict__.get("__doc__")
    return " ".join(inspect.cleandoc(said).split()) if said else ""
