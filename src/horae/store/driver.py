"""The protocol of a database driver: transactions that run named statements. The verbs are written once, on top of it.

Statements live in `.sql` files as named blocks, one set of files per dialect, with the same names in both:

    -- name: lock_due_jobs
    SELECT … WHERE wake_at <= :now …;

    -- name: insert_tasks(run_no, position, state)
    INSERT …;

A block with a parameter list takes many rows at once, given as tuples in that order. SQLite runs it once per row.
PostgreSQL runs it once, with an array per parameter: there the list also gives types, and `:rows` stands for the rows.
Parameters are written `:name` in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from horae.errors import StoreError
from horae.store.records import Rows

if TYPE_CHECKING:
    from horae.store.protocols.people import Identity

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any] | None
"""The parameters of a foreign statement, in its driver's own style."""
Clock = Callable[[], datetime]

_HEADER = re.compile(r"^-- name: (\w+)(?:\(([^)]*)\))?[ \t]*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named block. `columns` is None where the block is run once, else the order of a row's values."""

    name: str
    text: str
    columns: tuple[str, ...] | None
    types: tuple[str, ...] = ()

    def with_parameters(self, write: Callable[[str], str]) -> str:
        """Returns the text with every `:name` replaced by the driver's placeholder."""
        return _PARAMETER.sub(lambda found: write(found.group(1)), self.text)


@cache
def statements(dialect: str, folder_name: str = "queries") -> dict[str, Statement]:
    """Returns every named block of one dialect, by name. Those in the folder `alone` are whole transactions."""
    found: dict[str, Statement] = {}
    folder = files("horae.store") / dialect / folder_name
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        text = file.read_text(encoding="utf-8")
        headers = list(_HEADER.finditer(text))
        for header, following in zip(headers, [*headers[1:], None], strict=True):
            end = len(text) if following is None else following.start()
            body = _without_comments(text[header.end() : end])
            columns = header.group(2)
            if header.group(1) in found:
                raise ValueError(f"{dialect}: two statements called {header.group(1)}")
            if columns is None:
                found[header.group(1)] = Statement(header.group(1), body, None)
                continue
            parts = [part.split() for part in columns.split(",")]
            names, types = tuple(part[0] for part in parts), tuple(part[-1] for part in parts)
            found[header.group(1)] = Statement(header.group(1), body, names, types)
    return found


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip().rstrip(";")


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A change of users or roles, for a database that has roles of its own. Names are the catalog's.

    create_user, create_role           `name`, whose row exists already
    drop                               the user or role `name`, whose row still exists
    add_member, remove_member          the user `name` and the role `other`
    grant_table, revoke_table          `privilege` on `table`, to or from the user or role `name`
    """

    kind: str
    name: str
    other: str = ""
    privilege: str = ""
    table: str = ""


class Transaction(Protocol):
    """One transaction: all of it is committed when its block ends, nothing when the block raises."""

    now: int
    """The time by the store's clock, read once: milliseconds since 1970."""

    overlaps: bool
    """Whether the store can write while the caller works on. If not, `ahead` gains nothing."""

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Runs a statement once and returns its rows. A list as a parameter is an array."""

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        """Runs a statement for many rows, in order. Returns how many rows it touched. On SQLite, rows that triggers
        touch are counted too."""

    async def batch(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> list[int]:
        """Runs several statements for many rows each, in order. Returns their counts. One round trip where possible."""

    async def trip(
        self,
        first: str,
        writes: Sequence[tuple[str, Sequence[Row]]],
        then: str,
        meanwhile: Callable[[], None],
        /,
        **parameters: Any,
    ) -> tuple[list[int], list[Row]]:
        """Runs `first`, whose rows are dropped, then `writes`, then `then`, in one round trip where possible.

        Returns the counts of the writes and the rows of `then`. Calls `meanwhile` once, while the store works where
        that is possible.
        """

    async def ahead(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        """Lets the store begin to write while the caller works on. Errors of these writes are raised later."""

    def last(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        """Adds the transaction's last writes, which are sent with the commit. Nothing may be run after them."""

    async def provision(self, change: RoleChange, /) -> str | None:
        """Applies `change` to the database's own roles in this transaction, and returns the database's name for `name`.
        None where the database has no roles, and for `local`, which is Horae's own login.

        Raises InvalidInput for a table that does not exist or must not be granted, Conflict for a role of that name
        which Horae did not create, InUse for a role that owns something, StoreRefused where Horae's login lacks the
        right.
        """

    def wake(self) -> None:
        """Makes `changed` fire, here and in other processes, once this transaction is committed."""


class JoinedTransaction(Transaction, Protocol):
    """A transaction in which a task's own statements run before the catalog's."""

    @property
    def spoiled(self) -> bool:
        """Whether a statement that failed has undone everything, or prevents the commit."""

    async def foreign(self, sql: str, parameters: Parameters = None, /) -> Rows:
        """Runs one statement that is not the catalog's. The database's errors are raised as they are."""

    async def run_text(self, sql: str, identity: Identity, most: int, /) -> Rows:
        """Runs a SQL job's text as `identity`; see `store.protocols.store.Joined.run_text`. A failure spoils the
        transaction."""

    async def conclude(self) -> None:
        """Ends the part of foreign statements: checks what they deferred to the commit, resets what they set, and reads
        `now` again."""


class Migrator(Protocol):
    """One transaction that may change the schema, alone among all processes."""

    place: str
    clock: int | None
    """The store's own clock; None where one was injected."""

    async def kind(self) -> str:
        """Returns `empty`, `catalog` or `foreign`: what is in the catalog's place."""

    async def applied(self) -> list[tuple[int, str, int]]:
        """Returns the number, digest and min_reader of each migration applied."""

    async def latest_time(self) -> int | None:
        """Returns the latest time that the catalog shows it was written at, in milliseconds."""

    async def run(self, text: str) -> None: ...

    async def record(self, number: int, name: str, digest: str, min_reader: int) -> None: ...


class KeyTaken(StoreError):
    """A row with that key is there already. Internal: verbs turn it into what it means."""

    code = "key_taken"
    number = 1411


class Driver(Protocol):
    """A database that holds a catalog."""

    dialect: str
    lock_grace: float
    """Seconds for which a liveness lock must be seen free before its holder counts as gone."""
    write_limit: float | None
    """Seconds for which another owner's text may write, where that is its only limit; None where it is not."""
    transaction_limit: float
    """Seconds for which a task may keep its own transaction open, by default."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def transaction(self, *, write: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """Opens a transaction; with `write=False`, a consistent snapshot to read from."""

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """Opens a read of one statement, or of several that need not see the same moment: a row that the first returned
        may be gone when the second runs. `now` may go on from a clock reading of up to a second ago."""

    def looking(self) -> AbstractAsyncContextManager[Transaction]:
        """As `reading`, for reads of any length: they do not hold up the engine's work on the catalog."""

    def joined(self, limit: float, owner: str | None = None) -> AbstractAsyncContextManager[JoinedTransaction]:
        """Opens a transaction that also takes foreign statements. It takes no connection that other callers need.

        Where a statement would hold up the caller's whole thread, it is stopped after `limit` seconds.
        """

    async def end_strays(self) -> None:
        """Ends joined transactions that last longer than they may, because their nodes died."""

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """Runs a statement that is a whole transaction, in one round trip. None where this driver has no such
        statement."""

    async def select(
        self,
        sql: str,
        most: int,
        seconds: float,
        own: bool = False,  # noqa: FBT001, FBT002
        viewer: bool = False,  # noqa: FBT001, FBT002
        /,
    ) -> Rows:
        """Runs one SELECT that can neither write nor read hidden tables and columns. See `Vault.select`, also for `own`
        and `viewer`."""

    def migration(self, *, write: bool = True) -> AbstractAsyncContextManager[Migrator]:
        """Opens a transaction for the schema. With `write=False` it waits only for migrations that write."""

    async def clock_reading(self) -> int:
        """Returns the clock as it stands, in milliseconds, even where it was set back to before what this process has
        seen."""

    async def changed(self, seen: int, timeout: float | None) -> int: ...

    async def take_lock(self, node: UUID) -> bool:
        """Takes the liveness lock of an incarnation for as long as this process lives. False where another has it."""

    async def free_lock(self, node: UUID, *, left: bool = True) -> None:
        """Releases a liveness lock. An incarnation that has not `left` is then known to be gone."""

    def keep_locks(self) -> None:
        """Checks whether the locks that were taken are still held, and takes those again that are not. Does not wait.
        It is called with each heartbeat."""

    def leave_lock(self, node: UUID) -> None:
        """Leaves a lock that was taken to end with this process or its connections: `close` does not release it."""

    async def free_locks(self, nodes: Sequence[str]) -> set[str]:
        """Returns those of the incarnations whose liveness lock is known to be free."""
