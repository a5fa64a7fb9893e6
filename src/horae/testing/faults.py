"""A store that fails now and then, by a seed: before a verb was done, or after, when nobody can tell."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from horae.errors import StoreConflict, StoreUnavailable
from horae.store.catalog import Catalog

FAULTY = frozenset(
    {
        "admit",
        "cancel",
        "define",
        "dispatch",
        "heartbeat",
        "plan",
        "reap",
        "settle",
        "sweep",
        "take_over",
        "write_output",
    }
)
"""What fails; reading does not, or a test could not look."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often a verb fails, from 0 to 1: `lost` before it was done, `unknown` after, `conflict` against another."""

    lost: float = 0.0
    unknown: float = 0.0
    conflict: float = 0.0


class FaultyCatalog(Catalog):
    """A catalog whose verbs fail as `faults` says. `outage` lets every verb fail until it is false again."""

    faults = Faults()
    outage = False
    random = Random(0)  # noqa: S311 - chance for tests
    failed = 0

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return functools.partial(_attempted, self, value) if name in FAULTY else value


async def _attempted(
    store: FaultyCatalog, verb: Callable[..., Awaitable[Any]], *arguments: Any, **keywords: Any
) -> Any:
    faults, draw = store.faults, store.random.random()
    if store.outage or draw < faults.lost:
        store.failed += 1
        raise StoreUnavailable("The store is away, says the simulation")
    if draw < faults.lost + faults.conflict:
        store.failed += 1
        raise StoreConflict("Lost against nobody, says the simulation")
    answer = await verb(*arguments, **keywords)
    if draw < faults.lost + faults.conflict + faults.unknown:
        store.failed += 1
        raise StoreUnavailable("The answer was lost, says the simulation", outcome_unknown=True)
    return answer
