"""A named connection to a SQLite file: SQL jobs that are not on the catalog's own database.

Each text has a process of its own, which ends with it. A statement may be stuck in one step, take memory, or set what
holds for a whole process: none of that may reach the node.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from horae.errors import StatementFailed, StoreUnavailable, shown
from horae.store.records import Rows
from horae.store.sqlite.apart import MOST_OF_ONE, MOST_TEXTS, Apart
from horae.store.turns import Turns
from horae.store.vault import Identity

PATIENCE = 10.0
"""Seconds that it waits for somebody else who writes."""


class SqliteTarget:
    """One file, by its path."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path
        self._turns = Turns(MOST_TEXTS, MOST_OF_ONE)

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        async with self._turns.taken(identity.name):
            self._check()
            apart = Apart(self._path, PATIENCE)
            apart.open()
            try:
                async with apart.lent(identity.name) as process:
                    told = (sql, dict(identity.variables), most, PATIENCE)
                    rows: Rows = await apart.within(process, process.call, "elsewhere", *told)
                    return rows
            except (apsw.Error, MemoryError) as error:
                said = str(error) or "there was not memory enough"
                raise StatementFailed(f"On the connection {shown(self._name)}: {said}") from error
            except StoreUnavailable as error:
                # Its own process, and no store of ours.
                raise StatementFailed(
                    f"On the connection {shown(self._name)}: {error.message}", hint=error.hint
                ) from None
            finally:
                apart.close()

    def _check(self) -> None:
        if not Path(self._path).is_file():
            raise StatementFailed(
                f"The connection {shown(self._name)} names a file that is not there: {shown(self._path)}",
                hint="Create it, or mend its url in the configuration.",
            )
