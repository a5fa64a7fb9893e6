"""What a node must have to run a task: the words that runs wait by, and that nodes say they have.

A Python task needs its callable, by name. Other work needs other things, whose words end in a space, which no name that
a user gives may: nobody can register or ask for them by accident. SQL, and procedures of the catalog's own database,
need nothing: every node has the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from horae.errors import shown

if TYPE_CHECKING:
    from horae.core.job import TaskSpec

MOST_REPORTED = 1000
"""Needs that a node reports at most: of more, what it has is not known."""
EXTERNAL = "external "
"""A node where programs may be started."""
UNREADABLE = "unreadable "
"""What stands for the work of a definition that cannot be read; no node has it."""


def procedure_need(name: str) -> str:
    """A node with a registered Python procedure of that name."""
    return f"procedure {name} "


def connection_need(name: str) -> str:
    """A node whose configuration has a connection of that name."""
    return f"connection {name} "


def is_callable(need: str) -> bool:
    """Whether it is the name of a Python callable, and no other work's word."""
    return not need.endswith(" ")


def reported(details: Mapping[str, Any]) -> frozenset[str] | None:
    """What a node says that it has; None where it has not said all of it."""
    found = details.get("handlers")
    return None if found is None or len(found) >= MOST_REPORTED else frozenset(found)


def handlers_of(live: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """What live nodes have together; None where none lives or one has not said all of it, so that nothing is missing
    for certain."""
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
    """Whether a module is one of those `allowed`, or lies under one of them."""
    return any(module == each or module.startswith(f"{each}.") for each in allowed)


def may_import(need: str, allowed: Iterable[str]) -> bool:
    """Whether a node that may import these modules can look for what is needed: a callable by its path."""
    module = need.partition(":")[0] if ":" in need else need.rpartition(".")[0]
    return is_callable(need) and bool(module) and is_under(module, allowed)


def told(need: str) -> tuple[str, str]:
    """A need in words that go on after "No live node", and what to do about it."""
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
