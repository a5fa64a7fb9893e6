"""Captures what tasks print and log: stores a bounded part with the attempt, and passes all of it on unchanged.

`current` names the attempt that text belongs to. While a `Capture` is installed, text that an attempt writes to
sys.stdout and sys.stderr goes to the attempt's `Output` and to its original destination. Log records are captured where
a logger passes them to its handlers, without a handler of Horae's own: so the root logger stays as the host program
made it, `logging.basicConfig` works before and after, and a program without handlers still gets its warnings on stderr.
What handlers print while they handle a record repeats that record, so it is not captured again.

Where the log is a file or a pipe (`kept_in_log`), printed text becomes records of the logger `horae.output`, one for
each line. Raw text could be mistaken for log lines of Horae or of another job.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MethodType
from typing import Any, ClassVar, NamedTuple, Protocol, TextIO, cast

LIMIT = 64 * 1024
_MOST_PIECES = 512
_LONGEST_LINE = 8 * 1024
"""Characters of one log record; a longer line becomes several."""
_LOG = logging.getLogger("horae.output")
# Printed text is logged whatever the root logger's level is; `tee = false` keeps it out.
_LOG.setLevel(logging.INFO)
_HANDING = "callHandlers"
"""The method of loggers that every enabled record passes, with or without handlers."""


class OutputRedactor(Protocol):
    """Removes secrets from text that arrives in pieces. It may hold a piece back until the next one shows whether it is
    part of a secret."""

    def feed(self, text: str) -> str: ...

    def end(self) -> str: ...

    def text(self, text: str) -> str:
        """Removes secrets from a complete text, independent of the pieces."""

    def again(self) -> OutputRedactor:
        """Returns a new instance for the pieces of another text."""


class OutputDestination(Protocol):
    """A destination of text besides the attempt's stored output."""

    def show(self, output: Output, text: str) -> None: ...


class OutputSource(NamedTuple):
    """The attempt that output belongs to, as fields of a log record."""

    job: str
    task: str
    run_id: str
    attempt: int


