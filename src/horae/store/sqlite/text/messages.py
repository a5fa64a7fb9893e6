"""Messages between a store and a child process that runs users' SQL text: pickled, each preceded by its length."""

from __future__ import annotations

import io
import pickle
import socket
from typing import Any

import apsw

import horae.errors as errors
from horae.store.driver import KeyTaken
from horae.store.records import Rows

WRITING = "writing"
"""Sent by the child before its first statement that writes. The child waits for GO; then its write limit begins."""
GO = "go"
WAITING = "waiting"
"""Sent by the child where another process writes: it has not written yet, so its write limit stops."""
_HEADER = 8
_PIECE = 1 << 20


def send(end: socket.socket, message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    end.sendall(len(data).to_bytes(_HEADER, "big") + data)


def receive(end: socket.socket) -> Any:
    """Reads one message; None where the other side has closed the socket."""
    head = _exactly(end, _HEADER)
    data = None if head is None else _exactly(end, int.from_bytes(head, "big"))
    return None if data is None else pickle.loads(data)  # noqa: S301 - what the store itself has said


def receive_plain(end: socket.socket) -> Any:
    """As `receive`, from a child that has run users' text: accepts only plain values, rows and errors. Raises
    UnpicklingError for anything else."""
    head = _exactly(end, _HEADER)
    data = None if head is None else _exactly(end, int.from_bytes(head, "big"))
    return None if data is None else plain(data)


def plain(data: bytes) -> Any:
    """The message in `data`. Raises UnpicklingError for an object that `receive_plain` does not accept."""
    return _Plain(io.BytesIO(data)).load()


class _Plain(pickle.Unpickler):
    """Unpickles only rows and errors. A text that took over the child through a hole in SQLite must not take over the
    node."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("horae.errors", "_rebuilt"):
            return errors._rebuilt  # noqa: SLF001 - how an error is pickled
        rooms: dict[str, Any] = {"apsw": apsw, "horae.errors": errors}
        found = {"Rows": Rows, "KeyTaken": KeyTaken}.get(name) or getattr(rooms.get(module), name, None)
        if found is None and module == "builtins":
            found = {each.__name__: each for each in (RuntimeError, ValueError, MemoryError, TypeError)}.get(name)
        if isinstance(found, type) and issubclass(found, Rows | BaseException):
            return found
        raise pickle.UnpicklingError(f"a process of a text has no business with {module}.{name}")


def _exactly(end: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = end.recv(min(size - len(data), _PIECE))
        if not piece:
            return None
        data += piece
    return bytes(data)
