"""Finds and refuses foreign statements that must not run in the catalog's transactions.

A foreign statement is one that is not the catalog's. Only its first words are read. What the database itself can refuse
is left to the database.
"""

from __future__ import annotations

import re

from horae.core.table_access import HIDDEN_COLUMNS, HIDDEN_TABLES
from horae.errors import AccessDenied, InvalidInput, shown

__all__ = ["HIDDEN_COLUMNS", "HIDDEN_TABLES"]

_SPACE = re.compile(r"(?:[\s;]|--[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_]*")
_COMMENT_SIGN = re.compile(r"/\*|\*/")
_CONTROL = frozenset({"COMMIT", "ROLLBACK", "END", "ABORT", "BEGIN", "START", "SAVEPOINT", "RELEASE"})
_READS = frozenset({"SELECT", "WITH", "VALUES"})
NOT_SHOWN = "Password hashes, tokens, sessions, kept answers and secrets cannot be read; name other columns."
_NO_TABLE = re.compile(r"no such table|relation .* does not exist")
NOT_ITS_OWN = "Leave it out: the transaction is committed together with the run's end, or rolled back."


def head(sql: str, *, nested: bool) -> tuple[str, str]:
    """Returns the first two words in capitals, past space, comments and empty statements; "" for a missing one.

    `nested`: comments may contain comments, as on PostgreSQL.
    """
    first = _skipped(sql, 0, nested=nested)
    word = _WORD.match(sql, first)
    assert word is not None
    following = _WORD.match(sql, _skipped(sql, word.end(), nested=nested))
    assert following is not None
    return word.group().upper(), following.group().upper()


def is_blank(sql: str, *, nested: bool) -> bool:
    """Whether the text has no statement to run."""
    return _skipped(sql, 0, nested=nested) == len(sql)


def check(sql: object, *, nested: bool) -> str:
    """Returns the statement. Raises InvalidInput where there is none, or it would end, split or begin a transaction."""
    if not isinstance(sql, str) or is_blank(sql, nested=nested):
        raise InvalidInput(f"Not a statement: {shown(sql)}", hint="Give the text of one SQL statement.")
    word, following = head(sql, nested=nested)
    if word in _CONTROL or (word, following) == ("PREPARE", "TRANSACTION"):
        raise InvalidInput(f"{word} cannot be run here: the transaction is the run's own", hint=NOT_ITS_OWN)
    return sql


def select_hint(message: str) -> str | None:
    """Returns a hint where a SELECT was refused because of a table that does not exist; None for other reasons."""
    if not _NO_TABLE.search(message):
        return None
    if "cb_task_handlers" in message:
        return (
            "cb_task_handlers stands only in INSERT INTO cb_schedules … SELECT … FROM cb_task_handlers."
            " SELECT details FROM sys.nodes shows the handlers of each node."
        )
    return "docs/catalog.md lists the tables and views of sys."


def for_administrators(table: str) -> AccessDenied:
    """The error for a SELECT of a viewer on a table for administrators."""
    return AccessDenied(
        f"sys.{table} is for administrators: VIEW JOB HISTORY shows jobs and their runs",
        hint="Ask an administrator, or read sys.jobs, sys.job_runs and the tables beside them.",
        details={"action": f"read sys.{table}"},
    )


def several() -> InvalidInput:
    return InvalidInput("More than one statement at once", hint="Execute them one after the other.")


def check_select(sql: object, *, nested: bool) -> str:
    """Returns the statement. Raises InvalidInput unless its first word says that it reads."""
    if not isinstance(sql, str) or head(sql, nested=nested)[0] not in _READS:
        raise not_a_select()
    return sql


def not_a_select() -> InvalidInput:
    return InvalidInput("Not one SELECT", hint="Give one statement that begins with SELECT, WITH or VALUES.")


def too_slow(seconds: float) -> InvalidInput:
    return InvalidInput(f"The SELECT took longer than {seconds:g} s", hint="Ask for less, or allow it more time.")


def _skipped(sql: str, at: int, *, nested: bool) -> int:
    """Returns where the next word or sign begins."""
    while True:
        space = _SPACE.match(sql, at)
        assert space is not None
        at = space.end()
        if not sql.startswith("/*", at):
            return at
        at = after_comment(sql, at + 2, nested=nested)


def after_comment(sql: str, at: int, *, nested: bool) -> int:
    """Returns where the comment ends whose content begins at `at`."""
    if not nested:
        closes = sql.find("*/", at)
        return len(sql) if closes < 0 else closes + 2
    depth = 1
    # One pass over the text, whatever it says: this runs on the event loop, and users write the text.
    for sign in _COMMENT_SIGN.finditer(sql, at):
        depth += 1 if sign[0] == "/*" else -1
        if not depth:
            return sign.end()
    return len(sql)
