"""`horae node`: lists the nodes."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.catalog_access import CatalogAccess, json_values, open_catalog
from horae.cli.screen.rows import counted, show_rows
from horae.cli.screen.watch import draw_repeatedly

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

_COLUMNS = ("node", "state", "running", "slots", "since", "heartbeat", "host", "process", "version")


def run(arguments: Namespace, screen: Screen) -> int:
    with open_catalog(arguments) as catalog:
        return draw_repeatedly(arguments, screen, catalog, lambda drawn: _list(drawn, catalog))


def _list(screen: Screen, catalog: CatalogAccess) -> None:
    found = catalog.call("nodes")
    screen.data(json_values(found))
    if found.nodes:
        rows = [
            (
                each.name or each.node,
                each.state,
                each.running,
                each.slots,
                each.started_at,
                each.heartbeat_at,
                each.host,
                each.process,
                each.version,
            )
            for each in found.nodes
        ]
        # A column without a value in any row is left out.
        shown = [index for index in range(len(_COLUMNS)) if any(row[index] is not None for row in rows)]
        show_rows(screen, [_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in rows])
    alive = sum(each.state == "ALIVE" for each in found.nodes)
    screen.line(screen.style(f"({counted(len(found.nodes), 'node')}, {alive} alive)", "dim"))
