"""What a task prints and logs: kept with its attempt, bounded, and still printed and logged as without us.

`current` says whose text it is. While a `Capture` is installed, text written to sys.stdout and sys.stderr in an attempt
goes to that attempt's `Output` and to where it would have gone anyway. Log records are taken where a logger hands them
to its handlers, not by a handler of ours: the root logger stays as the host program made it, so `logging.basicConfig`
works before and after, and a program without handlers still gets its warnings on stderr. While handlers are at work,
what they print is the record once more, and is not kept a second time.

Where the log is a file or a pipe (`kept_in_log`), what is printed gets there as records of the logger `horae.output`,
one a line: as it is, it could be taken for the log's own, or for that of another job.
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
"""In the log: a longer one is told as several."""
_LOG = logging.getLogger("horae.output")
# What is printed is wanted, however quiet the log is otherwise; `tee = false` keeps it out.
_LOG.setLevel(logging.INFO)
_HANDING = "callHandlers"
"""The method of loggers that every record passes which is wanted at all, whether there are handlers or not."""


class Blackening(Protocol):
    """What takes secrets out of text that comes in pieces: a piece may be kept back until the next shows what it is."""

    def feed(self, text: str) -> str: ...

    def end(self) -> str: ...

    def text(self, text: str) -> str:
        """A whole text, apart from the pieces."""

    def again(self) -> Blackening:
        """The same for the pieces of another text."""


class Shown(Protocol):
    """Where text goes besides the attempt it is kept with."""

    def show(self, output: Output, text: str) -> None: ...


class Whose(NamedTuple):
    """Whose output it is, in the words of a record of the log."""

    job: str
    task: str
    run_id: str
    attempt: int


class Output:
    """The text of one attempt, written in any thread. Cheap until something is written.

    `notify` is called, in the thread that wrote, at the first text after `take`. `blacken` takes secrets out of it.
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
        self, limit: int = LIMIT, notify: Callable[[Output], None] | None = None, *, whose: Whose | None = None
    ) -> None:
        self.notify = notify
        self.whose = whose
        self.blacken: Blackening | None = None
        self._shown: dict[Shown, Blackening] | None = None
        """Where its text goes besides, with what takes secrets out of it on its way there."""
        self._rests: dict[object, str] | None = None
        """The beginning of the line that each stream of it stands in, as far as the log has not been told."""
        self._room = limit
        self._pieces: list[str] | None = None
        self._dropped = 0
        self._mid_line = False
        self._closed = False
        # One that its own thread may take again: a signal handler or a finalizer may print while a print is under way.
        self._lock = threading.RLock()

    @property
    def empty(self) -> bool:
        """Whether `close` would have nothing to say."""
        return self._pieces is None and not self._dropped and self.blacken is None and not self._rests

    def write(self, text: str) -> None:
        """Keeps as much of it as there is room for; the rest is counted. After `close` it is nothing."""
        with self._lock:
            if self._closed:
                return
            first = self._keep(text if self.blacken is None else self.blacken.feed(text))
        if first and self.notify is not None:
            # A loop that is closed cannot be told; that is no fault of whoever prints.
            with suppress(RuntimeError):
                self.notify(self)

    def _keep(self, text: str) -> bool:
        """Whether it is the first text since `take`."""
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
            if len(pieces) > _MOST_PIECES:  # a letter on its own takes as much memory as a line of them
                pieces[:] = ["".join(pieces)]
        self._room -= size
        self._mid_line = text[-1] != "\n"
        return pieces is None

    def blacken_by(self, blacken: Blackening) -> None:
        """From now on secrets are taken out of it, by this in the place of what did so before."""
        with self._lock:
            rest, self.blacken = "" if self.blacken is None else self.blacken.end(), blacken
            self.write(rest)
            ends, self._shown = self._ended(), None
        self._show(ends)

    def shown(self, where: Shown, text: str) -> str:
        """The text as it may be shown there now."""
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
        """Tells the log the lines that a stream of it has whole by now."""
        with self._lock:
            rests = self._rests = {} if self._rests is None else self._rests
            lines, rest = _lines(rests.pop(stream, "") + text, is_end=self._closed)
            if rest:
                rests[stream] = rest
        # Outside the lock: a handler that waits for it may be one that somebody has while they print here.
        _tell(self.whose, lines)

    def print_elsewhere(self, text: str) -> None:
        """Text that another process printed for the attempt: kept, and told where that process could not."""
        self.write(text)
        if _state.children_in_log and _state.tee:
            self.tell(None, self.shown(_ELSEWHERE, text))

    def _ended(self) -> list[tuple[Shown, str]]:
        """What was kept back of what is shown elsewhere."""
        return [(where, each.end()) for where, each in (self._shown or {}).items()]

    def take(self) -> str:
        """What was kept since the last time."""
        with self._lock:
            pieces, self._pieces = self._pieces, None
        return "" if pieces is None else "".join(pieces)

    def close(self) -> str:
        """The rest, and how much is missing. Nothing is kept from here on."""
        with self._lock:
            # It stays blackened: what a task that was given up prints from here on is still shown elsewhere.
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

    def _show(self, ends: list[tuple[Shown, str]]) -> None:
        for where, text in ends:
            if text:
                where.show(self, text)


class _Elsewhere:
    """Where the output of other processes is shown: in the log."""

    def show(self, output: Output, text: str) -> None:
        output.tell(None, text)


