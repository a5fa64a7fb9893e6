"""Rows for people: as a table that fits the terminal, or with one column to a line; times as times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from horae.cli.screen import STATE
from horae.control.letters import counted as counted
from horae.control.letters import harmless as harmless

if TYPE_CHECKING:
    from horae.cli.screen import Screen
    from horae.cli.time_text import Clock

_ENDINGS = ("_at", "_time", "_until")
_TIMES = frozenset(
    {"at", "not_before", "moved_slot", "moved_to", "covers_from", "covers_to", "window_start", "window_end"}
)
_PLAUSIBLE = range(100_000_000_000, 100_000_000_000_000)
"""Milliseconds of the years 1973 to 5138: a number beyond them is no time, whatever its column is called."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def told(value: Any, column: str, clock: Clock, *, of_users: bool) -> str:
    """A value of a column as people read it: on one line, and with nothing in it that a terminal would obey; times on
    their clocks. In rows of the user's own, `of_users`, only columns that are called so have times."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_time = column in _TIMES or column.endswith(_ENDINGS)
    if isinstance(value, int) and value in _PLAUSIBLE and is_time:
        return clock.text(_EPOCH + timedelta(milliseconds=value))
    if isinstance(value, str) and (is_time or not of_users):
        value = clock.text(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return harmless(str(value)).replace("\n", "\\n").replace("\t", " ")


def show_rows(
    screen: Screen,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    by_column: bool = False,
    styles: Mapping[str, str] | None = None,
    of_users: bool = False,
) -> None:
    """The rows as a table, or, with `by_column`, one column to a line. Columns called `state` are coloured by what they
    say, others by the style that `styles` names for them."""
    clock = screen.clock
    cells = [
        [told(value, column, clock, of_users=of_users) for value, column in zip(row, columns, strict=True)]
        for row in rows
    ]
    if not by_column:
        named = {"state": STATE} | dict(styles or {})
        hidden = screen.table(columns, cells, [named.get(column, "") for column in columns], cut=True)
        if hidden:
            screen.line(screen.style(f"  {hidden} more columns do not fit: --json has them (\\x in the shell)", "dim"))
        return
    widest = max(map(len, columns), default=0)
    for number, row in enumerate(cells, start=1):
        screen.line(screen.style(f"  -- {number} --", "dim"))
        for column, cell, value in zip(columns, row, rows[number - 1], strict=True):
            text = harmless(value) if isinstance(value, str) and "\n" in value else cell
            first, *more = text.split("\n")
            screen.line(f"  {screen.style(column.ljust(widest), 'dim')}  {first}".rstrip())
            for line in more:
                screen.line(f"  {'':<{widest}}  {line}".rstrip())
