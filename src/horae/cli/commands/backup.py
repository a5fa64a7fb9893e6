"""`horae backup` and `horae restore`: copies an SQLite catalog while nodes run, and restores it while none runs."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.app.process.backup import back_up, restore
from horae.cli.files import store_url

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

_MEGABYTE = 1 << 20


def run(arguments: Namespace, screen: Screen) -> int:
    url = store_url(arguments)
    work = restore if arguments.restores else back_up

    def progress(done: int, of: int) -> None:
        screen.bar(done, of, "pages copied")

    try:
        done = asyncio.run(work(url, arguments.file, force=arguments.force, progress=progress))
    finally:
        screen.progress("")
    kept = None if done.kept is None else str(done.kept)
    screen.data({"file": str(done.file), "bytes": done.size, "schema": done.schema, "kept": kept})
    size = f"{done.size / _MEGABYTE:.1f} MiB, schema {done.schema:04d}, checked"
    if not arguments.restores:
        screen.line(f"wrote {done.file} ({size})")
        screen.note("Keep the master key elsewhere: without it, the secrets in this file cannot be read.")
        return 0
    screen.line(f"restored {done.file} ({size})")
    if kept is not None:
        screen.line(f"the catalog before it is {kept}")
    screen.note("Nodes that start now catch up on the slots since the backup, as each job's recovery says.")
    return 0
