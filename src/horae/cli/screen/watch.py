"""`--watch`: shows a command's output again whenever the catalog changes, until Ctrl-C."""

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

from horae.cli.catalog_access import CatalogAccess
from horae.cli.files import now
from horae.cli.screen.screen import Screen, shorten
from horae.errors import HoraeError, StoreError

OFTEN = 0.5
"""The least number of seconds between two looks."""
_ENTER = "\033[?1049h\033[?25l\033[?7l"
"""Switches to the terminal's alternate screen, without a cursor and without wrapping lines."""
_LEAVE = "\033[?7h\033[?25h\033[?1049l"
_KILLED = 128 + signal.SIGTERM


def draw_repeatedly(
    arguments: Namespace, screen: Screen, catalog: CatalogAccess, draw: Callable[[Screen], None]
) -> int:
    """Draws once, or, with `--watch`, again until Ctrl-C, and returns the exit code. After the first look a StoreError
    is shown and the look repeated; any other error ends it."""
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


class _DrawBuffer(io.StringIO):
    """A buffer for one look, which claims to be a terminal if the output is one, so that tables fit it."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def _picture(screen: Screen, draw: Callable[[Screen], None]) -> str:
    drawing = _DrawBuffer(is_terminal=screen.out.isatty())
    one = Screen(as_json=screen.as_json, one_line=True, timezone=screen.timezone, out=drawing, errors=screen.errors)
    one.colour, one.plain = screen.colour, screen.plain
    # Without a terminal only changes of the catalog are written, so relative times, which always change, are off.
    one.clock.is_relative = screen.out.isatty()
    draw(one)
    return drawing.getvalue()


class _Lines:
    """Output to a pipe or file, or as JSON: each look that differs is written below the one before."""

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
    """A terminal's alternate screen, redrawn in one write so that it does not flicker. At the end the last look is
    printed on the main screen."""

    def __init__(self, screen: Screen, catalog: CatalogAccess) -> None:
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
            lines[room - 1 :] = [shorten(left, size.columns)]
        rows = [f"{line}\033[K" for line in (title, "", *lines)]
        self._screen.out.write("\033[H" + "\r\n".join(rows) + "\033[J")
        self._screen.flush()


def _second() -> datetime:
    return now().replace(microsecond=0)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Handles SIGTERM by an exit through `__exit__`, which restores the terminal."""
    raise SystemExit(_KILLED)
