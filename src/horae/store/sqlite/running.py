"""Runs SQL text as somebody on SQLite: job text inside a run's transaction, and SELECTs that cannot write.

A SELECT has a connection of its own, opened for reading only and used in a thread of its own; a catalog in memory has
one connection, on which the guard alone keeps it from writing.
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
from horae.store import foreign
from horae.store.records import Rows
from horae.store.sqlite import file_at_rest
from horae.store.sqlite import foreign as statements
from horae.store.sqlite.failures import translated
from horae.store.sqlite.guarding import Authorizer, ReadGuard, TextGuard, Variables
from horae.store.vault import Identity

LARGEST_SELECT = 16_000_000
"""Characters that one SELECT may answer."""
LARGEST_VALUE = 16 * 1024 * 1024
"""Bytes of one value in a user's text: a function that makes one looks at no clock while it does."""
WITHOUT_FILES = "PRAGMA temp_store = MEMORY"
"""For texts of others: what they sort is bounded with their process' memory. Files for it could fill the disk that the
catalog is on, and there is no limit on those."""
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
"""What says something of the file, not of the text."""


class _Kept:
    """Rows of one statement as plain JSON values: as many whole ones as fit."""

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


class Limit:
    """How long a text may take where it runs in the event loop's own thread: until a monotonic time."""

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
    connection: apsw.Connection, text: object, identity: Identity, most: int, limit: Limit, variables: Variables
) -> Rows:
    """What `port.Joined.run_text` promises; it stops itself when `limit` is over."""
    pieces = split(text)
    for piece in pieces or [str(text)]:
        _check(piece, identity)
    guard = TextGuard(connection, identity)
    kept: _Kept | None = None
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
    """One SELECT; what it says is judged by the guard, whatever the connection could do."""
    pieces = split(foreign.check_select(text, nested=False))
    if len(pieces) != 1:
        raise foreign.not_a_select()
    guard, ends_at = ReadGuard(connection, viewer=viewer), monotonic() + seconds
    try:
        with _guarded(connection, guard, lambda: monotonic() > ends_at or stopped(), is_limited=True):
            kept, _ = _run(connection, guard, pieces[0], LARGEST_SELECT, most)
    except apsw.InterruptError:
        raise foreign.too_slow(seconds) from None
    except apsw.Error as error:
        failure = _failure(error, guard)
        if isinstance(failure, StatementFailed):
            hint = failure.hint or foreign.select_hint(failure.message)
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
    """On a connection of its own that cannot write; for any thread. `pragma` is said to it first."""
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
    """The statements of a text in order, as SQLite itself tells them apart; those that are empty are left out."""
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
    return [piece for piece in pieces if not foreign.is_blank(piece, nested=False)]


def _check(piece: str, identity: Identity) -> None:
    """What the authorizer is not asked about, or is asked in words that would help nobody."""
    foreign.check(piece, nested=False)
    word, following = foreign.head(piece, nested=False)
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
) -> tuple[_Kept | None, int]:
    """One statement: its rows, if it returns any, and how many it changed, or -1. Past `most_rows` it is left alone."""
    seen: list[tuple[bool, tuple[str, ...]]] = []

    def begin(cursor: apsw.Cursor, statement: str, _: object) -> bool:
        if not seen:
            if not cursor.is_readonly:
                writing()
            seen.append((cursor.is_readonly, tuple(column[0] for column in cursor.get_description())))
            return True
        # What follows may be a comment. If it is more, we have not seen the same statements as SQLite.
        if foreign.is_blank(statement, nested=False):
            return True
        guard.refusal = foreign.several()
        return False

    guard.begin(connection, piece, foreign.head(piece, nested=False)[0])
    cursor = connection.cursor()
    cursor.exec_trace = begin
    try:
        cursor.execute(piece, can_cache=False)
        [(is_read, columns)] = seen
        kept = _Kept(columns, most)
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
    """While the guard is asked, the clock is looked at, and no value may become too large."""
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
