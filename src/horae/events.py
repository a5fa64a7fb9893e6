"""What happens in an engine, as typed events, and the stream they travel on.

Logs, metrics, hooks and live pages feed on this and on nothing else; an event tells what has happened and decides
nothing. Events are named tuples, because thousands a second are made: two of different classes that hold the same
values compare equal, so ask for the class first. Times ending in `_ms` are milliseconds since 1970; `seconds` are
measured on a monotonic clock.
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
    """Emitted when a node has registered its definitions and begins to work; `slots` runs fit on it at once."""

    node: str
    name: str | None
    jobs: int
    slots: int


class Draining(NamedTuple):
    """Emitted when a node is to stop and waits, `seconds` at most, for the `count` runs that it has under way. `runs`
    names the first of them, each by its job and its id. `name` is what the node was started with."""

    node: str
    seconds: float
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of an event
    runs: str
    name: str | None = None


class EngineStopped(NamedTuple):
    """Emitted when a node has stopped; `released` runs were handed back for others to finish."""

    node: str
    released: int
    name: str | None = None


class StoreLost(NamedTuple):
    """Emitted when the catalog cannot be reached; nothing is started until StoreFound."""

    error: str


class StoreFound(NamedTuple):
    """Emitted when the catalog is back, `seconds` after it was lost."""

    seconds: float


class Planned(NamedTuple):
    """Emitted after a planning pass that looked at `jobs` jobs and gave birth to `born` runs."""

    jobs: int
    born: int
    seconds: float


class Claimed(NamedTuple):
    """Emitted after a call that asked the catalog for runs, with how many came and how long it took."""

    runs: int
    seconds: float


class RunPassed(NamedTuple):
    """Emitted when a run ended that had not started: SKIPPED, MISSED, UNSCHEDULABLE, CANCELLED and the like.

    `count` is how many scheduled times it stands for, from `first_ms` to `last_ms`.
    """

    job: str
    state: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of an event
    reason: str | None
    is_recovery: bool
    run_id: str
    first_ms: int
    last_ms: int


class RunStarted(NamedTuple):
    """Emitted when this node begins with a run, or goes on with one that had been parked, released or lost.

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
    """Emitted when a try of a task begins; `attempt` counts from 1."""

    run_id: str
    job: str
    task: str
    attempt: int


class AttemptEnded(NamedTuple):
    """Emitted when a try of a task has ended, with the state of the attempt and the error's text if it failed.

    `traceback` is the text of where it failed; of a program, the last lines it printed. `exception` is the error
    itself, None where it lives in another process, or might show a secret.
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
    """Emitted when a run gives up its slot to wait for a retry."""

    run_id: str
    job: str
    until: datetime


class RunReleased(NamedTuple):
    """Emitted when a run goes back unfinished, for any node to go on with: this node hands it back, or took it from a
    node that died."""

    run_id: str
    job: str
    reason: str


class RunEnded(NamedTuple):
    """Emitted when a run that had started has ended in the catalog: this node ran it, or ended it for one that did not
    (reaped, taken over). `seconds` is the time since its first start, parked time included, as in the catalog. `reason`
    says why it ended so. `traceback` and `exception` are those of the last attempt that failed here, where the run
    failed."""

    run_id: str
    job: str
    state: str
    reason: str | None
    seconds: float
    traceback: str | None = None
    exception: BaseException | None = None


class RunFenced(NamedTuple):
    """Emitted when a write of this node came too late: somebody else has the run, and nothing was changed."""

    run_id: str
    job: str
    fence: int


class RunAbandoned(NamedTuple):
    """Emitted when a thread that cannot be stopped is left behind; it holds its slot until RunFreed."""

    run_id: str
    job: str
    task: str
    reason: str


class RunFreed(NamedTuple):
    """Emitted when a thread that was left behind has ended after all, `seconds` after its attempt began."""

    run_id: str
    job: str
    task: str
    seconds: float


class HookFailed(NamedTuple):
    """Emitted when a hook of a job raised, or took too long; the run is not touched by it. `hook` is on_start,
    on_complete, or report where the report for them could not be made; `function` is the hook's own name.

    `traceback` and `exception` say where it failed, as those of AttemptEnded do."""

    job: str
    hook: str
    error: str
    function: str | None = None
    run_id: str | None = None
    traceback: str | None = None
    exception: BaseException | None = None


class ResultDropped(NamedTuple):
    """Emitted when a task's return value could not be kept: no JSON, or too long."""

    run_id: str
    job: str
    task: str
    reason: str


class HandlerMissing(NamedTuple):
    """Emitted when no live node has what a job needs: a handler, by its name, or another ability. `why` says what kept
    this node from having it, or what would give it one."""

    job: str
    handler: str
    why: str = ""


class RunOverlong(NamedTuple):
    """Emitted once for a run that lasts longer than an hour and three times what 99 of 100 runs of its job take. Also
    emitted where three scheduled times in a row were skipped because of a run, however short: once for its job, until a
    minute passes without such a run. Nothing ends a run for that."""

    run_id: str
    job: str
    seconds: float
    reason: str


class SandboxMissing(NamedTuple):
    """Emitted when a node whose configuration allows programs cannot give them their sandbox, at its start or later. It
    starts none until it can; their runs wait for `sandbox`."""

    reason: str


