"""A command's output: text with colour where the terminal takes it, tables that fit, or JSON."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from horae.errors import HoraeError

if TYPE_CHECKING:
    from horae.cli.screen.time_text import Clock

STATE = "state"
"""The style of a column of states, each in its own colour."""
_STATES = {
    **dict.fromkeys(("ENABLED", "COMPLETED", "SUCCESS", "ALIVE", "yes"), "green"),
    **dict.fromkeys(("FAILED", "FAILED_STALE", "TIMEOUT", "LOST", "MISSED", "UNSCHEDULABLE", "DEAD", "no"), "red"),
    **dict.fromkeys(("PAUSED", "COMPLETED_WITH_ERRORS", "CANCELLED", "SILENT"), "yellow"),
    **dict.fromkeys(("DISABLED", "SKIPPED"), "dim"),
    **dict.fromkeys(("RUNNING",), "cyan"),
    **dict.fromkeys(("PENDING", "QUEUED"), "blue"),
}
STRIP = "strip"
"""The style of a column of outcome signs, each in the colour of its state."""
_SIGNS = {
    "COMPLETED": "■+",
    "COMPLETED_WITH_ERRORS": "▲!",
    "FAILED": "✗x",
    "FAILED_STALE": "✗x",
    "CANCELLED": "◆c",
    "SKIPPED": "·.",
    "MISSED": "○o",
    "UNSCHEDULABLE": "○o",
    "RUNNING": "▶>",
}
_WHOLE = re.compile(r"(?:occ|run|attempt)_[0-9a-f-]{36}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*|in \d+ [a-z]+|\d+ [a-z]+ ago")
"""Ids and times, which are never shortened in a table."""
_BARE_ID = re.compile(r"[0-9a-f-]{36}")
_BAR = 24
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class Screen:
    """One command's output. In JSON mode `line` prints nothing and `data` prints, else the other way round, so that
    commands need not check the mode."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        one_line: bool = False,
        timezone: str | None = None,
        out: TextIO | None = None,
        errors: TextIO | None = None,
    ) -> None:
        """`one_line` puts each JSON document on one line, for programs that read a stream of them. `timezone` is the
        zone for times (default this host's)."""
        self.timezone = timezone
        self._clock: Clock | None = None
        self.as_json = as_json
        self.one_line = one_line
        self.out = _writable(out if out is not None else sys.stdout)
        self.errors = _writable(errors if errors is not None else sys.stderr)
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        forced = os.environ.get("FORCE_COLOR", "0") not in ("", "0")
        self.colour = wanted and (forced or self.out.isatty())
        self.plain = not _can_write(self.out, "░▒▓█■·▲✗◆○▶")
        """Whether the output's encoding lacks the characters for charts, so that ASCII is used."""

    @property
    def clock(self) -> Clock:
        """The clock that times are shown on. Raises UnknownZone."""
        if self._clock is None:
            # Imported here: commands that show no time start sooner.
            from horae.cli.screen.time_text import Clock

            self._clock = Clock(self.timezone)
        return self._clock

    def style(self, text: str, *names: str) -> str:
        if not self.colour:
            return text
        return f"\033[{';'.join(_STYLES[name] for name in names)}m{text}\033[0m"

    def state(self, text: str) -> str:
        """Returns a state's name in its colour."""
        return self.coloured(text, text)

    def coloured(self, text: str, state: str) -> str:
        """Returns the text in a state's colour."""
        style = _STATES.get(state)
        return text if style is None else self.style(text, style)

    def line(self, text: str = "") -> None:
        if not self.as_json:
            self.out.write(f"{text}\n")

    def data(self, value: Any) -> None:
        if self.as_json:
            self.out.write(_json(value, one_line=self.one_line))

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        styles: Sequence[str] = (),
        *,
        cut: bool = False,
    ) -> int:
        """Prints a table with columns as wide as their widest cell. `styles` has a style for each column, empty for
        none. With `cut`, the table is made to fit the terminal: cells other than ids and times are shortened, and the
        last columns left out. Returns how many columns were left out."""
        widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
        hidden = 0
        if cut and self.width is not None:
            room = max(20, self.width - 2)
            whole = [_whole_width(title, column) for title, column in zip(header, zip(*rows, strict=True), strict=True)]
            widths = fit_widths(widths, room, whole=whole)
            hidden = len(header) - len(widths)
            header, *rows = [
                [shorten(cell, width) for cell, width in zip(row, widths, strict=False)] for row in (header, *rows)
            ]
        titles = [cell.ljust(width) for cell, width in zip(header, widths, strict=True)]
        self.line(f"  {self.style('  '.join(titles).rstrip(), 'dim')}")
        for row in rows:
            cells = []
            for column, cell in enumerate(row):
                text = cell.ljust(widths[column]) if column < len(row) - 1 else cell
                style = styles[column] if column < len(styles) else ""
                if style == STATE:
                    style = _STATES.get(cell, "")
                if style == STRIP:
                    cells.append("".join(self._sign(sign) for sign in text))
                else:
                    cells.append(self.style(text, style) if style and cell else text)
            self.line("  " + "  ".join(cells).rstrip())
        return hidden

    def _sign(self, sign: str) -> str:
        for state, signs in _SIGNS.items():
            if sign in signs:
                return self.style(sign, _STATES[state])
        return sign

    @property
    def width(self) -> int | None:
        """The terminal's width in columns; None without a terminal, where lines have no limit."""
        if not self.out.isatty():
            return None
        # Imported here: most commands do not need the width.
        from shutil import get_terminal_size

        return get_terminal_size().columns

    def note(self, text: str) -> None:
        """Prints a remark for the user on the error stream. With JSON it prints nothing."""
        if not self.as_json:
            self.out.flush()
            self.errors.write(f"{text}\n")
            self.errors.flush()

    def progress(self, text: str) -> None:
        """Shows a line that the next one replaces; an empty text removes it. It is shown only if the error stream is a
        terminal, and with `--json` only if the output is not one."""
        if self.errors.isatty() and not (self.as_json and self.out.isatty()):
            self.errors.write(f"\r\033[K{text}")
            self.errors.flush()

    def bar(self, done: int, of: int, what: str) -> None:
        """Shows a progress bar, as `progress` shows a line. `of` is the total."""
        full = _BAR if of <= 0 else min(_BAR, done * _BAR // of)
        begun, left = ("#", ".") if self.plain else ("█", "░")
        percent = 100 if of <= 0 else min(100, done * 100 // of)
        self.progress(f"{begun * full}{left * (_BAR - full)} {percent:3}%  {done} of {of} {what}")

    def error(self, error: HoraeError) -> None:
        """Prints an error and its hint on the error stream, with JSON as a document."""
        if self.as_json:
            self.errors.write(_json({"error": error.to_dict()}))
            return
        self.errors.write(f"horae: {error}\n")
        if error.hint:
            self.errors.write(f"       {error.hint}\n")

    def flush(self) -> None:
        self.out.flush()


def strip_of(screen: Screen, states: Sequence[str]) -> str:
    """Returns one sign for each state."""
    return "".join(_SIGNS.get(state, "  ")[1 if screen.plain else 0] for state in states)


def legend_of(screen: Screen, states: Collection[str]) -> str:
    """Returns the legend of the signs of `strip_of`, for `states` only."""
    meanings: dict[str, list[str]] = {}
    for state, signs in _SIGNS.items():
        if state in states:
            meanings.setdefault(signs[1 if screen.plain else 0], []).append(state)
    told = (
        f"{screen.coloured(sign, named[0])} {' or '.join(each.lower().replace('_', ' ') for each in named)}"
        for sign, named in meanings.items()
    )
    return "  ".join(told)


def fit_widths(
    widths: Sequence[int], room: int, *, least: int = 6, between: int = 2, whole: Sequence[int] = ()
) -> list[int]:
    """Returns column widths that fit into `room`. The last columns are left out until the others fit at their least
    widths; then the widest are narrowed first. `whole` has the width below which each column must not go, 0 for
    none; `between` is the gap between columns."""
    floors = [max(min(width, least), must) for width, must in zip(widths, [*whole, *[0] * len(widths)], strict=False)]
    kept = [max(min(width, room), floor) for width, floor in zip(widths, floors, strict=True)]
    while len(kept) > 1 and sum(floors[: len(kept)]) + between * (len(kept) - 1) > room:
        kept.pop()
    over = sum(kept) + between * (len(kept) - 1) - room
    # A column that is alone, or beside ids, may have to become narrower than `least`.
    least_of = [must or 1 for must in [*whole, *[0] * len(kept)][: len(kept)]]
    while over > 0:
        _, widest = max((width - least_of[index] > 0 and width, index) for index, width in enumerate(kept))
        if kept[widest] <= least_of[widest]:
            break
        kept[widest] -= 1
        over -= 1
    return kept


def _whole_width(title: str, cells: Sequence[str]) -> int:
    """Returns the width that a column needs so that no id and no time in it is cut; 0 if it has none."""
    found = [cell for cell in cells if _WHOLE.fullmatch(cell) or ("run" in title and _BARE_ID.fullmatch(cell))]
    return max(map(len, found), default=0)


def shorten(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: max(0, width - 1)] + "…"


def _writable(stream: TextIO | None) -> TextIO:
    """Returns `stream`, set to replace characters that it cannot encode. For a closed stream, None, it returns one that
    discards all output."""
    if stream is None:
        return io.StringIO()
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _json(value: Any, *, one_line: bool = False) -> str:
    # Imported here: text output starts sooner without.
    import json

    if one_line:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=True) + "\n"
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"
