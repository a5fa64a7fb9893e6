"""Words for a terminal: text of strangers made fit for it, counts, and words that were probably meant."""

from __future__ import annotations

from horae.core.shape import did_you_mean as did_you_mean


def harmless(text: str) -> str:
    """The text without the signs that move a terminal's cursor or change its title: whoever wrote them is unknown."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "·" for letter in text)


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
