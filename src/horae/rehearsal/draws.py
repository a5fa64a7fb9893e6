"""Draws: how long each run takes and whether it fails, from the past of its job, the same for the same seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from horae.core.rhythm import assumed_seconds
from horae.rehearsal.cast import Part

ASSUMED = 60.0
"""Seconds that a run takes of whose job nothing is known."""


@dataclass(frozen=True, slots=True)
class Chance:
    """What is drawn. `seconds`: every run takes that long; None: as long as one of its job's latest runs, or `assumed`
    where there are none, or half the time between two slots where that is less. `fails`: as often as they did;
    otherwise nothing fails."""

    seed: int = 0
    seconds: float | None = None
    assumed: float = ASSUMED
    fails: bool = False


class Draws:
    """What becomes of runs. The same job, slot and seed give the same draw, in whatever order runs come."""

    def __init__(self, chance: Chance, parts: Sequence[Part], start: datetime) -> None:
        self._chance = chance
        self._parts: Mapping[str, Part] = {part.name: part for part in parts}
        self.assumed = tuple(part.name for part in parts if chance.seconds is None and not part.past.seconds)
        """The jobs whose length is not known. None of their runs is taken to last until the next, which would tell of
        overlaps that nobody knows of."""
        self._assumed = {name: self._assumed_seconds(name, start) for name in self.assumed}

    def seconds(self, job: str, slot: int) -> float:
        """How long the run of a slot (milliseconds since 1970) takes in all."""
        if self._chance.seconds is not None:
            return self._chance.seconds
        known = self._parts[job].past.seconds
        if not known:
            return self._assumed[job]
        return known[int(self._draw("length", job, slot) * len(known))]

    def attempt_seconds(self, job: str, slot: int) -> float:
        """How long one of its tasks takes: the tasks of a sequence share the run's time."""
        spec = self._parts[job].spec
        shared = 1 if spec.settings.get("mode") == "parallel" else max(1, len(spec.tasks))
        return self.seconds(job, slot) / shared

    def failing_task(self, job: str, slot: int) -> str | None:
        """The task that fails, at every try, of a run that is to fail: as many runs do as did before, whatever the
        retries of the job were then."""
        past, tasks = self._parts[job].past, self._parts[job].spec.tasks
        if not self._chance.fails or not past.failed or not tasks:
            return None
        if self._draw("failure", job, slot) >= past.failed / past.ended:
            return None
        return tasks[int(self._draw("task", job, slot) * len(tasks))].name

    def _assumed_seconds(self, job: str, start: datetime) -> float:
        return assumed_seconds(self._parts[job].spec.schedule, start, self._chance.assumed)

    def _draw(self, what: str, job: str, slot: int) -> float:
        """From 0 to below 1."""
        drawn = sha256(f"{self._chance.seed}\n{what}\n{slot}\n{job}".encode()).digest()
        return (int.from_bytes(drawn[:8], "big") >> 11) / 2.0**53
