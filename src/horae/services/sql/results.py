"""The result of a statement, for programs and for users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Result(list[tuple[Any, ...]]):
    """The rows of a statement, with the names of their columns and a sentence for users.

    `statement` is its first words. `rowcount` is the number of rows that it changed or read, -1 where that means
    nothing. `cut`: there were more rows than were read. Of several statements this is the last one's result, and
    `results` has one for each.
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
        """Returns the form that `--json` prints."""
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
