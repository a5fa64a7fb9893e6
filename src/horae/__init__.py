"""Horae: the scheduler that can say what it will run, prove what it ran, and run it once."""

from horae.core.interval import Every, Iso8601
from horae.core.schedule import Cron, Once, Schedule
from horae.errors import HoraeError
from horae.version import __version__

__all__ = ["Cron", "Every", "HoraeError", "Iso8601", "Once", "Schedule", "__version__"]
