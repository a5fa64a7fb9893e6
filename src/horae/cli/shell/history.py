"""The shell's history, in a file in the user's home, without lines that may contain a secret."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from horae.errors import InvalidStatement
from horae.formats.sql.tokens import SqlSource, split

try:
    import readline
except ImportError:  # a Python without readline has no history
    readline = None  # type: ignore[assignment]  # None stands for a Python without it

VARIABLE = "HORAE_HISTORY"
MOST = 1000
_SECRET = ("password", "secret")


class ShellHistory:
    """The lines of all sessions. Each line is appended at once, so that parallel sessions keep each other's lines."""

    def __init__(self) -> None:
        named = os.environ.get(VARIABLE)
        self._path = Path(named) if named is not None else Path("~/.horae_history").expanduser()

    def load(self) -> None:
        if readline is None:
            return
        # Only `keep` adds lines, since it leaves out those with secrets.
        readline.set_auto_history(False)
        with suppress(OSError, UnicodeDecodeError):
            lines = self._path.read_text("utf-8").splitlines()
            for line in lines[-MOST:]:
                readline.add_history(line)
            if len(lines) > 2 * MOST:
                self._write("".join(f"{line}\n" for line in lines[-MOST:]), os.O_TRUNC)

    def keep(self, text: str) -> None:
        """Adds the lines of a statement, unless it may contain a password or a secret."""
        lines = [line for line in text.splitlines() if line.strip()]
        if readline is None or is_secret(text):
            return
        for line in lines:
            readline.add_history(line)
        # A history file that cannot be written must not stop the shell.
        with suppress(OSError):
            self._write("".join(f"{line}\n" for line in lines), os.O_APPEND)

    def _write(self, text: str, how: int) -> None:
        # An empty HORAE_HISTORY turns the file off.
        if str(self._path) in ("", "."):
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | how | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)


def is_secret(text: str) -> bool:
    """Whether a text may contain a password or a secret: it has one of those words, or it is, or begins like, a
    statement that takes one."""
    if any(word in text.lower() for word in _SECRET):
        return True
    try:
        return any(piece.source.hides(len(text)) for piece in split(text))
    except InvalidStatement:
        # The text cannot be split into statements, so only its beginning is checked.
        return SqlSource(text).hides(len(text)) or "user" in text.lower()
