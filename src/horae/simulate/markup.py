"""HTML and SVG as nested calls: text that is not markup is escaped."""

from __future__ import annotations

from html import escape

_EMPTY = frozenset({"meta"})


class Markup(str):
    """Text that is markup already. Only `tag` and `joined` create it."""

    __slots__ = ()


def tag(name: str, /, *children: str | Markup | None, **attributes: str | float | None) -> Markup:
    """An element. Attributes are named as in Python, such as `class_` and `aria_label`.

    Plain text inside is escaped. None leaves out an attribute or a child.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{joined(*children)}</{name}>")


def joined(*children: str | Markup | None) -> Markup:
    return Markup("".join(each if isinstance(each, Markup) else escape(each) for each in children if each is not None))


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}"