class Output:
    """The text of one attempt, written by any thread. It uses little memory until the first write.

    `notify` is called in the writing thread, at the first text after `take`. `blacken` removes secrets from the text.
    """

    __slots__ = (
        "_closed",
        "_dropped",
        "_lock",
        "_mid_line",
        "_pieces",
        "_rests",
        "_room",
        "_shown",
        "blacken",
        "notify",
        "whose",
    )

    def __init__(
        self, limit: int = LIMIT, notify: Callable[[Output], None] | None = None, *, whose: OutputSource | None = None
    ) -> None:
        self.notify = notify
        self.whose = whose
        self.blacken: OutputRedactor | None = None
        self._shown: dict[OutputDestination, OutputRedactor] | None = None
        """The other destinations of the text, each with its own removal of secrets."""
        self._rests: dict[object, str] | None = None
        """The unfinished line of each stream, which is not logged yet."""
        self._room = limit
        self._pieces: list[str] | None = None
        self._dropped = 0
        self._mid_line = False
        self._closed = False
        # Reentrant, because a signal handler or a finalizer may print during a print.
        self._lock = threading.RLock()

    @property
    def empty(self) -> bool:
        """Whether `close` would return nothing."""
        return self._pieces is None and not self._dropped and self.blacken is None and not self._rests

    def write(self, text: str) -> None:
        """Stores as much of the text as there is room for, and counts the rest. Does nothing after `close`."""
        with self._lock:
            if self._closed:
                return
            first = self._keep(text if self.blacken is None else self.blacken.feed(text))
        if first and self.notify is not None:
            # A closed loop cannot be notified; the code that prints must not fail for it.
            with suppress(RuntimeError):
                self.notify(self)

    def _keep(self, text: str) -> bool:
        """Stores text; returns whether it is the first since `take`."""
        size = len(text)
        if size > self._room:
            self._dropped += size - self._room
            size = self._room
            text = text[:size]
        if not size:
            return False
        pieces = self._pieces
        if pieces is None:
            self._pieces = [text]
        else:
            pieces.append(text)
            if len(pieces) > _MOST_PIECES:  # a piece of one letter takes as much memory as a line
                pieces[:] = ["".join(pieces)]
        self._room -= size
        self._mid_line = text[-1] != "\n"
        return pieces is None

    def blacken_by(self, blacken: OutputRedactor) -> None:
        """Removes secrets with `blacken` from now on; it replaces the previous one."""
        with self._lock:
            rest, self.blacken = "" if self.blacken is None else self.blacken.end(), blacken
            self.write(rest)
            ends, self._shown = self._ended(), None
        self._show(ends)

    def shown(self, where: OutputDestination, text: str) -> str:
        """Returns the part of the text that may be shown at that destination now, without secrets."""
        if self.blacken is None:
            return text
        with self._lock:
            if self._closed:
                return self.blacken.text(text)
            if self._shown is None:
                self._shown = {}
            if where not in self._shown:
                self._shown[where] = self.blacken.again()
            return self._shown[where].feed(text)

    def tell(self, stream: object, text: str) -> None:
        """Logs the lines of a stream that are complete by now."""
        with self._lock:
            rests = self._rests = {} if self._rests is None else self._rests
            lines, rest = _lines(rests.pop(stream, "") + text, is_end=self._closed)
            if rest:
                rests[stream] = rest
        # Outside the lock: a handler may wait for a lock that another thread holds while it prints here.
        _tell(self.whose, lines)

    def print_elsewhere(self, text: str) -> None:
        """Stores text that another process printed for the attempt, and logs it if that process could not."""
        self.write(text)
        if _state.children_in_log and _state.tee:
            self.tell(None, self.shown(_ELSEWHERE, text))

    def _ended(self) -> list[tuple[OutputDestination, str]]:
        """Returns the text held back for each of the other destinations."""
        return [(where, each.end()) for where, each in (self._shown or {}).items()]

    def take(self) -> str:
        """Returns the text stored since the last call."""
        with self._lock:
            pieces, self._pieces = self._pieces, None
        return "" if pieces is None else "".join(pieces)

    def close(self) -> str:
        """Returns the rest of the text, with a line about dropped characters. Later writes are ignored."""
        with self._lock:
            # `blacken` stays in place, because an abandoned task's later prints still go to the other destinations.
            self._keep("" if self.blacken is None else self.blacken.end())
            self._closed = True
            text, dropped, self._dropped = self.take(), self._dropped, 0
            if dropped:
                start = "\n" if self._mid_line else ""
                text += f"{start}… {dropped} character{'' if dropped == 1 else 's'} more were not kept\n"
            ends, self._shown = self._ended(), None
        self._show(ends)
        with self._lock:
            rests, self._rests = self._rests or {}, None
        _tell(self.whose, list(rests.values()))
        return text

    def _show(self, ends: list[tuple[OutputDestination, str]]) -> None:
        for where, text in ends:
            if text:
                where.show(self, text)


class _Elsewhere:
    """The log, as the destination of other processes' output."""

    def show(self, output: Output, text: str) -> None:
        output.tell(None, text)


_ELSEWHERE = _Elsewhere()


def _lines(text: str, *, is_end: bool) -> tuple[list[str], str]:
    """Splits text into complete lines and an unfinished rest."""
    *lines, rest = text.split("\n")
    if rest and (is_end or len(rest) > _LONGEST_LINE):
        lines.append(rest)
        rest = ""
    parts = [line[at : at + _LONGEST_LINE] for line in lines for at in range(0, len(line), _LONGEST_LINE) or (0,)]
    return [part.removesuffix("\r") for part in parts], rest


