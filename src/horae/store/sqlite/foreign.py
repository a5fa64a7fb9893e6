"""Statements of a task's own on SQLite: one at a time, under an authorizer that is there only while one runs.

They run on the catalog's one connection, so what they could change about it for good is refused.
"""

from __future__ import annotations

from time import monotonic

import apsw

from horae.errors import InvalidInput, TransactionExpired
from horae.store import foreign
from horae.store.driver import Parameters
from horae.store.records import Rows

STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock: well under a millisecond."""
COUNTED = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"})
REFUSED = {
    apsw.SQLITE_TRANSACTION: ("BEGIN, COMMIT and ROLLBACK", foreign.NOT_ITS_OWN),
    apsw.SQLITE_SAVEPOINT: ("SAVEPOINT and RELEASE", foreign.NOT_ITS_OWN),
    apsw.SQLITE_ATTACH: ("ATTACH", "Keep the tables in the catalog's file, which is attached as sys."),
    apsw.SQLITE_DETACH: ("DETACH", "Leave it out."),
    apsw.SQLITE_PRAGMA: ("PRAGMA", "Leave it out: the connection is the catalog's own."),
}
_VACUUM = ("VACUUM", "Run it while nothing else has the file open: sqlite3 FILE 'VACUUM'.")
WORDS = {
    "ATTACH": REFUSED[apsw.SQLITE_ATTACH],
    "DETACH": REFUSED[apsw.SQLITE_DETACH],
    "PRAGMA": REFUSED[apsw.SQLITE_PRAGMA],
    "VACUUM": _VACUUM,
}
CREATES = {
    apsw.SQLITE_CREATE_TABLE: "TABLE",
    apsw.SQLITE_CREATE_VTABLE: "VIRTUAL TABLE",
    apsw.SQLITE_CREATE_INDEX: "INDEX",
    apsw.SQLITE_CREATE_VIEW: "VIEW",
    apsw.SQLITE_CREATE_TRIGGER: "TRIGGER",
    apsw.SQLITE_CREATE_TEMP_TABLE: "TABLE",
    apsw.SQLITE_CREATE_TEMP_INDEX: "INDEX",
    apsw.SQLITE_CREATE_TEMP_VIEW: "VIEW",
    apsw.SQLITE_CREATE_TEMP_TRIGGER: "TRIGGER",
}


def run(connection: apsw.Connection, sql: str, parameters: Parameters, ends_at: float) -> Rows:
    """Runs one statement. Raises InvalidInput for what must not be run here, else what SQLite says.

    It runs in the event loop's own thread, where nobody could stop it: at the monotonic time `ends_at` it stops itself,
    which raises TransactionExpired.
    """
    text = foreign.check(sql, nested=False)
    word, _ = foreign.head(text, nested=False)
    if word in WORDS:
        raise refusal(*WORDS[word])
    guard = _Guard(text)
    cursor = connection.cursor()
    cursor.exec_trace = guard.trace
    connection.authorizer = guard.authorize
    connection.set_progress_handler(lambda: monotonic() > ends_at, STEPS)
    try:
        # Not kept in the connection's cache, which is for the catalog's statements.
        rows = cursor.execute(text, parameters, can_cache=False).fetchall()
    except (apsw.AuthError, apsw.ExecTraceAbort):
        if guard.refusal is not None:
            raise guard.refusal from None
        raise
    except apsw.InterruptError:
        raise TransactionExpired(
            "A statement in run.transaction took longer than the transaction may last",
            hint="Do less in one statement, or raise the setting transaction_limit: meanwhile nothing else runs.",
        ) from None
    finally:
        connection.set_progress_handler(None)
        connection.authorizer = None
        cursor.close(force=True)
    if guard.reads and guard.columns:
        return Rows(rows, len(rows), guard.columns)
    return Rows(rows, connection.changes() if word in COUNTED else -1, guard.columns)


def check_deferred(connection: apsw.Connection) -> None:
    """Raises what the commit would: rows that still refer to nothing."""
    if connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
        raise apsw.ConstraintError("FOREIGN KEY constraint failed")


class _Guard:
    """Looks at one statement as SQLite compiles it and before it runs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.refusal: InvalidInput | None = None
        self.columns: tuple[str, ...] = ()
        self.reads = False
        self._begun = False

    def authorize(
        self, operation: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        if operation in REFUSED:
            return self._deny(refusal(*REFUSED[operation]))
        if operation in CREATES and database != "sys":
            return self._deny(astray(CREATES[operation], temporary=database == "temp"))
        return apsw.SQLITE_OK

    def _deny(self, refusal: InvalidInput) -> int:
        self.refusal = self.refusal or refusal
        return apsw.SQLITE_DENY

    def trace(self, cursor: apsw.Cursor, statement: str, _: object) -> bool:
        """Called before each statement; what follows the first may be nothing but comments."""
        if self._begun:
            return True
        self._begun = True
        self.reads = cursor.is_readonly
        self.columns = tuple(column[0] for column in cursor.get_description())
        if foreign.is_blank(self.text[len(statement) :], nested=False):
            return True
        self.refusal = foreign.several()
        return False


def refusal(what: str, hint: str) -> InvalidInput:
    return InvalidInput(f"{what} cannot be run in the run's own transaction", hint=hint)


def astray(what: str, *, temporary: bool) -> InvalidInput:
    """A thing that would not be created in the catalog's file, where alone it is part of the transaction's outcome."""
    where = "would outlast the task on the catalog's connection" if temporary else "would be in no file"
    name = "sys.name ON table" if what in ("INDEX", "TRIGGER") else "sys.name"
    return InvalidInput(f"This {what} {where}", hint=f"Create it in the catalog's file: CREATE {what} {name} ….")
