"""When a silent node is dead: what one observer may conclude from what it saw, by its own monotonic time.

A node raises a counter with every heartbeat and holds a lock for as long as its process lives. Nobody's wall clock says
anything about life: a database clock that jumps declares no one dead.

    counter unchanged for `silence`           dead, whatever the lock says (the process hangs)
    counter unchanged for `released`, lock free   dead: the process is gone. 0 where a free lock is proof (a file lock);
                                              a few seconds where a lock is also lost with a connection
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SILENCE = 30.0
RECONNECTION = 3.0
"""How long a node that only lost its connection may take to come back and have its lock again."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One node as an observer saw it: its counter, whether its lock was free, both at a monotonic moment. `silence` is
    what it stands by itself: it stops its work before that is over, and not before."""

    node: str
    counter: int
    lock_free: bool
    silence: float = 0.0


@dataclass(frozen=True, slots=True)
class Watch:
    """What an observer remembers of one node: the counter, since when it stands still, since when the lock is free."""

    counter: int
    since: float
    free_since: float | None


def observe(
    watched: Mapping[str, Watch],
    seen: Iterable[Sight],
    at: float,
    *,
    released: float = RECONNECTION,
    silence: float = SILENCE,
) -> tuple[dict[str, Watch], tuple[tuple[str, int], ...]]:
    """The new memory, and the nodes judged dead with the counter they are judged by; nodes not seen are forgotten.
    `silence` is the observer's own; a node that stands by a longer one is given that."""
    memory: dict[str, Watch] = {}
    dead: list[tuple[str, int]] = []
    for sight in seen:
        before = watched.get(sight.node)
        still = before is not None and before.counter == sight.counter
        since = before.since if before is not None and still else at
        free_since = None
        if sight.lock_free:
            known = before.free_since if before is not None and still else None
            free_since = at if known is None else known
        memory[sight.node] = Watch(sight.counter, since, free_since)
        if at - since >= max(silence, sight.silence) or (free_since is not None and at - free_since >= released):
            dead.append((sight.node, sight.counter))
    return memory, tuple(dead)
