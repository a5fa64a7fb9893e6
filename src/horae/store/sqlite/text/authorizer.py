"""Authorizers for SQL text on SQLite: a job's text by its identity's grants, a SELECT only to read the catalog.

SQLite has no users. While it compiles a statement, it calls an authorizer for every table, column and function that the
statement uses, also inside views and triggers: those give no rights beyond the identity's own. Unknown operations are
denied.

SQLite does not call it for columns that NATURAL JOIN and USING compare, and a comparison is enough to find out a
column's values. So the compiled program is checked too (EXPLAIN): the statement must be allowed to read every table
that the program opens for reading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import apsw

from horae.core.access import Grant, Privilege, grant_sql
from horae.core.table_access import ADMINISTRATOR_TABLES, HIDDEN_COLUMNS, HIDDEN_TABLES
from horae.errors import HoraeError, InvalidInput, StatementFailed
from horae.store.foreign_statements import NOT_SHOWN, for_administrators
from horae.store.protocols.people import Identity
from horae.store.schema import schema_text
from horae.store.sqlite.failures import translated
from horae.store.sqlite.text import foreign_statements

_PARTS = frozenset({"json_each", "json_tree"})
"""Table-valued functions that only read their arguments."""
_LOOKS = frozenset({"table_info", "table_xinfo"})
"""Pragmas that only list columns."""
_OUTSIDE = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})
"""Functions that reach beyond the database."""
_PLAIN = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE})
_CHANGES = {
    apsw.SQLITE_INSERT: (Privilege.INSERT, "INSERT into"),
    apsw.SQLITE_UPDATE: (Privilege.UPDATE, "UPDATE"),
    apsw.SQLITE_DELETE: (Privilege.DELETE, "DELETE from"),
}
_ROW_WORDS = frozenset(words for _, words in _CHANGES.values())
_SCHEMA_CHANGES = {
    apsw.SQLITE_CREATE_TABLE: "CREATE TABLE",
    apsw.SQLITE_CREATE_VTABLE: "CREATE VIRTUAL TABLE",
    apsw.SQLITE_CREATE_INDEX: "CREATE INDEX",
    apsw.SQLITE_CREATE_VIEW: "CREATE VIEW",
    apsw.SQLITE_CREATE_TRIGGER: "CREATE TRIGGER",
    apsw.SQLITE_CREATE_TEMP_TABLE: "CREATE TABLE",
    apsw.SQLITE_CREATE_TEMP_INDEX: "CREATE INDEX",
    apsw.SQLITE_CREATE_TEMP_VIEW: "CREATE VIEW",
    apsw.SQLITE_CREATE_TEMP_TRIGGER: "CREATE TRIGGER",
    apsw.SQLITE_DROP_TABLE: "DROP TABLE",
    apsw.SQLITE_DROP_VTABLE: "DROP TABLE",
    apsw.SQLITE_DROP_INDEX: "DROP INDEX",
    apsw.SQLITE_DROP_VIEW: "DROP VIEW",
    apsw.SQLITE_DROP_TRIGGER: "DROP TRIGGER",
    apsw.SQLITE_ALTER_TABLE: "ALTER TABLE",
    apsw.SQLITE_REINDEX: "REINDEX",
}
_ON_A_TABLE = frozenset(
    {apsw.SQLITE_CREATE_INDEX, apsw.SQLITE_CREATE_TRIGGER, apsw.SQLITE_DROP_INDEX, apsw.SQLITE_DROP_TRIGGER}
)
"""Operations whose second argument is the table, as in ALTER TABLE. For the others the table is the first argument."""
_JOINED = re.compile(r"(?i)natural|using")
"""Matches also inside a string literal: then the statement is only checked more closely."""
_NOT_KEYWORDS = re.compile(
    r"""'(?:[^']++|'')*+'|"(?:[^"]++|"")*+"|`(?:[^`]++|``)*+`|\[[^\]]*+\]|--[^\n]*+|/\*.*?(?:\*/|\Z)|\ufeff""",
    re.DOTALL,
)
"""Parts of a text that contain no keywords: strings, quoted names, comments, and U+FEFF, which SQLite takes for a
space."""
_REPLACES = re.compile(r"(?i)\b(?:INSERT|UPDATE)\s+OR\s+REPLACE\b|\bREPLACE\s+INTO\b|\bON\s+CONFLICT\s+REPLACE\b")
_OPENS = frozenset({"OpenRead", "ReopenIdx"})
_ATTACHED = 2
"""The number of `sys` among a connection's databases, after main and temp."""
_COUNTING = "sqlite_sequence"
_DEFINES = frozenset({"CREATE", "DROP", "ALTER"})
_REQUESTS = (
    frozenset({"cb_schedules_insert", "cb_schedules_update", "cb_schedules_delete"}),
    frozenset({"schedule_requests", "audit"}),
)
"""The triggers through which users change schedules, and the tables that these triggers write."""


