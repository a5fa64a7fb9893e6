"""Names of users and roles: their normal form, and which look like one of the names that Horae reserves.

Names of jobs and tasks are never normalized, because other programs derive ids from their exact characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from unicodedata import combining, normalize


def _table(letters: Mapping[str, str]) -> dict[int, str]:
    return {ord(each): letter for letter, alike in letters.items() for each in alike}


# From the confusable characters of the Unicode consortium (UTS 39), for the scripts that names are written in.
_CAPITALS = _table(
    {
        "c": "\u04aa",
        "e": "\u04e0",
        "h": "\u0397\u041d\u04a2\u04c7\u04c9",
        "k": "\u049a\u049e",
        "l": "I\u0399\u0406",
        "m": "\u039c\u03fa\u04cd",
        "o": "\u04e8",
        "s": "\u054f",
        "t": "\u04ac",
        "y": "\u03a5\u04ae\u04b0",
    }
)
"""Capital letters that look like a letter of a reserved name while their small letters do not."""
_LOOKS_LIKE = str.maketrans(
    # Cyrillic, Greek and Armenian letters, small capitals, digits and signs that look like Latin letters.
    "\u0430\u0441\u0435\u04cf\u043a\u043c\u043e\u0440\u0455\u0442\u0443\u04bb\u0433"
    "\u03bf\u03b1\u03c1\u03c4\u03ba\u03b5\u03f2\u0570\u0585\u029f\u1d0f\u1d04\u1d00"
    "\u028f\u1d1b\u1d07\u1d0d\u1d0b\u1d18\u0280\u029c\ua73101|!"
    "$53@",
    "acelkmopstyhroaptkecholocaytemkprhsolllssea",
) | _table(
    # Letters with strokes and hooks, and those of other scripts.
    {
        "a": "\u0251\u13aa\u15c5\ua4ee\U000102a0\U00016f40",
        "c": "\u023c\u04ab\u13df\u2ca5\ua4da\U000102a2\U00010302\U0001043d\U0001051c",
        "e": "\u0247\u04bd\u04bf\u13ac\u2d39\ua4f0\uab32\U00010286\U000118c6\U000118ca\U000118ce\U00016f3b",
        "h": "\u0127\u0266\u043d\u045b\u04a3\u04c8\u04ca\u13bb\u13c2\u13f2\u157c\u2c68\u2c8f\ua4e7\ua695\U000102cf",
        "k": "\u0199\u13e6\u16d5\u2c6a\u2c95\ua4d7\ua741\U00010518",
        "l": (
            "\u0142\u019a\u01c0\u01c3\u0268\u0269\u026b\u026d\u05d5\u0627\u0673\u13de\u14aa\u16c1\u2c93\u2cd1"
            "\u2d4f\u2d51\ua4e1\ua4f2\U0001028a\U00010309\U00010320\U00010443\U00010526\U000118c3\U000118d2"
            "\U00016f16\U00016f28"
        ),
        "m": "\u13b7\u15f0\u16d6\u2c99\ua4df\U000102b0\U00010311",
        "o": (
            "\u00f8\u0275\u04e9\u10ff\u13a4\u13be\u13eb\u1d11\u2c9f\u2d31\u2d41\u2d54\ua4f3\ua74b\uab3d\uab3e"
            "\U00010292\U000102ab\U0001042c\U000104ea\U00010516\U000118c8\U000118d5\U000118d7"
        ),
        "p": "\u01a5\u13e2\u146d\u1d29\u1d7d\u2ca3\ua4d1\U00010295",
        "r": "\u024d\u027c\u027d\u0493\u13a1\u13b1\u13d2\u1587\u1d72\ua4e3\uab47\uab48\U000104dc\U00016f35",
        "s": "\u01bd\u0282\u13d5\u13da\u1d74\ua4e2\U00010296\U00010448\U000118c1\U000118db\U00016f3a",
        "t": "\u0167\u01ad\u0288\u04ad\u13a2\u1d75\u2c66\u2ca7\ua4d4\U00010297\U000102b1\U00010315\U000118dc\U00016f0a",
        "y": (
            "\u01b4\u024f\u04af\u04b1\u10e7\u13a9\u13bd\u1d8c\u1eff\u2ca9\ua4ec\uab5a\U000102b2\U000118c4"
            "\U000118dc\U00016f43"
        ),
    }
)
"""Characters that look like a letter of a reserved name, with that letter."""


def normal(name: str) -> str:
    """The name in the Unicode normal form NFC."""
    return normalize("NFC", name)


def skeleton(name: str) -> str:
    """The appearance of the name: two names with the same skeleton look alike."""
    plain = "".join(letter for letter in normalize("NFKD", name) if not combining(letter))
    # A capital I looks like a small l. Other capital and small letters differ in size alone.
    drawn = plain.translate(_CAPITALS).casefold().translate(_LOOKS_LIKE)
    return drawn.replace("rn", "m")


def similar_name(name: str, names: Iterable[str]) -> str | None:
    """The first of `names` that `name` looks like or equals; None where there is none."""
    seen = skeleton(name)
    return next((each for each in sorted(names) if skeleton(each) == seen), None)
