"""Our command line on a terminal of its own: what is typed is sent, what is shown is read."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType

_SECONDS = 60.0
# The child takes the terminal as its own, so that Ctrl-C reaches it as a signal.
_BEGIN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x07")


class Terminal:
    """`horae ARGUMENTS…`, or another program, with somebody before it."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 100,
        environment: dict[str, str] | None = None,
        program: tuple[str, ...] = (sys.executable, "-m", "horae"),
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        variables = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "INPUTRC": "/dev/null", **(environment or {})}
        variables.pop("COLUMNS", None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, *program, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=variables,
        )
        os.close(slave)
        self.transcript = ""
        self._read_to = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str) -> str:
        """What was shown since the last call, up to and with `text`."""
        shown = self._shown(text, _SECONDS)
        assert shown is not None, f"no {text!r} in {self.transcript!r}"
        return shown

    def says(self, line: str, then: str = "horae> ") -> str:
        """Types a line; what is shown after it, up to the next prompt."""
        self.send(line + "\n")
        self.until(line)
        return self.until(then)

    def interrupt(self, then: str = "horae> ") -> str:
        """Ctrl-C; what is shown up to the next prompt. A signal that comes in the moment between the prompt and the
        wait for keys is not noticed before the next one: that is Python's way, so it is given another. One that changes
        nothing: a second Ctrl-C would interrupt what comes next, where the first was only slow."""
        self.send("\x03")
        for _ in range(int(_SECONDS)):
            shown = self._shown(then, 1.0)
            if shown is not None:
                return shown
            self._process.send_signal(signal.SIGWINCH)
        raise AssertionError(f"Ctrl-C did nothing: {self.transcript!r}")

    def is_busy(self) -> None:
        """Waits until the program has begun to compute: until it has used a second more of a processor."""
        deadline, begun = time.monotonic() + _SECONDS, self._used()
        while self._used() < begun + 1.0:
            assert time.monotonic() < deadline, f"nothing is under way: {self.transcript!r}"
            time.sleep(0.01)

    def _used(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ended(self) -> int:
        """Waits for its end; its exit code."""
        deadline = time.monotonic() + _SECONDS
        while self._more():
            assert time.monotonic() < deadline, f"it goes on: {self.transcript[-1_000:]!r}"
        return self._process.wait(_SECONDS)

    def _shown(self, text: str, seconds: float) -> str | None:
        deadline = time.monotonic() + seconds
        while (found := self.transcript.find(text, self._read_to)) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or not self._more(left):
                return None
        shown = self.transcript[self._read_to : found + len(text)]
        self._read_to = found + len(text)
        return shown

    def _more(self, seconds: float = _SECONDS) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.transcript += _ESCAPES.sub("", data.decode(errors="replace")).replace("\r", "")
        return bool(data)
