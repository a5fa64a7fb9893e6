"""A named connection to a SQLite file, for SQL jobs that do not run on the catalog's database.

Each text runs in a child process of its own, which ends with the text. A statement may be stuck in one step, use much
memory, or change settings of its whole process. None of that may affect the node.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from horae.errors import StatementFailed, StoreUnavailable, shown
from horae.store.protocols.people import Identity
from horae.store.records import Rows
from horae.store.sqlite.text.text_processes import MOST_OF_ONE, MOST_TEXTS, TextProcessPool
from horae.store.turns import OwnerTurns

PATIENCE = 10.0
"""Seconds that a text waits for another writer."""


class SqliteTarget:
    """Runs texts on one SQLite file."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path
        self._turns = OwnerTurns(MOST_TEXTS, MOST_OF_ONE)

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        async with self._turns.taken(identity.name):
            self._check()
            apart = TextProcessPool(self._path, PATIENCE)
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
                # The text's own process failed, not the catalog's store.
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
