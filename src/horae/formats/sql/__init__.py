"""Horae's SQL: text to statements, statements to job definitions, and definitions back to text. No I/O."""

from horae.formats.sql.parser import completions, keywords, parse

__all__ = ["completions", "keywords", "parse"]