_ELSEWHERE = _Elsewhere()


def _lines(text: str, *, is_end: bool) -> tuple[list[str], str]:
    """The lines of a text, and its rest that is none so far."""
    *lines, rest = text.split("\n")
    if rest and (is_end or len(rest) > _LONGEST_LINE):
        lines.append(rest)
        rest = ""
    parts = [line[at : at + _LONGEST_LINE] for line in lines for at in range(0, len(line), _LONGEST_LINE) or (0,)]
    return [part.removesuffix("\r") for part in parts], rest


def _tell(whose: Whose | None, lines: list[str]) -> None:
    if not lines:
        return
    extra = {} if whose is None else whose._asdict()
    # It has been kept already; and what handlers print of it in turn is no further output.
    before, _told.already = _told.already, True
    try:
        for line in lines:
            _LOG.info("%s", line, extra=extra)
    finally:
        _told.already = before


current: ContextVar[Output | None] = ContextVar("horae_output", default=None)
"""The attempt that this code runs for."""


class Capture:
    """Keeps what attempts print and log while installed. Any number may be; the process goes back with the last.

    `tee` says whether text printed in an attempt also goes where it would have gone without us; one Capture that wants
    it is enough. What is printed outside attempts always does.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _installed: ClassVar[list[Capture]] = []

    def __init__(self, *, tee: bool = True) -> None:
        self.tee = tee

    def install(self) -> None:
        with Capture._lock:
            if self not in Capture._installed:
                Capture._installed.append(self)
            # Every time: somebody may have put another stream in place of ours since.
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if stream is not None and not isinstance(stream, _Stream):
                    setattr(sys, name, cast(TextIO, _Stream(stream)))
            handing = getattr(logging.Logger, _HANDING)
            if not isinstance(handing, _Handing):
                setattr(logging.Logger, _HANDING, _Handing(handing))
            _state.tee = any(each.tee for each in Capture._installed)

    def uninstall(self) -> None:
        """Puts back what is still ours. What others took hold of meanwhile goes on as if it were the original."""
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
            if isinstance(handing, _Handing):
                setattr(logging.Logger, _HANDING, handing.original)


def keep_everything(output: Output | None) -> None:
    """Gives text that no attempt is current for to `output`: in a process that works for one attempt at a time,
    whatever any of its threads prints is that attempt's."""
    _state.everything = output


@contextmanager
def kept_in_log() -> Iterator[None]:
    """Meanwhile, what is printed in attempts, and in threads of theirs, goes to the log (logger `horae.output`), a
    record a line, but for what is printed to a terminal. What is printed elsewhere in this process is left alone."""
    before = _state.in_log, _state.children_in_log
    _state.in_log = True
    _state.children_in_log = not (_is_terminal(sys.stdout) and _is_terminal(sys.stderr))
    try:
        yield
    finally:
        _state.in_log, _state.children_in_log = before


def is_told_for_children() -> bool:
    """Whether this process tells what processes of its tasks print: they have the streams, but not the log."""
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


class _Told(threading.local):
    """Whether this thread is writing what has been kept already. Not a context variable: tasks and threads started
    meanwhile would inherit it."""

    already = False


_told = _Told()


def _output() -> Output | None:
    output = current.get()
    return _state.everything if output is None else output


def _pass_on(write: Callable[[Any], Any], thing: Any) -> None:
    """Hands what was kept to where it would have gone without us. The terminal may be gone, or unable to show it: in
    an attempt that is no reason to fail, since the text is safe."""
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
    """sys.stdout or sys.stderr, with an ear for attempts. All else is the original's."""

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
        """Whether text of attempts goes to the log instead; but for what its own handlers print here."""
        return _state.in_log and not self._is_terminal and not _told.already

    def is_told_apart(self) -> bool:
        """Whether so does text of no attempt: threads that tasks start are nobody's. The main thread has the loop, and
        the command around it."""
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
    """The stream below, for those who print bytes."""

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


class _Handing:
    """Stands in for Logger.callHandlers: keeps the record for the attempt, then lets the handlers have it."""

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


def _blacken(record: logging.LogRecord, blacken: Blackening) -> None:
    """Takes secrets out of a record before any handler has it."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - a message that does not fit its arguments: both are shown as they are
        message = f"{record.msg!r} with {record.args!r}"
    record.msg, record.args = blacken.text(message), None
    if record.exc_info:
        record.exc_text = blacken.text(logging.Formatter().formatException(record.exc_info))
        record.exc_info = None
    for name in record.__dict__.keys() - _STANDARD:
        # What was given as `extra`: where there is a secret in it, only its text is left.
        try:
            text = str(record.__dict__[name])
        except Exception:  # noqa: BLE001, S112 - it cannot be shown, so nobody else can show it either
            continue
        if (clean := blacken.text(text)) != text:
            record.__dict__[name] = clean


_STANDARD = logging.makeLogRecord({}).__dict__.keys()


_format = logging.Formatter("%(levelname)s %(name)s: %(message)s").format


def _line(record: logging.LogRecord) -> str:
    traced = record.exc_text
    try:
        return f"{_format(record)}\n"
    except Exception:  # noqa: BLE001 - a message that does not fit its arguments; the handlers will say so themselves
        return f"{record.levelname} {record.name}: {record.msg!r} with {record.args!r}\n"
    finally:
        # A formatter leaves the traceback it made on the record; the handlers' own may want to make it differently.
        record.exc_text = traced
