"""Writes events as log records, through the standard library's logging.

There are three loggers: `horae.runs` for runs and their attempts, `horae.engine` for the node, `horae.store` for the
catalog. The message is for people. Each record also has the event's name and fields as attributes with the prefix
`horae_`, for formatters such as JsonFormatter. Plain names would collide with those of logging itself: `name`,
`created`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from json import JSONEncoder
from types import TracebackType
from typing import Any, NamedTuple, TextIO

import horae.events as events
from horae.core.job.requirements import need_text as need_in_words
from horae.core.run.overlap import OVERLAP
from horae.errors import as_text, without_passwords

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
PREFIX = "horae_"

_ROOT = logging.getLogger("horae")
_RUNS = logging.getLogger("horae.runs")
_ENGINE = logging.getLogger("horae.engine")
_STORE = logging.getLogger("horae.store")
_TASKS = ("horae.task", "horae.output")
"""The loggers of what tasks log through `run.log` and of what they print."""
_OTHERS = tuple(map(logging.getLogger, ("asyncio", "uvicorn")))
"""The loggers of libraries that Horae uses. Their warnings are shown in the same form."""
_LONGEST_QUOTE = 500
_REPEATED_MS = 3_600_000
"""After this much of a job's scheduled times, a repeated outcome is logged again."""
_MOST_REPEATED = 10_000
"""Jobs whose last outcome is remembered."""
ERROR_FIELDS = frozenset(("traceback", "exception"))
"""Fields of events that a record carries as logging's own exc_text and exc_info. They are an event's last fields."""
_ENDS = {"COMPLETED": INFO, "CANCELLED": INFO, "SKIPPED": INFO, "SUCCESS": DEBUG}
"""Log levels of end states. Every other state is a bad end, and a warning."""


class _LogRule(NamedTuple):
    """How one class of events is logged: the logger, the level (None: by the event's state) and the words."""

    logger: logging.Logger
    level: int | None
    words: Callable[[Any], str]


