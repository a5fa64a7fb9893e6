"""Redaction of secrets in the text that tasks print, log and raise, whole or in pieces, also in encoded forms.

A secret is searched for as it is, without the whitespace around it, line by line (lines of four characters or more),
and as base64 (also inside a longer encoded text, at any byte offset), hex, percent-encoding, JSON, HTML, a Python
literal and a shell word. Every character that belongs to any of these forms is covered, however they overlap.

Secrets of fewer than four characters are not searched for: they would cover half of any text, and reveal themselves by
that. `notice` says so to the reader of the output.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""The fewest characters of a secret that is searched for."""
REDACTED = "***"
_UNREADABLE = "\ufffd"


class Redactor:
    """Takes secrets out of text. `text` is for a whole text; `feed` and `end` are for a text that comes in pieces.

    `secrets` are values, or names with their values; a name is shown in place of its value. `feed` keeps back only the
    end of a piece that may be the beginning of a secret, which is shorter than the longest form of any secret.
    """

    __slots__ = ("_beginnings", "_covered", "_forms", "_kept", "_labels", "_longest", "_order", "_pattern", "_short")

    def __init__(self, secrets: Iterable[str | bytes] | Mapping[str, str | bytes]) -> None:
        named = isinstance(secrets, Mapping)
        pairs = secrets.items() if isinstance(secrets, Mapping) else [("", each) for each in secrets]
        forms: dict[str, str] = {}
        short: list[str] = []
        for name, value in pairs:
            label = f"[secret {name}]" if named else REDACTED
            found = _forms(value)
            if not found:
                short.append(name)
            for form in found:
                forms.setdefault(form, label)
        self._forms = forms
        self._short = tuple(short)
        self._order = sorted(forms)
        self._longest = max(map(len, forms), default=0)
        # Two characters rule out nearly every place where a form might begin; the last character stands alone.
        self._beginnings = frozenset(form[:count] for form in forms for count in (1, 2))
        # Longest first: where one form is the beginning of another, the longer one must be covered whole.
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._kept = ""
        self._covered = 0
        self._labels: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(set(self._forms.values()))} labels>"

    def __reduce__(self) -> str:
        raise TypeError("A Redactor knows secrets: it is not to be sent anywhere")

    def again(self) -> Redactor:
        """A redactor of the same secrets for the pieces of another text."""
        other = object.__new__(Redactor)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._kept, other._covered, other._labels = "", 0, frozenset()
        return other

    @property
    def notice(self) -> str | None:
        """A message to the reader of the output: which secrets are not searched for. None where there are none."""
        if not self._short:
            return None
        names = ", ".join(each for each in self._short if each)
        which = f" ({names})" if names else ""
        return (
            f"{len(self._short)} of its secrets{which} have fewer than {SHORTEST} characters and are not taken out of "
            "this output"
        )

    def text(self, text: str) -> str:
        """A whole text, redacted. Does not touch what `feed` keeps back."""
        return self._replaced(text, len(text), 0, frozenset())[0]

    def feed(self, text: str) -> str:
        """Adds a piece; returns the redacted text since the last call, as far as it is certain."""
        if self._pattern is None:
            return text
        whole = self._kept + text
        certain = self._beginning(whole)
        self._kept = whole[certain:]
        found, self._covered, self._labels = self._replaced(whole, certain, self._covered, self._labels)
        return found

    def end(self) -> str:
        """The redacted rest of the text. The next piece begins a new text."""
        whole, self._kept = self._kept, ""
        found, _, _ = self._replaced(whole, len(whole), self._covered, self._labels)
        self._covered, self._labels = 0, frozenset()
        return found

    def _beginning(self, text: str) -> int:
        """The index of the first form that the end of the text may have cut; the text's length where there is none."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start : start + 2] not in self._beginnings:
                continue
            rest = text[start:]
            place = bisect_left(self._order, rest)
            # The form at `place` may equal the rest, which is then whole; a longer form comes after it.
            for form in self._order[place : place + 2]:
                if len(form) > len(rest) and form.startswith(rest):
                    return start
        return len(text)

    def _replaced(
        self, text: str, certain: int, covered: int, labels: frozenset[str]
    ) -> tuple[str, int, frozenset[str]]:
        """The first `certain` characters without secrets, and `covered` and `labels` for the next call.

        A form may begin in one piece and end in a later one. `covered` is the number of characters at the front that
        belong to a form which began earlier, and `labels` are the labels written in its place.
        """
        if self._pattern is None:
            return text, 0, labels
        pieces: list[str] = []
        start, end = 0, covered
        while (found := self._pattern.search(text, start)) is not None and found.start() < certain:
            # Continue at the next character, not at the end of the match: forms may overlap.
            start = found.start() + 1
            if found.start() >= end:
                pieces.append(text[end : found.start()])
                labels = frozenset()
            end = max(end, found.end())
            label = self._forms[found[0]]
            if label not in labels:
                labels |= {label}
                pieces.append(label)
        pieces.append(text[end:certain])
        return "".join(pieces), max(0, end - certain), labels


def _forms(value: str | bytes) -> list[str]:
    """All forms of a secret that are searched for; none where it is too short."""
    if len(value.strip()) < SHORTEST:
        return []
    if isinstance(value, str):
        text, raw = value, value.encode("utf-8", "surrogatepass")
    else:
        # Output shows invalid bytes decoded with replacement characters.
        text, raw = value.decode("utf-8", "replace"), value
    found: dict[str, None] = {}
    for each in (text, text.strip()):
        if _readable(each):
            found |= dict.fromkeys(_writings(each))
    for line in text.splitlines():
        if _readable(line):
            found[line.strip()] = None
    # Escaped twice, as in nested texts: JSON in JSON, the repr of a list of strings.
    found |= dict.fromkeys(form.replace("\\", "\\\\") for form in [*found] if "\\" in form)
    for data in (raw, raw.strip()):
        found |= dict.fromkeys(_encodings(data))
    return [form for form in found if len(form) >= SHORTEST]


def _readable(text: str) -> bool:
    return len(text.replace(_UNREADABLE, "").strip()) >= SHORTEST


def _writings(text: str) -> Iterable[str]:
    yield text
    yield text.replace("\n", "\r\n")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return
    for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield escaped
        yield escaped.replace("/", "\\/")
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield shlex.quote(text)
    for percent in (quote(text), quote(text, safe=""), quote_plus(text)):
        yield percent
        yield re.sub("%[0-9A-F]{2}", lambda each: each[0].lower(), percent)


def _encodings(data: bytes) -> Iterable[str]:
    yield data.hex()
    yield data.hex().upper()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(data).decode()
        yield whole
        yield whole.rstrip("=")
        for before in range(3):
            # Inside a longer text, after `before` bytes of a group of three: characters that depend on no neighbour.
            letters = encode(bytes(before) + data).decode()
            yield letters[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
