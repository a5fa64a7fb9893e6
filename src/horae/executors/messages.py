"""Messages between an engine and the process of a task: the work, its outcome, and the channel that carries them."""

from __future__ import annotations

import logging
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

from horae.errors import InvalidDefinition, shown
from horae.executors.output import LIMIT

MAIN = "__main__"
_HEADER = 8
_PIECE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task in a process has no result.

    `kind` is the name of the raised exception, or CANCELLED, or DIED. There is no traceback for these two, and none for
    errors outside the task.
    """

    kind: str
    message: str
    traceback: str = ""


CANCELLED = "Cancelled"
"""The task ended because it was asked to stop."""
DIED = "ProcessDied"
"""The process ended before the task did. The message names the exit code or the signal."""
CLOSED, SURROUNDINGS = "closed", "surroundings"
"""CLOSED: the process's memory is closed to other processes of its user. SURROUNDINGS: the engine's answer, with its
environment and its arguments."""
OUT_OF_MEMORY = 112
"""The exit code of a process whose listening thread ran out of memory."""


def logger_levels() -> dict[str, int]:
    """Returns the levels set on this program's loggers, by name; the root logger's name is ""."""
    levels = {"": logging.root.level}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level:
            levels[name] = logger.level
    return levels


@dataclass(frozen=True, slots=True)
class ProcessWork:
    """One attempt for a process: the function, and what it receives. All of it can be pickled."""

    module: str
    qualname: str
    main_path: str | None = None
    """The program's main file, if the function is defined in it."""
    takes_run: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    output_limit: int = LIMIT
    result_limit: int = 1024 * 1024
    """Characters of JSON that the process sends back at most. The catalog's own limit is checked elsewhere."""
    levels: Mapping[str, int] = field(default_factory=logger_levels)

    @classmethod
    def of(
        cls,
        place: tuple[str, str],
        *,
        takes_run: bool = False,
        facts: Mapping[str, Any] | None = None,
        output_limit: int = LIMIT,
    ) -> ProcessWork:
        """Builds the work for a function that `locate` has found."""
        module, qualname = place
        main_path = getattr(sys.modules[MAIN], "__file__", None) if module == MAIN else None
        return cls(module, qualname, main_path, takes_run, facts or {}, output_limit)


def locate(function: Callable[..., Any]) -> tuple[str, str] | None:
    """Returns the module and the qualified name under which another process finds this callable, or None.

    It checks names only, so it also works in a decorator, before the module has the function.
    """
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or "<" in qualname:
        return None
    bound_to = getattr(function, "__self__", None)
    if bound_to is not None and not isinstance(bound_to, type | type(sys)):
        return None
    if module != MAIN:
        return module, qualname
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module
        return spec.name, qualname
    file = getattr(main, "__file__", None)
    return (module, qualname) if file is not None and Path(file).is_file() else None


def check(function: Callable[..., Any]) -> tuple[str, str]:
    """Like `locate`, but raises InvalidDefinition if another process could not import the callable."""
    place = locate(function)
    if place is None:
        kind = "The function" if isinstance(function, FunctionType) else "The callable"
        name = getattr(function, "__qualname__", function)
        raise InvalidDefinition(
            f"{kind} {shown(name)} cannot run in a process of its own: another process could not import it",
            hint="Define it at the top level of a module or of a script; not in a function, not as a lambda.",
        )
    return place


class Channel:
    """One end of a socket that carries pickled tuples. Any thread may send; only one may receive."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, *message: Any) -> None:
        """Waits until the whole message is sent. Raises OSError if the other side is gone."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._end.sendall(len(data).to_bytes(_HEADER, "big"))
            self._end.sendall(data)

    def receive(self) -> list[tuple[Any, ...]] | None:
        """Waits for bytes and returns the messages that are complete by then; None if the other side is gone."""
        try:
            piece = self._end.recv(_PIECE)
        except OSError:
            return None
        if not piece:
            return None
        self._buffer += piece
        messages = []
        while len(self._buffer) >= _HEADER:
            end = _HEADER + int.from_bytes(self._buffer[:_HEADER], "big")
            if len(self._buffer) < end:
                break
            messages.append(pickle.loads(self._buffer[_HEADER:end]))  # noqa: S301 - both ends are the same program
            del self._buffer[:end]
        return messages

    def close(self) -> None:
        self._end.close()
