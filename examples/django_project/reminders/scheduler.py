"""The project's scheduler and its jobs; web processes and workers import the same."""

from __future__ import annotations

from django.conf import settings

from horae import Cron, Horae, Run

scheduler = Horae(settings.HORAE_STORE)


@scheduler.task("remind")
def remind(run: Run) -> None:
    print(f"{run.payload['user']}, this is your reminder", flush=True)


@scheduler.job("clear-sessions", Cron("0 4 * * *"))
def clear_sessions() -> None:
    """Whatever a project wants done at night; tasks are plain functions, so models can be used in them."""
