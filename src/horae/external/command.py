"""Commands of EXTERNAL tasks: one command under way, controlled from the event loop.

Each command has its own launcher (`launcher.py`), a small Python process. It receives its request through a socket, and
reports the command's output and its end through the same socket. When that socket closes, for whatever reason, the
launcher kills everything that it has started. So no command outlives the scheduler, and closing the socket is always
safe.
"""

from __future__ import annotations

import asyncio
import codecs
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

from horae.core.program.policy import ExternalPolicy
from horae.core.time.duration import format_duration
from horae.errors import CommandFailed, CommandRefused, shown
from horae.external import sandbox
from horae.external.allowlist import AllowedProgram, admit
from horae.external.confinement import FAILED, REFUSED
from horae.external.folder_removal import remove_tree
from horae.external.launcher import BEGUN, ENDED, KILL, OUTPUT, PATIENCE, STOP
from horae.external.leftovers import sweep
from horae.external.sandbox import CommandSecret, CommandWork

__all__ = ["CommandHandle", "CommandResult", "CommandSecret", "CommandWork", "run_command", "start_command"]

UMASK = 0o077
"""The default umask of a command: what it creates is accessible to its own user only."""
_HEAD = 5
_UNHEARD = PATIENCE + 5.0
"""Seconds after which a launcher that should have ended counts as stuck and is killed."""
# The packages are registered without importing them, because importing them would take longer than everything else.
_BOOT = (
    "import sys\n"
    "for name, place in (('horae', sys.argv[1]), ('horae.external', sys.argv[1] + '/external')):\n"
    "    sys.modules[name] = type(sys)(name)\n"
    "    sys.modules[name].__path__ = [place]\n"
    "from horae.external.launcher import main\n"
    "main(int(sys.argv[2]), int(sys.argv[3]))\n"
)
_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: with an exit `status`, or by a `signal`."""

    status: int | None
    signal: int | None
    cpu_seconds: float
    """CPU time of the command and of everything it started."""
    seconds: float
    left_out: int
    """Bytes of its output beyond the limit."""
    timed_out: bool
    """Whether it was stopped because its time limit passed."""
    stopped: bool
    """Whether it was stopped on request."""
    leftovers: int
    """Processes that it left behind and that were killed when it ended."""
    survivors: int
    """Processes that could not be killed, because they hang in the kernel."""
    time_limit: float | None
    has_begun: bool = True
    """False if bubblewrap did not report that the program had begun."""

    @property
    def cut(self) -> bool:
        return self.left_out > 0

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and not self.timed_out and not self.stopped

    @property
    def message(self) -> str:
        """How it ended, as text for users: "ended with status 3"."""
        end = f"ended with status {self.status}" if self.signal is None else _killed(self.signal)
        if self.timed_out:
            limit = format_duration(timedelta(seconds=self.time_limit or 0))
            end = f"took longer than the time limit of {limit} and was stopped; it {end}"
        elif self.stopped:
            end = f"was stopped; it {end}"
        if self.survivors:
            end += f"; {self.survivors} of its processes could not be killed"
        return end


class CommandHandle:
    """One command under way. All methods must be called in the loop's thread."""

    def __init__(self, work: CommandWork, policy: ExternalPolicy, output: Callable[[str], None]) -> None:
        self._policy = policy
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._mark = uuid4().hex
        self._scratch = str(Path(gettempdir()).resolve() / f"horae-command-{self._mark}")
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owed = b""
        self._timers: list[asyncio.TimerHandle] = []
        self.pid: int | None = None
        """The command's pid. It leads a session and a process group. None before it has begun."""
        self.begun: asyncio.Future[int] = self._loop.create_future()
        """Completes with the pid when the command has begun; cancelled if it never begins."""
        self._life = self._loop.create_task(self._live(work))

    @property
    def over(self) -> bool:
        return self._life.done()

    @property
    def launcher_pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def cancel(self) -> None:
        """Asks the command and everything it started to stop (SIGTERM). What is left after the policy's grace is
        killed."""
        self._say(STOP, self._policy.grace + _UNHEARD)

    def kill(self) -> None:
        """Kills the command and everything it started."""
        self._say(KILL, _UNHEARD)

    async def result(self) -> CommandResult:
        """Waits until the command and all its processes have ended; returns how it ended.

        Raises CommandRefused, or CommandFailed if it could not be started. Cancelling the wait does not stop the
        command.
        """
        return await asyncio.shield(self._life)

    def _say(self, word: bytes, patience: float) -> None:
        if self.over:
            return
        if self._socket is None:
            self._owed += word
            return
        with suppress(OSError):  # the launcher is gone, which is noticed elsewhere
            self._socket.send(word)
        self._timers.append(self._loop.call_later(patience, self._force))

    def _force(self) -> None:
        """Kills a launcher that does not answer: it hangs, or its own command has stopped it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    # ---- lifecycle ---------------------------------------------------------------------------------------------------

    async def _live(self, work: CommandWork) -> CommandResult:
        try:
            with admit(work.command, self._policy, shell=work.shell) as program:
                request = marshal.dumps(self._request(work, program))
                ours, theirs = socket.socketpair()
                with theirs:
                    try:
                        self._process = self._launch(theirs.fileno(), program.descriptor)
                    except BaseException:
                        ours.close()
                        raise
            if self._policy.time_limit is not None:
                patience = self._policy.time_limit + self._policy.grace + _UNHEARD
                self._timers.append(self._loop.call_later(patience, self._force))
            return await self._follow(ours, request)
        except OSError as error:
            raise CommandFailed(f"Command {shown(work.command)} could not be started: {error.strerror}") from error
        finally:
            for timer in self._timers:
                timer.cancel()
            if not self.begun.done():
                self.begun.cancel()

    def _launch(self, control: int, program: int) -> subprocess.Popen[bytes]:
        needed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, _PACKAGE, str(control), str(os.getpid())]
        return subprocess.Popen(  # noqa: S603 - this interpreter, Horae's own code
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(control, program),
            start_new_session=True,
            cwd="/",
            env=needed,  # for the interpreter itself; the command's environment is in the request
        )

    def _request(self, work: CommandWork, program: AllowedProgram) -> dict[str, Any]:
        policy = self._policy
        who = sandbox.identity(work, policy)
        place = sandbox.places(work, policy, self._scratch)
        variables = sandbox.environment(work, policy, os.environ, self._mark)
        wrapper = sandbox.wrapper(policy, who, place, program.path)
        return {
            "program": program.descriptor,
            "by_descriptor": not (wrapper or program.is_script),
            # Bubblewrap looks the program up by the name that it passes to it.
            "path": os.fsencode(program.arguments[0] if wrapper else program.path),
            "arguments": [os.fsencode(each) for each in program.arguments],
            "wrapper": [os.fsencode(each) for each in wrapper],
            "hidden": [os.fsencode(each) for each in sandbox.hidden(policy)] if wrapper else [],
            "folders": [os.fsencode(each) for each in sandbox.hidden_folders(policy)] if wrapper else [],
            "environment": {os.fsencode(name): os.fsencode(value) for name, value in variables.items()},
            "secrets": sandbox.secret_files(work),
            "identity": who,
            "directory": os.fsencode(place.directory),
            "below": [os.fsencode(each) for each in place.below],
            "scratch": None if policy.working_directory is not None else os.fsencode(self._scratch),
            "stdout": None if place.stdout is None else [os.fsencode(each) for each in place.stdout],
            "stderr": None if place.stderr is None else [os.fsencode(each) for each in place.stderr],
            "umask": UMASK if work.umask is None else work.umask,
            "limits": {name: getattr(policy, name) for name in _LIMITS},
            "output_limit": policy.output_limit,
            "time_limit": policy.time_limit,
            "grace": policy.grace,
        }

    async def _follow(self, ours: socket.socket, request: bytes) -> CommandResult:
        """Sends the request and waits until the launcher has ended. Its last message is the result."""
        last = b"", b""
        clean = False
        try:
            ours.settimeout(0)
            with suppress(ConnectionError):
                await self._loop.sock_sendall(ours, len(request).to_bytes(4, "big") + request)
            self._socket = ours
            for word in (self._owed[at : at + 1] for at in range(len(self._owed))):
                self._say(word, self._policy.grace + _UNHEARD)
            last = await self._listen(ours)
            clean = bool(last[0])
        finally:
            self._socket = None
            ours.close()
            await self._bury(clean=clean)
        return self._concluded(*last)

    async def _listen(self, ours: socket.socket) -> tuple[bytes, bytes]:
        """Passes the output on. Returns the launcher's last message, or two empty values if it died before."""
        text = _Text(self._output)
        buffer = bytearray()
        while True:
            try:
                data = await self._loop.sock_recv(ours, 262_144)
            except ConnectionError:
                data = b""
            if not data:
                text.end(0)
                return b"", b""
            buffer += data
            while len(buffer) >= _HEAD and len(buffer) >= (size := _HEAD + int.from_bytes(buffer[1:_HEAD], "big")):
                kind, content = bytes(buffer[:1]), bytes(buffer[_HEAD:size])
                del buffer[:size]
                if kind == OUTPUT:
                    text.write(content)
                elif kind == BEGUN:
                    self.pid = int(content)
                    self.begun.set_result(self.pid)
                else:
                    text.end(int(content.split()[4]) if kind == ENDED else 0)
                    return kind, content

    async def _bury(self, *, clean: bool) -> None:
        """Waits for the launcher's end. If it died early, kills the command's remaining processes and removes its
        directory."""
        assert self._process is not None
        wait = 0.001
        while self._process.poll() is None:
            await asyncio.sleep(wait)
            wait = min(wait * 2, 0.05)
        if not clean:
            await asyncio.to_thread(sweep, self._mark, self.pid)
            with suppress(OSError):
                remove_tree(self._scratch)

    def _concluded(self, kind: bytes, content: bytes) -> CommandResult:
        if kind == REFUSED:
            raise CommandRefused(f"The command was refused: {content.decode()}")
        if kind == FAILED:
            raise CommandFailed(f"The command could not be started: {content.decode()}")
        if kind != ENDED:
            assert self._process is not None
            raise CommandFailed(f"The launcher of the command died (status {self._process.returncode}), and so did it")
        status, number, cpu, seconds, left_out, timed_out, stopped, leftovers, survivors, begun = map(
            int, content.split()
        )
        return CommandResult(
            status=status if status >= 0 else None,
            signal=number or None,
            cpu_seconds=cpu / 1e6,
            seconds=seconds / 1e6,
            left_out=left_out,
            timed_out=bool(timed_out),
            stopped=bool(stopped),
            leftovers=leftovers,
            survivors=survivors,
            time_limit=self._policy.time_limit,
            has_begun=bool(begun),
        )


