"""The callables a node has, by the name the catalog knows them under."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from horae.core.ids import checked_name
from horae.core.job import TaskSpec
from horae.core.needs import EXTERNAL, procedure_need, told
from horae.errors import HoraeError, InvalidDefinition, shown


@dataclass(frozen=True, slots=True)
class Handler:
    """One callable: whether it is a coroutine function, and whether it takes the `Run`."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_run: bool


def inspected(name: str, function: Callable[..., Any]) -> Handler:
    """What is to be known of a callable before it is called. Raises InvalidDefinition where it cannot be a task."""
    checked_name(name, "task name")
    if not callable(function):
        raise InvalidDefinition(f"Task {shown(name)} is {shown(function)}, which cannot be called")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some callables written in C don't tell; those are called without an argument.
        return Handler(name, function, is_async(function), takes_run=False)
    required = [
        each
        for each in signature.parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    positional = [
        each
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL)
    ]
    if len(required) > 1 or any(each.kind is each.KEYWORD_ONLY for each in required):
        names = ", ".join(each.name for each in required)
        raise InvalidDefinition(
            f"Task {shown(name)} asks for {names}: a task is called with the run, or with nothing",
            hint="Take one argument, the Run; what else it needs can travel in the payload.",
        )
    # An optional first argument may be anything; it is given the run only where it is called so.
    wants = bool(required) or any(each.name == "run" for each in positional)
    return Handler(name, function, is_async(function), takes_run=wants)


def is_async(callback: Any) -> bool:
    """Whether calling it gives something to await."""
    plain = callback
    while isinstance(plain, partial):
        plain = plain.func
    if inspect.iscoroutinefunction(plain):
        return True
    call = getattr(type(plain), "__call__", None)  # noqa: B004 - not whether it can be called, but what calling it runs
    try:
        within = inspect.unwrap(plain)
    except ValueError:
        within = plain  # it says that it wraps itself
    return any(inspect.iscoroutinefunction(each) or asyncio.iscoroutinefunction(each) for each in (plain, within, call))


class Registry:
    """Handlers by name. A name stands for one callable; registering the same one again is nothing."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._procedures: dict[str, Callable[..., Any]] = {}
        self._abilities: frozenset[str] = frozenset()
        self.sandbox: str | None = None
        """Why this node starts no program although its configuration allows programs."""
        self._names: frozenset[str] | None = None
        self._find: Callable[[str], Callable[..., Any] | None] | None = None
        self._failures: dict[str, str] = {}

    def imports(self, find: Callable[[str], Callable[..., Any] | None] | None) -> None:
        """How callables are found that nobody registered, by their path. It answers None for what is not to be looked
        for, and raises where it is not there."""
        self._find = find
        self._failures.clear()

    @property
    def failed(self) -> frozenset[str]:
        """Handlers that could not be imported."""
        return frozenset(self._failures)

    def learn(self, needed: Iterable[str]) -> dict[str, str]:
        """Has those of the callables that can be imported; why others cannot be, where that is news. What has failed is
        not tried again before `try_again`."""
        failed: dict[str, str] = {}
        for name in sorted(needed):
            if self._find is None or name in self._failures or name in self.names:
                continue
            try:
                function = self._find(name)
                if function is not None:
                    self.add(name, function)
            except HoraeError as error:
                failed[name] = self._failures[name] = f"{error.message}. {error.hint or ''}".strip()
        return failed

    def why_missing(self, name: str) -> str:
        """What kept a handler from being imported, and what would allow it."""
        reason = self.sandbox if name == EXTERNAL else self._failures.get(name)
        return told(name)[1] if reason is None else reason

    def try_again(self) -> None:
        """What could not be imported may be there by now."""
        self._failures.clear()

    def add(self, name: str, function: Callable[..., Any]) -> Handler:
        known = self._handlers.get(name)
        if known is not None:
            if known.function is function:
                return known
            if not _again(known.function, function):
                raise InvalidDefinition(
                    f"There are two tasks called {shown(name)}",
                    hint="Give one of them another name: a name stands for one task on all nodes.",
                )
        handler = self._handlers[name] = inspected(name, function)
        self._names = None
        return handler

    def name_of(self, function: Callable[..., Any]) -> str | None:
        return next((name for name, each in self._handlers.items() if each.function is function), None)

    def get(self, name: str) -> Handler | None:
        return self._handlers.get(name)

    def add_procedure(self, name: str, function: Callable[..., Any]) -> None:
        """A callable that jobs CALL by its name, with arguments."""
        checked_name(name, "procedure name")
        if not callable(function):
            raise InvalidDefinition(f"Procedure {shown(name)} is {shown(function)}, which cannot be called")
        known = self._procedures.get(name)
        if known is not None and known is not function and not _again(known, function):
            raise InvalidDefinition(f"There are two procedures called {shown(name)}", hint="Rename one of them.")
        self._procedures[name] = function
        self._names = None

    @property
    def procedures(self) -> frozenset[str]:
        return frozenset(self._procedures)

    def able(self, abilities: Iterable[str], sandbox: str | None = None) -> None:
        """What else this node can do, in the words of `core.needs`: start programs, reach named connections. `sandbox`:
        why it starts no programs."""
        self._abilities = frozenset(abilities)
        self.sandbox = sandbox
        self._names = None

    def resolve(self, job: str, task: TaskSpec) -> Handler | None:
        """What does the work of a job's task on this node."""
        if task.kind == "PROCEDURE":
            return self._called(task)
        return self._handlers.get(task.handler or task.name)

    def _called(self, task: TaskSpec) -> Handler | None:
        function = self._procedures.get(task.handler)
        if function is None:
            return None
        arguments = tuple(task.options.get("arguments", ()))
        with suppress(TypeError, ValueError):
            if "run" in inspect.signature(function).parameters:
                call = partial(_with_run, function, arguments)
                return Handler(task.handler, call, is_async(function), takes_run=True)
        return Handler(task.handler, partial(function, *arguments), is_async(function), takes_run=False)

    def refuse(self, job: str) -> bool:
        """Whether a run without its callable here is to be handed back; else its attempt fails, saying so."""
        return False

    @property
    def names(self) -> frozenset[str]:
        if self._names is None:
            called = {procedure_need(name) for name in self._procedures}
            self._names = frozenset(self._handlers) | called | self._abilities
        return self._names


def _with_run(function: Callable[..., Any], arguments: tuple[Any, ...], run: Any) -> Any:
    return function(*arguments, run=run)


def _again(known: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """Whether this is the same definition run again, as when a notebook's cell is: then the newer one counts."""
    names = [(getattr(each, "__module__", None), getattr(each, "__qualname__", None)) for each in (known, function)]
    return names[0] == names[1] and None not in names[0] and names[0][0] == "__main__"
