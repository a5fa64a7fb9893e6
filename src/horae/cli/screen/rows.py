"""Rows as text: as a table that fits the terminal, or with one column a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from horae.cli.screen.screen import STATE
from horae.services.plan.terminal_words import counted as counted
from horae.services.plan.terminal_words import harmless as harmless

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen
    from horae.cli.screen.time_text import Clock

_ENDINGS = ("_at", "_time", "_until")
_TIMES = frozenset(
    {"at", "not_before", "moved_slot", "moved_to", "covers_from", "covers_to", "window_start", "window_end"}
)
_PLAUSIBLE = range(100_000_000_000, 100_000_000_000_000)
"""Milliseconds since 1970 of the years 1973 to 5138. A number outside is not shown as a time."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cell_text(value: Any, column: str, clock: Clock, *, of_users: bool) -> str:
    """Returns a value as text on one line, without terminal control characters, and with times in the clock's zone.

    `of_users` means that the rows are of a user's own query. Then a text is shown as a time only in a column whose name
    says that it holds times.
    """
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
    """Prints rows as a table, or, with `by_column`, one column a line. A column called `state` is coloured by its
    values, other columns by their style in `styles`. `of_users` is as in `cell_text`."""
    clock = screen.clock
    cells = [
        [cell_text(value, column, clock, of_users=of_users) for value, column in zip(row, columns, strict=True)]
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