def _tell(whose: OutputSource | None, lines: list[str]) -> None:
    if not lines:
        return
    extra = {} if whose is None else whose._asdict()
    # The text is stored already, and what handlers print of it must not be captured again.
    before, _told.already = _told.already, True
    try:
        for line in lines:
            _LOG.info("%s", line, extra=extra)
    finally:
        _told.already = before


current: ContextVar[Output | None] = ContextVar("horae_output", default=None)
"""The output of the attempt that the running code belongs to."""


class Capture:
    """Captures what attempts print and log while it is installed. Several may be installed; the last one restores the
    process.

    `tee`: printed text of attempts also goes to its original destination. One installed Capture with `tee` is enough.
    Text printed outside attempts always does.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _installed: ClassVar[list[Capture]] = []

    def __init__(self, *, tee: bool = True) -> None:
        self.tee = tee

    def install(self) -> None:
        with Capture._lock:
            if self not in Capture._installed:
                Capture._installed.append(self)
            # On every install, because other code may have replaced the stream meanwhile.
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if stream is not None and not isinstance(stream, _Stream):
                    setattr(sys, name, cast(TextIO, _Stream(stream)))
            handing = getattr(logging.Logger, _HANDING)
            if not isinstance(handing, _CapturingCallHandlers):
                setattr(logging.Logger, _HANDING, _CapturingCallHandlers(handing))
            _state.tee = any(each.tee for each in Capture._installed)

    def uninstall(self) -> None:
        """Restores what is still Horae's. References that other code took meanwhile behave like the original."""
        with Capture._lock:
            if self in Capture._installed:
                Capture._installed.remove(self)
            _state.tee = not Capture._installed or any(each.tee for each in Capture._installed)
            if Capture._installed:
                return
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if isinstance(stream, _Stream):
                    setattr(sys, name, stream.original)
            handing = getattr(logging.Logger, _HANDING)
            if isinstance(handing, _CapturingCallHandlers):
                setattr(logging.Logger, _HANDING, handing.original)


def keep_everything(output: Output | None) -> None:
    """Stores text of no attempt in `output`. For a process that runs one attempt at a time: all its threads belong to
    it."""
    _state.everything = output


@contextmanager
def kept_in_log() -> Iterator[None]:
    """Logs what attempts and their threads print, one record a line (logger `horae.output`), unless it goes to a
    terminal.

    Text printed elsewhere in this process is not affected.
    """
    before = _state.in_log, _state.children_in_log
    _state.in_log = True
    _state.children_in_log = not (_is_terminal(sys.stdout) and _is_terminal(sys.stderr))
    try:
        yield
    finally:
        _state.in_log, _state.children_in_log = before


def logs_children() -> bool:
    """Whether this process logs what its tasks' processes print. They have the streams, but not the log."""
    return _state.children_in_log


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


class _State:
    tee = True
    in_log = False
    children_in_log = False
    everything: Output | None = None


_state = _State()


class _PassingOn(threading.local):
    """Whether this thread is passing on text that is stored already.

    Not a context variable, because tasks and threads started meanwhile would inherit it.
    """

    already = False


_told = _PassingOn()


def _output() -> Output | None:
    output = current.get()
    return _state.everything if output is None else output


def _pass_on(write: Callable[[Any], Any], thing: Any) -> None:
    """Passes stored text on to its original destination. Errors are ignored: an attempt must not fail because a
    terminal is gone or cannot show a character."""
    if not _state.tee:
        return
    before, _told.already = _told.already, True
    try:
        write(thing)
    except (OSError, ValueError):
        pass
    finally:
        _told.already = before


