"""Reader of the EBNF grammar: one tree per rule, for the parser engine."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

_PIECE = re.compile(
    r"\s*(?:(?P<sign>'[^']+')|(?P<word>[A-Z][A-Z0-9_]*)|(?P<rule>[a-z][a-z0-9_]*)|(?P<mark>[\[\]{}()|]))"
)


class GrammarNode(NamedTuple):
    """One part of a rule: its kind, its text (keywords, a sign, or the name of a rule or token), and its inner
    parts."""

    kind: str
    text: str = ""
    inner: tuple[GrammarNode, ...] = ()


def rules_of(grammar: str, tokens: Container[str]) -> dict[str, GrammarNode]:
    """Returns the rules of an EBNF text by name. A rule begins at the start of a line; lines that begin with a space
    continue it. `tokens` are the names of tokens."""
    texts: dict[str, str] = {}
    name = ""
    for line in grammar.splitlines():
        if line.startswith(" "):
            texts[name] += line
        elif line and not line.startswith("#"):
            name, _, text = line.partition(" = ")
            assert name not in texts, f"two rules {name}"
            texts[name] = text
    return {name: _EbnfText(text, texts.keys(), tokens).rule() for name, text in texts.items()}


class _EbnfText:
    """Reads the right side of one rule."""

    def __init__(self, text: str, names: Container[str], tokens: Container[str]) -> None:
        self.names, self.tokens = names, tokens
        self.pieces: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _PIECE.match(text, at)
            assert found is not None, f"not EBNF: {text[at:]}"
            self.pieces.append((str(found.lastgroup), str(found[found.lastgroup or 0])))
            at = found.end()
        self.at = 0

    def rule(self) -> GrammarNode:
        node = self.choice()
        assert self.at == len(self.pieces), f"not EBNF: {self.pieces[self.at :]}"
        return node

    def choice(self) -> GrammarNode:
        choices = [self.row()]
        while self.at < len(self.pieces) and self.pieces[self.at][1] == "|":
            self.at += 1
            choices.append(self.row())
        return choices[0] if len(choices) == 1 else GrammarNode("choice", inner=tuple(choices))

    def row(self) -> GrammarNode:
        row: list[GrammarNode] = []
        while self.at < len(self.pieces) and self.pieces[self.at][1] not in ("|", "]", "}", ")"):
            kind, text = self.pieces[self.at]
            self.at += 1
            if kind == "word" and row and row[-1].kind == "words":
                row[-1] = GrammarNode("words", f"{row[-1].text} {text}")
            elif kind == "mark":
                inner = self.choice()
                self.at += 1
                row.append(
                    {"[": GrammarNode("maybe", inner=(inner,)), "{": GrammarNode("many", inner=(inner,)), "(": inner}[
                        text
                    ]
                )
            elif kind == "rule":
                assert text in self.names or text in self.tokens, f"no rule {text}"
                row.append(GrammarNode("rule" if text in self.names else "token", text))
            else:
                row.append(GrammarNode("words", text) if kind == "word" else GrammarNode("sign", text[1:-1]))
        return row[0] if len(row) == 1 else GrammarNode("row", inner=tuple(row))
