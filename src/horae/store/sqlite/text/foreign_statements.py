"""Execution of a task's own statements on SQLite, one at a time, each under an authorizer.

They run on the catalog's only connection, so statements that would change that connection permanently are refused.
"""

from __future__ import annotations

from time import monotonic

import apsw

from horae.errors import InvalidInput, TransactionExpired
from horae.store import foreign_statements
from horae.store.driver import Parameters
from horae.store.records import Rows

STEPS = 10_000
"""Steps of SQLite's virtual machine between two checks of the time limit: well under a millisecond."""
COUNTED = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"})
REFUSED = {
    apsw.SQLITE_TRANSACTION: ("BEGIN, COMMIT and ROLLBACK", foreign_statements.NOT_ITS_OWN),
    apsw.SQLITE_SAVEPOINT: ("SAVEPOINT and RELEASE", foreign_statements.NOT_ITS_OWN),
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
    """Runs one statement. Raises InvalidInput for a statement that is refused, and errors of SQLite as they are.

    It runs in the event loop's thread, where no other task can stop it. So it stops itself at the monotonic time
    `ends_at` and raises TransactionExpired.
    """
    text = foreign_statements.check(sql, nested=False)
    word, _ = foreign_statements.head(text, nested=False)
    if word in WORDS:
        raise refusal(*WORDS[word])
    guard = _Guard(text)
    cursor = connection.cursor()
    cursor.exec_trace = guard.trace
    connection.authorizer = guard.authorize
    connection.set_progress_handler(lambda: monotonic() > ends_at, STEPS)
    try:
        # Do not fill the connection's statement cache, which is for the catalog's statements.
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
    """Raises the error that the commit would raise where a deferred foreign key is violated."""
    if connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
        raise apsw.ConstraintError("FOREIGN KEY constraint failed")


class _Guard:
    """Checks one statement while SQLite compiles it and before it runs."""

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
            return self._deny(outside_catalog_error(CREATES[operation], temporary=database == "temp"))
        return apsw.SQLITE_OK

    def _deny(self, refusal: InvalidInput) -> int:
        self.refusal = self.refusal or refusal
        return apsw.SQLITE_DENY

    def trace(self, cursor: apsw.Cursor, statement: str, _: object) -> bool:
        """Called before each statement. Only comments may follow the first one."""
        if self._begun:
            return True
        self._begun = True
        self.reads = cursor.is_readonly
        self.columns = tuple(column[0] for column in cursor.get_description())
        if foreign_statements.is_blank(self.text[len(statement) :], nested=False):
            return True
        self.refusal = foreign_statements.several()
        return False


def refusal(what: str, hint: str) -> InvalidInput:
    return InvalidInput(f"{what} cannot be run in the run's own transaction", hint=hint)


def outside_catalog_error(what: str, *, temporary: bool) -> InvalidInput:
    """The error for a CREATE outside the catalog's file, which would not be part of the transaction."""
    where = "would outlast the task on the catalog's connection" if temporary else "would be in no file"
    name = "sys.name ON table" if what in ("INDEX", "TRIGGER") else "sys.name"
    return InvalidInput(f"This {what} {where}", hint=f"Create it in the catalog's file: CREATE {what} {name} ….")
