"""The events of an engine, as typed named tuples, and the stream that delivers them.

Logs, metrics, hooks and live pages are fed by this stream alone. An event reports what has happened and decides
nothing. Events are named tuples because thousands are made each second: two of different classes with the same values
compare equal, so check the class first. Times ending in `_ms` are milliseconds since 1970; `seconds` are measured on a
monotonic clock.
"""

from __future__ import annotations

import inspect
import logging
import sys
from asyncio import CancelledError
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from threading import Lock
from traceback import format_exception
from typing import Any, NamedTuple, TypeAlias, get_args

from horae.errors import InvalidInput, shown, without_passwords

Listener: TypeAlias = Callable[[Any], None]

_log = logging.getLogger("horae")


class EngineStarted(NamedTuple):
    """Emitted when a node has registered its definitions and begins to work. `slots` is its concurrency limit."""

    node: str
    name: str | None
    jobs: int
    slots: int


class Draining(NamedTuple):
    """Emitted when a node is to stop and waits, at most `seconds`, for the `count` runs that it is running. `runs`
    names the first of them by job and id. `name` is the name that the node was started with."""

    node: str
    seconds: float
    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses here
    runs: str
    name: str | None = None


class EngineStopped(NamedTuple):
    """Emitted when a node has stopped. It released `released` unfinished runs for other nodes."""

    node: str
    released: int
    name: str | None = None


class StoreLost(NamedTuple):
    """Emitted when the catalog cannot be reached. Nothing is started until StoreFound."""

    error: str


class StoreFound(NamedTuple):
    """Emitted when the catalog can be reached again, `seconds` after it was lost."""

    seconds: float


class Planned(NamedTuple):
    """Emitted after a pass over due schedules that looked at `jobs` jobs and created `born` runs."""

    jobs: int
    born: int
    seconds: float


class Claimed(NamedTuple):
    """Emitted after a call that claimed runs: `runs` were claimed, and the call took `seconds`."""

    runs: int
    seconds: float


class RunPassed(NamedTuple):
    """Emitted when a run ends that never started: SKIPPED, MISSED, UNSCHEDULABLE, CANCELLED and others.

    `count` is how many scheduled times it stands for, from `first_ms` to `last_ms`.
    """

    job: str
    state: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses here
    reason: str | None
    is_recovery: bool
    run_id: str
    first_ms: int
    last_ms: int


class RunStarted(NamedTuple):
    """Emitted when this node starts a run, or continues one that had been parked, released or lost.

    `fence` is 1 at a run's very first start. `strategy` is the job's recovery policy: last, all, none, bounded,
    compressed.
    """

    run_id: str
    job: str
    origin: str
    scheduled_ms: int
    chosen_ms: int
    started_ms: int
    fence: int
    is_recovery: bool
    strategy: str


class AttemptStarted(NamedTuple):
    """Emitted when an attempt of a task starts. `attempt` counts from 1."""

    run_id: str
    job: str
    task: str
    attempt: int


class AttemptEnded(NamedTuple):
    """Emitted when an attempt of a task has ended, with its state and the error's text if it failed.

    `traceback` is the text of the traceback; for a program, the last lines that it printed. `exception` is the error
    itself; None if it was raised in another process or might show a secret.
    """

    run_id: str
    job: str
    task: str
    attempt: int
    state: str
    seconds: float
    error: str | None
    traceback: str | None = None
    exception: BaseException | None = None


class RunParked(NamedTuple):
    """Emitted when a run stops running to wait for a retry, until `until`."""

    run_id: str
    job: str
    until: datetime


class RunReleased(NamedTuple):
    """Emitted when an unfinished run becomes free for any node: this node released it, or took it from a dead node."""

    run_id: str
    job: str
    reason: str


class RunEnded(NamedTuple):
    """Emitted when a started run has ended in the catalog: this node ran it, or ended it for another node (reaped,
    taken over). `seconds` is the time since its first start, parked time included. `reason` says why it ended so. For a
    failed run, `traceback` and `exception` are those of the last attempt that failed on this node."""

    run_id: str
    job: str
    state: str
    reason: str | None
    seconds: float
    traceback: str | None = None
    exception: BaseException | None = None


class RunFenced(NamedTuple):
    """Emitted when a write of this node was refused because another node has the run now. Nothing was changed."""

    run_id: str
    job: str
    fence: int


class RunAbandoned(NamedTuple):
    """Emitted when a thread that cannot be stopped is left behind. It counts against the concurrency limit until
    RunFreed."""

    run_id: str
    job: str
    task: str
    reason: str


