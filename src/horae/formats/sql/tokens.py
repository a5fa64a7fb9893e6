"""The SQL lexer: tokens with their places, scripts split at `;`, and errors with an excerpt of the text.

    name        letters, digits, _ and single - between them; or any text in double quotes, where "" is one quote
    string      in single quotes, where '' is one quote; or between $$ and $$, or $tag$ and $tag$
    number      60, 1.5, 1e-3
    duration    60s, 1h30m: numbers with units and nothing between
    uuid        3f0c9d3e-8a55-4c0e-9b6c-2f7f2c1d4e5a

`--` begins a comment that ends with its line. `/*` begins a comment that ends at its `*/` and may contain others. The
lexer refuses strings, names and comments without an end, and in statements for the database also text that databases
would split at other places. What may follow what is up to the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, ParamSpec, TypeVar
from unicodedata import combining, east_asian_width

from horae.errors import HoraeError, InvalidStatement, shown

WORD, STRING, END, UNENDED = "word", "string", "end", "unended"
RAW_WORDS = frozenset({"SELECT", "WITH", "VALUES"})
"""First words of statements that the database parses instead of Horae."""
_READING = RAW_WORDS | {"SHOW", "EXPLAIN"}
_HIDING = frozenset({"USER", "SECRET", "PASSWORD"})
_OPEN = frozenset({"JOB", "ROLE", "SYSTEM"})
_HARMLESS = frozenset(
    {
        *(
            "CREATE",
            "OR",
            "ALTER",
            "USER",
            "SECRET",
            "FOR",
            "JOB",
            "AS",
            "SET",
            "OLD",
            "PASSWORD",
            "REVOKE",
            "TOKENS",
            "ADMIN",
            "NOT",
        ),
        *"(),=.;",
    }
)
"""Words and signs that the excerpt of an error may show of a statement with a password or a secret."""
_WIDEST = 100
_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")
_TOKEN = re.compile(
    r"""\s*+(?:
    (?P<word>[^\W\d]\w*+(?:-\w++)*+)
    |(?P<string>'[^']*+(?:''[^']*+)*+')
    |(?P<quoted>"[^"]*+(?:""[^"]*+)*+")
    |(?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![\w-]))
    |(?P<number>[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?!\w))
    |(?P<duration>(?:[0-9]++(?:\.[0-9]++)?+[^\W\d_]++)++(?!\w))
    |(?P<odd>[0-9]\w*+)
    |(?P<comment>/\*)
    |(?P<dollar>\$(?:[^\W\d]\w*+)?\$)
    |(?P<space>--[^\n\r]*+|\Z)
    |(?P<sign>.))""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_BEGINS = re.compile(r"--[^\n\r]*+|/\*")
_COMMENT_ENDS = re.compile(r"/\*|\*/")


class SqlToken(NamedTuple):
    """One word, name, string, number or sign. The grammar matches `key`; `text` is the token's value.

    The key of a word is the word in capitals, that of a sign is the sign, any other is a kind such as `<string>`.
    """

    kind: str
    key: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SqlSource:
    """The whole text, and the offset at which the present statement begins."""

    text: str
    since: int = 0

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)

    def fault(
        self, reason: str, start: int, end: int, *, expected: tuple[str, ...] = (), hint: str | None = None
    ) -> InvalidStatement:
        line, column = self.position(start)
        picture = self._hidden(start, end) if self.hides(end) else self._picture(start, end)
        return InvalidStatement(reason, line=line, column=column, picture=picture, expected=expected, hint=hint)

    def hides(self, end: int) -> bool:
        """Whether the statement may contain a password or a secret, judged by up to five words before `end`."""
        words = [token.key for token in self._until(end, most=5)]
        if _HIDING & set(words):
            return True
        return bool(words) and words[0] in ("CREATE", "ALTER") and not _OPEN & set(words)

    def _until(self, end: int, most: int | None = None) -> list[SqlToken]:
        found: list[SqlToken] = []
        for token in tokens(self.text, self.since):
            if token.start >= end or token.kind in (END, UNENDED) or (most is not None and len(found) == most):
                break
            found.append(token)
        return found

    def _picture(self, start: int, end: int) -> str:
        """Returns the line up to the end of the fault, with a caret below its beginning. The text after the fault is
        not shown: it is not parsed, so it may contain a secret."""
        begin = self.text.rfind("\n", 0, start) + 1
        stop = self.text.find("\n", start)
        stop = len(self.text) if stop < 0 else stop
        before = self.text[max(begin, start - _WIDEST) : start]
        cut = "…" if start - begin > _WIDEST else ""
        wrong = self.text[start : min(end, stop, start + _WIDEST)]
        more = "…" if self.text[start + len(wrong) : stop].strip() else ""
        return _drawn(cut + before, wrong + more)

    def _hidden(self, start: int, end: int) -> str:
        """Returns the same as `_picture`, but with harmless words and signs only."""
        begin = self.text.rfind("\n", 0, start) + 1
        shown_words: list[str] = []
        had_text = False
        for index, token in enumerate(self._until(end)):
            # The first two words name the kind of the statement and are no secret. After a string, any token may be
            # part of a secret: a quote inside it may have ended the string early.
            is_harmless = (token.key in _HARMLESS and not had_text) or (index < 2 and token.kind == WORD)
            had_text = had_text or token.kind == STRING
            if token.end > begin:
                shown_words.append(token.text if is_harmless else "•••")
            if token.start == start:
                return _drawn("".join(f"{word} " for word in shown_words[-8:-1]), shown_words[-1])
        return _drawn("".join(f"{word} " for word in shown_words[-8:]), "•••")


