"""The SQL parser: text to statements, and completions for the shell."""

from __future__ import annotations

from functools import lru_cache

from horae.errors import InvalidStatement
from horae.formats.sql.grammar import GRAMMAR, LABELS
from horae.formats.sql.parser_engine import GrammarParser
from horae.formats.sql.statement_actions import ACTIONS
from horae.formats.sql.statements import Select, Statement
from horae.formats.sql.tokens import RAW_WORDS, StatementTokens, split


@lru_cache(maxsize=1)
def grammar_parser() -> GrammarParser:
    """Returns the engine for the grammar, which the first call creates."""
    return GrammarParser(GRAMMAR, LABELS, ACTIONS)


def parse(text: str) -> tuple[Statement, ...]:
    """Every statement of a text, in order. Raises InvalidStatement at the first fault."""
    return tuple(statement_of(piece) for piece in split(text))


def statement_of(piece: StatementTokens) -> Statement:
    """Parses one statement. Keeps SELECT, WITH and VALUES as text: the database parses them. Raises
    InvalidStatement."""
    if piece.is_raw:
        return Select(piece.text, at=piece.mark)
    statement: Statement = grammar_parser().read(piece)
    return statement


@lru_cache(maxsize=1)
def keywords() -> frozenset[str]:
    """Returns every keyword of the grammar, in capitals. The printer quotes names that equal one."""
    return grammar_parser().words() | RAW_WORDS


def completions(text: str) -> tuple[str, ...]:
    """Returns what can follow `text`, the beginning of a script: keywords in capitals, and descriptions such as "a
    name". Returns nothing where `text` is invalid already."""
    try:
        pieces = list(split(text))
    except InvalidStatement:
        return ()
    begun = pieces[-1] if pieces and not text.rstrip().endswith(";") else None
    if begun is None:
        return (*grammar_parser().beginnings(), *sorted(RAW_WORDS))
    return () if begun.is_raw else grammar_parser().follows(begun)
