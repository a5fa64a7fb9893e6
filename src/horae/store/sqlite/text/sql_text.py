"""Execution of SQL text under an identity on SQLite: job text in a run's transaction, and read-only SELECTs.

A SELECT on a file has a connection of its own, opened for reading only. A catalog in memory has only one connection, on
which the authorizer alone prevents writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import apsw

from horae.errors import HoraeError, InvalidInput, StatementFailed, TransactionExpired, shown
from horae.store import foreign_statements
from horae.store.protocols.people import Identity
from horae.store.records import Rows
from horae.store.sqlite import file_at_rest
from horae.store.sqlite.failures import translated
from horae.store.sqlite.text import foreign_statements as statements
from horae.store.sqlite.text.authorizer import Authorizer, ReadGuard, TextGuard, Variables

LARGEST_SELECT = 16_000_000
"""The most characters of JSON in the answer of one SELECT."""
LARGEST_VALUE = 16 * 1024 * 1024
"""The most bytes of one value in a user's text. The time limit is not checked while a function builds a value."""
SORT_IN_MEMORY = "PRAGMA temp_store = MEMORY"
"""For users' texts: sorting is limited by their process' memory. Temporary files have no limit and could fill the disk
that the catalog is on."""
_ADMINISTRATORS = frozenset({"CREATE", "DROP", "ALTER", "REINDEX"})
_OF_THE_STORE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.IOError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
)
"""Errors about the file, not about the text."""


class _ResultRows:
    """The rows of one statement as plain JSON values: as many whole rows as fit into `most` characters."""

    def __init__(self, columns: tuple[str, ...], most: int) -> None:
        self.columns = columns
        self.rows: list[tuple[Any, ...]] = []
        self.count = 0
        self.is_full = False
        self._room = most

    def add(self, row: tuple[Any, ...]) -> None:
        self.count += 1
        if self.is_full:
            return
        plain = tuple(map(_plain, row))
        told = json.dumps(dict(zip(self.columns, plain, strict=True)), ensure_ascii=False, separators=(",", ":"))
        self._room -= len(told)
        if self._room < 0:
            self.is_full = True
        else:
            self.rows.append(plain)


class TimeLimit:
    """The time limit of a text that runs in the event loop's thread: a monotonic time."""

    def __init__(self, ends_at: float) -> None:
        self._ends_at = ends_at

    def begin_to_write(self) -> None:
        """Called before each statement that writes."""

    def is_over(self) -> bool:
        return monotonic() > self._ends_at

    def error(self) -> Exception:
        return TransactionExpired(
            "The text took longer than its transaction may last",
            hint="Do less in it, or raise the setting transaction_limit: meanwhile nothing else runs.",
        )


def wrote_too_long(seconds: float) -> TransactionExpired:
    return TransactionExpired(
        f"The text wrote for longer than sqlite_write_limit ({seconds:g} s from its first write) and was undone",
        hint="Do less in it, or raise the setting sqlite_write_limit: meanwhile nobody else writes.",
    )


def run_text(
    connection: apsw.Connection, text: object, identity: Identity, most: int, limit: TimeLimit, variables: Variables
) -> Rows:
    """Runs a text as `store.protocols.store.Joined.run_text` describes. It stops itself when `limit` is over."""
    pieces = split(text)
    for piece in pieces or [str(text)]:
        _check(piece, identity)
    guard = TextGuard(connection, identity)
    kept: _ResultRows | None = None
    changed = -1
    variables.values = identity.variables
    try:
        with _guarded(connection, guard, limit.is_over, is_limited=not identity.is_admin):
            for piece in pieces:
                answer, count = _run(connection, guard, piece, most, writing=limit.begin_to_write)
                kept = answer or kept
                if count >= 0:
                    changed = max(changed, 0) + count
            statements.check_deferred(connection)
    except apsw.InterruptError:
        raise limit.error() from None
    except apsw.Error as error:
        raise _failure(error, guard) from error
    finally:
        variables.values = None
    if kept is None:
        return Rows((), changed)
    return Rows(kept.rows, kept.count if changed < 0 else changed, kept.columns, cut=kept.is_full)


def select(
    connection: apsw.Connection,
    text: str,
    most: int,
    seconds: float,
    stopped: Callable[[], bool],
    *,
    viewer: bool = False,
) -> Rows:
    """Runs one SELECT. The authorizer refuses everything but reading, also on a connection that can write."""
    pieces = split(foreign_statements.check_select(text, nested=False))
    if len(pieces) != 1:
        raise foreign_statements.not_a_select()
    guard, ends_at = ReadGuard(connection, viewer=viewer), monotonic() + seconds
    try:
        with _guarded(connection, guard, lambda: monotonic() > ends_at or stopped(), is_limited=True):
            kept, _ = _run(connection, guard, pieces[0], LARGEST_SELECT, most)
    except apsw.InterruptError:
        raise foreign_statements.too_slow(seconds) from None
    except apsw.Error as error:
        failure = _failure(error, guard)
        if isinstance(failure, StatementFailed):
            hint = failure.hint or foreign_statements.select_hint(failure.message)
            raise InvalidInput(failure.message, hint=hint, details=failure.details) from error
        raise failure from error
    assert kept is not None
    return Rows(kept.rows, len(kept.rows), kept.columns, cut=kept.is_full)


