"""What the engine stores and logs of an error: its text, its traceback, and the exception object where that is safe.

Secrets and passwords are removed before text is shortened, because half of a secret would no longer be recognised. The
exception object is logged only if its text and its chain contain no password and the attempt received no secret:
logging handlers such as Sentry's also read the variables of every frame.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from horae.engine.attempts.text_limits import error_text, number_of, storable
from horae.errors import without_passwords
from horae.executors.outcome import LONGEST_TRACEBACK, cut
from horae.security.redaction import Redactor

LAST_LINES = 40
"""How many of a program's last output lines are stored in place of a traceback."""
_PIECE = 2 * LONGEST_TRACEBACK
_OURS = str(Path(__file__).parents[2])


class AttemptFault(NamedTuple):
    """Why an attempt failed. `exception` is None if it was raised in another process or may not be logged."""

    error: str
    code: int | None
    traceback: str | None = None
    exception: BaseException | None = None


def fault_of(
    error: BaseException, secrets: Collection[str] = (), *, is_traced: bool = True, last_lines: str = ""
) -> AttemptFault:
    """Builds a fault from an exception.

    With `is_traced=False` no traceback is stored, because all frames belong to Horae and do not explain the error;
    `last_lines` are stored instead.
    """
    whole = own_traceback(error)
    said = cleaned(error_text(error), secrets)
    harmless = not secrets and without_passwords(whole) == whole
    trace = cut(cleaned(whole, secrets), LONGEST_TRACEBACK) if is_traced else last_lines
    return AttemptFault(said, number_of(error), trace or None, error if harmless else None)


def cleaned(text: str, secrets: Collection[str]) -> str:
    """Returns the text without these secrets and without passwords in addresses, in a form that every store accepts."""
    return storable(without_passwords(Redactor(secrets).text(text) if secrets else text))


def own_traceback(error: BaseException) -> str:
    """Formats the traceback from the task's own first frame on; the engine's frames before it are left out."""
    try:
        return "".join(traceback.format_exception(type(error), error, _own(error)))
    except Exception:  # noqa: BLE001 - str() of a user's exception may itself raise
        return f"{type(error).__name__}\n"


def _own(error: BaseException) -> TracebackType | None:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames if frames is not None else error.__traceback__


class OutputTail:
    """The last lines that a program printed, without secrets. Both streams are kept together, in the order of
    arrival."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = tuple(secrets)
        self._redactor = Redactor(values) if values else None
        self._pieces: deque[str] = deque()
        self._size = 0

    def write(self, text: str) -> None:
        self._keep(text if self._redactor is None else self._redactor.feed(text))

    def _keep(self, text: str) -> None:
        self._pieces.append(text[-_PIECE:])
        self._size += len(self._pieces[-1])
        while self._size - len(self._pieces[0]) >= LONGEST_TRACEBACK:
            self._size -= len(self._pieces.popleft())

    def text(self) -> str:
        """Returns the lines so far. Call it only once: it ends the search for secrets."""
        if self._redactor is not None:
            self._keep(self._redactor.end())
        lines = "".join(self._pieces)[-LONGEST_TRACEBACK:].splitlines(keepends=True)
        return cleaned("".join(lines[-LAST_LINES:]), ())