_LOG_RULES: Mapping[type, _LogRule] = {
    events.EngineStarted: _LogRule(
        _ENGINE, INFO, lambda e: f"node {e.name or e.node} started: {_many(e.jobs, 'job')}, {_many(e.slots, 'slot')}"
    ),
    events.Draining: _LogRule(
        _ENGINE,
        INFO,
        lambda e: f"node {_node(e)} stops, waits up to {_span(e.seconds)} for {_many(e.count, 'run')}: {_line(e.runs)}",
    ),
    events.EngineStopped: _LogRule(
        _ENGINE, INFO, lambda e: f"node {_node(e)} stopped, {_many(e.released, 'run')} handed back"
    ),
    events.StoreLost: _LogRule(
        _STORE, ERROR, lambda e: f"catalog lost, nothing is started until it is back: {_line(e.error)}"
    ),
    # A warning, so that a reader who saw the loss also sees its end.
    events.StoreFound: _LogRule(_STORE, WARNING, lambda e: f"catalog is back after {_span(e.seconds)}"),
    events.Planned: _LogRule(
        _ENGINE, DEBUG, lambda e: f"planned {_many(e.jobs, 'job')} in {_span(e.seconds)}: {_many(e.born, 'run')} born"
    ),
    events.Claimed: _LogRule(_ENGINE, DEBUG, lambda e: f"claimed {_many(e.runs, 'run')} in {_span(e.seconds)}"),
    events.RunPassed: _LogRule(
        _RUNS,
        None,
        lambda e: (
            f"Skipping overlapping run for Job {e.job}{_scheduled(e)}"
            if (e.state, e.reason) == ("SKIPPED", OVERLAP)
            else f"{e.job} {e.state}{_scheduled(e)}{_because(e.reason)}"
        ),
    ),
    events.RunStarted: _LogRule(
        _RUNS,
        INFO,
        lambda e: (
            f"{e.job} started{' to make up for a missed slot' if e.is_recovery else ''}, {_lateness(e)} ({e.run_id})"
        ),
    ),
    events.AttemptStarted: _LogRule(
        _RUNS, DEBUG, lambda e: f"{e.job}/{e.task} attempt {e.attempt} started ({e.run_id})"
    ),
    events.AttemptEnded: _LogRule(
        _RUNS,
        None,
        lambda e: (
            f"{e.job}/{e.task} attempt {e.attempt} {e.state} in {_span(e.seconds)}{_because(e.error)} ({e.run_id})"
        ),
    ),
    events.RunParked: _LogRule(
        _RUNS, INFO, lambda e: f"{e.job} waits until {_stamp(e.until)} to try again ({e.run_id})"
    ),
    events.RunReleased: _LogRule(_RUNS, INFO, lambda e: f"{e.job} handed back{_because(e.reason)} ({e.run_id})"),
    events.RunEnded: _LogRule(
        _RUNS, None, lambda e: f"{e.job} {e.state} in {_span(e.seconds)}{_because(e.reason)} ({e.run_id})"
    ),
    events.RunFenced: _LogRule(
        _RUNS,
        WARNING,
        lambda e: f"{e.job} belongs to another node by now, what this one did does not count ({e.run_id})",
    ),
    events.RunAbandoned: _LogRule(
        _RUNS,
        WARNING,
        lambda e: f"{e.job}/{e.task} left behind, and holds its slot until it ends{_because(e.reason)} ({e.run_id})",
    ),
    events.RunFreed: _LogRule(
        _RUNS, WARNING, lambda e: f"{e.job}/{e.task}, left behind, has ended after {_span(e.seconds)} ({e.run_id})"
    ),
    events.HookFailed: _LogRule(
        _RUNS,
        WARNING,
        lambda e: (
            f"{e.hook} of {e.job} failed{f' in {_line(e.function)}' if e.function else ''}: {_line(e.error)}"
            f"{f' ({e.run_id})' if e.run_id else ''}"
        ),
    ),
    events.ResultDropped: _LogRule(
        _RUNS, WARNING, lambda e: f"{e.job}/{e.task}: return value not kept{_because(e.reason)} ({e.run_id})"
    ),
    events.HandlerMissing: _LogRule(
        _RUNS,
        WARNING,
        lambda e: f"{e.job} cannot run: no live node {need_in_words(e.handler)[0]}. {_line(e.why)}".rstrip(),
    ),
    events.RunOverlong: _LogRule(
        _RUNS, WARNING, lambda e: f"{e.job} lasts unusually long: {_line(e.reason)} ({e.run_id})"
    ),
    events.SandboxMissing: _LogRule(_ENGINE, WARNING, lambda e: f"this node starts no programs: {_line(e.reason)}"),
    events.ClockSetBack: _LogRule(
        _ENGINE,
        WARNING,
        lambda e: (
            f"the store's clock was set back: {e.jobs} job{'' if e.jobs == 1 else 's'}, such as {e.job}, ran slots"
            f" early; nothing of them starts until {e.until}"
        ),
    ),
    events.DefinitionUnreadable: _LogRule(
        _RUNS,
        WARNING,
        lambda e: (
            f"{e.job} is left alone: its definition, version {e.version}, cannot be read here: {_line(e.error)}."
            " Define the job anew, drop it, or use the release that wrote it"
        ),
    ),
    events.DefinitionsRegistered: _LogRule(
        _ENGINE, INFO, lambda e: f"jobs registered: {e.created} new, {e.changed} changed, {e.unchanged} as they were"
    ),
    events.DefinitionsReplaced: _LogRule(
        _ENGINE,
        WARNING,
        lambda e: (
            f"{e.jobs} jobs changed while {e.nodes} other nodes run, whose code may say otherwise: {_line(e.named)}"
        ),
    ),
    events.WindowNarrow: _LogRule(_ENGINE, WARNING, lambda e: f"{e.job}: {_line(e.why)}"),
    events.HeartbeatLate: _LogRule(
        _ENGINE, WARNING, lambda e: f"no heartbeat for {_span(e.seconds)}: others may take this node for dead"
    ),
    events.NodeExpelled: _LogRule(
        _ENGINE, ERROR, lambda e: f"node {_node(e)} was declared dead by others: it begins anew without its runs"
    ),
    events.NodeBuried: _LogRule(
        _ENGINE, WARNING, lambda e: f"node {_node(e)} is dead: {_many(e.runs, 'run')} taken over from it"
    ),
    events.RunsReaped: _LogRule(
        _ENGINE, WARNING, lambda e: f"{_many(e.count, 'run')} ended that did not stop when asked to"
    ),
    events.RunsSwept: _LogRule(_ENGINE, INFO, lambda e: f"{_many(e.count, 'waiting run')} moved on by a sweep"),
    events.HistoryDeleted: _LogRule(_ENGINE, INFO, lambda e: f"{_many(e.count, 'old run')} deleted"),
    events.TrailSealed: _LogRule(_ENGINE, INFO, lambda e: f"audit trail sealed by seal {e.seal}, head {e.head}"),
    events.HeadUnpublished: _LogRule(
        _ENGINE,
        WARNING,
        lambda e: f"the audit trail's head was not published to {_line(e.where)}: {_line(e.error)}",
    ),
    events.LoopFailed: _LogRule(
        _ENGINE, ERROR, lambda e: f"unexpected error in the engine's {e.loop} loop, which goes on: {_line(e.error)}"
    ),
}


