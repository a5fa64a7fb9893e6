"""`app.sync`: every operation of the app for sync code, blocking until it is done."""

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


class Blocking:
    """Looks like the app, but its methods return what the app's are awaited for."""

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
        """Closes what these calls have opened, unless the app runs."""
        if self._app.engine is None:
            self._app.stop()
