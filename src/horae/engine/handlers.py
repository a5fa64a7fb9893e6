"""The handlers of a node, by the names that the catalog knows them under."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from horae.core.job.definition import TaskSpec
from horae.core.job.ids import checked_name
from horae.core.job.requirements import EXTERNAL, need_text, procedure_need
from horae.errors import HoraeError, InvalidDefinition, shown


@dataclass(frozen=True, slots=True)
class Handler:
    """One callable. `is_async`: it is a coroutine function. `takes_run`: it takes the `Run` as its argument."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_run: bool


def inspected(name: str, function: Callable[..., Any]) -> Handler:
    """Builds a handler from a callable's signature. Raises InvalidDefinition if it cannot be a task."""
    checked_name(name, "task name")
    if not callable(function):
        raise InvalidDefinition(f"Task {shown(name)} is {shown(function)}, which cannot be called")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some callables written in C have no signature. They are called without an argument.
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
    # An optional argument gets the run only if its name is `run`.
    wants = bool(required) or any(each.name == "run" for each in positional)
    return Handler(name, function, is_async(function), takes_run=wants)


def is_async(callback: Any) -> bool:
    """Returns whether calling it returns an awaitable."""
    plain = callback
    while isinstance(plain, partial):
        plain = plain.func
    if inspect.iscoroutinefunction(plain):
        return True
    call = getattr(type(plain), "__call__", None)  # noqa: B004 - the method itself is needed, not whether there is one
    try:
        within = inspect.unwrap(plain)
    except ValueError:
        within = plain  # its __wrapped__ chain is a cycle
    return any(inspect.iscoroutinefunction(each) or asyncio.iscoroutinefunction(each) for each in (plain, within, call))


class HandlerRegistry:
    """Handlers by name. Each name stands for one callable; registering the same callable again has no effect."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._procedures: dict[str, Callable[..., Any]] = {}
        self._abilities: frozenset[str] = frozenset()
        self.sandbox: str | None = None
        """Why this node starts no programs although its configuration allows them; None if it can or if they are turned
        off."""
        self._names: frozenset[str] | None = None
        self._find: Callable[[str], Callable[..., Any] | None] | None = None
        self._failures: dict[str, str] = {}

    def imports(self, find: Callable[[str], Callable[..., Any] | None] | None) -> None:
        """Sets how unregistered callables are found by their import path.

        `find` returns None for names that it does not look for, and raises HoraeError if the import fails.
        """
        self._find = find
        self._failures.clear()

    @property
    def failed(self) -> frozenset[str]:
        """Names of handlers that could not be imported."""
        return frozenset(self._failures)

    def learn(self, needed: Iterable[str]) -> dict[str, str]:
        """Imports and registers those of the handlers that can be imported.

        Returns the reason for each new failure, by name. A failed name is not tried again before `try_again`.
        """
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
        """Returns why a handler is missing on this node, and how to make it available."""
        reason = self.sandbox if name == EXTERNAL else self._failures.get(name)
        return need_text(name)[1] if reason is None else reason

    def try_again(self) -> None:
        """Forgets failed imports, so that they are tried again."""
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
        """Registers a callable that jobs CALL by its name, with arguments. Raises InvalidDefinition for a name that is
        taken."""
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
        """Sets what else this node can do, as requirement names of `core.job.requirements`: start programs, reach named
        connections. `sandbox` is the reason why it starts no programs."""
        self._abilities = frozenset(abilities)
        self.sandbox = sandbox
        self._names = None

    def resolve(self, job: str, task: TaskSpec) -> Handler | None:
        """Returns the handler of a job's task on this node; None if the node lacks it."""
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
        """Whether a run whose handler this node lacks is released. Otherwise its attempt fails with TaskNotFound."""
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
    """Returns whether both are the same definition in `__main__`, run twice, as a notebook cell is. The newer one then
    counts."""
    names = [(getattr(each, "__module__", None), getattr(each, "__qualname__", None)) for each in (known, function)]
    return names[0] == names[1] and None not in names[0] and names[0][0] == "__main__"
