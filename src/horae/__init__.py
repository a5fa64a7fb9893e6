"""Horae: the scheduler that can say what it will run, prove what it ran, and run it once."""

from typing import TYPE_CHECKING, Any

import horae.core.custom  # noqa: F401 - makes its kind of schedule known, so that it can be read back
from horae.core.constraint import Constraints
from horae.core.decision import CORE_VERSION, Decision, DecisionRequest, decide
from horae.core.distribution import Distribution
from horae.core.interval import Every, Iso8601
from horae.core.policy import Bounded, Queue, Retry
from horae.core.schedule import Cron, Once, Schedule
from horae.core.window import Window
from horae.errors import HoraeError
from horae.version import __version__

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.runners.run import Cancelled, Run

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
    """The engine is imported when it is asked for: previews on the command line start without it."""
    if name == "Horae":
        from horae.app.horae import Horae

        return Horae
    if name in ("Cancelled", "Run"):
        from horae.runners import run

        return getattr(run, name)
    raise AttributeError(f"module 'horae' has no attribute {name!r}")
