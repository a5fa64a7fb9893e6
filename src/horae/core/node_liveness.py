"""Liveness of nodes: when one observer may declare a silent node dead, by the time that the observer measures itself.

A node raises a counter with every heartbeat and holds a lock for as long as its process lives. Wall clocks are not
used, so that a database clock that jumps declares no node dead.

    counter unchanged for the node's silence      dead, whatever the lock says (the process hangs, or is cut off)
    counter unchanged for `released`, lock free   dead: the process is gone. 0 where a free lock is proof (a file lock);
                                                  longer than a heartbeat where a lock is also lost with a connection

An observer counts only the time that its own looks cover. After a look that failed, every watch starts anew. A look
more than one heartbeat after the one before counts for one heartbeat. Otherwise the first node to come back after an
outage would take over from all others. An observer that is always late, on an overloaded machine, still finds a dead
node, only later. Where locks are lost with connections, a lock that is free at the first look after a gap proves
nothing by itself.

The silence that applies to a node is the one in the node's own row. The node stops its work `late_after` seconds after
it sent the last heartbeat that was confirmed, and so before any observer can have counted its silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from horae.errors import InvalidPolicy

HEARTBEAT = 2.0
LEAST_HEARTBEAT = 0.05
"""Seconds. With a shorter heartbeat, a busy node would miss its own heartbeats."""
SILENCE = 30.0
RECONNECTION = 3.0
"""Seconds that a node may take to connect again and have its lock back after it lost only its connection."""
LEAST_LOOKS = 4
"""How many looks must have seen a node unchanged before its silence counts."""
BEATS_OF_SILENCE = 4
"""The shortest silence, in heartbeats."""
BEATS_BEFORE_LATE = 2
"""The shortest `late_after`, in heartbeats, so that a failed heartbeat can be tried again."""
MISSED_WITHOUT_LOCK = 1.5
"""The least time without a sign of a node with a free lock, in heartbeats: a node that only lost its lock sends one."""


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """One node as an observer saw it: its counter and whether its lock was free, both at the same moment.

    `silence` and `heartbeat` are those in the node's own row, in seconds; 0 where the row has none.
    """

    node: str
    counter: int
    lock_free: bool
    silence: float = 0.0
    heartbeat: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeWatch:
    """What an observer remembers of one node.

    The counter has not changed for `silent` seconds and in `looks` looks. The lock has been free for `free` seconds
    (None: it is held). `lock_proves`: whether the free lock may be taken as proof that the process is gone.
    """

    counter: int
    silent: float
    looks: int
    free: float | None
    lock_proves: bool


@dataclass(frozen=True, slots=True)
class ObserverMemory:
    """What an observer remembers: each node it watches, and when it last looked.

    `broken`: the last look failed, so that the time before the next one was not watched.
    """

    watched: Mapping[str, NodeWatch] = field(default_factory=dict)
    looked_at: float | None = None
    broken: bool = False


FAILED_LOOK = ObserverMemory(broken=True)
"""The memory of an observer whose look has failed."""


def observe(
    memory: ObserverMemory,
    seen: Iterable[NodeObservation],
    at: float,
    *,
    asked_at: float | None = None,
    apart: float = float("inf"),
    released: float = RECONNECTION,
    silence: float = SILENCE,
) -> tuple[ObserverMemory, tuple[tuple[str, int], ...]]:
    """The new memory, and the dead nodes, each with the counter that was seen. Nodes not seen are forgotten.

    All times are in seconds. `asked_at` is when the look was sent to the store, `at` when its answer came: watched time
    runs from the answer of one look to the sending of another. `apart` is the most that one look counts for. `released`
    is how long a lock must be free. `silence` applies to nodes whose row has none.
    """
    passed, known, has_gap = 0.0, 0.0, memory.broken
    if memory.looked_at is not None:
        passed = min(at - memory.looked_at, apart)
        known = min(max(0.0, (at if asked_at is None else asked_at) - memory.looked_at), apart)
        has_gap = at - memory.looked_at > apart
    unseen = passed - known
    watched: dict[str, NodeWatch] = {}
    dead: list[tuple[str, int]] = []
    for sight in seen:
        watch = _watched(memory.watched.get(sight.node), sight, passed, has_gap=has_gap)
        watched[sight.node] = watch
        is_silent = watch.looks >= LEAST_LOOKS and watch.silent - unseen >= (sight.silence or silence)
        if is_silent or _is_gone(watch, sight, unseen, released):
            dead.append((sight.node, sight.counter))
    return ObserverMemory(watched, at), tuple(dead)


def _watched(before: NodeWatch | None, sight: NodeObservation, passed: float, *, has_gap: bool) -> NodeWatch:
    """`passed`: the seconds that count since the look before. `has_gap`: more time passed than counts."""
    if before is None or before.counter != sight.counter:
        return NodeWatch(sight.counter, 0.0, 1, 0.0 if sight.lock_free else None, not (sight.lock_free and has_gap))
    free = None
    if sight.lock_free:
        free = 0.0 if before.free is None or has_gap else before.free + passed
    proves = not sight.lock_free or (before.lock_proves and not has_gap)
    return NodeWatch(sight.counter, before.silent + passed, before.looks + 1, free, proves)


def _is_gone(watch: NodeWatch, sight: NodeObservation, unseen: float, released: float) -> bool:
    if watch.free is None:
        return False
    if not released:
        return True
    return watch.lock_proves and watch.free - unseen >= max(released, MISSED_WITHOUT_LOCK * sight.heartbeat)


def default_late_after(heartbeat: float, silence: float) -> float:
    """The default of `late_after`, in seconds: well before the silence of the node is over."""
    return min(silence * 5 / 6, silence - 1.5 * heartbeat)


def check_timing(heartbeat: float, late_after: float | None, silence: float) -> None:
    """Raises InvalidPolicy where a live node could be declared dead, or could still work after a takeover of its runs.

    The message names the bounds. A node with `late_after` None never stops its work by itself.
    """
    if heartbeat < LEAST_HEARTBEAT:
        raise InvalidPolicy(f"Invalid heartbeat {heartbeat:g} s: must be at least {LEAST_HEARTBEAT:g} s")
    if silence < BEATS_OF_SILENCE * heartbeat:
        most, least = silence / BEATS_OF_SILENCE, BEATS_OF_SILENCE * heartbeat
        raise InvalidPolicy(
            f"Invalid heartbeat {heartbeat:g} s with take_over_after {silence:g} s: take_over_after must be at least"
            f" {BEATS_OF_SILENCE} heartbeats, else nodes that live are taken for dead",
            hint=f"Set heartbeat to {most:g} s or less, or first take_over_after to {least:g} s or more.",
        )
    least, below = BEATS_BEFORE_LATE * heartbeat, silence - heartbeat
    if late_after is not None and not least <= late_after < below:
        raise InvalidPolicy(
            f"Invalid late_after {late_after:g} s: must be at least {least:g} s ({BEATS_BEFORE_LATE} heartbeats) and"
            f" less than {below:g} s (take_over_after {silence:g} s less one heartbeat of {heartbeat:g} s)",
            hint="Leave late_after out, and it follows take_over_after.",
        )
