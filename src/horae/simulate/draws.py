"""Draws how long each run takes and whether it fails, from the history of its job, the same for the same seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from horae.core.schedule.slot_distance import assumed_seconds
from horae.simulate.jobs import SimulatedJob

ASSUMED = 60.0
"""Seconds that a run takes if its job has no history."""


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """How runs are drawn.

    `seconds` is how long every run takes. None: as long as one of its job's latest runs; without history `assumed`
    seconds, or half the time between two scheduled times if that is less. With `fails`, runs fail as often as they did
    before; otherwise none fails.
    """

    seed: int = 0
    seconds: float | None = None
    assumed: float = ASSUMED
    fails: bool = False


class Draws:
    """The drawn lengths and failures of runs. The same job, scheduled time and seed give the same draw in any order of
    runs."""

    def __init__(self, chance: DrawOptions, parts: Sequence[SimulatedJob], start: datetime) -> None:
        self._chance = chance
        self._parts: Mapping[str, SimulatedJob] = {part.name: part for part in parts}
        self.assumed = tuple(part.name for part in parts if chance.seconds is None and not part.past.seconds)
        """The jobs without history. Their runs are never taken to last until the next scheduled time, which would
        suggest overlaps that may not exist."""
        self._assumed = {name: self._assumed_seconds(name, start) for name in self.assumed}

    def seconds(self, job: str, slot: int) -> float:
        """How long the run of a scheduled time (milliseconds since 1970) takes in all."""
        if self._chance.seconds is not None:
            return self._chance.seconds
        known = self._parts[job].past.seconds
        if not known:
            return self._assumed[job]
        return known[int(self._draw("length", job, slot) * len(known))]

    def attempt_seconds(self, job: str, slot: int) -> float:
        """How long one task of the run takes: the tasks of a sequential job share the run's time."""
        spec = self._parts[job].spec
        shared = 1 if spec.settings.get("mode") == "parallel" else max(1, len(spec.tasks))
        return self.seconds(job, slot) / shared

    def failing_task(self, job: str, slot: int) -> str | None:
        """The task that fails at every attempt, if the run is to fail; None otherwise.

        The share of failing runs is that of the job's history, whatever its retries were then.
        """
        past, tasks = self._parts[job].past, self._parts[job].spec.tasks
        if not self._chance.fails or not past.failed or not tasks:
            return None
        if self._draw("failure", job, slot) >= past.failed / past.ended:
            return None
        return tasks[int(self._draw("task", job, slot) * len(tasks))].name

    def _assumed_seconds(self, job: str, start: datetime) -> float:
        return assumed_seconds(self._parts[job].spec.schedule, start, self._chance.assumed)

    def _draw(self, what: str, job: str, slot: int) -> float:
        """A number from 0 to below 1."""
        drawn = sha256(f"{self._chance.seed}\n{what}\n{slot}\n{job}".encode()).digest()
        return (int.from_bytes(drawn[:8], "big") >> 11) / 2.0**53
