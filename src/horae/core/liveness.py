"""When a silent node is dead: what one observer may conclude from what it saw, by its own time.

A node raises a counter with every heartbeat and holds a lock for as long as its process lives. Nobody's wall clock says
anything about life: a database clock that jumps declares no one dead.

    counter unchanged for the node's silence      dead, whatever the lock says (the process hangs, or is cut off)
    counter unchanged for `released`, lock free   dead: the process is gone. 0 where a free lock is proof (a file lock);
                                                  longer than a heartbeat where a lock is also lost with a connection

An observer counts only the time that its own looks cover. A look that failed starts every watch anew, and one that came
later than one heartbeat after the one before counts for one heartbeat: else the first node to come back after an outage
would bury all others. An observer that is always late, on a machine with too much to do, still finds a dead node, only
later. Where locks are lost with connections, one that is free at the first look after a gap proves nothing by itself.

A node stands by the silence that it has written into its own row, and observers go by that row. It stops its work
`late_after` seconds after the last heartbeat that was confirmed, counted from when that was sent, and so before anybody
can have counted its silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from horae.errors import InvalidPolicy

HEARTBEAT = 2.0
LEAST_HEARTBEAT = 0.05
"""Below that, a node that has much to do would miss its own heartbeats."""
SILENCE = 30.0
RECONNECTION = 3.0
"""How long a node that only lost its connection may take to come back and have its lock again."""
LEAST_LOOKS = 4
"""Looks that must have seen a node unchanged before its silence counts."""
BEATS_OF_SILENCE = 4
"""Heartbeats that a silence has room for, at least."""
BEATS_BEFORE_LATE = 2
"""Heartbeats that a node may miss before it stops its work, at least: one that failed is tried again."""
MISSED_WITHOUT_LOCK = 1.5
"""Heartbeats without a sign of a node whose lock is free, at least: one that only lost its lock beats meanwhile."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One node as an observer saw it: its counter, whether its lock was free, both at one moment. `silence` is what it
    stands by itself, and `heartbeat` how often it beats, in seconds; 0 where its row says nothing."""

    node: str
    counter: int
    lock_free: bool
    silence: float = 0.0
    heartbeat: float = 0.0


@dataclass(frozen=True, slots=True)
class Watch:
    """What an observer remembers of one node: the counter, for how many seconds it has stood still and in how many
    looks, for how many seconds the lock is free (None: it is held), and whether that would prove anything."""

    counter: int
    silent: float
    looks: int
    free: float | None
    lock_proves: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """What an observer remembers: each node it watches, and when it last looked. `broken`: it did not see what happened
    before the look to come."""

    watched: Mapping[str, Watch] = field(default_factory=dict)
    looked_at: float | None = None
    broken: bool = False


BROKEN = Memory(broken=True)
"""The memory of an observer whose look has failed."""


def observe(
    memory: Memory,
    seen: Iterable[Sight],
    at: float,
    *,
    asked_at: float | None = None,
    apart: float = float("inf"),
    released: float = RECONNECTION,
    silence: float = SILENCE,
) -> tuple[Memory, tuple[tuple[str, int], ...]]:
    """The new memory, and the nodes judged dead with the counter they are judged by; nodes not seen are forgotten.

    `at` is when the answer came, `asked_at` when it was asked for: a watch begins with the one and ends with the other.
    `apart` is the most that one look counts for. `silence` is for nodes whose row names none.
    """
    passed, known, has_gap = 0.0, 0.0, memory.broken
    if memory.looked_at is not None:
        passed = min(at - memory.looked_at, apart)
        known = min(max(0.0, (at if asked_at is None else asked_at) - memory.looked_at), apart)
        has_gap = at - memory.looked_at > apart
    unseen = passed - known
    watched: dict[str, Watch] = {}
    dead: list[tuple[str, int]] = []
    for sight in seen:
        watch = _watched(memory.watched.get(sight.node), sight, passed, has_gap=has_gap)
        watched[sight.node] = watch
        is_silent = watch.looks >= LEAST_LOOKS and watch.silent - unseen >= (sight.silence or silence)
        if is_silent or _is_gone(watch, sight, unseen, released):
            dead.append((sight.node, sight.counter))
    return Memory(watched, at), tuple(dead)


def _watched(before: Watch | None, sight: Sight, passed: float, *, has_gap: bool) -> Watch:
    """`passed`: the seconds since the look before that count. `has_gap`: not all of them were watched."""
    if before is None or before.counter != sight.counter:
        return Watch(sight.counter, 0.0, 1, 0.0 if sight.lock_free else None, not (sight.lock_free and has_gap))
    free = None
    if sight.lock_free:
        free = 0.0 if before.free is None or has_gap else before.free + passed
    proves = not sight.lock_free or (before.lock_proves and not has_gap)
    return Watch(sight.counter, before.silent + passed, before.looks + 1, free, proves)


def _is_gone(watch: Watch, sight: Sight, unseen: float, released: float) -> bool:
    if watch.free is None:
        return False
    if not released:
        return True
    return watch.lock_proves and watch.free - unseen >= max(released, MISSED_WITHOUT_LOCK * sight.heartbeat)


def default_late_after(heartbeat: float, silence: float) -> float:
    """When a node stops its work where nobody says: well before its silence is over."""
    return min(silence * 5 / 6, silence - 1.5 * heartbeat)


def check_rhythm(heartbeat: float, late_after: float | None, silence: float) -> None:
    """Raises InvalidPolicy, with the bounds, where a node that lives could be taken for dead, or could work on when
    others have taken its runs over. A node with `late_after` None never stops by itself."""
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
