"""The parser engine: compiles each rule of the EBNF text to a function, once.

It looks one token ahead, or as many as a group of keywords has, and never goes back. A rule's action receives the
rule's items: keywords (`Keyword`), the text of strings and names, other tokens, and the results of inner rules, without
signs. Its result is one item of the surrounding rule. A rule without an action adds its items to the surrounding rule.

Where the grammar allows both a keyword and a name, a matching word is the keyword. Everywhere else any word can be a
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from horae.errors import InvalidStatement, shown
from horae.formats.sql.ebnf import GrammarNode, rules_of
from horae.formats.sql.grammar import UNITS
from horae.formats.sql.tokens import END, STRING, WORD, SourceSpan, SqlSource, SqlToken, StatementTokens

Action = Callable[[list[Any], SourceSpan], Any]
_FEW = 8
_UNITS = frozenset(each.upper() if each.isascii() else each for each in UNITS)
_KEYS = {
    "identifier": ("<name>",),
    "string": ("<string>",),
    "number": ("<number>",),
    "compact": ("<duration>",),
    "uuid": ("<uuid>",),
    "balanced": ("(",),
    "unit": tuple(sorted(_UNITS)),
}
_AS_TEXT = frozenset({"identifier", "string"})
_NAME_HINT = 'A name that is more than letters, digits, _ and - stands in double quotes: "my job".'


class Keyword(str):
    """One or more keywords of the grammar, in capitals, with one space between them."""

    __slots__ = ()


class Beginning(NamedTuple):
    """One possible beginning: the keys of its first tokens, and its name in error messages."""

    keys: tuple[str, ...]
    label: str


@dataclass(slots=True)
class _ParseState:
    """The state of parsing one statement. `passed` has the optional parts that were not taken, each with its position,
    for error messages."""

    tokens: list[SqlToken]
    source: SqlSource
    at: int = 0
    passed: list[tuple[int, tuple[Beginning, ...]]] = field(default_factory=list)

    def follows(self, keys: tuple[str, ...]) -> bool:
        # No rule has the key of the end token, so this never looks beyond the end.
        at, tokens = self.at, self.tokens
        for key in keys:
            if tokens[at].key != key:
                return False
            at += 1
        return True

    def fault(self, wanted: Iterable[Beginning]) -> InvalidStatement:
        """Returns the error at the present position, where `wanted` or an optional part that was not taken could have
        followed."""
        choices = [*wanted, *(each for at, passed in reversed(self.passed) if at == self.at for each in passed)]
        # Where the first keywords of a group are present, the error names only the missing rest.
        deepest = max((self._shared(each.keys) for each in choices), default=0)
        left = [each for each in choices if self._shared(each.keys) == deepest]
        expected = dict.fromkeys(" ".join(each.keys[deepest:]) if deepest else each.label for each in left)
        token = self.tokens[min(self.at + deepest, len(self.tokens) - 1)]
        near = _near(token, expected)
        listed = tuple(expected)
        hides = self.at + deepest > 1 and self.source.hides(token.end)
        reason = f"found {_told(token, hides=hides)}"
        reason = f"expected {_one_of(listed)}, {reason}" if len(listed) <= _FEW else f"unexpected {reason[6:]}"
        hint = f"Did you mean {near}?" if near else None
        if hint is None and "a name" in expected and token.kind not in (WORD, END):
            hint = _NAME_HINT
        if hint is None and len(listed) > _FEW:
            hint = f"Here may stand: {', '.join(listed)}."
        return self.source.fault(reason, token.start, token.end, expected=listed, hint=hint)

    def _shared(self, keys: tuple[str, ...]) -> int:
        count = 0
        while count < len(keys) and self.tokens[self.at + count].key == keys[count]:
            count += 1
        return count


_RuleFunction = Callable[[_ParseState, list[Any]], None]


class GrammarParser:
    """A compiled grammar. It keeps no state of the statements that it parses."""

    def __init__(self, grammar: str, labels: Mapping[str, str], actions: Mapping[str, Action]) -> None:
        self.rules = rules_of(grammar, _KEYS)
        self._labels = labels
        self._actions = actions
        self._firsts: dict[str, tuple[Beginning, ...]] = {}
        self._runs: dict[str, _RuleFunction] = {}
        unknown = actions.keys() - self.rules.keys()
        assert not unknown, f"actions for rules that are not there: {unknown}"
        self._start = self._rule("statement")

    def read(self, piece: StatementTokens) -> Any:
        """Parses `piece` and returns the result of the rule `statement`. Raises InvalidStatement."""
        reading = _ParseState(piece.tokens, piece.source)
        found: list[Any] = []
        self._start(reading, found)
        if reading.tokens[reading.at].kind != END:
            raise reading.fault([Beginning(("<end>",), "the end")])
        return found[0]

    def follows(self, piece: StatementTokens) -> tuple[str, ...]:
        """Returns what can follow `piece`, the beginning of a statement; nothing where `piece` is invalid already."""
        reading = _ParseState(piece.tokens, piece.source)
        try:
            self._start(reading, [])
        except InvalidStatement as fault:
            line, column = piece.source.position(piece.tokens[-1].start)
            return fault.expected if (fault.line, fault.column) == (line, column) else ()
        return tuple(dict.fromkeys(each.label for at, passed in reading.passed if at == reading.at for each in passed))

    def beginnings(self) -> tuple[str, ...]:
        """Returns the keywords that statements begin with."""
        return tuple(dict.fromkeys(each.label for each in self.first(self.rules["statement"])))

    def words(self) -> frozenset[str]:
        """Returns every keyword of the grammar, and the units of time."""
        found = set(_UNITS)
        left = list(self.rules.values())
        while left:
            node = left.pop()
            left += node.inner
            if node.kind == "words":
                found |= set(node.text.split())
        return frozenset(found)

    def first(self, node: GrammarNode) -> tuple[Beginning, ...]:
        """Returns every possible beginning of `node`."""
        match node.kind:
            case "words":
                return (Beginning(tuple(node.text.split()), node.text),)
            case "sign":
                return (Beginning((node.text,), node.text),)
            case "token":
                return tuple(Beginning((key,), self._labels[node.text]) for key in _KEYS[node.text])
            case "rule":
                if node.text not in self._firsts:
                    found = self.first(self.rules[node.text])
                    label = self._labels.get(node.text)
                    self._firsts[node.text] = tuple(each._replace(label=label) for each in found) if label else found
                return self._firsts[node.text]
            case "row":
                row: tuple[Beginning, ...] = ()
                for each in node.inner:
                    row += self.first(each)
                    if not self.empty(each):
                        break
                return row
            case _:
                return tuple(first for each in node.inner for first in self.first(each))

    def empty(self, node: GrammarNode) -> bool:
        """Whether `node` can match without any token."""
        match node.kind:
            case "words" | "sign" | "token":
                return False
            case "rule":
                return self.empty(self.rules[node.text])
            case "row":
                return all(self.empty(each) for each in node.inner)
            case "choice":
                return any(self.empty(each) for each in node.inner)
            case _:
                return True

    def _made(self, node: GrammarNode) -> _RuleFunction:
        match node.kind:
            case "words":
                return _words(tuple(node.text.split()), Keyword(node.text), self.first(node))
            case "sign":
                return _words((node.text,), None, self.first(node))
            case "token":
                return _balanced(self.first(node)) if node.text == "balanced" else _token(node.text, self.first(node))
            case "rule":
                return self._rule(node.text)
            case "row":
                return _row(tuple(self._made(each) for each in node.inner))
            case "choice":
                return _choice([(self.first(each), self._made(each)) for each in node.inner])
            case _:
                inner = self._made(node.inner[0])
                return _optional(self.first(node), inner, often=node.kind == "many")

    def _rule(self, name: str) -> _RuleFunction:
        if name not in self._runs:
            made, action = self._made(self.rules[name]), self._actions.get(name)
            if name in self._labels and name not in ("name", "dotted"):
                made = _labelled(self.first(GrammarNode("rule", name)), made)
            self._runs[name] = made if action is None else _acting(made, action)
        return self._runs[name]


def _words(keys: tuple[str, ...], keyword: Keyword | None, firsts: tuple[Beginning, ...]) -> _RuleFunction:
    count, only = len(keys), keys[0] if len(keys) == 1 else None

    def run(reading: _ParseState, items: list[Any]) -> None:
        there = reading.tokens[reading.at].key == only if only is not None else reading.follows(keys)
        if not there:
            raise reading.fault(firsts)
        reading.at += count
        if keyword is not None:
            items.append(keyword)

    return run


def _token(name: str, firsts: tuple[Beginning, ...]) -> _RuleFunction:
    keys, is_name, as_text = frozenset(_KEYS[name]), name == "identifier", name in _AS_TEXT

    def run(reading: _ParseState, items: list[Any]) -> None:
        token = reading.tokens[reading.at]
        if token.key not in keys and not (is_name and token.kind == WORD):
            raise reading.fault(firsts)
        reading.at += 1
        items.append(token.text if as_text else token)

    return run


def _balanced(firsts: tuple[Beginning, ...]) -> _RuleFunction:
    def run(reading: _ParseState, items: list[Any]) -> None:
        depth, begin = 0, reading.tokens[reading.at]
        if begin.key != "(":
            raise reading.fault(firsts)
        while True:
            token = reading.tokens[reading.at]
            depth += (token.key == "(") - (token.key == ")")
            if token.kind == END:
                raise reading.source.fault("the ( that begins here is not closed", begin.start, begin.end)
            reading.at += 1
            if not depth:
                break
        items.append(reading.source.text[begin.end : token.start])

    return run


def _row(inner: tuple[_RuleFunction, ...]) -> _RuleFunction:
    def run(reading: _ParseState, items: list[Any]) -> None:
        for each in inner:
            each(reading, items)

    return run


def _choice(branches: list[tuple[tuple[Beginning, ...], _RuleFunction]]) -> _RuleFunction:
    table: dict[str, list[tuple[tuple[str, ...], _RuleFunction]]] = {}
    for firsts, branch in branches:
        for first in firsts:
            table.setdefault(first.keys[0], []).append((first.keys, branch))
    for found in table.values():
        found.sort(key=lambda each: -len(each[0]))
    every = tuple(first for firsts, _ in branches for first in firsts)
    by_name = table.get("<name>")

    def run(reading: _ParseState, items: list[Any]) -> None:
        token = reading.tokens[reading.at]
        for keys, branch in table.get(token.key, ()):
            if len(keys) == 1 or reading.follows(keys):
                branch(reading, items)
                return
        if by_name is None or token.kind != WORD:
            raise reading.fault(every)
        by_name[0][1](reading, items)

    return run


def _beginning(firsts: tuple[Beginning, ...]) -> Callable[[_ParseState], bool]:
    """Returns a function that says whether the next tokens match one of `firsts`."""
    table: dict[str, list[tuple[str, ...]]] = {}
    for first in firsts:
        table.setdefault(first.keys[0], []).append(first.keys)
    takes_names = "<name>" in table

    def begins(reading: _ParseState) -> bool:
        token = reading.tokens[reading.at]
        for keys in table.get(token.key, ()):
            if len(keys) == 1 or reading.follows(keys):
                return True
        return takes_names and token.kind == WORD

    return begins


def _optional(firsts: tuple[Beginning, ...], inner: _RuleFunction, *, often: bool) -> _RuleFunction:
    begins = _beginning(firsts)

    def run(reading: _ParseState, items: list[Any]) -> None:
        while begins(reading):
            inner(reading, items)
            if not often:
                return
        reading.passed.append((reading.at, firsts))

    return run


def _labelled(firsts: tuple[Beginning, ...], inner: _RuleFunction) -> _RuleFunction:
    """Returns `inner` with a check before it, so that an error at its beginning names the rule and not the rule's
    parts."""
    begins = _beginning(firsts)

    def run(reading: _ParseState, items: list[Any]) -> None:
        if not begins(reading):
            raise reading.fault(firsts)
        inner(reading, items)

    return run


def _acting(inner: _RuleFunction, action: Action) -> _RuleFunction:
    def run(reading: _ParseState, items: list[Any]) -> None:
        tokens, begin = reading.tokens, reading.at
        found: list[Any] = []
        inner(reading, found)
        end = tokens[max(begin, reading.at - 1)].end
        items.append(action(found, SourceSpan(reading.source, tokens[begin].start, end)))

    return run


def _near(token: SqlToken, expected: Iterable[str]) -> str | None:
    """Returns the expected keyword that `token` most likely misspells, or None."""
    if token.kind != WORD or len(token.key) > 40:
        return None
    words: dict[str, list[str]] = {}
    for label in expected:
        if label.isupper():
            words.setdefault(label.split()[0], []).append(label)
    near = get_close_matches(token.key, words, n=1, cutoff=0.65)
    if not near:
        return None
    return words[near[0]][0] if len(words[near[0]]) == 1 else near[0]


def _one_of(labels: tuple[str, ...]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} or {labels[-1]}"


def _told(token: SqlToken, *, hides: bool) -> str:
    match token.kind:
        case "end":
            return "the end of the statement"
        case _ if token.kind == STRING:
            return "a string"
        case _ if hides and token.kind != "sign":
            return {"quoted": "a name", "odd": "a word"}.get(token.kind, f"a {token.kind}")
        case _:
            return shown(token.text)
