"""Horae: the scheduler that can say what it will run, prove what it ran, and run it once."""

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

__all__ = [
    "CORE_VERSION",
    "Bounded",
    "Constraints",
    "Cron",
    "Decision",
    "DecisionRequest",
    "Distribution",
    "Every",
    "HoraeError",
    "Iso8601",
    "Once",
    "Queue",
    "Retry",
    "Schedule",
    "Window",
    "__version__",
    "decide",
]
