"""What a database driver offers the verbs: transactions that run named statements. The verbs are written once, on this.

Statements live in `.sql` files as named blocks, one file set per dialect, with the same names in both:

    -- name: lock_due_jobs
    SELECT … WHERE wake_at <= :now …;

    -- name: insert_tasks(run_no, position, state)
    INSERT …;

A block with a parameter list takes many rows at once, given as tuples in that order: SQLite runs it once per row,
PostgreSQL once with an array per parameter, where the list also gives types and `:rows` stands for the rows. Parameters
are written `:name` in both.
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
    from horae.store.vault import Identity

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any] | None
"""What a foreign statement is given, in its driver's own style."""
Clock = Callable[[], datetime]

_HEADER = re.compile(r"^-- name: (\w+)(?:\(([^)]*)\))?[ \t]*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named block. `columns` is None where it is run once, else the order of a row's values."""

    name: str
    text: str
    columns: tuple[str, ...] | None
    types: tuple[str, ...] = ()

    def with_parameters(self, write: Callable[[str], str]) -> str:
        """The text with every `:name` replaced by what the driver calls it."""
        return _PARAMETER.sub(lambda found: write(found.group(1)), self.text)


@cache
def statements(dialect: str, folder_name: str = "queries") -> dict[str, Statement]:
    """Every named block of one dialect: in `queries`, or in `alone` those that are a transaction of their own."""
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
    """What a database that knows roles of its own is told when people change. Names are the catalog's.

    create_user, create_role           name, whose row is there already
    drop                               name, a user's or a role's, whose row is still there
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
    """Milliseconds since 1970, read once, by the store's clock."""

    overlaps: bool
    """Whether the store can write while the caller works on; else there is nothing to be had by sending ahead."""

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Runs a statement once and returns its rows. A list as a parameter is an array."""

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        """Runs a statement for many rows, in order; returns how many rows it touched. On SQLite those
        that triggers touch are counted too."""

    async def batch(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> list[int]:
        """Runs several statements for many rows each, in order, as one trip where that is possible; their counts."""

    async def trip(
        self,
        first: str,
        writes: Sequence[tuple[str, Sequence[Row]]],
        then: str,
        meanwhile: Callable[[], None],
        /,
        **parameters: Any,
    ) -> tuple[list[int], list[Row]]:
        """`first`, whose answer nobody needs; writes; `then`: one trip where possible. The writes' counts, its rows.
        `meanwhile` is called once, while the store is at it where that is possible."""

    async def ahead(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        """Lets the store begin with writes while the caller works on; what is wrong with them is raised later."""

    def last(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        """Writes that nothing follows: they go with the commit."""

    async def provision(self, change: RoleChange, /) -> str | None:
        """Does in the database's own roles what `change` says, as a part of this transaction; answers what the database
        calls `name`. None where it has no roles, and for `local`, who is Horae's own login.

        Raises InvalidInput for a table that is not there or is not to be granted, Conflict for a role of that name
        which is not ours, InUse for one that owns something, StoreRefused where Horae's login may not do that.
        """

    def wake(self) -> None:
        """Lets `changed` fire, here and elsewhere, once this transaction is committed."""


class JoinedTransaction(Transaction, Protocol):
    """A transaction in which a task's own statements run before the catalog's."""

    @property
    def spoiled(self) -> bool:
        """Whether a statement that failed has undone everything, or will not let anything be committed."""

    async def foreign(self, sql: str, parameters: Parameters = None, /) -> Rows:
        """Runs one statement that is not the catalog's; what the database says of it is raised as it is."""

    async def run_text(self, sql: str, identity: Identity, most: int, /) -> Rows:
        """Runs a SQL job's text as somebody; see `port.Joined.run_text`. What failed spoils the transaction."""

    async def conclude(self) -> None:
        """Ends the part of foreign statements: what they left for the commit is checked, what they set is set back, and
        `now` is read anew."""


class Migrator(Protocol):
    """One transaction that may change the schema, alone among all processes."""

    place: str
    clock: int | None
    """The store's own clock; None where one was injected."""

    async def kind(self) -> str:
        """`empty`, `catalog` or `foreign`: what lives where the catalog would."""

    async def applied(self) -> list[tuple[int, str, int]]:
        """Number, digest and min_reader of each migration applied."""

    async def latest_time(self) -> int | None:
        """The latest moment the catalog was written at, as far as it tells."""

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
    """How long a free liveness lock must be seen before it says that its holder is gone."""
    write_limit: float | None
    """How many seconds text of others may write, where that is all that limits it; None where it is not."""
    transaction_limit: float
    """How many seconds a task may keep its own transaction open, where nobody says otherwise."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def transaction(self, *, write: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """A transaction; with `write=False` a consistent snapshot to read from."""

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """To read what one statement tells, or several whose answers need not be of one moment: what the first named
        may be gone when the second asks for it. `now` may be a reading of up to a second ago, carried on."""

    def looking(self) -> AbstractAsyncContextManager[Transaction]:
        """As `reading`, for as long as it takes: whoever works on the catalog is not held up."""

    def joined(self, limit: float, owner: str | None = None) -> AbstractAsyncContextManager[JoinedTransaction]:
        """A transaction that also takes foreign statements, and that keeps nobody else from a connection.

        Where a statement would hold up the caller's whole thread, none runs on after `limit` seconds.
        """

    async def end_strays(self) -> None:
        """Ends what is left of joined transactions that last longer than they may: those of nodes that died."""

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """Runs a statement that is a whole transaction, in one trip; None where this driver has no such statement."""

    async def select(
        self,
        sql: str,
        most: int,
        seconds: float,
        own: bool = False,  # noqa: FBT001, FBT002
        viewer: bool = False,  # noqa: FBT001, FBT002
        /,
    ) -> Rows:
        """Runs one SELECT that can neither write nor read what is hidden; see `Vault.select`, also for `own`
        and `viewer`."""

    def migration(self, *, write: bool = True) -> AbstractAsyncContextManager[Migrator]:
        """A transaction about the schema; one that is not to `write` waits for those that do, and never for another."""

    async def clock_reading(self) -> int:
        """The clock as it stands, in milliseconds: also where it was set back to before what this process has seen."""

    async def changed(self, seen: int, timeout: float | None) -> int: ...

    async def take_lock(self, node: UUID) -> bool:
        """Takes the liveness lock of an incarnation for as long as this process lives; False where another has it."""

    async def free_lock(self, node: UUID, *, left: bool = True) -> None:
        """Gives a liveness lock back. An incarnation that has not `left` is then known to be gone."""

    def keep_locks(self) -> None:
        """Called with each heartbeat, without waiting: looks whether the locks that were taken are still held, and
        takes those again that are not."""

    def leave_lock(self, node: UUID) -> None:
        """Leaves a lock that was taken to end with this process, or with its connections: `close` does not free it."""

    async def free_locks(self, nodes: Sequence[str]) -> set[str]:
        """Those of the incarnations whose liveness lock is known to be held by nobody."""
