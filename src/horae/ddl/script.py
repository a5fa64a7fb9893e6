"""A text of several statements: all of it is understood before anything of it is carried out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from horae.ddl.parsing import statement_of
from horae.ddl.statements import Select, Statement
from horae.ddl.text import Piece, Source, split
from horae.errors import InvalidInput, InvalidStatement, shown

_NO_TEXT = re.compile("[\\0\ud800-\udfff]")


def read(text: str, most: int | None) -> list[tuple[Piece, Statement]]:
    """Every statement of the text, in order; for any thread. Raises InvalidStatement, and InvalidInput where there are
    more than `most`."""
    _check_letters(text)
    found: list[tuple[Piece, Statement]] = []
    for piece in split(text):
        if len(found) == most:
            raise InvalidInput(
                f"The text has more than {most:,} statements",
                hint="Split it, or send the statements one by one (--each).",
            )
        found.append((piece, statement_of(piece)))
    return found


def check_between(found: Sequence[tuple[Piece, Statement]]) -> None:
    """Refuses a SELECT among what is one transaction."""
    for piece, statement in found:
        if isinstance(statement, Select):
            raise InvalidStatement(
                "A SELECT between changes would not see those before it: all of them are one transaction",
                line=piece.mark.line,
                column=piece.mark.column,
                hint="Put it before the first change or after the last, or run the statements one by one (--each).",
            )


def _check_letters(text: str) -> None:
    """Refuses what no database keeps as text, wherever it stands: some would cut the text short there."""
    found = _NO_TEXT.search(text)
    if found is not None:
        raise Source(text).fault(f"{shown(found.group())} is no text", found.start(), found.end(), hint="Leave it out.")
