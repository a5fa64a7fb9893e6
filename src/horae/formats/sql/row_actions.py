"""Parser actions for INSERT, UPDATE and DELETE on `cb_schedules`, the only table that takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from horae.errors import shown
from horae.formats.sql.parser_engine import Action, Keyword
from horae.formats.sql.statements import (
    DEFAULT,
    NOW,
    TASK_NAME,
    Cell,
    Condition,
    DeleteSchedules,
    InsertSchedules,
    UpdateSchedules,
)
from horae.formats.sql.tokens import SourceSpan

_NEW = ("name", "kind", "cron_spec", "next_run_at", "enabled")
_CHANGED = ("enabled", "next_run_at", "cron_spec")
_FOUND_BY = ("name", "id", "kind", "enabled")
_KEPT = ("id", "last_run_at", "last_enqueued_at", "created_at", "updated_at")
_FIND = "Write WHERE name = '…', name IN ('…', '…') or id = 7; kind and enabled may be asked for too, joined with AND."


def _table(items: list[Any], mark: SourceSpan) -> None:
    if items[0].lower() not in ("cb_schedules", "sys.cb_schedules"):
        raise mark.fault(
            f"{shown(items[0])} is not changed row by row here: only sys.cb_schedules is",
            hint="CREATE, ALTER and DROP JOB change jobs; tables of your own are changed by a client of your own.",
        )


def _handler_table(items: list[Any], mark: SourceSpan) -> None:
    if items[0].lower() not in ("cb_task_handlers", "sys.cb_task_handlers"):
        raise mark.fault(
            f"rows are not taken from {shown(items[0])} here",
            hint="Write VALUES (…), or SELECT … FROM cb_task_handlers: the handlers that live nodes have.",
        )


def _column(allowed: tuple[str, ...], verb: str, hint: str) -> Action:
    def action(items: list[Any], mark: SourceSpan) -> tuple[str, SourceSpan]:
        name = items[0].lower()
        if name in allowed:
            return name, mark
        if name in (*_KEPT, *_NEW):
            raise mark.fault(f"{name} of cb_schedules is not {verb}", hint=hint)
        raise mark.fault(f"cb_schedules has no column {shown(items[0])}", hint=hint)

    return action


def _handler_column(items: list[Any], mark: SourceSpan) -> Cell:
    if items[0].lower() != "task_name":
        raise mark.fault(f"cb_task_handlers has no column {shown(items[0])}", hint="Its one column is task_name.")
    return Cell(TASK_NAME, at=mark)


def _cell(items: list[Any], mark: SourceSpan) -> Cell:
    if type(items[0]) is Keyword:
        return Cell(DEFAULT if items[0] == "DEFAULT" else NOW, at=mark)
    return Cell(items[0], at=mark)


def _row(items: list[Any], mark: SourceSpan) -> tuple[tuple[Cell, ...], SourceSpan]:
    return tuple(items), mark


def _handler_rows(items: list[Any], mark: SourceSpan) -> tuple[tuple[Cell, ...], SourceSpan, tuple[str, ...] | None]:
    """Returns the cells of the row for each handler, their place, and the names in WHERE (None: all handlers)."""
    end = next(at for at, item in enumerate(items) if type(item) is Keyword and item == "FROM")
    cells = tuple(item for item in items[:end] if isinstance(item, Cell))
    names = tuple(item for item in items[end:] if type(item) is str)
    return cells, mark, names or None


def _insert(items: list[Any], mark: SourceSpan) -> InsertSchedules:
    end = next(at for at, item in enumerate(items) if isinstance(item, tuple) and isinstance(item[0], tuple))
    columns = _apart(item for item in items[:end] if isinstance(item, tuple))
    found = [item for item in items[end:] if isinstance(item, tuple) and isinstance(item[0], tuple)]
    for cells, at, *_ in found:
        if len(cells) != len(columns):
            raise at.fault(
                f"{len(cells)} value{'' if len(cells) == 1 else 's'} for {len(columns)} columns",
                hint=f"The columns are {', '.join(columns)}.",
            )
    for column in ("name", "cron_spec"):
        if column not in columns:
            raise mark.fault(f"a schedule needs a {column}", hint=f"Name {column} among the columns.")
    rows = tuple(each[0] for each in found)
    if len(found[0]) == 2:
        return InsertSchedules(columns, rows, at=mark)
    return InsertSchedules(columns, rows, from_handlers=True, handlers=found[0][2], at=mark)


def _change(items: list[Any], mark: SourceSpan) -> tuple[str, SourceSpan, Cell]:
    (column, at), cell = items
    return column, at, cell


def _update(items: list[Any], mark: SourceSpan) -> UpdateSchedules:
    changes = [item for item in items if isinstance(item, tuple)]
    _apart((column, at) for column, at, _ in changes)
    return UpdateSchedules(tuple((column, cell) for column, _, cell in changes), _conditions(items), at=mark)


def _delete(items: list[Any], mark: SourceSpan) -> DeleteSchedules:
    where = _conditions(items)
    if not where:
        raise mark.fault("a DELETE without WHERE would drop every job", hint=f"Name them. {_FIND}")
    return DeleteSchedules(where, at=mark)


def _condition(items: list[Any], mark: SourceSpan) -> Condition:
    (column, _), *rest = items
    values = tuple(item for item in rest if type(item) is not Keyword)
    wanted: type = {"id": int, "enabled": object}.get(column, str)
    for value in values:
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            kind = "a whole number" if wanted is int else "a text in 'quotes'"
            raise mark.fault(f"{column} is {kind}, not {shown(value)}", hint=_FIND)
    return Condition(column, values, at=mark)


def _conditions(items: list[Any]) -> tuple[Condition, ...]:
    return tuple(item for item in items if isinstance(item, Condition))


def _apart(columns: Iterable[tuple[str, SourceSpan]]) -> tuple[str, ...]:
    seen: list[str] = []
    for name, at in columns:
        if name in seen:
            raise at.fault(f"{name} stands here twice", hint="Leave one of them out.")
        seen.append(name)
    return tuple(seen)


ACTIONS: dict[str, Action] = {
    "row_table": _table,
    "handler_table": _handler_table,
    "handler_column": _handler_column,
    "handler_rows": _handler_rows,
    "new_column": _column(_NEW, "set by INSERT", f"INSERT takes {', '.join(_NEW)}; Horae keeps the others."),
    "changed_column": _column(
        _CHANGED, "set by UPDATE", f"UPDATE takes {', '.join(_CHANGED)}; Horae keeps the others."
    ),
    "row_column": _column(_FOUND_BY, "asked for in WHERE", _FIND),
    "key_column": _column(("name",), "its key", "Rows have one key: ON CONFLICT (name) DO NOTHING."),
    "cell": _cell,
    "row": _row,
    "change": _change,
    "condition": _condition,
    "insert_schedules": _insert,
    "update_schedules": _update,
    "delete_schedules": _delete,
}
