"""What SQL text may do on SQLite, as it is compiled: by the grants of whoever it runs as, or only to read the catalog.

SQLite has no users. What it has is an authorizer, asked for every table, column and function that a statement touches,
also inside views and triggers, which reach no further here than whoever uses them. Whatever is not known is denied.

It is not asked for columns that NATURAL JOIN and USING compare, which is enough to find out what is in them. So the
compiled program is looked at too (EXPLAIN): every table it opens for reading must be one that may be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import apsw

from horae.core.access import Grant, Privilege, granting
from horae.core.sight import FROM_VIEWERS, HIDDEN, HIDDEN_COLUMNS
from horae.errors import HoraeError, InvalidInput, StatementFailed
from horae.store.foreign import NOT_SHOWN, for_administrators
from horae.store.migrating import schema_text
from horae.store.sqlite import foreign
from horae.store.sqlite.failures import translated
from horae.store.vault import Identity

_PARTS = frozenset({"json_each", "json_tree"})
"""Tables that are functions, and only look at what they are given."""
_LOOKS = frozenset({"table_info", "table_xinfo"})
"""Pragmas that only say what columns there are."""
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
"""Their second part is the table, and so is ALTER TABLE's; of the others it is the first."""
_JOINED = re.compile(r"(?i)natural|using")
"""Anywhere in a statement, be it in a text: then it is only looked at more closely."""
_APART = re.compile(
    r"""'(?:[^']++|'')*+'|"(?:[^"]++|"")*+"|`(?:[^`]++|``)*+`|\[[^\]]*+\]|--[^\n]*+|/\*.*?(?:\*/|\Z)|\ufeff""",
    re.DOTALL,
)
"""What of a text is no word of its own: strings, names in quotes, comments, and a sign that SQLite takes for space."""
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
"""The triggers through which people change schedules, and what they write."""


@cache
def catalog_names() -> frozenset[str]:
    """The catalog's own tables and views."""
    text = schema_text("sqlite")
    # The sum of all migrations: what one of them made for itself is gone.
    passing = set(re.findall(r"(?m)^CREATE TABLE sys\.(\w+) AS ", text))
    return frozenset(re.findall(r"(?m)^CREATE (?:TABLE|VIEW) sys\.(\w+)", text)) - passing


class Authorizer:
    """Answers for one statement at a time; `refusal` is the first thing that was denied, in words."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.refusal: HoraeError | None = None
        self.word = ""
        """The statement's first."""
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
        """Looks at a statement before it runs; raises what it may not read. `word` is its first."""
        self.word = word
        self._written.clear()
        if word == "EXPLAIN" or not self.is_bound:
            return
        program: list[Any] = connection.execute(f"EXPLAIN {statement}", can_cache=False).fetchall()
        is_joined = _JOINED.search(statement) is not None
        # What a statement writes it may look at for that. Numbers that count up are looked up in a table of SQLite's.
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
        """Whether there are tables that may not be read."""
        return True

    def check_joined(self, statement: str) -> None:
        """Raises where a join could compare a column that may not be read, of a table that may."""

    def check_replaced(self, statement: str, written: frozenset[str]) -> None:
        """Raises where rows could be deleted that may not be. `written` are all tables that the statement writes."""

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
        """Why a statement may not do that; None where it may. Names are in small letters."""
        raise NotImplementedError

    def _is_made(self, name: str, database: str | None) -> bool:
        """Whether it is what the statement made itself, by WITH. What is only counted comes without a database."""
        return database is None and name not in self._there and not name.startswith("sqlite_")

    def _deny(self, refusal: HoraeError) -> int:
        self.refusal = self.refusal or refusal
        return apsw.SQLITE_DENY


class TextGuard(Authorizer):
    """For a job's text: a user's or a role's does what was granted, an administrator's all but write the catalog."""

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
        """To replace a row is to delete it, which the authorizer is not asked about. What a statement says of conflicts
        holds in the triggers that it sets off too, so the right is needed on all that is written."""
        if not written & self._replacing and not _says_replace(statement):
            return
        for table in sorted(written):
            denial = self._missing(Privilege.DELETE, "REPLACE rows, which deletes them, in", table, "sys")
            if denial is not None:
                raise denial

    def denial(
        self, operation: int, first: str, second: str, database: str | None, inside: str | None
    ) -> HoraeError | None:
        if operation in foreign.REFUSED:
            return foreign.refusal(*foreign.REFUSED[operation])
        if operation in foreign.CREATES and database != "sys":
            return foreign.astray(foreign.CREATES[operation], temporary=database == "temp")
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
        """A right that a user or a role has not been granted."""
        message = f"{self._who.name} may not {words} {database or 'sys'}.{table}"
        if table in catalog_names() or table.startswith("sqlite_") or database not in ("sys", None):
            return StatementFailed(
                f"{message}: it is not a table of users", hint="The catalog is read by SELECT statements of their own."
            )
        if (privilege, table) in self._granted:
            return None
        return StatementFailed(message, hint=granting(Grant(privilege, table), self._who.name))

    def _untouchable(self, words: str, table: str, inside: str | None) -> HoraeError | None:
        """What nobody's text writes: the catalog, but for the view through which people change schedules."""
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
    """For a SELECT: it reads the catalog but for what is hidden, for a viewer also what is administrators' alone, and
    does nothing else."""

    def __init__(self, connection: apsw.Connection, *, viewer: bool = False) -> None:
        super().__init__(connection)
        self._withheld = FROM_VIEWERS if viewer else frozenset[str]()

    def check_joined(self, statement: str) -> None:
        """A column has to be named somewhere to be joined by."""
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
        if first in HIDDEN:
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
    """What job_uuid(), job_run_uuid(), job_name() and current_setting(…) answer, which they do while a text runs."""

    NAMES = ("job_uuid", "job_run_uuid", "job_name")

    def __init__(self) -> None:
        self.values: Mapping[str, str] | None = None

    def register(self, connection: apsw.Connection) -> None:
        """Once for a connection: a function that comes and goes would have every statement compiled anew. None of them
        can be used in a view or a trigger, where whoever comes next would find them gone."""
        for name in self.NAMES:
            connection.create_scalar_function(name, partial(self._value, name), 0, flags=apsw.SQLITE_DIRECTONLY)
        for count in (1, 2):
            connection.create_scalar_function("current_setting", self._setting, count, flags=apsw.SQLITE_DIRECTONLY)

    def _value(self, name: str) -> str | None:
        if self.values is None:
            raise apsw.SQLError(f"no such function: {name}")
        return self.values.get(name)

    def _setting(self, *given: apsw.SQLiteValue) -> str | None:
        name, missing_ok = given[0], given[1:] and given[1]
        found = (self.values or {}).get(str(name).lower().removeprefix("horae."))
        if found is None and not missing_ok:
            raise apsw.SQLError(f'unrecognized configuration parameter "{name}"')
        return found


def _says_replace(text: str) -> bool:
    return _REPLACES.search(_APART.sub(" ", text)) is not None


def _replacing(connection: apsw.Connection) -> frozenset[str]:
    """Tables that replace rows by what they say of conflicts themselves, or in a trigger."""
    with translated("the texts of tables"):
        rows = connection.execute("SELECT lower(tbl_name), sql FROM sys.sqlite_schema WHERE sql LIKE '%replace%'")
        return frozenset(str(table) for table, text in rows.fetchall() if _says_replace(str(text)))


def _bare(table: str) -> str:
    """A table's name without its schema and quotes, in small letters: SQLite takes them in any case."""
    name = table.strip().lower()
    return re.sub(r'^"?sys"?\.', "", name).strip('"')
