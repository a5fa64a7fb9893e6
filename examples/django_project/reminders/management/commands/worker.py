"""`manage.py worker`: a process that runs jobs and does nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reminders.scheduler import scheduler


class Command(BaseCommand):
    help = "Run jobs until Ctrl-C, or for some seconds."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, help="stop after this long")

    def handle(self, *args: Any, **options: Any) -> None:
        if scheduler.engine is not None:
            raise CommandError("HORAE_IN_WEB=1 has started the scheduler in this process already; unset it here.")
        if options["seconds"] is None:
            scheduler.run()
        else:
            asyncio.run(run_for(options["seconds"]))


async def run_for(seconds: float) -> None:
    async with scheduler:
        await asyncio.sleep(seconds)
