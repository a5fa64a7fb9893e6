"""Untrusted text made safe to read: without terminal escapes, without invisible characters, of limited length.

Templates escape HTML; this module does the rest. It removes escape sequences for terminals, applies carriage returns,
which overwrite a line, and replaces invisible characters and those that change the text's direction by visible ones.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # strings: titles, links
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
LONGEST = 64_000


def without_escapes(text: str) -> str:
    """Returns the text as a terminal would leave it: without escape sequences and without overwritten characters."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(_written_over(line) if "\r" in line else line for line in lines)


def visible(text: str) -> str:
    """Replaces each invisible or direction-changing character by a symbol or by its code point."""
    return _INVISIBLE.sub(_picture, text)


def readable(text: object, longest: int = LONGEST) -> str:
    """Returns untrusted text for a page. A text longer than `longest` loses its middle, with a note in its place."""
    shown = visible(without_escapes(str(text)))
    if len(shown) <= longest:
        return shown
    half = longest // 2
    return f"{shown[:half]}\n… {len(shown) - 2 * half:,} characters left out …\n{shown[-half:]}"


def pretty(value: Any, longest: int = LONGEST) -> str:
    """Returns a plain value as indented JSON for a page."""
    return readable(json.dumps(value, indent=2, ensure_ascii=False, default=str), longest)


def _written_over(line: str) -> str:
    """Applies a line's carriage returns: each part overwrites the beginning of the one before."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown


def _picture(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x20:
        return chr(0x2400 + number)
    return "\u2421" if number == 0x7F else f"\u27e8U+{number:04X}\u27e9"
