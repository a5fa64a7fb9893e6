"""What a node must have to run a task: texts that runs wait for and nodes report.

A Python task needs its callable, by name. Other tasks need other things, whose texts end in a space. Names that users
give cannot end in a space, so that no user registers or requests one by accident. SQL in the catalog's own database
and its procedures need nothing, because every node has the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from horae.errors import shown

if TYPE_CHECKING:
    from horae.core.job.definition import TaskSpec

MOST_REPORTED = 1000
"""The most needs that a node reports. A node that reports as many may have more, so its needs count as unknown."""
EXTERNAL = "external "
"""The need of EXTERNAL tasks: a node that may start programs."""
UNREADABLE = "unreadable "
"""The need of a task whose definition cannot be read. No node has it."""


def procedure_need(name: str) -> str:
    """The need of a node with a registered Python procedure of that name."""
    return f"procedure {name} "


def connection_need(name: str) -> str:
    """The need of a node whose configuration has a connection of that name."""
    return f"connection {name} "


def is_callable(need: str) -> bool:
    """Whether `need` is the name of a Python callable."""
    return not need.endswith(" ")


def reported_needs(details: Mapping[str, Any]) -> frozenset[str] | None:
    """The needs that a node reports it meets. None where it reported none or may have left some out."""
    found = details.get("handlers")
    return None if found is None or len(found) >= MOST_REPORTED else frozenset(found)


def handlers_of(live: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """The needs that live nodes meet together.

    None where no node is live or the report of one is incomplete: no need is then certain to be unmet.
    """
    if not live or None in live:
        return None
    return frozenset[str]().union(*(each for each in live if each is not None))


def needs(task: TaskSpec) -> frozenset[str]:
    connection = task.options.get("connection")
    if connection is not None:
        return frozenset({connection_need(connection)})
    if task.kind == "PYTHON":
        return frozenset({task.handler or task.name})
    if task.kind == "EXTERNAL":
        return frozenset({EXTERNAL})
    if task.kind == "PROCEDURE" and not task.options.get("database"):
        return frozenset({procedure_need(task.handler)})
    return frozenset()


def is_under(module: str, allowed: Iterable[str]) -> bool:
    """Whether `module` is one of `allowed` or a submodule of one."""
    return any(module == each or module.startswith(f"{each}.") for each in allowed)


def may_import(need: str, allowed: Iterable[str]) -> bool:
    """Whether `need` is a callable by its path that a node may import, where it may import the modules `allowed`."""
    module = need.partition(":")[0] if ":" in need else need.rpartition(".")[0]
    return is_callable(need) and bool(module) and is_under(module, allowed)


def need_text(need: str) -> tuple[str, str]:
    """The need as the rest of a sentence after "No live node", and a hint what to do about it."""
    kind, _, name = need.rstrip(" ").partition(" ")
    if is_callable(need):
        hint = "Deploy the code that has it, or drop the job."
        if ":" in need or "." in need:
            module = need.partition(":")[0] if ":" in need else need.rpartition(".")[0]
            hint = f'Deploy the code that has it, or let a node import it: modules = ["{module}"] under [scheduler].'
        return f"has the task {shown(need)}", hint
    if need == UNREADABLE:
        return "can read its definition", "horae doctor says what is wrong with it. Define the job anew, or drop it."
    if need == EXTERNAL:
        return "may start programs", "Set enabled = true under [external] in a node's configuration."
    if kind == "connection":
        return f"has the connection {shown(name)}", f"Put [connections.{name}] into a node's configuration."
    return f"has the procedure {shown(name)}", "Deploy the code that registers it by app.procedure, or drop the job."
