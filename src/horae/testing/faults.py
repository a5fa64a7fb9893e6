"""A store that fails at random, by a seed: before a verb is carried out, or after it with an unknown outcome."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from horae.errors import StoreConflict, StoreUnavailable
from horae.store.catalog.catalog import Catalog

FAULTY = frozenset(
    {
        "admit",
        "cancel",
        "define",
        "claim_runs",
        "heartbeat",
        "create_due_runs",
        "reap",
        "settle",
        "sweep",
        "take_over",
        "write_output",
    }
)
"""The verbs that fail. Reads never fail, so that a test can inspect the store."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often a verb fails, from 0 to 1: `lost` before it is carried out, `unknown` after it, `conflict` as a
    StoreConflict."""

    lost: float = 0.0
    unknown: float = 0.0
    conflict: float = 0.0


class FaultyCatalog(Catalog):
    """A catalog whose verbs fail as `faults` says. While `outage` is true, every verb fails."""

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