def select_from_file(
    path: str,
    text: str,
    most: int,
    seconds: float,
    stopped: Callable[[], bool],
    *,
    viewer: bool = False,
    pragma: str = "PRAGMA temp_store = DEFAULT",
) -> Rows:
    """Runs one SELECT on a new connection that cannot write, in any thread. `pragma` runs on the connection first."""
    connection = apsw.Connection(":memory:", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    rest = file_at_rest.resting(path)
    try:
        with translated(path):
            connection.set_busy_timeout(1000)
            connection.execute(pragma).fetchall()
            connection.execute("ATTACH ? AS sys", (file_at_rest.reading(path, rest),))
            connection.execute("PRAGMA query_only = ON").fetchall()
        rows = select(connection, text, most, seconds, stopped, viewer=viewer)
        file_at_rest.check(path, rest)
        return rows
    finally:
        connection.close()


def split(text: object) -> list[str]:
    """The statements of a text in order, split as SQLite splits them, without empty ones."""
    try:
        if not isinstance(text, str) or b"\0" in text.encode():
            raise UnicodeError
    except UnicodeError:
        hint = "Give SQL text, without strange characters."
        raise InvalidInput(f"Not a text that a database takes: {shown(text)}", hint=hint) from None
    pieces, start, at = [], 0, 0
    while (at := text.find(";", at) + 1) > 0:
        if apsw.complete(text[start:at]):
            pieces.append(text[start:at])
            start = at
    pieces.append(text[start:])
    return [piece for piece in pieces if not foreign_statements.is_blank(piece, nested=False)]


def _check(piece: str, identity: Identity) -> None:
    """Refuses statements for which SQLite does not call the authorizer, or calls it with arguments that would give no
    clear message."""
    foreign_statements.check(piece, nested=False)
    word, following = foreign_statements.head(piece, nested=False)
    if word in statements.WORDS:
        raise statements.refusal(*statements.WORDS[word])
    if word == "ANALYZE":
        raise statements.refusal(word, "Leave it out: it would change how the catalog's own statements are run.")
    if word in _ADMINISTRATORS and not identity.is_admin:
        raise StatementFailed(
            f"{identity.name} may not {word} {following}".rstrip(),
            hint="Only jobs of an administrator change what tables there are.",
        )


def _run(
    connection: apsw.Connection,
    guard: Authorizer,
    piece: str,
    most: int,
    most_rows: int | None = None,
    writing: Callable[[], None] = lambda: None,
) -> tuple[_ResultRows | None, int]:
    """Runs one statement. Returns its rows, or None where it returns none, and the number of rows that it changed, or
    -1. It stops after `most_rows` rows."""
    seen: list[tuple[bool, tuple[str, ...]]] = []

    def begin(cursor: apsw.Cursor, statement: str, _: object) -> bool:
        if not seen:
            if not cursor.is_readonly:
                writing()
            seen.append((cursor.is_readonly, tuple(column[0] for column in cursor.get_description())))
            return True
        # Only a comment may follow. Anything more means that SQLite splits the text in another way than `split`.
        if foreign_statements.is_blank(statement, nested=False):
            return True
        guard.refusal = foreign_statements.several()
        return False

    guard.begin(connection, piece, foreign_statements.head(piece, nested=False)[0])
    cursor = connection.cursor()
    cursor.exec_trace = begin
    try:
        cursor.execute(piece, can_cache=False)
        [(is_read, columns)] = seen
        kept = _ResultRows(columns, most)
        for row in cursor:
            if kept.count == most_rows:
                kept.is_full = True
                break
            kept.add(row)
    finally:
        cursor.close(force=True)
    changes = guard.word in statements.COUNTED and not is_read
    return (kept if columns else None), (connection.changes() if changes else -1)


@contextmanager
def _guarded(
    connection: apsw.Connection, guard: Authorizer, is_over: Callable[[], bool], *, is_limited: bool
) -> Iterator[None]:
    """Sets the authorizer, the time limit and, with `is_limited`, the limit on a value's size, for one block."""
    largest = connection.limit(apsw.SQLITE_LIMIT_LENGTH)
    if is_limited:
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    connection.authorizer = guard
    connection.set_progress_handler(is_over, statements.STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None)
        connection.authorizer = None
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, largest)


def _failure(error: apsw.Error, guard: Authorizer) -> HoraeError:
    if guard.refusal is not None:
        return guard.refusal
    if isinstance(error, _OF_THE_STORE):
        try:
            with translated("a text"):
                raise error
        except HoraeError as told:
            return told
    code = getattr(error, "extendedresult", None)
    details = {} if code is None else {"sqlite": str(apsw.mapping_extended_result_codes.get(code, code))}
    return StatementFailed(str(error) or type(error).__name__, details=details)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
