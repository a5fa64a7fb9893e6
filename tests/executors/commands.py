"""Commands for tests: a policy with a place of its own, what became of a command, and what is left of it."""

from __future__ import annotations

import asyncio
import gc
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from horae.core.program.policy import ExternalPolicy, Sandbox
from horae.external import sandbox
from horae.external.command import CommandHandle, CommandResult, CommandWork, start_command

SHELL = "/bin/sh"
PYTHON = "/usr/bin/python3"
NOBODY = "nobody"
LONE_USERS = ("games", "man", "lp", "mail", "news", "uucp", "proxy", "backup")
"""That most systems have, and nothing runs as."""
LIMIT = 60.0
"""Seconds after which a command of these tests is taken to hang."""
ENDLESS = 1000.0
"""Seconds of grace that no test waits for."""

FORK_BOMB = f"""#!{PYTHON}
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"ready\\n")
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
"""Every process of it starts others for as long as it can. The first says when it no longer stops on request."""

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
            sandbox=Sandbox.NONE,
        )

    def allow(self, **changes: Any) -> None:
        self.policy = replace(self.policy, **changes)

    def as_nobody(self) -> None:
        self.as_user(NOBODY)

    def as_user(self, name: str) -> None:
        os.chown(self.work, *ids_of(name))
        self.allow(user=name)

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

    def out_of_time(self, command: str, **limits: Any) -> Ended:
        """A command that was stopped because its time was up, after it had said "ready". How long a command takes to
        come so far is the machine's to say, so it gets ever more time until it does."""
        time_limit = 0.3
        while True:
            self.allow(time_limit=time_limit, **limits)
            ended = self.run(command)
            if "ready" in ended.text:
                return ended
            time_limit *= 4
            assert time_limit < LIMIT, f"it was never ready, and said: {ended.text}"

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


def open_descriptors() -> set[tuple[int, int, int]]:
    """Those of this process, with what they lead to. What earlier tests forgot to close is closed now, not later."""
    gc.collect()
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all
        with suppress(OSError):  # the one that was open for this list
            status = os.fstat(int(name))
            found.add((int(name), status.st_dev, status.st_ino))
    return found


def lone_user() -> str:
    """A user that nothing else runs as, for what is counted by user: PostgreSQL and other tests are nobody, and each
    worker of pytest has one of its own."""
    known = {each.pw_name for each in pwd.getpwall()}
    users = [each for each in LONE_USERS if each in known] or [NOBODY]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return users[int(worker) % len(users)]


def interpreter_for_all() -> str | None:
    """A Python that users other than root can run, of our own version: it is given our packages, and libraries that
    were compiled for another are none to it."""
    ours = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for each in (sys.executable, PYTHON, f"/usr/bin/{ours}", f"/usr/local/bin/{ours}"):
        path = Path(each).resolve()
        is_for_all = path.exists() and all(step.stat().st_mode & 0o005 for step in (path, *path.parents))
        if is_for_all and _version_of(path) == sys.version_info[:2]:
            return str(path)
    return None


def _version_of(interpreter: Path) -> tuple[int, ...]:
    asked = [str(interpreter), "-I", "-c", "import sys; print(*sys.version_info[:2])"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return tuple(int(each) for each in told.split())


def ids_of(name: str) -> tuple[int, int]:
    found = pwd.getpwnam(name)
    return found.pw_uid, found.pw_gid


def _quoted(script: str) -> str:
    import shlex

    return shlex.quote(script)
