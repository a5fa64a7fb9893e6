"""What a statement came to, for programs and for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Result(list[tuple[Any, ...]]):
    """What a statement came to: its rows, the names of their columns, and a sentence for people.

    `rowcount` is how many rows it concerned, -1 where that means nothing. `cut`: there were more rows than were read.
    `statement` is its first words. Of several statements the last is answered, and `results` has one for each.
    """

    def __init__(
        self,
        statement: str,
        message: str = "",
        rows: Sequence[tuple[Any, ...]] = (),
        columns: tuple[str, ...] = (),
        *,
        rowcount: int = -1,
        cut: bool = False,
    ) -> None:
        super().__init__(rows)
        self.statement = statement
        self.message = message or statement
        self.columns = columns
        self.rowcount = rowcount
        self.cut = cut
        self.results: tuple[Result, ...] = (self,)

    def to_dict(self) -> dict[str, Any]:
        """The form that `--json` prints."""
        data: dict[str, Any] = {"statement": self.statement, "message": self.message}
        if self.rowcount >= 0:
            data["rowcount"] = self.rowcount
        if self.columns:
            data |= {"columns": list(self.columns), "rows": [[_plain(value) for value in row] for row in self]}
            data |= {"cut": True} if self.cut else {}
        return data


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.hex() if isinstance(value, bytes | memoryview) else str(value)