class ClockSetBack(NamedTuple):
    """Emitted when the store's clock was ahead and came back, so that jobs are decided further than the clock has come:
    their slots up to `until` ran early. Nothing of them starts until then. Once, until no job is ahead any more."""

    jobs: int
    until: str
    job: str


class DefinitionUnreadable(NamedTuple):
    """Emitted when the definition of a due job cannot be read here, once for each version: the job is left alone until
    somebody defines it anew, drops it, or repairs it."""

    job: str
    version: int
    error: str


class DefinitionsRegistered(NamedTuple):
    """Emitted when the definitions in the code have been written to the catalog."""

    created: int
    changed: int
    unchanged: int


class DefinitionsReplaced(NamedTuple):
    """Emitted when the code of a node that starts changed `jobs` jobs while `nodes` others live, whose code may say
    otherwise: whoever registers later wins. `named` are the first few, with commas."""

    jobs: int
    named: str
    nodes: int


class WindowNarrow(NamedTuple):
    """Emitted when a job was created or changed whose `only` and `avoid` leave so little of its window that its draws
    may find nothing: `rate` of its slots will be UNSCHEDULABLE. `why` says how much is left."""

    job: str
    rate: float
    why: str


class HeartbeatLate(NamedTuple):
    """Emitted when `seconds` passed between two heartbeats: so long that others may have taken this node for dead."""

    seconds: float


class NodeExpelled(NamedTuple):
    """Emitted when this node learns that others declared it dead; it begins anew, without its runs."""

    node: str
    name: str | None = None


class NodeBuried(NamedTuple):
    """Emitted when this node took over `runs` runs of a dead one; `name` is what the dead one was started with."""

    node: str
    runs: int
    name: str | None = None


class RunsReaped(NamedTuple):
    """Emitted when runs were ended that had been asked to stop and did not."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of an event


class RunsSwept(NamedTuple):
    """Emitted when waiting runs were moved on that no hand-over had reached; rare in a healthy catalog."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of an event


class HistoryDeleted(NamedTuple):
    """Emitted when ended runs were deleted because they are older than the retention time."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of an event


class TrailSealed(NamedTuple):
    """Emitted when this node sees that the audit trail has a newer seal, whoever made it. `head` is its digest, for
    `horae audit verify --head`: kept where those who can write to the database cannot, it shows a trail that was cut
    off or written anew."""

    seal: int
    head: str


class HeadUnpublished(NamedTuple):
    """Emitted when the head of the audit trail could not be written to `audit_head_file` or sent to
    `audit_head_webhook`. `where` is the file, or the address without its path; it is tried again with the next head."""

    where: str
    error: str


class LoopFailed(NamedTuple):
    """Emitted when one of the engine's loops met an error nobody expected; the loop goes on."""

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
    """One call of `listen`, and the kinds of exceptions of its listener that have been logged."""

    __slots__ = ("listener", "told", "types")

    def __init__(self, listener: Listener, types: frozenset[type]) -> None:
        self.listener = listener
        self.types = types
        self.told: set[type[BaseException]] = set()


class Stream:
    """Carries events to those who listen, in the order in which they began to, on the thread that emits.

    `emit` belongs to one thread, the engine's; `listen` and the functions it returns may be called from any, also by a
    listener. An event reaches those who listened when its emission began.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscriptions: list[_Subscription] = []
        self._listeners: dict[type, tuple[Listener, ...]] = dict.fromkeys(EVENTS, ())

    def emit(self, event: Event) -> None:
        """Calls everybody who listens to events of this class. What a listener raises is logged and goes no further."""
        for listener in self._listeners[type(event)]:
            try:
                listener(event)
            except (Exception, CancelledError) as error:  # noqa: BLE001 - a stranger's fault must not stop the engine
                self._complain(listener, event, error)

    def wanted(self, kind: type) -> bool:
        """Whether anybody listens to events of this class: where nobody does, they need not be made."""
        return bool(self._listeners[kind])

    def listen(self, listener: Listener, *types: type) -> Callable[[], None]:
        """Has `listener` called with every event of these classes (none given: all), until the answer is called.

        A listener runs inside the engine's loop: it has to be quick and must not block. Raises InvalidInput for a
        class that is no event, and for a coroutine function, which nobody would await.
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
                # By identity: the same listener may listen twice, and ends each on its own.
                self._subscriptions = [each for each in self._subscriptions if each is not subscription]
                self._rebuild(subscription.types)

        return unsubscribe

    def _rebuild(self, types: frozenset[type]) -> None:
        # New tuples instead of changed ones: an emission under way goes on over the old.
        for kind in types:
            self._listeners[kind] = tuple(each.listener for each in self._subscriptions if kind in each.types)

    def _complain(self, listener: Listener, event: Event, error: BaseException) -> None:
        """Logs the first error of each kind a listener raises; the thousandth says nothing new."""
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
    """The name of a callable with its module, the same on every node of its program: a script is known by its file, not
    as __main__."""
    module = getattr(function, "__module__", None) or type(function).__module__
    if module == "__main__":
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        module = Path(file).stem if file else module
    return f"{module}.{getattr(function, '__qualname__', None) or type(function).__qualname__}"
