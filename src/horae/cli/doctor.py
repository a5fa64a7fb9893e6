"""`horae doctor`: what is wrong with a catalog, and what to do about it."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.app import examine_store
from horae.cli.files import store_url

if TYPE_CHECKING:
    from horae.cli.screen import Screen


def run(arguments: Namespace, screen: Screen) -> int:
    url = store_url(arguments)
    examination = asyncio.run(examine_store(url))
    screen.data(examination.to_dict())
    for finding in examination.findings:
        colour = "red" if finding.level == "error" else "yellow"
        screen.line(f"{screen.style(finding.level, colour)} {finding.subject}: {finding.message}")
        screen.line(f"  {finding.hint}")
    looked = f"{examination.jobs} jobs, {examination.nodes} live nodes, {examination.waiting} runs due"
    screen.line(looked if examination.findings else f"nothing wrong: {looked}")
    return 1 if any(finding.level == "error" for finding in examination.findings) else 0
