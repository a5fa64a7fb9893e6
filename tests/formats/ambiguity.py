"""Whether a grammar can be read without going back: what may begin each choice, and what may follow it."""

from __future__ import annotations

from collections.abc import Iterator

from horae.formats.sql.ebnf import GrammarNode
from horae.formats.sql.parser_engine import GrammarParser

Keys = tuple[str, ...]


def follows(machine: GrammarParser) -> dict[str, set[Keys]]:
    """What may stand after each rule: the textbook's FOLLOW, worked out until nothing changes."""
    found: dict[str, set[Keys]] = {name: set() for name in machine.rules}
    found["statement"].add(("<end>",))
    while True:
        before = sum(map(len, found.values()))
        for name, node in machine.rules.items():
            for each, after in parts(machine, node, found[name]):
                if each.kind == "rule":
                    found[each.text] |= after
        if sum(map(len, found.values())) == before:
            return found


def parts(machine: GrammarParser, node: GrammarNode, after: set[Keys]) -> Iterator[tuple[GrammarNode, set[Keys]]]:
    """Every part of `node`, itself too, with what may stand after it when `after` may stand after `node`."""
    yield node, after
    match node.kind:
        case "row":
            rest = set(after)
            for each in reversed(node.inner):
                yield from parts(machine, each, rest)
                begins = {first.keys for first in machine.first(each)}
                rest = begins | rest if machine.empty(each) else begins
        case "many":
            again = {first.keys for first in machine.first(node)}
            yield from parts(machine, node.inner[0], after | again)
        case _:
            for each in node.inner:
                yield from parts(machine, each, after)


def clash(one: Keys, other: Keys) -> bool:
    """Whether the same tokens may be both: one begins with the other."""
    return one[: len(other)] == other[: len(one)]


def ambiguities(machine: GrammarParser) -> list[str]:
    """Every place where the next tokens do not say which way to go."""
    faults = []
    after_rules = follows(machine)
    for name, rule in machine.rules.items():
        for node, after in parts(machine, rule, after_rules[name]):
            if node.kind == "choice":
                begins = [{first.keys for first in machine.first(each)} for each in node.inner]
                faults += [
                    f"{name}: {one} begins two choices"
                    for index, ones in enumerate(begins)
                    for one in ones
                    for others in begins[index + 1 :]
                    for other in others
                    if clash(one, other)
                ]
            if node.kind in ("maybe", "many"):
                inside = {first.keys for first in machine.first(node)}
                takes_any_word = ("<name>",) in inside
                faults += [
                    f"{name}: {one} may begin or follow what may be left out"
                    for one in inside
                    for other in after
                    if clash(one, other) or (takes_any_word and other[0][0].isalpha())
                ]
    return faults
