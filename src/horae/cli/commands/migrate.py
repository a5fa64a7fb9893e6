"""`horae migrate`: creates the catalog's schema or brings it up to date, and prints a line for each step."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.app import migrate_store
from horae.cli.files import store_url

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen


def run(arguments: Namespace, screen: Screen) -> int:
    url = store_url(arguments)
    verb = "would apply" if arguments.dry_run else "applied"

    def announce(number: int, name: str) -> None:
        screen.line(f"{verb} {number:04d}_{name}")

    done = asyncio.run(migrate_store(url, dry_run=arguments.dry_run, announce=announce))
    names = [f"{number:04d}_{name}" for number, name in done.applied]
    screen.data({"schema": done.schema, "dialect": done.dialect, "applied": names, "dry_run": arguments.dry_run})
    if not names:
        screen.line(f"nothing to do: the schema is at {done.schema:04d}")
    return 0