def attach(stream: events.Stream) -> Callable[[], None]:
    """Logs the stream's events from now on, until the returned function is called."""
    tellers = {kind: _listener(kind, how) for kind, how in _LOG_RULES.items()}
    repeats = _Repeats(tellers[events.RunPassed])
    tellers[events.RunPassed] = repeats.passed
    endings = [stream.listen(tell, kind) for kind, tell in tellers.items()]
    endings.append(stream.listen(repeats.started, events.RunStarted))
    endings.append(stream.listen(repeats.stopped, events.EngineStopped))

    def detach() -> None:
        for end in endings:
            end()

    return detach


class _Repeats:
    """Logs the first of similar runs that did not start at once, and the following ones of the same job in one line
    with a count. The line is written when the job starts, when a run ends otherwise, after an hour of scheduled times,
    and when the node stops."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._latest: dict[str, events.RunPassed] = {}
        self._since: dict[str, events.RunPassed] = {}

    def passed(self, event: events.RunPassed) -> None:
        before = self._latest.get(event.job)
        if before is None or (before.state, before.reason) != (event.state, event.reason):
            self._flush(event.job)
            if len(self._latest) >= _MOST_REPEATED:
                self.stopped()
            self._latest[event.job] = event
            self._tell(event)
            return
        so_far = self._since.get(event.job)
        if so_far is not None:
            event = event._replace(count=so_far.count + event.count, first_ms=so_far.first_ms)
        self._since[event.job] = event
        if event.last_ms - before.last_ms >= _REPEATED_MS:
            self._tell(self._since.pop(event.job))
            self._latest[event.job] = event

    def started(self, event: events.RunStarted) -> None:
        if event.job in self._latest:
            self._flush(event.job)
            del self._latest[event.job]

    def stopped(self, _: Any = None) -> None:
        for job in list(self._since):
            self._flush(job)
        self._latest.clear()

    def _flush(self, job: str) -> None:
        repeated = self._since.pop(job, None)
        if repeated is not None:
            self._tell(repeated)


def _listener(kind: Any, how: _LogRule) -> Callable[[Any], None]:
    logger, fixed, words = how
    name = kind.__name__
    attributes = [PREFIX + field for field in kind._fields if field not in ERROR_FIELDS]
    has_fault = len(attributes) < len(kind._fields)

    def tell(event: Any) -> None:
        level = fixed if fixed is not None else _level(event)
        # Checked first, so that a silent logger costs only a lookup.
        if logger.isEnabledFor(level):
            fields = dict(zip(attributes, event, strict=not has_fault))
            fields[PREFIX + "event"] = name
            caught = _caught(event.exception) if has_fault else None
            # Not by logger.log, which would walk the stack for a caller that is always this line.
            record = logger.makeRecord(logger.name, level, __file__, 0, words(event), (), caught, "tell", fields)
            if has_fault and event.traceback:
                # Formatters use this text instead of exc_info: it is bounded and leaves out the engine's frames.
                record.exc_text = without_passwords(event.traceback).rstrip("\n")
            logger.handle(record)

    return tell


def _caught(error: BaseException | None) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    return None if error is None else (type(error), error, error.__traceback__)


def _level(event: Any) -> int:
    if event.state == "CANCELLED" and getattr(event, "reason", None) == "timeout":
        return WARNING
    if isinstance(event, events.RunEnded) and event.state in ("FAILED", "FAILED_STALE"):
        # A failed attempt may be retried, so it is a warning. A failed run needs an operator.
        return ERROR
    return _ENDS.get(event.state, WARNING)


def _plain(value: object) -> str:
    return _stamp(value) if isinstance(value, datetime) and value.tzinfo is not None else as_text(value)


_RECORD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_ENCODER = JSONEncoder(default=_plain, allow_nan=False)


class _Formatter(logging.Formatter):
    """Removes passwords from tracebacks, because drivers put addresses into their errors."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return without_passwords(super().formatException(ei))


