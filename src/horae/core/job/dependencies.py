"""Dependencies between jobs: when a run may start, and which graphs of dependencies are invalid.

The run of slot s may start when, for each dependency, the latest run with a scheduled time in (this job's previous
slot, s] is COMPLETED. Until then it waits. At this job's next slot it is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from horae.core.run.lifecycle import RunState
from horae.core.schedule.schedules import Schedule
from horae.core.time.instant import aware
from horae.errors import DependencyCycle, InvalidDefinition, shown


@dataclass(frozen=True, slots=True)
class DependencyWindow:
    """The scheduled times of the runs of a dependency that count: `after < time <= until`.

    `after` is None for a job's first slot. The wait ends at `give_up`. It is None where the job has no next slot: the
    wait then ends only with the dependency.
    """

    after: datetime | None
    until: datetime
    give_up: datetime | None


def dependency_window(schedule: Schedule, slot: datetime) -> DependencyWindow:
    return DependencyWindow(schedule.previous(slot), aware(slot, "slot"), schedule.next(slot))


def unmet(latest: Mapping[str, RunState | None]) -> tuple[str, ...]:
    """The dependencies whose latest run in the window is not COMPLETED; None means it has no run there."""
    return tuple(sorted(name for name, state in latest.items() if state != RunState.COMPLETED))


def judge(latest: Mapping[str, RunState | None], window: DependencyWindow, now: datetime) -> RunState | None:
    """PENDING while the run must wait, SKIPPED once it has waited too long, None when it may start."""
    if not unmet(latest):
        return None
    expired = window.give_up is not None and aware(now, "now") >= window.give_up
    return RunState.SKIPPED if expired else RunState.PENDING


def check_graph(graph: Mapping[str, Sequence[str]]) -> None:
    """Raises DependencyCycle with the cycle named, or InvalidDefinition for a job that does not exist."""
    for name in sorted(graph):
        for other in graph[name]:
            if other not in graph:
                raise InvalidDefinition(
                    f"Job {shown(name)} depends on {shown(other)}, which does not exist",
                    hint="Define that job first, or correct the name.",
                )
    cycle = find_cycle(graph)
    if cycle is not None:
        raise DependencyCycle(cycle)


def find_cycle(graph: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """The first cycle in alphabetical order, its first job repeated at the end; None where there is none.

    Not recursive, because a chain may have as many jobs as the catalog.
    """
    finished: set[str] = set()
    for root in sorted(graph):
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop()
                on_path.discard(name)
                finished.add(name)
                continue
            if name in on_path:
                return (*path[path.index(name) :], name)
            if name in finished:
                continue
            path.append(name)
            on_path.add(name)
            stack.append((name, True))
            stack += [(other, False) for other in sorted(graph.get(name, ()), reverse=True)]
    return None
