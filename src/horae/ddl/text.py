"""The letters of SQL text: tokens with their places, statements cut apart at `;`, faults with a picture.

    name        letters, digits, _ and single - between them; or anything in double quotes, "" being one of them
    string      in single quotes, '' being one of them; or between $$ and $$, or $tag$ and $tag$
    number      60, 1.5, 1e-3
    duration    60s, 1h30m: numbers with units and nothing between
    uuid        3f0c9d3e-8a55-4c0e-9b6c-2f7f2c1d4e5a

`--` begins a comment that ends with its line; `/*` one that ends at its `*/`, and may have others inside. Nothing here
is refused for what it is, only for not ending: what may stand where is the grammar's to say.
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
"""What begins a statement that a database is to read, and not we."""
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
"""What a picture may show of a statement that has a password or a secret in it."""
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


class Token(NamedTuple):
    """One word, name, string, number or sign. `key` is what a grammar asks for; `text` what it stands for.

    The key of a word is the word in capitals, of a sign the sign; of everything else `<kind>`.
    """

    kind: str
    key: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """The whole text, and where in it the statement begins that is being read."""

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
        """Whether the statement may have a password or a secret in it, as far as it can be told from its beginning."""
        words = [token.key for token in self._until(end, most=5)]
        if _HIDING & set(words):
            return True
        return bool(words) and words[0] in ("CREATE", "ALTER") and not _OPEN & set(words)

    def _until(self, end: int, most: int | None = None) -> list[Token]:
        found: list[Token] = []
        for token in tokens(self.text, self.since):
            if token.start >= end or token.kind in (END, UNENDED) or (most is not None and len(found) == most):
                break
            found.append(token)
        return found

    def _picture(self, start: int, end: int) -> str:
        """The line up to the end of what is wrong, with a caret below its beginning. What follows is not shown: it has
        not been understood, so nobody knows what is in it."""
        begin = self.text.rfind("\n", 0, start) + 1
        stop = self.text.find("\n", start)
        stop = len(self.text) if stop < 0 else stop
        before = self.text[max(begin, start - _WIDEST) : start]
        cut = "…" if start - begin > _WIDEST else ""
        wrong = self.text[start : min(end, stop, start + _WIDEST)]
        more = "…" if self.text[start + len(wrong) : stop].strip() else ""
        return _drawn(cut + before, wrong + more)

    def _hidden(self, start: int, end: int) -> str:
        """As `_picture`, with nothing in it but harmless words and signs."""
        begin = self.text.rfind("\n", 0, start) + 1
        shown_words: list[str] = []
        had_text = False
        for index, token in enumerate(self._until(end)):
            # What stands first and second says what is wanted, or tries to; it is no secret. After a string, everything
            # may be: a quote inside it may have ended it early.
            is_harmless = (token.key in _HARMLESS and not had_text) or (index < 2 and token.kind == WORD)
            had_text = had_text or token.kind == STRING
            if token.end > begin:
                shown_words.append(token.text if is_harmless else "•••")
            if token.start == start:
                return _drawn("".join(f"{word} " for word in shown_words[-8:-1]), shown_words[-1])
        return _drawn("".join(f"{word} " for word in shown_words[-8:]), "•••")


class Mark(NamedTuple):
    """Where something stood in its text."""

    source: Source
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
        """What `read` gives; an error it raises is told with this place."""
        try:
            return read(*given, **named)
        except InvalidStatement:
            raise
        except HoraeError as error:
            raise self.fault(error.message, hint=error.hint) from error


NOWHERE = Mark(Source(""), 0, 0)
"""Where statements stand that were never text."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a text: its tokens, with one of kind END last, and where it began."""

    tokens: list[Token]
    source: Source

    @property
    def is_raw(self) -> bool:
        return self.tokens[0].key in RAW_WORDS

    @property
    def mark(self) -> Mark:
        return Mark(self.source, self.tokens[0].start, self.tokens[-2].end)

    @property
    def text(self) -> str:
        """Without the `;`, and without comments before and after it."""
        return self.source.text[self.tokens[0].start : self.tokens[-2].end]


