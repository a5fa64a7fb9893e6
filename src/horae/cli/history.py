"""What was typed before: kept in a file of the user's own, but for lines that may have a secret in them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from horae.ddl.text import Source, split
from horae.errors import InvalidStatement

try:
    import readline
except ImportError:  # a Python without it: there is no line to edit, and nothing to recall
    readline = None  # type: ignore[assignment]  # None stands for a Python without it

VARIABLE = "HORAE_HISTORY"
MOST = 1000
_SECRET = ("password", "secret")


class History:
    """The lines of earlier sittings and of this one. Each is written as it comes: no sitting loses another's."""

    def __init__(self) -> None:
        named = os.environ.get(VARIABLE)
        self._path = Path(named) if named is not None else Path("~/.horae_history").expanduser()

    def load(self) -> None:
        if readline is None:
            return
        # Whatever is typed is kept by us alone, when we know what it is.
        readline.set_auto_history(False)
        with suppress(OSError, UnicodeDecodeError):
            lines = self._path.read_text("utf-8").splitlines()
            for line in lines[-MOST:]:
                readline.add_history(line)
            if len(lines) > 2 * MOST:
                self._write("".join(f"{line}\n" for line in lines[-MOST:]), os.O_TRUNC)

    def keep(self, text: str) -> None:
        """Keeps the lines of a statement, unless it may have a password or a secret in it."""
        lines = [line for line in text.splitlines() if line.strip()]
        if readline is None or is_secret(text):
            return
        for line in lines:
            readline.add_history(line)
        # A history that cannot be written is no reason not to work.
        with suppress(OSError):
            self._write("".join(f"{line}\n" for line in lines), os.O_APPEND)

    def _write(self, text: str, how: int) -> None:
        # An empty name turns the file off.
        if str(self._path) in ("", "."):
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | how | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)


def is_secret(text: str) -> bool:
    """Whether a text may have a password or a secret in it: it says so, or is such a statement, perhaps a wrong one."""
    if any(word in text.lower() for word in _SECRET):
        return True
    try:
        return any(piece.source.hides(len(text)) for piece in split(text))
    except InvalidStatement:
        # It does not even end where it should: only its beginning tells what it is.
        return Source(text).hides(len(text)) or "user" in text.lower()
