"""Timing that survives a noisy machine: contenders take turns, each keeps its best round, ratios are what counts."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

ROUNDS = 15


def race(contenders: dict[str, Callable[[], int]], rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds per operation of each contender; a contender does some operations and returns how many."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            begun = perf_counter()
            operations = run()
            spent = (perf_counter() - begun) / operations
            best[name] = min(best.get(name, spent), spent)
    return best


def repeated(function: Callable[[], object], operations: int) -> Callable[[], int]:
    """A contender that calls `function` a number of times."""

    def run() -> int:
        for _ in range(operations):
            function()
        return operations

    return run


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def microseconds(seconds: float) -> str:
    value = seconds * 1_000_000
    return f"{value:.2f} us" if value < 100 else f"{value:,.0f} us"