class RunFreed(NamedTuple):
    """Emitted when a thread that was left behind has ended, `seconds` after its attempt began."""

    run_id: str
    job: str
    task: str
    seconds: float


class HookFailed(NamedTuple):
    """Emitted when a hook raised or took too long; the run is not affected. `hook` is on_start or on_complete, or
    report if the report for them could not be made. `function` is the hook's own name.

    `traceback` and `exception` are as those of AttemptEnded.
    """

    job: str
    hook: str
    error: str
    function: str | None = None
    run_id: str | None = None
    traceback: str | None = None
    exception: BaseException | None = None


class ResultDropped(NamedTuple):
    """Emitted when the return value of a task could not be kept, because it is not JSON or too long."""

    run_id: str
    job: str
    task: str
    reason: str


class HandlerMissing(NamedTuple):
    """Emitted when no live node has a handler, or another ability, that a job needs. `why` says why this node does not
    have it, or what would give it to the node."""

    job: str
    handler: str
    why: str = ""


class RunOverlong(NamedTuple):
    """Emitted once for a run that lasts longer than an hour and than three times the 99th percentile of its job's runs.
    Also emitted once for a job when a run, however short, has caused three scheduled times in a row to be skipped;
    again only after a minute without such a run. The run is not ended."""

    run_id: str
    job: str
    seconds: float
    reason: str


class SandboxMissing(NamedTuple):
    """Emitted when a node whose configuration allows programs cannot give them their sandbox, at its start or later.
    The node starts no program until it can; their runs wait for `sandbox`."""

    reason: str


class ClockSetBack(NamedTuple):
    """Emitted when the store's clock was set back, so that scheduled times of `jobs` jobs up to `until` have been
    served early. No run of these jobs starts before that time. Emitted once, until no job is ahead of the clock any
    more."""

    jobs: int
    until: str
    job: str


class DefinitionUnreadable(NamedTuple):
    """Emitted when the definition of a due job cannot be read on this node, once for each version. The job creates no
    runs until an operator defines it again, drops it or repairs it."""

    job: str
    version: int
    error: str


class DefinitionsRegistered(NamedTuple):
    """Emitted when the definitions in the code have been written to the catalog."""

    created: int
    changed: int
    unchanged: int


class DefinitionsReplaced(NamedTuple):
    """Emitted when the code of a starting node changed `jobs` jobs while `nodes` other nodes live, whose code may
    define them differently: the later registration wins. `named` lists the first few."""

    jobs: int
    named: str
    nodes: int


class WindowNarrow(NamedTuple):
    """Emitted when a job was created or changed whose `only` and `avoid` leave so little of its window that its draws
    may find no time: a share of `rate` of its scheduled times will be UNSCHEDULABLE. `why` says how much is left."""

    job: str
    rate: float
    why: str


class HeartbeatLate(NamedTuple):
    """Emitted when `seconds` passed between two heartbeats, so that other nodes may have declared this node dead."""

    seconds: float


class NodeExpelled(NamedTuple):
    """Emitted when this node learns that other nodes declared it dead. It starts again without its runs."""

    node: str
    name: str | None = None


class NodeBuried(NamedTuple):
    """Emitted when this node took over `runs` runs of a dead node. `name` is the name that the dead node was started
    with."""

    node: str
    runs: int
    name: str | None = None


class RunsReaped(NamedTuple):
    """Emitted when runs were ended that had been asked to stop and did not."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses here


class RunsSwept(NamedTuple):
    """Emitted when a sweep moved waiting runs on that no hand-over had reached; rare in a healthy catalog."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses here


class HistoryDeleted(NamedTuple):
    """Emitted when ended runs older than the retention time were deleted."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses here


class TrailSealed(NamedTuple):
    """Emitted when this node sees a new seal of the audit trail, made by any node. `head` is its digest, for `horae
    audit verify --head`: kept out of reach of the database's writers, it reveals a trail that was cut off or
    rewritten."""

    seal: int
    head: str


class HeadUnpublished(NamedTuple):
    """Emitted when the head of the audit trail could not be written to `audit_head_file` or sent to
    `audit_head_webhook`. `where` is the file, or the address without its path. The node tries again with the next
    head."""

    where: str
    error: str


class LoopFailed(NamedTuple):
    """Emitted when one of the engine's loops met an unexpected error. The loop goes on."""

    loop: str
    error: str


