"""`--watch`: what a command shows, shown again whenever the catalog changes, until Ctrl-C."""

from __future__ import annotations

import io
import signal
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from shutil import get_terminal_size
from types import FrameType, TracebackType
from typing import NoReturn

from horae.cli.files import now
from horae.cli.opening import Catalog
from horae.cli.screen import Screen, shortened
from horae.errors import HoraeError, StoreError

OFTEN = 0.5
"""Seconds between two looks, however much changes."""
_ENTER = "\033[?1049h\033[?25l\033[?7l"
"""The terminal's other page, without a cursor, and lines that are too long are cut."""
_LEAVE = "\033[?7h\033[?25h\033[?1049l"
_KILLED = 128 + signal.SIGTERM


def watched(arguments: Namespace, screen: Screen, catalog: Catalog, draw: Callable[[Screen], None]) -> int:
    """Draws once; with `--watch` again and again. A store or a server that is away for a while is waited for; whatever
    else is wrong ends it."""
    if arguments.watch is None:
        draw(screen)
        return 0
    is_page = screen.width is not None and not screen.as_json
    seen: _Lines | _Page = _Page(screen, catalog) if is_page else _Lines(screen)
    try:
        with seen:
            is_first = True
            while True:
                began = time.monotonic()
                try:
                    seen.show(_picture(screen, draw))
                    is_first = False
                    catalog.wait(max(arguments.watch, OFTEN))
                except StoreError as error:
                    if is_first:
                        raise
                    seen.tell(error)
                    time.sleep(max(arguments.watch, OFTEN))
                time.sleep(max(0.0, began + OFTEN - time.monotonic()))
    except KeyboardInterrupt:
        return 0


class _Drawing(io.StringIO):
    """What is drawn before it is shown, as wide as where it will be shown."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def _picture(screen: Screen, draw: Callable[[Screen], None]) -> str:
    drawing = _Drawing(is_terminal=screen.out.isatty())
    one = Screen(as_json=screen.as_json, one_line=True, timezone=screen.timezone, out=drawing, errors=screen.errors)
    one.colour, one.plain = screen.colour, screen.plain
    # Into a pipe only what changed in the catalog is written again, not that time passes.
    one.clock.is_relative = screen.out.isatty()
    draw(one)
    return drawing.getvalue()


class _Lines:
    """Whoever reads it is a program, or reads it later: each change is written below the one before."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._last: str | None = None
        self._told = ""

    def __enter__(self) -> _Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._screen.flush()

    def show(self, picture: str) -> None:
        self._told = ""
        if picture == self._last:
            return
        if self._last is not None and not self._screen.as_json:
            self._screen.line()
        self._last = picture
        self._screen.out.write(picture)
        self._screen.flush()

    def tell(self, error: HoraeError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            self._screen.error(error)
            self._screen.errors.flush()


class _Page:
    """A page of the terminal, drawn over in one go, so that nothing flickers; the last one stays when it ends."""

    def __init__(self, screen: Screen, catalog: Catalog) -> None:
        self._screen = screen
        self._where = catalog.url.rpartition("@")[2]
        self._last = ""

    def __enter__(self) -> _Page:
        self._before = signal.signal(signal.SIGTERM, _end)
        self._screen.out.write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self._screen.out.write(_LEAVE)
        if error is None or isinstance(error, KeyboardInterrupt):
            self._screen.out.write(self._last)
        self._screen.flush()

    def show(self, picture: str) -> None:
        self._last = picture
        self._draw(self._screen.style(f"{self._where}, {self._screen.clock.text(_second())}; Ctrl-C ends", "dim"))

    def tell(self, error: HoraeError) -> None:
        self._draw(self._screen.style(f"{self._screen.clock.text(_second())}: {error}", "red"))

    def _draw(self, title: str) -> None:
        size = get_terminal_size()
        lines = self._last.splitlines()
        room = max(1, size.lines - 3)
        if len(lines) > room:
            left = f"… and {len(lines) - room + 1} more lines, for which there is no room"
            lines[room - 1 :] = [shortened(left, size.columns)]
        rows = [f"{line}\033[K" for line in (title, "", *lines)]
        self._screen.out.write("\033[H" + "\r\n".join(rows) + "\033[J")
        self._screen.flush()


def _second() -> datetime:
    return now().replace(microsecond=0)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """A program that is ended gives the terminal back as it was."""
    raise SystemExit(_KILLED)
