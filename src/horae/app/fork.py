"""Apps across a fork of their process, as `gunicorn --preload`, uWSGI and Celery's prefork pool do it.

A fork copies open connections, but not the threads that serve them. The child must not even close its copies of SQLite
connections: it does not inherit the process' file locks, but the library still remembers them. So an app that only has
its store open closes a SQLite store before the fork, and both processes open it again at their next use. In the child
the app is one that was never started.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkListener(Protocol):
    def before_fork(self) -> None:
        """Called in the process that is about to fork."""

    def after_fork(self) -> None:
        """Called in the child."""


_apps: WeakSet[ForkListener] = WeakSet()
_hooked: list[bool] = []


def watch_forks(app: ForkListener) -> None:
    """Calls the app's `before_fork` and `after_fork` around every fork from now on."""
    _apps.add(app)
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked.append(True)
        os.register_at_fork(before=_before, after_in_child=_after)


def _before() -> None:
    for app in list(_apps):
        app.before_fork()


def _after() -> None:
    for app in list(_apps):
        app.after_fork()
