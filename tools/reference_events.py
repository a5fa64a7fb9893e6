"""docs/events.md: every event of the stream, with its fields."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

from horae.events import EVENTS
from tools.writing import cell, code, page, table

_INTRO = """
What an engine tells as it happens; [observability.md](observability.md) says how to listen. Named tuples in
`horae.events`. Times that end in `_ms` are milliseconds since 1970, `seconds` are lengths, `run_id` is the `occ_…` that
every surface shows. Two events of different classes with the same values compare equal: ask for the class first.
"""
_LATER = """
`strategy` of `RunStarted` is the job's recovery policy. A run that is parked and goes on later, or is taken over, has a
`RunStarted` for each stretch; `fence` is 1 only in the very first.
"""
_OF = {"run_id": "Of runs", "job": "Of jobs"}


def events_page() -> str:
    groups: dict[str, list[list[str]]] = {title: [] for title in (*_OF.values(), "Of a node and its catalog")}
    for kind in EVENTS:
        title = next((title for field, title in _OF.items() if field in kind._fields), "Of a node and its catalog")
        groups[title].append([code(kind.__name__), _when(kind), code(", ".join(_fields(kind)))])
    parts = [
        part for title, rows in groups.items() for part in (f"## {title}", table(["event", "when", "fields"], rows))
    ]
    return page("Events", _INTRO, *parts, _LATER)


def _when(kind: type) -> str:
    said = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
    return cell(said.removeprefix("Emitted ").removesuffix("."))


def _fields(kind: Any) -> list[str]:
    hints = get_type_hints(kind)
    return [f"{name}: {_named(hints[name])}" for name in kind._fields]


def _named(hint: Any) -> str:
    parts = get_args(hint)
    if parts:
        return " or ".join("None" if part is type(None) else part.__name__ for part in parts)
    return str(hint.__name__)