_LIMITS = ("cpu_seconds", "memory", "open_files", "processes", "file_size")


def start_command(work: CommandWork, policy: ExternalPolicy, *, output: Callable[[str], None]) -> CommandHandle:
    """Starts the command. Must be called in a running loop; `output` receives the printed text there, in pieces."""
    return CommandHandle(work, policy, output)


async def run_command(
    work: CommandWork,
    policy: ExternalPolicy,
    *,
    output: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> CommandResult:
    """Runs the command to its end.

    Setting `stop`, or cancelling this call, stops the command; a cancelled call still waits until all its processes
    have ended. Raises like `CommandHandle.result`.
    """
    handle = start_command(work, policy, output=output)
    watch = None if stop is None else asyncio.ensure_future(_stopping(stop, handle))
    try:
        return await handle.result()
    except asyncio.CancelledError:
        handle.cancel()
        with suppress(CommandRefused, CommandFailed):
            await handle.result()
        raise
    finally:
        if watch is not None:
            watch.cancel()


async def _stopping(stop: asyncio.Event, handle: CommandHandle) -> None:
    await stop.wait()
    handle.cancel()


class _Text:
    """Decodes bytes to text, whole characters at a time."""

    def __init__(self, output: Callable[[str], None]) -> None:
        self._output = output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._mid_line = False

    def write(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        if text:
            self._mid_line = text[-1] != "\n"
            self._output(text)

    def end(self, left_out: int) -> None:
        self.write(b"", final=True)
        if left_out:
            start = "\n" if self._mid_line else ""
            self._output(f"{start}… {left_out} byte{'' if left_out == 1 else 's'} left out\n")


def _killed(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"was killed by signal {number}"
    why = _REASONS.get(name)
    return f"was killed by signal {number} ({name}{f': {why}' if why else ''})"


_REASONS = {
    "SIGXCPU": "it reached its CPU limit",
    "SIGXFSZ": "a file reached its size limit",
    "SIGKILL": "memory or cpu limit?",
    "SIGSEGV": "memory limit?",
    "SIGABRT": "memory limit?",
}
"""Which limit of a command may be behind a signal."""
