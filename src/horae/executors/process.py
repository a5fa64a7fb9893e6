"""One child process, from its start until it has been reaped. One thread stays with it all the time."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from horae.executors.messages import CLOSED, SURROUNDINGS, Channel
from horae.security.concealment import is_concealed

_LAST_WORDS = 1.0
"""Seconds that a process may take to end after it has closed its socket, before it is killed."""
_LAST_LOOKS = 200
_AT_ITS_START = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HORAE_UNDISTURBED")
"""Environment variables that a process receives at its start, before it has closed its memory."""
_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LD_", "DYLD_", "MALLOC_")
"""Prefixes of the variables that the interpreter, the C library and the loader read."""
_OURS = {"HORAE_CHILD": "1"}
_BOOT = (
    "import json, sys; given = json.loads(sys.argv.pop()); sys.path[:] = given['path']; sys.argv[:] = given['argv']; "
    "from horae.executors.{module} import main; main(given)"
)


class Process:
    """A process that runs `main` of a module of this package, as the leader of its own session and process group.

    It is a new program and not a fork: of this process it inherits only standard output and error. Its environment is
    the one given, or that of this process. The environment and the arguments of this process may contain secrets, and
    every process of the same user can read another's memory until that is closed. So the child gets them only after it
    has sent CLOSED, and gets only what it needs to start before.
    """

    def __init__(
        self,
        *,
        memory: int,
        flush_every: float = 1.0,
        tee: bool = True,
        module: str = "process_child",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.uses = 0
        self.ready = False
        """Whether the process has reported that it can take work."""
        self._given = {"memory": memory, "flush_every": flush_every, "tee": tee}
        self._module = module
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._buried = False
        self._closed = False
        self._owed: int | None = None
        """The signal to send as soon as the process exists."""
        ours, self._theirs = socket.socketpair()
        self._channel = Channel(ours)
        self._their_lifeline, self._lifeline = os.pipe()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def send(self, *message: Any) -> None:
        """Waits until the message is sent. Raises OSError if the process is gone."""
        self._channel.send(*message)

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its whole group, as soon as they exist. Never reaches another process that
        reuses the pid."""
        with self._lock:
            if self._buried:
                return
            if self._process is None:
                if self._owed != signal.SIGKILL:
                    self._owed = number
                return
            with suppress(OSError):
                os.killpg(self._process.pid, number)

    def live(self, post: Callable[..., None]) -> None:
        """Runs the whole life of the process in the calling thread. Passes every message to `post`, and ("gone", exit
        code) last.

        Raises the errors of starting it.
        """
        try:
            process = self._start()
            try:
                self._listen(process, post)
            finally:
                self._bury(process)
        finally:
            self.close()
        with suppress(RuntimeError):
            post("gone", process.returncode)

    def _start(self) -> subprocess.Popen[bytes]:
        given = self._given | {
            "path": [entry for entry in sys.path if isinstance(entry, str)],
            "argv": sys.argv[:1],
            "parent": os.getpid(),
            "socket": self._theirs.fileno(),
            "lifeline": self._their_lifeline,
            "concealed": is_concealed(),
        }
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - -O, -W, …
        process = subprocess.Popen(  # noqa: S603 - this interpreter, Horae's own code
            [sys.executable, *flags, "-c", _BOOT.replace("{module}", self._module), json.dumps(given)],
            stdin=subprocess.DEVNULL,
            pass_fds=(self._theirs.fileno(), self._their_lifeline),
            start_new_session=True,
            env={**(_harmless() if self._environment is None else self._environment), **_OURS},
        )
        self._theirs.close()
        os.close(self._their_lifeline)
        self._their_lifeline = -1
        with self._lock:
            self._process = process
        if self._owed is not None:
            self.signal(self._owed)
        return process

    def _listen(self, process: subprocess.Popen[bytes], post: Callable[..., None]) -> None:
        """Reads messages until the process ends or closes its socket. A fork of it that holds the socket open does not
        matter."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        watch = _watched(process.pid)
        if watch is not None:
            poll.register(watch, select.POLLIN)
        try:
            while True:
                arrived = {descriptor for descriptor, _ in poll.poll(None if watch is not None else 1000)}
                if self._channel.fileno() in arrived:
                    messages = self._channel.receive()
                    if messages is None:
                        break
                    for message in messages:
                        if message[0] == CLOSED:
                            with suppress(OSError):  # it has ended, which is noticed below
                                self.send(SURROUNDINGS, {**os.environ, **_OURS}, sys.argv)
                            continue
                        self.ready = True
                        post(*message)
                elif _has_ended(process):
                    return
            for _ in range(_LAST_LOOKS):
                if _has_ended(process):
                    break
                time.sleep(_LAST_WORDS / _LAST_LOOKS)
        except RuntimeError:
            return  # the loop is closed, so messages are dropped
        finally:
            if watch is not None:
                os.close(watch)

    def _bury(self, process: subprocess.Popen[bytes]) -> None:
        """Kills the rest of the group, then reaps the process. Its pid cannot be reused before that."""
        self.signal(signal.SIGKILL)
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._buried = True

    def close(self) -> None:
        """Closes this side's ends of the socket and the lifeline; for a process that never started, both ends."""
        with self._lock:
            if self._closed:
                return
            self._closed = self._buried = True
        self._channel.close()
        self._theirs.close()
        os.close(self._lifeline)
        if self._their_lifeline >= 0:
            os.close(self._their_lifeline)


def _harmless() -> dict[str, str]:
    """Returns the variables that a Python interpreter needs to start as this one did, and that contain no secrets."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _AT_ITS_START or name.startswith(_OF_THE_INTERPRETER)
    }


def _watched(pid: int) -> int | None:
    """Returns a descriptor that becomes readable when the process ends, or None if the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether the process has ended, without reaping it where the system allows that."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    return process.poll() is not None
