"""Starts the scheduler beside the web application, where the settings want it there."""

from __future__ import annotations

import atexit

from django.apps import AppConfig
from django.conf import settings


class RemindersConfig(AppConfig):
    name = "reminders"

    def ready(self) -> None:
        """Called in every process that loads Django. Several may start it: they share the catalog."""
        if settings.HORAE_IN_WEB:
            from reminders.scheduler import scheduler

            scheduler.start()
            atexit.register(scheduler.stop)