class JsonFormatter(_Formatter):
    """One JSON object per line: time (RFC 3339, UTC, milliseconds), level, logger, message, event, fields, exception.

    `event` and `exception` are present only if there is one. `fields` holds every attribute of the record that logging
    itself did not set: those of the event without their prefix, and the `extra` of other code.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _stamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {
            key.removeprefix(PREFIX): value for key, value in record.__dict__.items() if key not in _RECORD_ATTRIBUTES
        }
        event = fields.pop("event", None) if hasattr(record, PREFIX + "event") else None
        if event is not None:
            line["event"] = event
        fields = {key: without_passwords(value) if isinstance(value, str) else value for key, value in fields.items()}
        if fields:
            line["fields"] = fields
        if record.exc_text and (event is not None or not record.exc_info):
            line["exception"] = without_passwords(record.exc_text)
        elif record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return _ENCODER.encode(line)
        except (TypeError, ValueError):
            # Some `extra` cannot be JSON (a NaN, a circular structure, keys that are not text): it is written as text.
            line["fields"] = {key: as_text(value) for key, value in fields.items()}
            return _ENCODER.encode(line)


class TextFormatter(_Formatter):
    """One line for people, with the time in UTC, and below it the indented traceback if there is one.

    Only a record's first line begins with a time: line breaks and control characters in a message are escaped, so that
    nothing that a task logs looks like a record of its own.
    """

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Adds the job, the task and the run to what a task prints or logs through `run.log`, because many runs log at
        once."""
        facts = {**record.__dict__, "message": _printable(record.message), "name": _printable(record.name)}
        if record.name not in _TASKS or not hasattr(record, "run_id"):
            return super().formatMessage(logging.makeLogRecord(facts))
        task = "" if facts.get("task") == facts.get("job") else f"/{facts.get('task')}"
        whose = _printable(f"{facts.get('job')}{task} ({record.run_id})")
        return super().formatMessage(logging.makeLogRecord({**facts, "message": f"{whose}: {facts['message']}"}))

    def format(self, record: logging.LogRecord) -> str:
        event, trace = getattr(record, PREFIX + "event", None), record.exc_text
        if event is not None and trace:
            record = copy(record)
            # At the end of a run, the attempt's record has just shown the same traceback.
            is_repeated = event == "RunEnded" and _RUNS.isEnabledFor(WARNING)
            record.exc_info, record.exc_text = None, None if is_repeated else _indented(trace)
        elif record.exc_info or trace:
            # Formatted again, because the text that another formatter left in the record is not indented.
            record = copy(record)
            record.exc_text = _indented(self.formatException(record.exc_info) if record.exc_info else trace or "")
        return super().format(record)

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        return _indented(super().formatStack(stack_info))


