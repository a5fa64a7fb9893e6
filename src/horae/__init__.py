"""Horae: the scheduler that can say what it will run, prove what it ran, and run it once."""

from typing import TYPE_CHECKING, Any

import horae.core.schedule.custom  # noqa: F401 - registers custom schedules, so that they can be read back
from horae.core.job.policies import Bounded, Queue, Retry
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.window.constraint import Constraints
from horae.core.window.decision import CORE_VERSION, Decision, DecisionRequest, decide
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.errors import HoraeError
from horae.version import __version__

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.executors.run import Cancelled, Run

__all__ = [
    "CORE_VERSION",
    "Bounded",
    "Cancelled",
    "Constraints",
    "Cron",
    "Decision",
    "DecisionRequest",
    "Distribution",
    "Every",
    "Horae",
    "HoraeError",
    "Iso8601",
    "Once",
    "Queue",
    "Retry",
    "Run",
    "Schedule",
    "Window",
    "__version__",
    "decide",
]


def __getattr__(name: str) -> Any:
    """Imports the engine on first use, so that previews on the command line start without it."""
    if name == "Horae":
        from horae.app.horae import Horae

        return Horae
    if name in ("Cancelled", "Run"):
        from horae.executors import run

        return getattr(run, name)
    raise AttributeError(f"module 'horae' has no attribute {name!r}")
