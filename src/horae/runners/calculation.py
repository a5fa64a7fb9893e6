"""The process that answers are calculated in: calls one function after another, and has neither a store nor a secret.

The main thread calculates. A second one reads the socket, and ends the process where whoever asked is gone.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

from horae.errors import HoraeError
from horae.runners.child import die_with, limit_memory
from horae.runners.messages import OUT_OF_MEMORY, Channel
from horae.security.concealing import conceal

ANSWERED, RAISED, UNREADABLE, NO_MEMORY = "answered", "raised", "unreadable", "no memory"
"""The kinds of answers. UNREADABLE: this process cannot import what it was sent."""


def main(given: Mapping[str, Any]) -> None:
    """The life of the process. `given` is what `Process` wrote on the command line."""
    die_with(given["parent"], given["lifeline"])
    for descriptor in (given["socket"], given["lifeline"]):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no names
    limit_memory(given["memory"])
    # What users send is nobody else's business, whatever the node lets others see of itself.
    conceal()
    # The node's standard output may be a document that somebody reads.
    sys.stdout = sys.stderr
    channel = Channel(socket.socket(fileno=given["socket"]))
    works: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(channel, works), name="horae-listen", daemon=True).start()
    channel.send("ready")
    while (work := works.get()) is not None:
        number, data = work
        channel.send(number, *answered(data))
        del work, data


def answered(data: bytes) -> tuple[str, bytes]:
    """The answer to one pickled call: its kind, and the value or the error, pickled too."""
    try:
        try:
            function, arguments, named = pickle.loads(data)  # noqa: S301 - the server that started us wrote it
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever importing a stranger's module raises
            return UNREADABLE, pickle.dumps(f"{type(error).__name__}: {error}")
        try:
            return ANSWERED, pickle.dumps(function(*arguments, **named), pickle.HIGHEST_PROTOCOL)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again where the question was asked
            return RAISED, _portable(error)
    except MemoryError:
        return NO_MEMORY, b""


def _portable(error: Exception) -> bytes:
    if not isinstance(error, HoraeError):
        # The log has to say where in here it was.
        error.add_note(traceback.format_exc())
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - an error that cannot travel is told by its text
        return pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))
    return data


def _listen(channel: Channel, works: SimpleQueue[tuple[int, bytes] | None]) -> None:
    try:
        while (messages := channel.receive()) is not None:
            for kind, *parts in messages:
                works.put((parts[0], parts[1]) if kind == "work" else None)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    os.killpg(0, signal.SIGKILL)