def split(text: str) -> Iterator[Piece]:
    """The statements of a text, in order. Raises InvalidStatement at a string, a name or a comment that never ends."""
    since, found = 0, list[Token]()
    for token in tokens(text):
        if token.kind == UNENDED:
            what, _, hint = token.text.partition("\n")
            raise Source(text, found[0].start if found else token.start).fault(
                f"the {what} that begins here does not end", token.start, token.end, hint=hint
            )
        if token.key != ";" and token.kind != END:
            if not found:
                since = token.start
            found.append(token)
        elif found:
            source = Source(text, since)
            found.append(Token(END, "<end>", "", token.start, token.start))
            if found[0].key in RAW_WORDS:
                _check_raw(found, source)
            yield Piece(found, source)
            found = []


def only_reads(text: str) -> bool:
    """Whether every statement of a text says with its first word that it reads. What cannot be told apart does not."""
    try:
        return all(piece.tokens[0].key in _READING for piece in split(text))
    except InvalidStatement:
        return False


def ended(text: str) -> bool:
    """Whether a text ends with a whole statement, for a shell that reads line by line."""
    last = ";"
    for token in tokens(text):
        if token.kind != END:
            last = token.key
    return last == ";"


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """The tokens from `start` on. The last is of kind END; or of kind UNENDED, for what begins there and does not end:
    its text is what that is, and on a second line how it would end."""
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
            # Beyond ASCII, letters have capitals that are other letters: \u017f would be S.
            yield Token(WORD, word.upper() if word.isascii() else word, word, begin, at)
        elif kind == "sign":
            sign = found[kind]
            if sign in "'\"":
                what = "string" if sign == "'" else "name"
                hint = f"A {what} ends with {sign}; inside it, {sign} is written {sign}{sign}."
                yield Token(UNENDED, "", f"{what}\n{hint}", begin, at)
                return
            yield Token("sign", sign, sign, begin, at)
        elif kind == STRING:
            yield Token(STRING, "<string>", found[kind][1:-1].replace("''", "'"), begin, at)
        elif kind == "quoted":
            yield Token("quoted", "<name>", found[kind][1:-1].replace('""', '"'), begin, at)
        elif kind == "comment":
            at = _after_comment(text, begin)
            if not at:
                hint = "A comment ends with */, and so does each comment inside it."
                yield Token(UNENDED, "", f"comment\n{hint}", begin, begin + 2)
                return
        elif kind == "dollar":
            close = text.find(found[kind], at)
            if close < 0:
                yield Token(UNENDED, "", f"string\nIt would end with a second {shown(found[kind])}.", begin, at)
                return
            inside, at = text[at:close], close + len(found[kind])
            yield Token(STRING, "<string>", inside, begin, at)
        elif kind != "space":
            yield Token(kind, f"<{kind}>", found[kind], begin, at)
    yield Token(END, "<end>", "", end, end)


def _after_comment(text: str, begin: int) -> int:
    """Where the comment at `begin` ends; 0 where it does not."""
    depth = 0
    for found in _COMMENT_ENDS.finditer(text, begin):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return found.end()
    return 0


def _check_raw(found: list[Token], source: Source) -> None:
    """Refuses what databases and we would cut apart at different places: one statement has to be one for both."""
    for before, token in pairwise(found):
        between = source.text[before.end : token.start]
        if "/*" in between:
            _check_comments(between, before.end, source)
        escapes = before.key == "E" and before.end == token.start and "\\" in source.text[token.start : token.end]
        if token.kind == STRING and escapes:
            reason = "strings with backslashes that mean something are not read here"
            hint = "Write '' for a quote, and special characters as themselves."
            raise source.fault(reason, before.start, token.start + 1, hint=hint)


def _check_comments(between: str, offset: int, source: Source) -> None:
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
