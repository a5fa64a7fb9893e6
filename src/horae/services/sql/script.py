"""Parses a text of several statements, all of it before any statement is executed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from horae.errors import InvalidInput, InvalidStatement, shown
from horae.formats.sql.parser import statement_of
from horae.formats.sql.statements import Select, Statement
from horae.formats.sql.tokens import SqlSource, StatementTokens, split

_NO_TEXT = re.compile("[\\0\ud800-\udfff]")


def read(text: str, most: int | None) -> list[tuple[StatementTokens, Statement]]:
    """Returns every statement of the text, in order; may run in any thread. Raises InvalidStatement, and InvalidInput
    where there are more than `most`."""
    _check_letters(text)
    found: list[tuple[StatementTokens, Statement]] = []
    for piece in split(text):
        if len(found) == most:
            raise InvalidInput(
                f"The text has more than {most:,} statements",
                hint="Split it, or send the statements one by one (--each).",
            )
        found.append((piece, statement_of(piece)))
    return found


def check_between(found: Sequence[tuple[StatementTokens, Statement]]) -> None:
    """Refuses a SELECT between the changes of one transaction. Raises InvalidStatement."""
    for piece, statement in found:
        if isinstance(statement, Select):
            raise InvalidStatement(
                "A SELECT between changes would not see those before it: all of them are one transaction",
                line=piece.mark.line,
                column=piece.mark.column,
                hint="Put it before the first change or after the last, or run the statements one by one (--each).",
            )


def _check_letters(text: str) -> None:
    """Refuses characters that no database keeps in text: some would cut the text there. Raises InvalidStatement."""
    found = _NO_TEXT.search(text)
    if found is not None:
        raise SqlSource(text).fault(
            f"{shown(found.group())} is no text", found.start(), found.end(), hint="Leave it out."
        )
