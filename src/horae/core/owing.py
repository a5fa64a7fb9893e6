"""What a job owes: slots that came and that nobody saw to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from horae.core.lifecycle import RunState
from horae.core.occurrence import due
from horae.core.policy import Bounded
from horae.core.slot import JobView


@dataclass(frozen=True, slots=True)
class Owed:
    """Slots of a job that came and were not seen to: how many were `missed`, how many runs would catch up on them now,
    and by which rule. `more`: there are more than were counted."""

    job: str
    missed: int
    runs: int
    strategy: str
    more: bool = False


def owed(view: JobView, now: datetime) -> Owed | None:
    """What a job owes at `now`; None where nothing was missed."""
    plan = due(view, now)
    missed = sum(birth.count for birth in plan.births if birth.state is RunState.MISSED or birth.is_recovery)
    if not missed and not plan.more:
        return None
    runs = sum(birth.is_recovery and birth.state in (RunState.PENDING, RunState.QUEUED) for birth in plan.births)
    policy = "none" if view.first_seen else view.settings.recovery
    return Owed(view.name, missed, runs, "bounded" if isinstance(policy, Bounded) else policy, plan.more)


def runs_at_once(view: JobView, now: datetime) -> bool:
    """Whether any of its slots that have passed would run now."""
    return any(birth.state in (RunState.PENDING, RunState.QUEUED) for birth in due(view, now).births)
