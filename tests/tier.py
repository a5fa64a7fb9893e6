"""The three tiers of the suite, and what belongs to each.

    quick     `make quick`: rules, text formats, architecture, the store's contract on SQLite and the model; every day
    test      `make test`: everything that must hold before a change is merged
    torture   `make torture`: more seeds, full depth, everything again on PostgreSQL 16

HORAE_TIER names the one that runs; without it, `test`. A test that only the last one runs has the mark
`torture("why")`.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

import pytest

VARIABLE = "HORAE_TIER"
SEEDS_VARIABLE = "HORAE_TORTURE_SEEDS"
ROOT = Path(__file__).parents[1]
MANY_SEEDS = 25
QUICK = tuple(
    ROOT / "tests" / name
    for name in (
        "architecture",
        "config",
        "core",
        "formats",
        "dashboard",
        "store/test_contract_model.py",
        "store/test_contract_sqlite.py",
        "store/test_schema.py",
        "store/test_stateful_model.py",
        "store/test_stateful_sqlite.py",
    )
)


ON_16 = pytest.mark.torture("again on PostgreSQL 16")
"""The mark of what `make test` shows on PostgreSQL 18."""


class Tier(StrEnum):
    QUICK = "quick"
    TEST = "test"
    TORTURE = "torture"


SHARE = {Tier.QUICK: 5, Tier.TEST: 3, Tier.TORTURE: 1}
"""One in so many examples is tried."""


def current() -> Tier:
    """The tier that runs. Raises ValueError where HORAE_TIER names none."""
    return Tier(os.environ.get(VARIABLE) or Tier.TEST)


def is_quick(path: Path) -> bool:
    """Whether a file of tests is part of the quick tier."""
    return any(path.is_relative_to(each) for each in QUICK)


def holds_quick(path: Path) -> bool:
    """Whether a file or folder is part of the quick tier, or leads to a part of it."""
    return is_quick(path) or any(each.is_relative_to(path) for each in QUICK)


def examples(count: int) -> int:
    """How many of `count` examples of a property to try in this tier."""
    return max(1, count // SHARE[current()])


def seeds(few: int) -> range:
    """The numbers that a randomised test runs with: a few, or many in the last tier."""
    most = MANY_SEEDS if current() is Tier.TORTURE else few
    return range(int(os.environ.get(SEEDS_VARIABLE) or most))
