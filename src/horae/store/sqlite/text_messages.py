"""How a store and a process that runs text of others talk: pickled messages over a socket, each after its length."""

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
"""What the process says before its first statement that writes. It waits for GO, and must be over soon after."""
GO = "go"
WAITING = "waiting"
"""And then, where another process writes: nobody waits for this one while it waits itself."""
_HEADER = 8
_PIECE = 1 << 20


def send(end: socket.socket, message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    end.sendall(len(data).to_bytes(_HEADER, "big") + data)


def receive(end: socket.socket) -> Any:
    """One message; None where the other side is gone."""
    head = _exactly(end, _HEADER)
    data = None if head is None else _exactly(end, int.from_bytes(head, "big"))
    return None if data is None else pickle.loads(data)  # noqa: S301 - what the store itself has said


def answered(end: socket.socket) -> Any:
    """As `receive`, from a process in which others' text has run: it is told values and errors, and nothing to call."""
    head = _exactly(end, _HEADER)
    data = None if head is None else _exactly(end, int.from_bytes(head, "big"))
    return None if data is None else plain(data)


def plain(data: bytes) -> Any:
    """What was said in `data`; raises UnpicklingError for what `answered` does not take."""
    return _Plain(io.BytesIO(data)).load()


class _Plain(pickle.Unpickler):
    """Knows rows and errors: a text that found a hole in SQLite must not have the node by what it says."""

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
