"""Text -> statements, by the grammar; and what could follow, for a shell that completes words."""

from __future__ import annotations

from functools import lru_cache

from horae.ddl.building import ACTIONS
from horae.ddl.grammar import GRAMMAR, LABELS
from horae.ddl.machine import Machine
from horae.ddl.statements import Select, Statement
from horae.ddl.text import RAW_WORDS, Piece, split
from horae.errors import InvalidStatement


@lru_cache(maxsize=1)
def machine() -> Machine:
    """The engine for our grammar, made when it is first asked for."""
    return Machine(GRAMMAR, LABELS, ACTIONS)


def parse(text: str) -> tuple[Statement, ...]:
    """Every statement of a text, in order. Raises InvalidStatement at the first fault."""
    return tuple(statement_of(piece) for piece in split(text))


def statement_of(piece: Piece) -> Statement:
    """The one statement that `piece` is. SELECT, WITH and VALUES are kept as they are, for the database to read."""
    if piece.is_raw:
        return Select(piece.text, at=piece.mark)
    statement: Statement = machine().read(piece)
    return statement


@lru_cache(maxsize=1)
def keywords() -> frozenset[str]:
    """Every word of the grammar, in capitals. Names like these are quoted when they are printed."""
    return machine().words() | RAW_WORDS


def completions(text: str) -> tuple[str, ...]:
    """What could follow `text`, which is a beginning: words in capitals; what begins otherwise is a description."""
    try:
        pieces = list(split(text))
    except InvalidStatement:
        return ()
    begun = pieces[-1] if pieces and not text.rstrip().endswith(";") else None
    if begun is None:
        return (*machine().beginnings(), *sorted(RAW_WORDS))
    return () if begun.is_raw else machine().follows(begun)
