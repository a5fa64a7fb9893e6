"""`horae demo`: runs sample jobs with a month of history and their dashboard, on a temporary catalog."""

from __future__ import annotations

import asyncio
import shlex
import socket
import tempfile
from argparse import Namespace
from contextlib import suppress
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from horae.cli import files
from horae.cli.program import program
from horae.errors import InvalidInput, shown

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen
    from horae.cli.server_process import StartupFacts

_TOUR_SECONDS = 8.0
_LONGEST = 86_400
_PORT = 8421
_BAR = 30


def run(arguments: Namespace, screen: Screen) -> int:
    seconds = arguments.seconds
    if seconds is not None and not (isfinite(seconds) and 0 < seconds <= _LONGEST):
        raise InvalidInput(f"Invalid --seconds {shown(seconds)}", hint=f"Give more than 0 and at most {_LONGEST}.")
    if arguments.save is not None or arguments.tour or arguments.no_run:
        # Imported here: the demo server does not need the tour, nor the tour the server.
        from horae.cli.commands.tour import run_tour, sample_schedules

        if arguments.save is None:
            return run_tour(arguments, screen, _TOUR_SECONDS if seconds is None else seconds)
        files.write_new(arguments.save, sample_schedules())
        screen.data({"saved": arguments.save})
        screen.line(f"Saved the sample jobs. Now try: {program()} next {shlex.quote(arguments.save)}")
        return 0
    from horae.logs import silenced

    # Logs are silenced: the dashboard shows all that they would, and more.
    with tempfile.TemporaryDirectory(prefix="horae-demo-") as folder, silenced():
        return _live(screen, Path(folder), arguments, seconds)


def _live(screen: Screen, folder: Path, arguments: Namespace, seconds: float | None) -> int:
    from horae.app.process.service import run_beside
    from horae.cli.server_process import ServerCompanion
    from horae.config import ServerSettings, ValueSource, parse_address
    from horae.demo.history import DemoHistory
    from horae.demo.world import EXTERNAL_JOB, EXTERNAL_NAME

    given = None if arguments.http is None else parse_address(arguments.http, ValueSource("the command line", "--http"))
    began_at = monotonic()
    screen.note("Making a month of history: the engine runs it all, on simulated time.")
    past = DemoHistory(folder, tell=lambda share: screen.progress(_bar(screen, share)))
    app = asyncio.run(past.live()).app
    screen.progress("")

    class Living(ServerCompanion):
        """The demo server, which ends after `seconds` if they were given."""

        async def begin(self, engine: Any) -> None:
            await app.sql(EXTERNAL_JOB)
            await app.trigger(EXTERNAL_NAME)
            await super().begin(engine)

        async def failed(self) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await super().failed()

    def told(began: StartupFacts) -> None:
        _print_startup(screen, folder, began, monotonic() - began_at)

    address = given or parse_address(f"127.0.0.1:{_free_port()}", ValueSource("the command line", "--http"))
    run_beside(app, Living(app, ServerSettings(http=address), told=told))
    screen.line("The demonstration has ended; its catalog is gone.")
    return 0


def _print_startup(screen: Screen, folder: Path, began: StartupFacts, seconds: float) -> None:
    store = f"sqlite:///{folder / 'horae.db'}"
    screen.data({"address": f"{began.address}/", "store": store, "jobs": began.jobs, "seconds": round(seconds, 2)})
    screen.line(f"{began.jobs} sample jobs, a month of history, ready after {seconds:.1f} s.")
    screen.line()
    screen.line(f"  Dashboard   {screen.style(f'{began.address}/', 'bold', 'cyan')}")
    served = began.address or ""
    place = f"--server {served}" if served.startswith("http") else f"--store {store}"
    screen.line(f"  From here   {program()} job list {place}")
    screen.line(f"  Its file    {store}")
    screen.line()
    screen.line(f"It stays until Ctrl-C, and leaves nothing behind. A tour on the terminal: {program()} demo --tour")
    screen.flush()


def _bar(screen: Screen, share: float) -> str:
    done = round(share * _BAR)
    full, empty = ("#", ".") if screen.plain else ("█", "░")
    return f"  {full * done}{empty * (_BAR - done)} {share * 100:3.0f} %"


def _free_port() -> int:
    """Returns the usual port if it is free, else 0, which means any free port."""
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("127.0.0.1", _PORT))
        except OSError:
            return 0
    return _PORT
