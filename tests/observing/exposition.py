"""A small reader of Prometheus' text format 0.0.4, written from the format's description and not from our writer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Labels = frozenset[tuple[str, str]]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


@dataclass
class Page:
    """What a scrape says: samples by name and labels, and what is said of each family."""

    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def series(self, name: str) -> dict[Labels, float]:
        return {labels: value for (found, labels), value in self.samples.items() if found == name}

    def buckets(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """A histogram's upper bounds with their counts, in the order of the text."""
        found = []
        for each, value in self.series(f"{name}_bucket").items():
            pairs = dict(each)
            bound = float(pairs.pop("le"))
            if pairs == labels:
                found.append((bound, value))
        return found


def parse(text: str) -> Page:
    """Reads a whole page; raises AssertionError where it breaks the format's rules."""
    assert text.endswith("\n"), "the last line must end with a line feed"
    page, current = Page(), ""
    finished: set[str] = set()
    for line in text.split("\n")[:-1]:
        assert line, "an empty line"
        if line.startswith("# "):
            _, keyword, name, rest = line.split(" ", 3)
            assert _NAME.fullmatch(name), name
            if name != current:
                assert name not in finished, f"{name} comes in two groups"
                finished.add(current)
                current = name
            table = {"HELP": page.helps, "TYPE": page.kinds}[keyword]
            assert name not in table, f"a second {keyword} of {name}"
            table[name] = rest
        else:
            _read_sample(page, current, line)
    return page


def _read_sample(page: Page, family: str, line: str) -> None:
    match = _NAME.match(line)
    assert match, line
    name, rest = match[0], line[match.end() :]
    assert name in [family + suffix for suffix in _SUFFIXES[page.kinds[family]]], f"{name} stands under {family}"
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        labels, rest = _read_labels(rest[1:])
    assert rest.startswith(" "), line
    key = (name, frozenset(labels.items()))
    assert key not in page.samples, f"a series twice: {line}"
    page.samples[key] = float(rest[1:])


def _read_labels(text: str) -> tuple[dict[str, str], str]:
    labels: dict[str, str] = {}
    while not text.startswith("}"):
        match = _LABEL.match(text)
        assert match, text
        assert text[match.end() :].startswith('="'), text
        value, text = _read_quoted(text[match.end() + 2 :])
        assert match[0] not in labels, f"label {match[0]} twice"
        labels[match[0]] = value
        text = text.removeprefix(",")
    return labels, text[1:]


def _read_quoted(text: str) -> tuple[str, str]:
    """The value up to the closing quote, and what follows it."""
    letters, position = [], 0
    while text[position] != '"':
        if text[position] == "\\":
            position += 1
            letters.append({"\\": "\\", '"': '"', "n": "\n"}[text[position]])
        else:
            letters.append(text[position])
        position += 1
    return "".join(letters), text[position + 1 :]
