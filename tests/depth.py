"""How deep properties are tried: all the way by `make torture`, half of it where somebody waits for the end."""

from __future__ import annotations

import os

VARIABLE = "HORAE_DEPTH"


def examples(count: int) -> int:
    """How many of `count` examples to try."""
    return count if os.environ.get(VARIABLE) == "full" else max(1, count // 2)
