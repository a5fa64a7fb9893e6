"""`horae demo`: a world of sample jobs with weeks of history, its dashboard, and what goes on in it right now."""

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
    from horae.cli.screen import Screen
    from horae.cli.serving import Began

_TOUR_SECONDS = 8.0
_LONGEST = 86_400
_PORT = 8421
_BAR = 30


def run(arguments: Namespace, screen: Screen) -> int:
    seconds = arguments.seconds
    if seconds is not None and not (isfinite(seconds) and 0 < seconds <= _LONGEST):
        raise InvalidInput(f"Invalid --seconds {shown(seconds)}", hint=f"Give more than 0 and at most {_LONGEST}.")
    if arguments.save is not None or arguments.tour or arguments.no_run:
        # Imported here: the world needs none of it, and the tour nothing of the world.
        from horae.cli.tour import run_tour, sample_schedules

        if arguments.save is None:
            return run_tour(arguments, screen, _TOUR_SECONDS if seconds is None else seconds)
        files.write_new(arguments.save, sample_schedules())
        screen.data({"saved": arguments.save})
        screen.line(f"Saved the sample jobs. Now try: {program()} next {shlex.quote(arguments.save)}")
        return 0
    from horae.logs import silenced

    # The dashboard shows everything that logs would, and more.
    with tempfile.TemporaryDirectory(prefix="horae-demo-") as folder, silenced():
        return _live(screen, Path(folder), arguments, seconds)


def _live(screen: Screen, folder: Path, arguments: Namespace, seconds: float | None) -> int:
    from horae.app.service import run_beside
    from horae.cli.serving import Serving
    from horae.config import Place, ServerSettings, parse_address
    from horae.demo.history import Past
    from horae.demo.world import EXTERNAL_JOB, EXTERNAL_NAME

    given = None if arguments.http is None else parse_address(arguments.http, Place("the command line", "--http"))
    began_at = monotonic()
    screen.note("Making a month of history: the engine runs it all, on simulated time.")
    past = Past(folder, tell=lambda share: screen.progress(_bar(screen, share)))
    app = asyncio.run(past.live()).app
    screen.progress("")

    class Living(Serving):
        """The world as it goes on, for as long as was said."""

        async def begin(self, engine: Any) -> None:
            await app.sql(EXTERNAL_JOB)
            await app.trigger(EXTERNAL_NAME)
            await super().begin(engine)

        async def failed(self) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await super().failed()

    def told(began: Began) -> None:
        _tell(screen, folder, began, monotonic() - began_at)

    address = given or parse_address(f"127.0.0.1:{_free_port()}", Place("the command line", "--http"))
    run_beside(app, Living(app, ServerSettings(http=address), told=told))
    screen.line("The demonstration has ended; its catalog is gone.")
    return 0


def _tell(screen: Screen, folder: Path, began: Began, seconds: float) -> None:
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
    """The usual one, or any where that is taken."""
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("127.0.0.1", _PORT))
        except OSError:
            return 0
    return _PORT
