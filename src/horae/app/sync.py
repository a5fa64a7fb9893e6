"""`app.sync`: every operation of the app as a blocking call for sync code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.app.horae import Horae

OPERATIONS = (
    "apply",
    "backfill",
    "cancel",
    "disable",
    "drop",
    "enable",
    "get_job",
    "is_running",
    "jobs",
    "next_run",
    "output",
    "pause",
    "plan",
    "replay",
    "report",
    "reschedule",
    "resume",
    "rollback",
    "runs",
    "schedule",
    "scrape",
    "sql",
    "trigger",
    "trigger_many",
    "versions",
    "wait",
)


class SyncOperations:
    """Has the app's operations as methods that block and return what awaiting the app's method returns."""

    def __init__(self, app: Horae) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in OPERATIONS:
            raise AttributeError(f"app.sync has no {name}; it has {', '.join(OPERATIONS)}")
        method = getattr(self._app, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._app.home.call_blocking(lambda _: method(*arguments, **keywords))

        call.__name__ = name
        call.__doc__ = method.__doc__
        return call

    def __dir__(self) -> list[str]:
        return list(OPERATIONS)

    def close(self) -> None:
        """Closes the store that these calls opened, unless the app runs."""
        if self._app.engine is None:
            self._app.stop()
