"""The slots of a job that came due and were not served."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from horae.core.job.policies import Bounded
from horae.core.run.due import due
from horae.core.run.job_view import JobView
from horae.core.run.lifecycle import RunState


@dataclass(frozen=True, slots=True)
class UnservedSlots:
    """Unserved slots of a job: how many were `missed`, how many runs would catch up on them now, and under which
    recovery policy. `more`: there are more than were counted."""

    job: str
    missed: int
    runs: int
    strategy: str
    more: bool = False


def unserved_slots(view: JobView, now: datetime) -> UnservedSlots | None:
    """The unserved slots of a job at `now`; None where no slot was missed."""
    plan = due(view, now)
    missed = sum(birth.count for birth in plan.births if birth.state is RunState.MISSED or birth.is_recovery)
    if not missed and not plan.more:
        return None
    runs = sum(birth.is_recovery and birth.state in (RunState.PENDING, RunState.QUEUED) for birth in plan.births)
    policy = "none" if view.first_seen else view.settings.recovery
    return UnservedSlots(view.name, missed, runs, "bounded" if isinstance(policy, Bounded) else policy, plan.more)


def runs_at_once(view: JobView, now: datetime) -> bool:
    """Whether any slot of the job that has passed would get a run now."""
    return any(birth.state in (RunState.PENDING, RunState.QUEUED) for birth in due(view, now).births)