@cache
def catalog_names() -> frozenset[str]:
    """The names of the catalog's own tables and views."""
    text = schema_text("sqlite")
    # The text is the sum of all migrations: leave out tables that a migration created temporarily.
    passing = set(re.findall(r"(?m)^CREATE TABLE sys\.(\w+) AS ", text))
    return frozenset(re.findall(r"(?m)^CREATE (?:TABLE|VIEW) sys\.(\w+)", text)) - passing


class Authorizer:
    """Authorizes one statement at a time. `refusal` is the error for the first operation that was denied."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.refusal: HoraeError | None = None
        self.word = ""
        """The statement's first word."""
        self._written: set[str] = set()
        named = (
            "SELECT lower(name), rootpage, lower(tbl_name) FROM sys.sqlite_schema"
            " UNION ALL SELECT lower(name), 0, '' FROM pragma_module_list"
        )
        with translated("the names of tables"):
            rows = connection.execute(named).fetchall()
        self._there = {str(name) for name, _, _ in rows}
        self._tables = {root: str(table) for _, root, table in rows if root} | {1: "sqlite_master"}

    def begin(self, connection: apsw.Connection, statement: str, word: str) -> None:
        """Checks a statement before it runs; raises the error for a table that it may not read or write. `word` is the
        statement's first word."""
        self.word = word
        self._written.clear()
        if word == "EXPLAIN" or not self.is_bound:
            return
        program: list[Any] = connection.execute(f"EXPLAIN {statement}", can_cache=False).fetchall()
        is_joined = _JOINED.search(statement) is not None
        # A statement may read the tables that it writes. SQLite itself reads its table of autoincrement numbers.
        known = set() if is_joined else set(self._written)
        if _COUNTING not in statement.lower():
            known.add(_COUNTING)
        for _, opcode, _, root, database, *_ in program:
            if opcode in _OPENS:
                table = self._tables.get(root, "?") if database == _ATTACHED else "?"
                denial = None if table in known else self.denial(apsw.SQLITE_READ, table, "", "sys", None)
                if denial is not None:
                    raise denial
        if is_joined:
            self.check_joined(statement)
        self.check_replaced(statement, frozenset(self._written))

    @property
    def is_bound(self) -> bool:
        """Whether there are tables that the statement may not read."""
        return True

    def check_joined(self, statement: str) -> None:
        """Raises where a join could compare a hidden column of a readable table."""

    def check_replaced(self, statement: str, written: frozenset[str]) -> None:
        """Raises where the statement could delete rows without the right. `written` are all tables that it writes."""

    def __call__(
        self, operation: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        if operation in _PLAIN:
            return apsw.SQLITE_OK
        if operation == apsw.SQLITE_FUNCTION:
            if str(second).lower() not in _OUTSIDE:
                return apsw.SQLITE_OK
            return self._deny(InvalidInput(f"{second}() cannot be called here", hint="Leave it out."))
        name = str(first or "").lower()
        if operation == apsw.SQLITE_READ and (name in _PARTS if database == "main" else self._is_made(name, database)):
            return apsw.SQLITE_OK
        denial = self.denial(operation, name, str(second or ""), database, inside)
        if operation in _CHANGES:
            self._written.add(name)
        return apsw.SQLITE_OK if denial is None else self._deny(denial)

    def denial(
        self, operation: int, first: str, second: str, database: str | None, inside: str | None
    ) -> HoraeError | None:
        """The error for an operation that is not allowed; None where it is allowed. `first` is in lower case."""
        raise NotImplementedError

    def _is_made(self, name: str, database: str | None) -> bool:
        """Whether the name is a WITH table of the statement itself. SQLite names no database either for a real table of
        which only the rows are counted."""
        return database is None and name not in self._there and not name.startswith("sqlite_")

    def _deny(self, refusal: HoraeError) -> int:
        self.refusal = self.refusal or refusal
        return apsw.SQLITE_DENY


class TextGuard(Authorizer):
    """Authorizes a job's text. The text of a user or role may do what was granted; an administrator's text may do
    everything but write to the catalog."""

    def __init__(self, connection: apsw.Connection, identity: Identity) -> None:
        super().__init__(connection)
        self._who = identity
        named = ((each.privilege, _bare(each.name)) for each in identity.grants)
        self._granted = {(privilege, table) for privilege, table in named if table}
        self._replacing = _replacing(connection) if self.is_bound else frozenset[str]()

    @property
    def is_bound(self) -> bool:
        return not self._who.is_admin

    def check_replaced(self, statement: str, written: frozenset[str]) -> None:
        """Replacing a row deletes it, but SQLite does not call the authorizer for that. A statement's conflict clause
        also applies in the triggers that it fires, so DELETE is needed on every table that is written."""
        if not written & self._replacing and not _says_replace(statement):
            return
        for table in sorted(written):
            denial = self._missing(Privilege.DELETE, "REPLACE rows, which deletes them, in", table, "sys")
            if denial is not None:
                raise denial

    def denial(
        self, operation: int, first: str, second: str, database: str | None, inside: str | None
    ) -> HoraeError | None:
        if operation in foreign_statements.REFUSED:
            return foreign_statements.refusal(*foreign_statements.REFUSED[operation])
        if operation in foreign_statements.CREATES and database != "sys":
            return foreign_statements.outside_catalog_error(
                foreign_statements.CREATES[operation], temporary=database == "temp"
            )
        if operation == apsw.SQLITE_READ:
            return None if self._who.is_admin else self._missing(Privilege.SELECT, "SELECT from", first, database)
        if operation in _CHANGES:
            privilege, words = _CHANGES[operation]
            if self._who.is_admin:
                return self._untouchable(words, first, inside)
            return self._missing(privilege, words, first, database)
        if operation in _SCHEMA_CHANGES:
            words = _SCHEMA_CHANGES[operation]
            if self._who.is_admin:
                table = second.lower() if operation in _ON_A_TABLE or operation == apsw.SQLITE_ALTER_TABLE else first
                return self._untouchable(words, table, inside)
            return StatementFailed(
                f"{self._who.name} may not {words}", hint="Only jobs of an administrator change what tables there are."
            )
        return StatementFailed(f"{self._who.name} may not do that (operation {operation})")

    def _missing(self, privilege: Privilege, words: str, table: str, database: str | None) -> HoraeError | None:
        """The error for a privilege that the user or role does not have; None where it has it."""
        message = f"{self._who.name} may not {words} {database or 'sys'}.{table}"
        if table in catalog_names() or table.startswith("sqlite_") or database not in ("sys", None):
            return StatementFailed(
                f"{message}: it is not a table of users", hint="The catalog is read by SELECT statements of their own."
            )
        if (privilege, table) in self._granted:
            return None
        return StatementFailed(message, hint=grant_sql(Grant(privilege, table), self._who.name))

    def _untouchable(self, words: str, table: str, inside: str | None) -> HoraeError | None:
        """The error for a write to the catalog, which no text may do, except through the view `cb_schedules`, by which
        users change schedules. None for other tables."""
        if table.startswith("sqlite_"):
            is_touched = self.word not in _DEFINES
        else:
            is_requested = table == "cb_schedules" and words in _ROW_WORDS
            is_touched = table in catalog_names() and not (
                is_requested or (inside in _REQUESTS[0] and table in _REQUESTS[1])
            )
        if not is_touched:
            return None
        return StatementFailed(
            f"{self._who.name} may not {words} sys.{table}: it is the catalog's own",
            hint="Of the catalog, a job changes schedules alone: by INSERT, UPDATE and DELETE on sys.cb_schedules.",
        )


class ReadGuard(Authorizer):
    """Authorizes a SELECT, which may only read the catalog, without hidden tables and columns. A `viewer` may not read
    the tables of administrators either."""

    def __init__(self, connection: apsw.Connection, *, viewer: bool = False) -> None:
        super().__init__(connection)
        self._withheld = ADMINISTRATOR_TABLES if viewer else frozenset[str]()

    def check_joined(self, statement: str) -> None:
        """Refuses the name of a hidden column anywhere in the statement: a join must name the columns that it compares
        somewhere."""
        for table, columns in HIDDEN_COLUMNS.items():
            for column in columns:
                if column in statement.lower():
                    raise InvalidInput(f"sys.{table}.{column} cannot be read", hint=NOT_SHOWN)

    def denial(
        self, operation: int, first: str, second: str, database: str | None, inside: str | None
    ) -> HoraeError | None:
        if operation == apsw.SQLITE_PRAGMA and first in _LOOKS:
            return None
        if operation != apsw.SQLITE_READ:
            return InvalidInput("A SELECT cannot change anything", hint="Leave out what is more than reading.")
        if first.removeprefix("pragma_") in _LOOKS:
            return None
        if first in HIDDEN_TABLES:
            return InvalidInput(f"sys.{first} cannot be read", hint=NOT_SHOWN)
        if first in self._withheld:
            return for_administrators(first)
        if second.lower() in HIDDEN_COLUMNS.get(first, ()):
            return InvalidInput(f"sys.{first}.{second} cannot be read", hint=NOT_SHOWN)
        if database in ("sys", None) and (first in catalog_names() or first in ("sqlite_master", "sqlite_schema")):
            return None
        return InvalidInput(
            f"{database or 'sys'}.{first} is not the catalog's", hint="Read your own tables by a client of your own."
        )


class Variables:
    """The values of job_uuid(), job_run_uuid(), job_name() and current_setting(…). They work only while a text runs."""

    NAMES = ("job_uuid", "job_run_uuid", "job_name")

    def __init__(self) -> None:
        self.values: Mapping[str, str] | None = None

    def register(self, connection: apsw.Connection) -> None:
        """Registers the functions, once for each connection: SQLite recompiles every statement when a function is added
        or removed. They cannot be used in a view or a trigger, which would fail outside of a text."""
        for name in self.NAMES:
            connection.create_scalar_function(name, partial(self._value, name), 0, flags=apsw.SQLITE_DIRECTONLY)
        for count in (1, 2):
            connection.create_scalar_function("current_setting", self._setting, count, flags=apsw.SQLITE_DIRECTONLY)

    def _value(self, name: str) -> str | None:
        if self.values is None:
            raise apsw.SQLError(f"no such function: {name}")
        return self.values.get(name)

    def _setting(self, *given: apsw.SQLiteValue) -> str | None:
        return current_setting(self.values or {}, *given)


def current_setting(values: Mapping[str, str], *given: apsw.SQLiteValue) -> str | None:
    """The SQL function `current_setting('horae.job_name')` over a run's variables, as on PostgreSQL: a second argument
    that is true answers NULL for an unknown name, which is an error otherwise."""
    name, missing_ok = given[0], given[1:] and given[1]
    found = values.get(str(name).lower().removeprefix("horae."))
    if found is None and not missing_ok:
        raise apsw.SQLError(f'unrecognized configuration parameter "{name}"')
    return found


def _says_replace(text: str) -> bool:
    return _REPLACES.search(_NOT_KEYWORDS.sub(" ", text)) is not None


def _replacing(connection: apsw.Connection) -> frozenset[str]:
    """Tables that have a conflict clause that replaces rows, in their own definition or in a trigger."""
    with translated("the texts of tables"):
        rows = connection.execute("SELECT lower(tbl_name), sql FROM sys.sqlite_schema WHERE sql LIKE '%replace%'")
        return frozenset(str(table) for table, text in rows.fetchall() if _says_replace(str(text)))


def _bare(table: str) -> str:
    """A table's name without its schema and quotes, in lower case, because SQLite ignores case."""
    name = table.strip().lower()
    return re.sub(r'^"?sys"?\.', "", name).strip('"')
