"""What strangers printed, made fit to be looked at: no terminal escapes, nothing invisible, nothing endless.

Templates escape what HTML minds; this is about what is left: sequences meant for a terminal are taken out, a carriage
return means that the line is written over, and letters that nobody can see or that turn the text around are shown as
what they are.
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
    """The text as it would stand on paper: escapes gone, lines written over by a carriage return gone too."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(_written_over(line) if "\r" in line else line for line in lines)


def visible(text: str) -> str:
    """Every letter that cannot be seen, or that turns the text around, as a picture or as its number."""
    return _INVISIBLE.sub(_picture, text)


def readable(text: object, longest: int = LONGEST) -> str:
    """Any text of a stranger's, for a page; what is too long is cut in the middle, where it says so."""
    shown = visible(without_escapes(str(text)))
    if len(shown) <= longest:
        return shown
    half = longest // 2
    return f"{shown[:half]}\n… {len(shown) - 2 * half:,} characters left out …\n{shown[-half:]}"


def pretty(value: Any, longest: int = LONGEST) -> str:
    """A plain value as JSON that people read."""
    return readable(json.dumps(value, indent=2, ensure_ascii=False, default=str), longest)


def _written_over(line: str) -> str:
    """What is left of a line after carriage returns: each part lies over the beginning of the one before."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown


def _picture(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x20:
        return chr(0x2400 + number)
    return "\u2421" if number == 0x7F else f"\u27e8U+{number:04X}\u27e9"