class SourceSpan(NamedTuple):
    """The place of something in its text."""

    source: SqlSource
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def fault(self, reason: str, *, hint: str | None = None) -> InvalidStatement:
        return self.source.fault(reason, self.start, self.end, hint=hint)

    def at(self, read: Callable[_Given, _Read], *given: _Given.args, **named: _Given.kwargs) -> _Read:
        """Returns what `read` returns. Raises its errors as InvalidStatement with this place."""
        try:
            return read(*given, **named)
        except InvalidStatement:
            raise
        except HoraeError as error:
            raise self.fault(error.message, hint=error.hint) from error


NOWHERE = SourceSpan(SqlSource(""), 0, 0)
"""The place of statements that were not parsed from text."""


@dataclass(frozen=True, slots=True)
class StatementTokens:
    """One statement of a text: its tokens, the last of kind END, and its source."""

    tokens: list[SqlToken]
    source: SqlSource

    @property
    def is_raw(self) -> bool:
        return self.tokens[0].key in RAW_WORDS

    @property
    def mark(self) -> SourceSpan:
        return SourceSpan(self.source, self.tokens[0].start, self.tokens[-2].end)

    @property
    def text(self) -> str:
        """The statement without its `;`, and without comments before and after it."""
        return self.source.text[self.tokens[0].start : self.tokens[-2].end]


def split(text: str) -> Iterator[StatementTokens]:
    """Yields the statements of a text, in order. Raises InvalidStatement for a string, a name or a comment that does
    not end, and for a statement that the database would split differently."""
    since, found = 0, list[SqlToken]()
    for token in tokens(text):
        if token.kind == UNENDED:
            what, _, hint = token.text.partition("\n")
            raise SqlSource(text, found[0].start if found else token.start).fault(
                f"the {what} that begins here does not end", token.start, token.end, hint=hint
            )
        if token.key != ";" and token.kind != END:
            if not found:
                since = token.start
            found.append(token)
        elif found:
            source = SqlSource(text, since)
            found.append(SqlToken(END, "<end>", "", token.start, token.start))
            if found[0].key in RAW_WORDS:
                _check_raw(found, source)
            yield StatementTokens(found, source)
            found = []


def only_reads(text: str) -> bool:
    """Whether the first word of every statement belongs to a statement that only reads. False where the text cannot be
    split."""
    try:
        return all(piece.tokens[0].key in _READING for piece in split(text))
    except InvalidStatement:
        return False


def ended(text: str) -> bool:
    """Whether a text ends with a complete statement, for a shell that reads line by line."""
    last = ";"
    for token in tokens(text):
        if token.kind != END:
            last = token.key
    return last == ";"


