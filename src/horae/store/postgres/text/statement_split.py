"""Splitting of a PostgreSQL text into its statements.

The text is read as psql reads it: quotes, dollar quotes, nested comments, brackets, and bodies of SQL functions between
BEGIN ATOMIC and END. A text that is split at the wrong place fails, or does the same as otherwise: no check depends on
the split.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from horae.store import foreign_statements

_TOKEN = re.compile(
    r"""
      (?P<skipped> --[^\n]* | [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z) | '(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z) )
    | (?P<comment> /\* )
    | (?P<dollar> \$(?:[A-Za-z_\u0080-\uffff][\w]*)?\$ )
    | (?P<word> [A-Za-z_\u0080-\uffff][\w$]* )
    | (?P<sign> [;()] )
    """,
    re.VERBOSE | re.DOTALL,
)


class StatementSpan(NamedTuple):
    """One statement, and where it begins in the whole text."""

    start: int
    text: str


def split(sql: str) -> list[StatementSpan]:
    """The statements of a text in order, without empty ones."""
    found: list[StatementSpan] = []
    start = at = 0
    depth = blocks = 0
    words: list[str] = []
    while (token := _TOKEN.search(sql, at)) is not None:
        at = token.end()
        kind = token.lastgroup
        if kind == "comment":
            at = foreign_statements.after_comment(sql, at, nested=True)
        elif kind == "dollar":
            closes = sql.find(token.group(), at)
            at = len(sql) if closes < 0 else closes + len(token.group())
        elif kind == "word":
            word = token.group().upper()
            words.append(word)
            if _defines(words):
                blocks += (word == "BEGIN") + (word == "CASE" and blocks > 0) - (word == "END" and blocks > 0)
        elif kind == "sign":
            sign = token.group()
            depth = max(0, depth + (sign == "(") - (sign == ")"))
            if sign == ";" and not depth and not blocks:
                found.append(StatementSpan(start, sql[start : at - 1]))
                start, words = at, []
    found.append(StatementSpan(start, sql[start:]))
    return [piece for piece in found if not foreign_statements.is_blank(piece.text, nested=True)]


def _defines(words: list[str]) -> bool:
    """Whether a statement, by its first words, may contain others between BEGIN and END."""
    made = words[3:4] if words[1:3] == ["OR", "REPLACE"] else words[1:2]
    return words[0] == "CREATE" and made in (["FUNCTION"], ["PROCEDURE"])
