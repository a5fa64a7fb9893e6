"""Names of people: in one normal form, and none that looks like a name Horae itself goes by.

Names of jobs and tasks are never changed: they are identities that other programs computed from the same letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import combining, normalize

_LOOKS_LIKE = str.maketrans(
    # Cyrillic, Greek and Armenian letters, small capitals, digits and signs that are drawn like Latin letters.
    "\u0430\u0441\u0435\u04cf\u043a\u043c\u043e\u0440\u0455\u0442\u0443\u04bb\u0433"
    "\u03bf\u03b1\u03c1\u03c4\u03ba\u03b5\u03f2\u0570\u0585\u029f\u1d0f\u1d04\u1d00"
    "\u028f\u1d1b\u1d07\u1d0d\u1d0b\u1d18\u0280\u029c\ua73101|!"
    "$53@",
    "acelkmopstyhroaptkecholocaytemkprhsolllssea",
)
"""What the letters of reserved names are mistaken for."""


def normal(name: str) -> str:
    """The name with each letter written in one way (NFC)."""
    return normalize("NFC", name)


def skeleton(name: str) -> str:
    """What the name looks like: two names with one skeleton are easily taken for each other."""
    # A large I is drawn like a small l; elsewhere large and small letters are told apart by size alone.
    plain = normalize("NFKD", name.replace("I", "l"))
    bare = "".join(letter for letter in plain if not combining(letter))
    return bare.casefold().translate(_LOOKS_LIKE)


def resembled(name: str, names: Iterable[str]) -> str | None:
    """The first of `names` that `name` looks like, or is."""
    seen = skeleton(name)
    return next((each for each in sorted(names) if skeleton(each) == seen), None)
