"""What systemd is told and what it hands over, by the protocols of sd_notify and socket activation."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

_FIRST_DESCRIPTOR = 3
_MICROSECONDS = 1_000_000


class Notifier:
    """Tells the service manager how it goes, if there is one. Variables are taken out of the environment: children of
    ours are not to speak for us."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._address = variables.pop("NOTIFY_SOCKET", "")
        self.watchdog = _watchdog(variables.pop("WATCHDOG_USEC", ""), variables.pop("WATCHDOG_PID", ""))
        """Seconds between two signs of life: half of what systemd waits; None where it does not."""

    def tell(self, *lines: str) -> None:
        """Lines such as READY=1. A manager that does not listen is no reason to stop."""
        if not self._address.startswith(("/", "@")):
            return
        # A name that begins with @ has no file: the kernel knows it by a zero byte instead.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.connect(address)
            told.send("\n".join(lines).encode())

    def ready(self, status: str) -> None:
        self.tell("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def waiting(self, seconds: float) -> None:
        """Before `ready`: the start is not to be given up before the next try has had its time."""
        self.tell("STATUS=Waiting for the store", f"EXTEND_TIMEOUT_USEC={int((2 * seconds + 30) * _MICROSECONDS)}")

    def reloading(self) -> None:
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self.tell("STOPPING=1", "STATUS=Draining: what runs may finish")

    def alive(self) -> None:
        self.tell("WATCHDOG=1")


def handed_sockets(environment: MutableMapping[str, str] | None = None) -> list[socket.socket]:
    """The listening sockets that systemd opened for this process, if any."""
    variables = os.environ if environment is None else environment
    process, count = variables.pop("LISTEN_PID", ""), variables.pop("LISTEN_FDS", "")
    variables.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdecimal():
        return []
    found = []
    for descriptor in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only signature
        found.append(socket.socket(fileno=descriptor))
    return found


def bound_host(listening: socket.socket) -> str:
    """The address a socket was bound to; `unix:/path` where it is a file's."""
    name = listening.getsockname()
    return f"unix:{name}" if listening.family == socket.AF_UNIX else str(name[0])


def _watchdog(microseconds: str, process: str) -> float | None:
    if not microseconds.isdecimal() or process not in ("", str(os.getpid())):
        return None
    return int(microseconds) / _MICROSECONDS / 2 or None
