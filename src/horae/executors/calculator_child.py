"""The child process of `Calculators`: it calls one function after another, without a store and without secrets.

The main thread calculates. A second thread reads the socket, and ends the process when the server is gone.
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
from horae.executors.messages import OUT_OF_MEMORY, Channel
from horae.executors.process_child import die_with, limit_memory
from horae.security.concealment import conceal

ANSWERED, RAISED, UNREADABLE, NO_MEMORY = "answered", "raised", "unreadable", "no memory"
"""The kinds of answers. UNREADABLE: this process cannot import what it received."""


def main(given: Mapping[str, Any]) -> None:
    """Runs the process until it receives the message to end. `given` is what `Process` wrote on the command line."""
    die_with(given["parent"], given["lifeline"])
    for descriptor in (given["socket"], given["lifeline"]):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no names
    limit_memory(given["memory"])
    # Closes this process's memory to other processes of its user, even if the node's own is open: it holds users' data.
    conceal()
    # Standard output may be a document that the node's user reads, so prints go to standard error.
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
    """Calls one pickled function. Returns the kind of the answer, and the value or the error, pickled too."""
    try:
        try:
            function, arguments, named = pickle.loads(data)  # noqa: S301 - written by the server
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - importing a user's module may raise anything
            return UNREADABLE, pickle.dumps(f"{type(error).__name__}: {error}")
        try:
            return ANSWERED, pickle.dumps(function(*arguments, **named), pickle.HIGHEST_PROTOCOL)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again in the caller
            return RAISED, _portable(error)
    except MemoryError:
        return NO_MEMORY, b""


def _portable(error: Exception) -> bytes:
    if not isinstance(error, HoraeError):
        # The note carries this process's traceback to the server's log.
        error.add_note(traceback.format_exc())
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - an error that cannot be pickled is sent as text
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
