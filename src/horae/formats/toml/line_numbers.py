"""Finds the line of a key in a TOML text, for errors.

The standard library's reader gives no places. The text is known to be valid TOML, so only what leads to the next key is
examined: comments, strings, brackets.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left

from horae.core.shape import Path

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")


class TomlLines:
    """Lines by path, counted from 1. Where the text is not valid TOML after all, fewer lines are known."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [index for index, letter in enumerate(text) if letter == "\n"]
        self._arrays: dict[Path, int] = {}
        self.lines: dict[Path, int] = {}
        self._scan()

    def _scan(self) -> None:
        try:
            self._document()
        except (IndexError, RecursionError, ValueError):
            return

    def line(self, path: Path) -> int:
        """The line of the innermost part of `path` that is in the text; 0 where no part of it is."""
        for length in range(len(path), 0, -1):
            found = self.lines.get(path[:length])
            if found is not None:
                return found
        return 0

    def _here(self) -> int:
        return bisect_left(self._breaks, self._at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(self._at)
        self._at = found.end()
        return found[0]

    def _document(self) -> None:
        table: Path = ()
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        line = self._here()
        several = self._text.startswith("[[", self._at)
        self._at += 2 if several else 1
        names = self._key()
        self._at += 2 if several else 1
        path: Path = ()
        for position, name in enumerate(names):
            path = (*path, name)
            self.lines.setdefault(path, line)
            if several and position == len(names) - 1:
                self._arrays[path] = self._arrays.get(path, -1) + 1
            if path in self._arrays:
                path = (*path, self._arrays[path])
                self.lines.setdefault(path, line)
        # The header of a nested table may have named this table before; its own header is here.
        self.lines[path] = line
        return path

    def _pair(self, table: Path) -> None:
        line = self._here()
        path = table
        for name in self._key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._at = self._text.index("=", self._at) + 1
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[str]:
        """A dotted key, and the space around it."""
        names = []
        while True:
            self._skip(_SPACE)
            if self._text[self._at] in "\"'":
                names.append(str(tomllib.loads(f"key = {self._skip(_STRING)}")["key"]))
            else:
                names.append(self._skip(_BARE))
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _value(self, path: Path) -> None:
        self.lines.setdefault(path, self._here())
        letter = self._text[self._at]
        if letter in "\"'":
            self._skip(_STRING)
        elif letter == "[":
            self._array(path)
        elif letter == "{":
            self._inline(path)
        else:
            self._skip(_SCALAR)

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            letter = self._text[self._at]
            if letter == "]":
                self._at += 1
                return
            if letter == ",":
                self._at += 1
            else:
                self._value((*path, index))
                index += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK)
            letter = self._text[self._at]
            if letter == "}":
                self._at += 1
                return
            if letter == ",":
                self._at += 1
            else:
                self._pair(path)