Event: TypeAlias = (
    EngineStarted
    | Draining
    | EngineStopped
    | StoreLost
    | StoreFound
    | Planned
    | Claimed
    | RunPassed
    | RunStarted
    | AttemptStarted
    | AttemptEnded
    | RunParked
    | RunReleased
    | RunEnded
    | RunFenced
    | RunAbandoned
    | RunFreed
    | HookFailed
    | ResultDropped
    | HandlerMissing
    | RunOverlong
    | SandboxMissing
    | ClockSetBack
    | DefinitionUnreadable
    | DefinitionsRegistered
    | DefinitionsReplaced
    | WindowNarrow
    | HeartbeatLate
    | NodeExpelled
    | NodeBuried
    | RunsReaped
    | RunsSwept
    | HistoryDeleted
    | TrailSealed
    | HeadUnpublished
    | LoopFailed
)
EVENTS: tuple[type[Any], ...] = get_args(Event)


class _Subscription:
    """One call of `listen`, and the kinds of its listener's exceptions that have been logged."""

    __slots__ = ("listener", "told", "types")

    def __init__(self, listener: Listener, types: frozenset[type]) -> None:
        self.listener = listener
        self.types = types
        self.told: set[type[BaseException]] = set()


class Stream:
    """Delivers events to listeners, in the order of their subscriptions, on the thread that emits.

    Only one thread, the engine's, calls `emit`. `listen` and the functions it returns may be called from any thread,
    also by a listener. An event reaches the listeners that were subscribed when its emission began.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscriptions: list[_Subscription] = []
        self._listeners: dict[type, tuple[Listener, ...]] = dict.fromkeys(EVENTS, ())

    def emit(self, event: Event) -> None:
        """Calls every listener of the event's class. An exception of a listener is logged and goes no further."""
        for listener in self._listeners[type(event)]:
            try:
                listener(event)
            except (Exception, CancelledError) as error:  # noqa: BLE001 - a listener's error must not stop the engine
                self._complain(listener, event, error)

    def wanted(self, kind: type) -> bool:
        """Whether events of this class have a listener. Without one they need not be made."""
        return bool(self._listeners[kind])

    def listen(self, listener: Listener, *types: type) -> Callable[[], None]:
        """Calls `listener` with every event of these classes (none given: all), until the returned function is called.

            end = app.events.listen(print, RunStarted, RunEnded)
            end()

        A listener runs in the engine's loop: it must be quick and must not block. Raises InvalidInput for a class that
        is not an event, and for a coroutine function, which would never be awaited.
        """
        for each in types:
            if each not in self._listeners:
                raise InvalidInput(
                    f"Cannot listen to {shown(each)}: it is no class of events", hint="They are in horae.events.EVENTS."
                )
        call = getattr(listener, "__call__", None)  # noqa: B004 - not whether it can be called, but what calling it runs
        if call is None or inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call):
            raise InvalidInput(
                f"{shown(listener)} cannot listen: it has to be a plain function of one event",
                hint="From a plain function, asyncio.create_task can start what takes longer.",
            )
        subscription = _Subscription(listener, frozenset(types or EVENTS))
        with self._lock:
            self._subscriptions.append(subscription)
            self._rebuild(subscription.types)

        def unsubscribe() -> None:
            with self._lock:
                # By identity: the same listener may subscribe twice, and each subscription ends on its own.
                self._subscriptions = [each for each in self._subscriptions if each is not subscription]
                self._rebuild(subscription.types)

        return unsubscribe

    def _rebuild(self, types: frozenset[type]) -> None:
        # New tuples instead of changed ones: an emission under way keeps using the old one.
        for kind in types:
            self._listeners[kind] = tuple(each.listener for each in self._subscriptions if kind in each.types)

    def _complain(self, listener: Listener, event: Event, error: BaseException) -> None:
        """Logs the first exception of each kind that a listener raises, because the thousandth says nothing new."""
        kind = type(error)
        with self._lock:
            known = [each for each in self._subscriptions if each.listener is listener]
            if any(kind in each.told for each in known):
                return
            for each in known:
                each.told.add(kind)
        trace = "".join(format_exception(error))
        cleaned = without_passwords(trace)
        record = _log.makeRecord(
            _log.name,
            logging.ERROR,
            __file__,
            0,
            "listener %s failed at %s: further %s of it are not logged",
            (name_of(listener), type(event).__name__, kind.__name__),
            (kind, error, error.__traceback__) if cleaned == trace else None,
            "_complain",
        )
        record.exc_text = cleaned.rstrip("\n")
        if _log.isEnabledFor(logging.ERROR):
            _log.handle(record)


def name_of(function: Any) -> str:
    """The name of a callable with its module, the same on every node. The module __main__ is named by its file."""
    module = getattr(function, "__module__", None) or type(function).__module__
    if module == "__main__":
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        module = Path(file).stem if file else module
    return f"{module}.{getattr(function, '__qualname__', None) or type(function).__qualname__}"
