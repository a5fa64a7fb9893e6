"""Secrets taken out of text: out of what tasks print, log and raise, whole or in pieces, also in other writings.

A secret is looked for as it is, without the space around it, by each line of it that has four characters or more, and
as base64 (also inside a longer text, whichever way its bytes fall there), hex, percent-encoding, JSON, HTML, a Python
literal and a shell word. Every character that belongs to any of these is covered, however they overlap.

Secrets of fewer than four characters are not looked for: they would blacken half of any text, and tell by it what they
are. `notice` says so, in words for whoever reads the output.
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
"""Characters a secret needs to be looked for."""
BLACK = "***"
_UNREADABLE = "\ufffd"


class Redactor:
    """Takes secrets out of text. `text` is for a whole one; `feed` and `end` for one that comes in pieces.

    `secrets` are values, or names with their values; a name shows in the place of its value. Of pieces, only an end
    that may be the beginning of a secret is kept back: less than the longest form of any secret.
    """

    __slots__ = ("_beginnings", "_covered", "_forms", "_kept", "_labels", "_longest", "_order", "_pattern", "_short")

    def __init__(self, secrets: Iterable[str | bytes] | Mapping[str, str | bytes]) -> None:
        named = isinstance(secrets, Mapping)
        pairs = secrets.items() if isinstance(secrets, Mapping) else [("", each) for each in secrets]
        forms: dict[str, str] = {}
        short: list[str] = []
        for name, value in pairs:
            label = f"[secret {name}]" if named else BLACK
            found = _forms(value)
            if not found:
                short.append(name)
            for form in found:
                forms.setdefault(form, label)
        self._forms = forms
        self._short = tuple(short)
        self._order = sorted(forms)
        self._longest = max(map(len, forms), default=0)
        # Two letters rule out nearly every place where a form might begin; the last letter of a text is alone.
        self._beginnings = frozenset(form[:count] for form in forms for count in (1, 2))
        # The longest first: where one form begins another, the other is to be covered whole.
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
        """One for the pieces of another text."""
        other = object.__new__(Redactor)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._kept, other._covered, other._labels = "", 0, frozenset()
        return other

    @property
    def notice(self) -> str | None:
        """What whoever reads the output is to be told, or None: which secrets are not looked for."""
        if not self._short:
            return None
        names = ", ".join(each for each in self._short if each)
        which = f" ({names})" if names else ""
        return (
            f"{len(self._short)} of its secrets{which} have fewer than {SHORTEST} characters and are not taken out of "
            "this output"
        )

    def text(self, text: str) -> str:
        """A whole text. What `feed` keeps back has no part in it."""
        return self._replaced(text, len(text), 0, frozenset())[0]

    def feed(self, text: str) -> str:
        """As much of the text so far as is certain, from where the last call stopped."""
        if self._pattern is None:
            return text
        whole = self._kept + text
        certain = self._beginning(whole)
        self._kept = whole[certain:]
        found, self._covered, self._labels = self._replaced(whole, certain, self._covered, self._labels)
        return found

    def end(self) -> str:
        """The rest. The next piece begins a text of its own."""
        whole, self._kept = self._kept, ""
        found, _, _ = self._replaced(whole, len(whole), self._covered, self._labels)
        self._covered, self._labels = 0, frozenset()
        return found

    def _beginning(self, text: str) -> int:
        """Where the first form begins that the text does not have whole."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start : start + 2] not in self._beginnings:
                continue
            rest = text[start:]
            place = bisect_left(self._order, rest)
            # The form right at `place` may be the rest itself, which is whole; a longer one comes after it.
            for form in self._order[place : place + 2]:
                if len(form) > len(rest) and form.startswith(rest):
                    return start
        return len(text)

    def _replaced(
        self, text: str, certain: int, covered: int, labels: frozenset[str]
    ) -> tuple[str, int, frozenset[str]]:
        """The first `certain` characters, without secrets. A form may begin there and end later: `covered` is how many
        characters at the front are of one that began before, and `labels` what was written in its place; both are
        answered anew."""
        if self._pattern is None:
            return text, 0, labels
        pieces: list[str] = []
        start, end = 0, covered
        while (found := self._pattern.search(text, start)) is not None and found.start() < certain:
            # From the next character on, not from the match's end: forms may overlap.
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
    """Every writing of a secret that is looked for; nothing where it is too short."""
    if len(value.strip()) < SHORTEST:
        return []
    if isinstance(value, str):
        text, raw = value, value.encode("utf-8", "surrogatepass")
    else:
        # As output shows bytes that are no text: decoded with replacements.
        text, raw = value.decode("utf-8", "replace"), value
    found: dict[str, None] = {}
    for each in (text, text.strip()):
        if _readable(each):
            found |= dict.fromkeys(_writings(each))
    for line in text.splitlines():
        if _readable(line):
            found[line.strip()] = None
    # Escaped once more, as a text with an escaped text in it is: JSON in JSON, the repr of a list of texts.
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
            # Inside a longer text, behind so many bytes of a group of three: the characters that are all its own.
            letters = encode(bytes(before) + data).decode()
            yield letters[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
