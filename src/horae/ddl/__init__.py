"""The SQL surface's language: text to statements, statements to definitions, definitions back to text. Pure; no I/O."""

from horae.ddl.parsing import completions, keywords, parse

__all__ = ["completions", "keywords", "parse"]
