"""What becomes of apps when their process forks, as `gunicorn --preload`, uWSGI and Celery's prefork pool make it do.

A fork copies the open connections and none of the threads that serve them. SQLite's connections must not even be
closed in the child: locks of a process are not inherited, and what the library remembers of them is. So an app that
only has its store open closes a SQLite store before the fork, and both sides open it again at their next use. The
child's app is one that was never started.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    def before_fork(self) -> None:
        """In the process that is about to fork."""

    def after_fork(self) -> None:
        """In the child."""


_apps: WeakSet[Forked] = WeakSet()
_hooked: list[bool] = []


def follow(app: Forked) -> None:
    """Tells an app of every fork from now on."""
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
