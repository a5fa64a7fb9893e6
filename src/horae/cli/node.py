"""`horae node`: the processes that run jobs."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.opening import Catalog, opened, plain
from horae.cli.rows import counted, show_rows
from horae.cli.watch import watched

if TYPE_CHECKING:
    from horae.cli.screen import Screen

_COLUMNS = ("node", "state", "running", "slots", "since", "heartbeat", "host", "process", "version")


def run(arguments: Namespace, screen: Screen) -> int:
    with opened(arguments) as catalog:
        return watched(arguments, screen, catalog, lambda drawn: _list(drawn, catalog))


def _list(screen: Screen, catalog: Catalog) -> None:
    found = catalog.call("nodes")
    screen.data(plain(found))
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
        # What no node says is left out.
        shown = [index for index in range(len(_COLUMNS)) if any(row[index] is not None for row in rows)]
        show_rows(screen, [_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in rows])
    alive = sum(each.state == "ALIVE" for each in found.nodes)
    screen.line(screen.style(f"({counted(len(found.nodes), 'node')}, {alive} alive)", "dim"))