class _Handler(logging.StreamHandler[TextIO]):
    """The handler that `configure` installs. Its class lets a second call find it again."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats the record. If that fails, formats a record that says so; logging itself would print the error to
        standard error."""
        try:
            return super().format(record)
        except Exception as error:  # noqa: BLE001 - any `__str__` may raise
            plain = logging.makeLogRecord(
                {"name": record.name, "levelname": record.levelname, "levelno": record.levelno}
            )
            plain.created, plain.msecs = record.created, record.msecs
            plain.msg = f"a record that cannot be shown ({type(error).__name__}): {as_text(record.msg)}"
            return super().format(plain)


def configure(level: int | str = "INFO", *, json: bool = False, stream: TextIO | None = None) -> None:
    """Shows Horae's log records from `level` upwards on `stream` (None: standard error).

    It also shows, in the same form, the warnings of asyncio, uvicorn and every logger without a handler. With `json`
    each record is a JSON object.

    If the program has set up logging itself, on the root or on "horae", its handlers are kept and only the level is
    set. Another call changes what the first one set up. Raises ValueError for an unknown level.
    """
    _ROOT.setLevel(level)
    handler = next((each for each in _ROOT.handlers if isinstance(each, _Handler)), None)
    if handler is None:
        if _ROOT.handlers or logging.getLogger().handlers:
            return
        handler = _Handler(stream)
        for logger in (_ROOT, *_OTHERS):
            logger.handlers = [*(each for each in logger.handlers if not isinstance(each, _Handler)), handler]
    elif stream is not None:
        handler.setStream(stream)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    # Not on the root: a handler there would disable the program's own `basicConfig`.
    last = _Handler(handler.stream)
    last.setLevel(WARNING)
    last.setFormatter(handler.formatter)
    last.lock = handler.lock
    logging.lastResort = last


@contextmanager
def silenced() -> Iterator[None]:
    """Keeps Horae's log records from the program's handlers and standard error, for a command whose own output reports
    the same. The former handlers are restored at the end, because a process may execute several commands."""
    handlers, propagate = _ROOT.handlers, _ROOT.propagate
    _ROOT.handlers, _ROOT.propagate = [*handlers, logging.NullHandler()], False
    try:
        yield
    finally:
        _ROOT.handlers, _ROOT.propagate = handlers, propagate


def _node(event: Any) -> str:
    """A node's name, if it has one, and its id."""
    return event.node if event.name is None else f"{_line(event.name)} ({event.node})"


def _stamp(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lateness(event: events.RunStarted) -> str:
    """How late a run starts. A run that was asked for has no scheduled start."""
    if event.origin != "SCHEDULE":
        return f"asked for by {event.origin.lower()}"
    return f"{_span(max(event.started_ms - event.chosen_ms, 0) / 1000)} after its time"


def _scheduled(event: events.RunPassed) -> str:
    """The scheduled times that the run stands for."""
    last = _minute(event.last_ms)
    if event.count == 1:
        return f" at {last}"
    return f" {event.count} times, {_minute(event.first_ms)} to {last}"


def _minute(at_ms: int) -> str:
    """A time to the second, such as 2026-03-02T09:00:00Z."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _span(seconds: float) -> str:
    """A duration with as many digits as people read: 4 ms, 1.2 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _times(count: int) -> str:
    return f" {count} times" if count > 1 else ""


def _because(reason: str | None) -> str:
    return f": {_line(reason)}" if reason else ""


def _line(text: str) -> str:
    """Foreign text on one line: an error with line breaks must not look like further records."""
    text = without_passwords(text)
    return _printable(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…")


def _indented(text: str) -> str:
    """Foreign text, indented below a record, so that none of its lines looks like a record."""
    return "\n".join("    " + _printable(line) for line in text.split("\n"))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
