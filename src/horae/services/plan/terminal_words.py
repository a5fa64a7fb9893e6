"""Text for a terminal: text of other users made harmless, counts, and suggestions for misspelt words."""

from __future__ import annotations

from horae.core.shape import did_you_mean as did_you_mean


def harmless(text: str) -> str:
    """Replaces characters that move a terminal's cursor or change its title: the text may come from anyone."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "·" for letter in text)


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
