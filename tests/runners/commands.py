"""Commands for tests: a policy with a place of its own, what became of a command, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from horae.core.external import ExternalPolicy
from horae.runners import sandbox
from horae.runners.command import CommandHandle, CommandResult, CommandWork, start_command

SHELL = "/bin/sh"
PYTHON = "/usr/bin/python3"
NOBODY = "nobody"
LIMIT = 20.0
"""Seconds after which a command of these tests is taken to hang."""

FORK_BOMB = f"""#!{PYTHON}
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
"""Every process of it starts others for as long as it can."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")
needs_python = pytest.mark.skipif(
    not Path(PYTHON).exists(), reason=f"{PYTHON}, which any user can run, is not installed here"
)
needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap", path=sandbox.BUBBLEWRAP_PLACES) is None, reason="bubblewrap is not installed here"
)


@dataclass
class Ended:
    result: CommandResult
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class Place:
    """A directory that any user can work in, and a policy that allows a shell, Python, and the programs put there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "programs"
        self.work = root / "work"
        self.scratch = root / "scratch"
        """Where commands without a working directory get theirs."""
        for each in (root, self.programs, self.work, self.scratch):
            each.mkdir(exist_ok=True)
            each.chmod(0o755)
        self.policy = ExternalPolicy(
            enabled=True,
            commands=(SHELL, PYTHON),
            directories=(str(self.programs),),
            working_directory=str(self.work),
            environment=(),
            grace=0.3,
            time_limit=LIMIT,
            namespaces="never",
        )

    def allow(self, **changes: Any) -> None:
        self.policy = replace(self.policy, **changes)

    def as_nobody(self) -> None:
        os.chown(self.work, *_ids(NOBODY))
        self.allow(user=NOBODY)

    def program(self, name: str, text: str) -> str:
        path = self.programs / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def run(self, command: str, **options: Any) -> Ended:
        """The command's end; within LIMIT, or else it is killed and the test fails."""

        async def life() -> Ended:
            pieces: list[str] = []
            handle = start_command(work(command, **options), self.policy, output=pieces.append)
            return await ended(handle, pieces)

        return asyncio.run(life())

    def sh(self, script: str, **options: Any) -> Ended:
        return self.run(f"{SHELL} -c {_quoted(script)}", **options)

    def python(self, script: str, **options: Any) -> Ended:
        return self.run(f"{PYTHON} -c {_quoted(script)}", **options)

    def during(self, script: str, act: Callable[[CommandHandle], None], **options: Any) -> Ended:
        """Runs a shell script; when it has said "ready", `act` is called with its handle."""

        async def life() -> Ended:
            pieces: list[str] = []
            ready = asyncio.Event()

            def said(text: str) -> None:
                pieces.append(text)
                if "ready" in "".join(pieces):
                    ready.set()

            command = f"{SHELL} -c {_quoted(script)}"
            handle = start_command(work(command, **options), self.policy, output=said)
            waiting = asyncio.ensure_future(ready.wait())
            over = asyncio.ensure_future(handle.result())
            await asyncio.wait({waiting, over}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
            assert ready.is_set(), f"it never said that it is ready, only: {''.join(pieces)}"
            act(handle)
            try:
                return await ended(handle, pieces)
            finally:
                await asyncio.wait({over})
                over.exception()

        return asyncio.run(life())


async def ended(handle: CommandHandle, pieces: list[str]) -> Ended:
    try:
        async with asyncio.timeout(LIMIT):
            return Ended(await handle.result(), "".join(pieces))
    finally:
        handle.kill()


def work(command: str, **options: Any) -> CommandWork:
    return CommandWork(command, "nightly", "occ_1", 3, **options)


@contextmanager
def place() -> Iterator[Place]:
    """Not in pytest's own directory, which nobody else may enter; gone afterwards, with all that is in it."""
    root = Path(tempfile.mkdtemp(prefix="horae-commands-"))
    made = Place(root)
    before, tempfile.tempdir = tempfile.tempdir, str(made.scratch)
    try:
        yield made
    finally:
        tempfile.tempdir = before
        shutil.rmtree(root)


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does, within LIMIT. For what other processes do, which nobody tells us."""
    limit = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def carrying(text: str) -> list[str]:
    """Command lines of processes that have the text in theirs, other than our own and our ancestors'."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except (OSError, ProcessLookupError):
            continue
        if text in line and state not in ("Z", "X") and "pytest" not in line:
            found.append(f"{entry.name} {line}")
    return found


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count is all


def interpreter_for_all() -> str | None:
    """A Python that users other than root can run, as new as ours."""
    for each in (sys.executable, PYTHON):
        path = Path(each).resolve()
        if path.exists() and all(step.stat().st_mode & 0o005 for step in (path, *path.parents)):
            return str(path)
    return None


def _ids(name: str) -> tuple[int, int]:
    import pwd

    found = pwd.getpwnam(name)
    return found.pw_uid, found.pw_gid


def _quoted(script: str) -> str:
    import shlex

    return shlex.quote(script)
