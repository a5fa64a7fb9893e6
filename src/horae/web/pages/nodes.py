"""The page of nodes: state, load and handlers of each."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import EmptyRequest
from horae.api.responses.catalog_responses import Node, Nodes
from horae.web.page_renderer import render
from horae.web.pictures.letters import pretty
from horae.web.pictures.moments import seconds_between
from horae.web.site import Visit

MOST_HANDLERS = 12
_ORDER = {"ALIVE": 0, "SILENT": 1, "DEAD": 2}
_TOLD = frozenset({"host", "process", "pid", "version", "slots", "handlers"})


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. `silence` is the seconds since its last heartbeat, `age` those since its start."""

    node: Node
    title: str
    silence: float | None
    age: float | None
    handlers: tuple[str, ...]
    more_handlers: int
    details: str
    is_full: bool


def shown_node(node: Node, now: str) -> NodeView:
    rest = {name: value for name, value in node.details.items() if name not in _TOLD}
    return NodeView(
        node,
        node.name or "anonymous node",
        seconds_between(node.heartbeat_at, now),
        seconds_between(node.started_at, now),
        tuple(sorted(node.handlers)[:MOST_HANDLERS]),
        max(0, len(node.handlers) - MOST_HANDLERS),
        pretty(rest, 8_000) if rest else "",
        is_full=node.slots is not None and node.running >= node.slots,
    )


def node_views(nodes: Nodes) -> list[NodeView]:
    """Returns the nodes, live ones first, then by name."""
    ordered = sorted(nodes.nodes, key=lambda each: (_ORDER.get(each.state, 1), each.name or "\uffff", each.node))
    return [shown_node(each, nodes.now) for each in ordered]


async def page(visit: Visit, request: Request) -> Response:
    found = await visit.desk.nodes(EmptyRequest())
    nodes = node_views(found)
    alive = [each for each in found.nodes if each.state == "ALIVE"]
    return render(
        "nodes.html",
        visit,
        request,
        nodes=nodes,
        gone=[each for each in nodes if each.node.state == "DEAD"],
        alive=len(alive),
        running=sum(each.running for each in found.nodes),
        slots=sum(each.slots or 0 for each in alive),
        here=visit.site.node().get("node"),
    )


PAGES = (("/nodes", "nodes", page),)
