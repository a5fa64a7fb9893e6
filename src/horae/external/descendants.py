"""The descendants of this process, read from /proc, and signals that reach only them."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal; the other half takes 6 ms to import
import os


def descendants() -> list[tuple[int, int]]:
    """Returns every living descendant, with its process group. Returns an empty list where there is no /proc."""
    children: dict[int, list[tuple[int, int, bool]]] = {}
    for pid in _processes():
        found = _stat(pid)
        if found is not None:
            state, parent, group = found
            children.setdefault(parent, []).append((pid, group, state in ("Z", "X")))
    living = []
    waiting = [os.getpid()]
    while waiting:
        for pid, group, dead in children.get(waiting.pop(), ()):
            waiting.append(pid)
            if not dead:
                living.append((pid, group))
    return living


def send(pid: int, number: int) -> None:
    """Sends a signal to a descendant, never to another process that reuses its pid: the pid is checked while it is held
    open."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _is_ours(pid):
            _signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def tasks_of(user: int) -> int:
    """Counts a user's processes and threads, because the kernel's limit counts both."""
    count = 0
    for pid in _processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == user:  # noqa: PTH116 - pathlib takes 10 ms to import
                count += os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116 - as above
        except OSError:
            continue
    return count


def _is_ours(pid: int) -> bool:
    us = os.getpid()
    while pid > 1:
        found = _stat(pid)
        if found is None:
            return False
        pid = found[1]
        if pid == us:
            return True
    return False


def _processes() -> list[int]:
    try:
        return [int(each) for each in os.listdir("/proc") if each.isdigit()]  # noqa: PTH208 - pathlib is slow
    except OSError:
        return []


def _stat(pid: int) -> tuple[str, int, int] | None:
    """Returns state, parent and group of a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes 10 ms to import
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[2])
