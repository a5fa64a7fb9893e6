"""Splits a krontab line at its blanks: pieces with their columns, double quotes, comments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from horae.errors import InvalidKrontab, shown

LONGEST_LINE = 65_536
# Possessive throughout: a line that does not match fails at once, without backtracking.
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'
# A comment to the line's end; a modifier with its parentheses, blanks inside included; or anything up to a blank.
_TOKEN = re.compile(rf'#.*|(@[^ \t("]*\((?:[^")]++|{_QUOTED})*+\)[^ \t"]*)|(?:[^ \t"]++|{_QUOTED})++')
_QUOTES = re.compile(_QUOTED)
_ESCAPE = re.compile(r'\\(["\\])')


class KrontabPiece(NamedTuple):
    """One piece of a line: as written, without its quotes, and the column where it begins, counted from 1."""

    raw: str
    text: str
    column: int

    @property
    def shown(self) -> str:
        return shown(self.text)

    @property
    def value(self) -> str:
        """The text after the first equals sign."""
        return self.text.partition("=")[2]

    @property
    def head(self) -> str:
        """A modifier's name as written: `@win`."""
        return self.text.partition("(")[0]

    def arguments(self, separator: str) -> list[tuple[str, int]]:
        """A modifier's arguments with their columns; a separator inside quotes does not separate."""
        begin = self.raw.index("(") + 1
        inside = self.raw[begin:-1]
        # Quoted text is blanked out before splitting, so that every separator left is a real one.
        plain = _QUOTES.sub(lambda found: "_" * len(found[0]), inside) if '"' in inside else inside
        found = []
        start = 0
        for part in plain.split(separator):
            raw = inside[start : start + len(part)]
            skipped = len(raw) - len(raw.lstrip(" \t"))
            found.append((unquoted(raw.strip(" \t")), self.column + begin + start + skipped))
            start += len(part) + 1
        return found


def pieces(text: str, file: str, line: int) -> list[KrontabPiece]:
    """The pieces of one line, without its comment. Raises InvalidKrontab for a line that is too long, has a character
    that cannot be printed, or an unclosed quote or parenthesis."""

    def fault(reason: str, column: int) -> InvalidKrontab:
        return InvalidKrontab(reason, file=file, line=line, column=column)

    if len(text) > LONGEST_LINE:
        raise fault(f"the line is longer than {LONGEST_LINE} characters", LONGEST_LINE)
    if not text.replace("\t", " ").isprintable():
        index = next(at for at, letter in enumerate(text) if letter != "\t" and not letter.isprintable())
        raise fault(f"a character that cannot be printed stands here: {text[index]!a}", index + 1)
    found: list[KrontabPiece] = []
    end = 0
    for match in _TOKEN.finditer(text):
        raw, start = match[0], match.start()
        if '"' in text[end:start]:
            break
        end = match.end()
        if raw[0] == "#":
            return found
        if raw[0] == "@" and "(" in raw and match[1] is None:
            raise _unclosed(text, start + raw.index("("), fault)
        found.append(KrontabPiece(raw, unquoted(raw) if '"' in raw else raw, start + 1))
    quote = text.find('"', end)
    if quote >= 0:
        raise fault("this quote is never closed", quote + 1)
    return found


def _unclosed(text: str, opened: int, fault: Callable[[str, int], InvalidKrontab]) -> InvalidKrontab:
    """The error for the parenthesis at `opened`, or for a quote inside it: whichever is not closed."""
    plain = _QUOTES.sub(lambda found: "_" * len(found[0]), text[opened:])
    quote = plain.find('"')
    if quote >= 0:
        return fault("this quote is never closed", opened + quote + 1)
    return fault("this parenthesis is never closed", opened + 1)


def unquoted(raw: str) -> str:
    """`raw` without its quotes; the text inside them keeps its blanks, and its escapes are resolved."""
    if '"' not in raw:
        return raw
    return _QUOTES.sub(lambda found: _ESCAPE.sub(r"\1", found[0][1:-1]), raw)


def quoted(value: str, special: str = "") -> str:
    """`value` as it is written on a line: bare where that reads back the same, else in quotes."""
    bare = value and not any(letter in ' \t"()#' + special for letter in value)
    return value if bare else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