class _Stream:
    """Replaces sys.stdout or sys.stderr and captures the text of attempts. Everything else is delegated to the
    original."""

    def __init__(self, original: TextIO) -> None:
        self.original = original
        self._is_terminal = _is_terminal(original)
        self._apart = threading.local()

    def write(self, text: str) -> int:
        output = _output()
        if output is None:
            return self.original.write(text) if not self.is_told_apart() else self._tell_apart(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not _told.already:
            output.write(text)
        self.show(output, output.shown(self, text))
        return len(text)

    def show(self, output: Output, text: str) -> None:
        if self.is_told:
            if _state.tee:
                output.tell(self, text)
        else:
            _pass_on(self.original.write, text)

    @property
    def is_told(self) -> bool:
        """Whether text of attempts goes to the log, except for what log handlers themselves print here."""
        return _state.in_log and not self._is_terminal and not _told.already

    def is_told_apart(self) -> bool:
        """Whether text of no attempt goes to the log too: the text of threads that tasks have started. The main thread
        is excepted, because it runs the loop and the command."""
        return self.is_told and threading.current_thread() is not threading.main_thread()

    def _tell_apart(self, text: str) -> int:
        lines, self._apart.rest = _lines(getattr(self._apart, "rest", "") + text, is_end=False)
        _tell(None, lines)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _output() is None:
            self.original.flush()
        else:
            with suppress(OSError, ValueError):
                self.original.flush()

    @property
    def buffer(self) -> _Bytes:
        return _Bytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __repr__(self) -> str:
        return f"<{self.original!r}, kept with attempts>"


class _Bytes:
    """The binary buffer below the stream, for code that prints bytes."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._encoding = stream.original.encoding or "utf-8"
        self.original = stream.original.buffer

    def write(self, data: bytes) -> int:
        output = _output()
        if output is None and not self._stream.is_told_apart():
            return self.original.write(data)
        text = bytes(data).decode(self._encoding, "replace")
        if output is None:
            self._stream.write(text)
            return len(data)
        if not _told.already:
            output.write(text)
        clean = text if output.blacken is None else output.blacken.text(text)
        if self._stream.is_told:
            self._stream.show(output, clean)
        else:
            _pass_on(self.original.write, data if clean == text else clean.encode(self._encoding, "replace"))
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class _CapturingCallHandlers:
    """Replaces Logger.callHandlers: stores the record with the attempt, then calls the handlers."""

    def __init__(self, original: Callable[[logging.Logger, logging.LogRecord], None]) -> None:
        self.original = original

    def __get__(self, logger: logging.Logger | None, owner: type[logging.Logger] | None = None) -> Any:
        return self if logger is None else MethodType(self, logger)

    def __call__(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        output = _output()
        if output is None or _told.already:
            self.original(logger, record)
            return
        output.write(_line(record))
        if output.blacken is not None:
            _blacken(record, output.blacken)
        _told.already = True
        try:
            self.original(logger, record)
        finally:
            _told.already = False


def _blacken(record: logging.LogRecord, blacken: OutputRedactor) -> None:
    """Removes secrets from a record before any handler sees it."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - the message does not fit its arguments: both are shown as they are
        message = f"{record.msg!r} with {record.args!r}"
    record.msg, record.args = blacken.text(message), None
    if record.exc_info:
        record.exc_text = blacken.text(logging.Formatter().formatException(record.exc_info))
        record.exc_info = None
    for name in record.__dict__.keys() - _STANDARD:
        # Values from `extra`: one that contains a secret is replaced by its cleaned text.
        try:
            text = str(record.__dict__[name])
        except Exception:  # noqa: BLE001, S112 - str() fails, so no handler can show it either
            continue
        if (clean := blacken.text(text)) != text:
            record.__dict__[name] = clean


_STANDARD = logging.makeLogRecord({}).__dict__.keys()


_format = logging.Formatter("%(levelname)s %(name)s: %(message)s").format


def _line(record: logging.LogRecord) -> str:
    traced = record.exc_text
    try:
        return f"{_format(record)}\n"
    except Exception:  # noqa: BLE001 - the message does not fit its arguments; handlers report that themselves
        return f"{record.levelname} {record.name}: {record.msg!r} with {record.args!r}\n"
    finally:
        # A formatter caches its traceback on the record; other handlers may format it differently.
        record.exc_text = traced