def tokens(text: str, start: int = 0) -> Iterator[SqlToken]:
    """Yields the tokens from `start` on. The last is of kind END; or of kind UNENDED for a string, a name or a comment
    that does not end. The text of the latter names it on a first line, and has a hint on a second."""
    # The hot path of parsing: one regular expression, tried at each place.
    match, at, end = _TOKEN.match, start, len(text)
    while at < end:
        found = match(text, at)
        assert found is not None
        kind = found.lastgroup
        assert kind is not None
        begin, at = found.span(kind)
        if kind == WORD:
            word = found[kind]
            # Only ASCII words are put in capitals: some other letters have ASCII capitals, that of \u017f is S.
            yield SqlToken(WORD, word.upper() if word.isascii() else word, word, begin, at)
        elif kind == "sign":
            sign = found[kind]
            if sign in "'\"":
                what = "string" if sign == "'" else "name"
                hint = f"A {what} ends with {sign}; inside it, {sign} is written {sign}{sign}."
                yield SqlToken(UNENDED, "", f"{what}\n{hint}", begin, at)
                return
            yield SqlToken("sign", sign, sign, begin, at)
        elif kind == STRING:
            yield SqlToken(STRING, "<string>", found[kind][1:-1].replace("''", "'"), begin, at)
        elif kind == "quoted":
            yield SqlToken("quoted", "<name>", found[kind][1:-1].replace('""', '"'), begin, at)
        elif kind == "comment":
            at = _after_comment(text, begin)
            if not at:
                hint = "A comment ends with */, and so does each comment inside it."
                yield SqlToken(UNENDED, "", f"comment\n{hint}", begin, begin + 2)
                return
        elif kind == "dollar":
            close = text.find(found[kind], at)
            if close < 0:
                yield SqlToken(UNENDED, "", f"string\nIt would end with a second {shown(found[kind])}.", begin, at)
                return
            inside, at = text[at:close], close + len(found[kind])
            yield SqlToken(STRING, "<string>", inside, begin, at)
        elif kind != "space":
            yield SqlToken(kind, f"<{kind}>", found[kind], begin, at)
    yield SqlToken(END, "<end>", "", end, end)


def _after_comment(text: str, begin: int) -> int:
    """Returns the offset after the comment at `begin`; 0 where the comment does not end."""
    depth = 0
    for found in _COMMENT_ENDS.finditer(text, begin):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return found.end()
    return 0


def _check_raw(found: list[SqlToken], source: SqlSource) -> None:
    """Refuses text that databases and Horae would split at different places."""
    for before, token in pairwise(found):
        between = source.text[before.end : token.start]
        if "/*" in between:
            _check_comments(between, before.end, source)
        escapes = before.key == "E" and before.end == token.start and "\\" in source.text[token.start : token.end]
        if token.kind == STRING and escapes:
            reason = "strings with backslashes that mean something are not read here"
            hint = "Write '' for a quote, and special characters as themselves."
            raise source.fault(reason, before.start, token.start + 1, hint=hint)


def _check_comments(between: str, offset: int, source: SqlSource) -> None:
    at = 0
    while found := _COMMENT_BEGINS.search(between, at):
        at = found.end()
        if found[0] != "/*":
            continue
        close = between.find("*/", at)
        inner = between.find("/*", at, close + 1)
        if inner >= 0:
            reason = "a comment inside a comment ends at different places in different databases"
            raise source.fault(reason, offset + inner, offset + inner + 2, hint="Take the inner one out.")
        at = close + 2


def _drawn(before: str, wrong: str) -> str:
    """`before` and `wrong` on one line, and a caret under the first letter of `wrong`."""
    shape = "".join("\t" if letter == "\t" else letter if letter.isprintable() else "·" for letter in before)
    seen = "".join(letter if letter.isprintable() else "·" for letter in wrong)
    blank = "".join("\t" if letter == "\t" else " " * _columns(letter) for letter in shape)
    return f"{shape}{seen}\n{blank}^"


def _columns(letter: str) -> int:
    if letter.isascii():
        return 1
    return 0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1
