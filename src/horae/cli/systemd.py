"""The protocols of systemd: status notifications (sd_notify) and socket activation."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

_FIRST_DESCRIPTOR = 3
_MICROSECONDS = 1_000_000


class Notifier:
    """Notifies systemd of the process's state, if systemd started it. It removes the variables from the environment,
    so that child processes cannot send notifications."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._address = variables.pop("NOTIFY_SOCKET", "")
        self.watchdog = _watchdog(variables.pop("WATCHDOG_USEC", ""), variables.pop("WATCHDOG_PID", ""))
        """Seconds between two watchdog notifications, half of systemd's timeout; None without a watchdog."""

    def tell(self, *lines: str) -> None:
        """Sends lines such as READY=1. Errors are ignored: the process goes on without systemd."""
        if not self._address.startswith(("/", "@")):
            return
        # A name with @ is an abstract socket, whose address begins with a zero byte instead.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.connect(address)
            told.send("\n".join(lines).encode())

    def ready(self, status: str) -> None:
        self.tell("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def waiting(self, seconds: float) -> None:
        """Reports that the store is unavailable, and extends systemd's start timeout beyond the next try in `seconds`.
        Called before `ready`."""
        self.tell("STATUS=Waiting for the store", f"EXTEND_TIMEOUT_USEC={int((2 * seconds + 30) * _MICROSECONDS)}")

    def reloading(self) -> None:
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self.tell("STOPPING=1", "STATUS=Draining: what runs may finish")

    def alive(self) -> None:
        self.tell("WATCHDOG=1")


def handed_sockets(environment: MutableMapping[str, str] | None = None) -> list[socket.socket]:
    """Returns the listening sockets that systemd opened for this process, if any."""
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
    """Returns the address that a socket is bound to; `unix:/path` for a unix socket."""
    name = listening.getsockname()
    return f"unix:{name}" if listening.family == socket.AF_UNIX else str(name[0])


def _watchdog(microseconds: str, process: str) -> float | None:
    if not microseconds.isdecimal() or process not in ("", str(os.getpid())):
        return None
    return int(microseconds) / _MICROSECONDS / 2 or None
