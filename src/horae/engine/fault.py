"""What is kept and logged of an error: its text, where it happened, and the exception itself where that is harmless.

Secrets and passwords are taken out of text before anything is cut: half of one would no longer be found. The exception
is logged as it is only where neither its text nor its chain had any, and where the attempt was given no secret at all:
handlers of logging such as Sentry's also read the variables of every frame.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from horae.engine.told import number_of, storable, told
from horae.errors import without_passwords
from horae.runners.outcome import LONGEST_TRACEBACK, cut
from horae.security.redaction import Redactor

LAST_LINES = 40
"""Lines of what a program printed that stand in the place of a traceback."""
_PIECE = 2 * LONGEST_TRACEBACK
_OURS = str(Path(__file__).parents[1])


class Fault(NamedTuple):
    """Why an attempt failed. `exception` is None where it lives in another process or may not be logged."""

    error: str
    code: int | None
    traceback: str | None = None
    exception: BaseException | None = None


def fault_of(
    error: BaseException, secrets: Collection[str] = (), *, is_traced: bool = True, last_lines: str = ""
) -> Fault:
    """From an exception. `is_traced=False`: its frames are all ours, and say nothing of what went wrong; `last_lines`
    may do so instead."""
    whole = traced(error)
    said = cleaned(told(error), secrets)
    harmless = not secrets and without_passwords(whole) == whole
    trace = cut(cleaned(whole, secrets), LONGEST_TRACEBACK) if is_traced else last_lines
    return Fault(said, number_of(error), trace or None, error if harmless else None)


def cleaned(text: str, secrets: Collection[str]) -> str:
    """The text as it may be kept anywhere: without these secrets, and without the passwords of addresses."""
    return storable(without_passwords(Redactor(secrets).text(text) if secrets else text))


def traced(error: BaseException) -> str:
    """The traceback from the task's own frame on: the engine's frames are of no use to anybody."""
    try:
        return "".join(traceback.format_exception(type(error), error, _own(error)))
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is still is one
        return f"{type(error).__name__}\n"


def _own(error: BaseException) -> TracebackType | None:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames if frames is not None else error.__traceback__


class Tail:
    """The last lines of what a program prints, without secrets. Both of its streams, in the order they came in."""

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
        """The lines so far. To be asked for once: secrets are looked for up to here."""
        if self._redactor is not None:
            self._keep(self._redactor.end())
        lines = "".join(self._pieces)[-LONGEST_TRACEBACK:].splitlines(keepends=True)
        return cleaned("".join(lines[-LAST_LINES:]), ())
