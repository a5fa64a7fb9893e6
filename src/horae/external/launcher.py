"""The launcher, a process between the scheduler and one command: starts it, passes on its output, kills what it leaves.

It is the command's parent and a subreaper: whatever the command starts and abandons becomes its child, so a daemon
cannot escape by forking twice or by its own session. It ends all of them when the command ends, when it is told to,
when the time limit passes, and when the scheduler is gone, which it notices by the end of the socket between them.

    scheduler -> launcher   length, marshalled request; then b"t" (stop, with grace) and b"k" (kill)
    launcher -> scheduler   kind, length, bytes: b"b" pid, b"o" output, b"e" the end, b"r" refused, b"f" not started
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal; the other half takes 6 ms to import
import marshal
import os
import resource
import select
import time

from horae.external.confinement import FAILED, SET_DEATH_SIGNAL, prctl, start_program
from horae.external.descendants import descendants, send, tasks_of

TYPE_CHECKING = False  # typing takes 8 ms to import
if TYPE_CHECKING:
    from typing import Any

BEGUN, OUTPUT, ENDED = b"b", b"o", b"e"
STOP, KILL = b"t", b"k"
EXIT_CODE = b'"exit-code"'
"""Written by bubblewrap at the end of a program that it has started, and of no other."""
LONGEST_WAIT = 86_400_000
"""Milliseconds of one poll at most, because poll takes a C int. The launcher then waits again."""
PATIENCE = 10.0
"""Seconds to wait for killed processes to end. One that hangs in the kernel may never end."""
_CHUNK = 65_536
_DROP = 1 << 20
_SET_SUBREAPER, _SET_DUMPABLE = 36, 4


def main(control: int, scheduler: int) -> None:
    """Runs the launcher. Does not return."""
    # Only root may read this process: its memory has the secrets, and its descriptors lead to the scheduler.
    prctl(_SET_DUMPABLE, 0)
    prctl(_SET_SUBREAPER, 1)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(number, _signal.SIG_IGN)  # meant for the scheduler, which the launcher outlives
    # A second way to notice that the scheduler is gone, in case a fork of it holds its end of the socket open. The
    # signal also comes when only a thread of it has ended, so it only makes the launcher check its parent.
    _signal.signal(_signal.SIGUSR1, lambda *_: None)
    prctl(SET_DEATH_SIGNAL, _signal.SIGUSR1)
    given = _request(control)
    if given is not None:
        launcher = _Launcher(control, given, scheduler)
        try:
            launcher.live()
        except BaseException as error:  # noqa: BLE001 - it is reported, and no process may be left
            launcher.end_all()
            launcher.say(FAILED, f"its launcher failed: {type(error).__name__}: {error}".encode())
            launcher.finish()
    os._exit(0)


def _request(control: int) -> Any:
    data = b""
    wanted = 4
    while len(data) < wanted:
        piece = os.read(control, wanted - len(data))  # later bytes are for the poll loop
        if not piece:
            return None
        data += piece
        if wanted == 4 and len(data) >= 4:
            wanted += int.from_bytes(data[:4], "big")
    return marshal.loads(data[4:])  # noqa: S302 - written by the scheduler


class _Launcher:
    def __init__(self, control: int, given: dict[str, Any], scheduler: int) -> None:
        self.control = control
        self.scheduler = scheduler
        self.given = given
        self.pid = 0
        self.begun_at = 0.0
        self.over: tuple[int, float] | None = None
        """The command's wait status and the time of its end."""
        self.unsent = bytearray()
        self.room: int = given["output_limit"]
        self.left_out = 0
        self.deaf = False
        """Whether the scheduler is gone."""
        self.kill_at: float | None = None
        self.expires: float | None = None
        self.timed_out = self.stopped = self.killing = False
        self.killed: set[int] = set()
        self.survivors = 0
        self.wake, wakes = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wakes, False)
        os.set_blocking(control, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self.nowhere = os.open("/dev/null", os.O_WRONLY)
        self.output = self.told_status = -1

    def live(self) -> None:
        scratch = self.given["scratch"]
        if scratch is not None:
            os.mkdir(scratch, 0o700)  # noqa: PTH102 - pathlib takes 10 ms to import
            if self.given["identity"] is not None:
                os.chown(scratch, *self.given["identity"][:2])
        refusal = self._start()
        if refusal:
            os.waitpid(self.pid, 0)
            self._clear()
            self.say(refusal[:1], refusal[1:])
        else:
            self.say(BEGUN, str(self.pid).encode())
            # After a stop request, everything the command started has the whole grace, even if the command itself ends
            # early.
            while not self.killing and (self.over is None or (self.kill_at is not None and _anybody())):
                self._wait()
            self.end_all()
            self._drain()
            self._clear()
            self.say(ENDED, self._end())
        self.finish()

    def _start(self) -> bytes:
        """Starts the command. Returns b"", or the kind and the reason of the failure."""
        self.output, theirs = os.pipe()
        self.told_status, status = os.pipe()
        os.set_blocking(self.told_status, False)
        os.set_blocking(self.output, False)
        told, trouble = os.pipe()
        limits = self.given["limits"]
        if limits["processes"] is not None:
            identity = self.given["identity"]
            limits["processes"] += tasks_of(os.getuid() if identity is None else identity[0])
        launcher = os.getpid()
        self.begun_at = time.monotonic()
        if self.given["time_limit"] is not None:
            self.expires = self.begun_at + self.given["time_limit"]
        self.pid = os.fork()
        if not self.pid:
            program = self.given["program"]
            descriptors = {"output": theirs, "trouble": trouble, "program": program, "status": status}
            start_program(self.given, launcher, descriptors)
        for each in (theirs, trouble, status, self.given["program"]):
            os.close(each)
        self.given["environment"] = self.given["secrets"] = None
        refusal = os.read(told, 4096)
        os.close(told)
        return refusal

    # ---- while it runs -----------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if self.output >= 0:
            poll.register(self.output, select.POLLIN)
        if not self.deaf:
            poll.register(self.control, select.POLLIN | (select.POLLOUT if self.unsent else 0))
        alarms = [each for each in (self.expires, self.kill_at) if each is not None]
        wait = max(0, min(int((min(alarms) - time.monotonic()) * 1000) + 1, LONGEST_WAIT)) if alarms else None
        ready = dict(poll.poll(wait))
        if self.wake in ready:
            _emptied(self.wake)
            self._bury()
        if os.getppid() != self.scheduler:
            self.deaf = self.killing = True
        if self.output in ready:
            self._pass_on()
        if self.control in ready:
            self._flush()
            if ready[self.control] & ~select.POLLOUT:
                self._listen()
        self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self.expires is not None and now >= self.expires:
            self.expires = None
            self.timed_out = True
            self._stop()
        if self.kill_at is not None and now >= self.kill_at:
            self.killing = True

    def _listen(self) -> None:
        try:
            words = os.read(self.control, 64)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        if not words:
            self.deaf = self.killing = True
        if STOP in words:
            self.stopped = True
            self._stop()
        if KILL in words:
            self.stopped = self.killing = True

    def _stop(self) -> None:
        """Sends SIGTERM to the whole group and to descendants outside it. SIGCONT wakes suspended processes so that
        they can act on it."""
        if self.kill_at is not None:
            return
        self.kill_at = time.monotonic() + self.given["grace"]
        wrapped = bool(self.given["wrapper"])
        # Bubblewrap would end immediately, with everything in its namespace, so only the processes inside it are asked.
        for number in (_signal.SIGTERM, _signal.SIGCONT):
            if not wrapped:
                try:
                    os.killpg(self.pid, number)
                except OSError:
                    continue
        for pid, group in descendants():
            if pid != self.pid and (wrapped or group != self.pid):
                send(pid, _signal.SIGTERM)
                send(pid, _signal.SIGCONT)

    # ---- output ------------------------------------------------------------------------------------------------------

    def _pass_on(self) -> bool:
        """Passes on a piece of output; returns whether there may be more."""
        try:
            if self.room > 0:
                data = os.read(self.output, min(_CHUNK, self.room))
                self.room -= len(data)
                size = len(data)
                if data:
                    self.say(OUTPUT, data)
            else:
                size = self._drop()
                self.left_out += size
        except BlockingIOError:
            return False
        if not size:
            os.close(self.output)
            self.output = -1
        return bool(size)

    def _drop(self) -> int:
        """Discards a piece of output without copying it."""
        return os.splice(self.output, self.nowhere, _DROP)

    def _drain(self) -> None:
        """Reads what ended processes have left in the pipe. The amount is limited, in case another process holds its
        other end."""
        left = _DROP + self.room
        while self.output >= 0 and left > 0 and self._pass_on():
            left -= 4096

    def say(self, kind: bytes, data: bytes) -> None:
        if not self.deaf:
            self.unsent += kind + len(data).to_bytes(4, "big") + data
            self._flush()

    def _flush(self) -> None:
        while self.unsent and not self.deaf:
            try:
                sent = os.write(self.control, self.unsent)
            except BlockingIOError:
                return
            except OSError:
                self.deaf = self.killing = True
                return
            del self.unsent[:sent]

    def finish(self) -> None:
        """Waits until the scheduler has received everything or is gone."""
        poll = select.poll()
        poll.register(self.control, select.POLLOUT)
        while self.unsent and not self.deaf:
            poll.poll()
            self._flush()

    # ---- ending ------------------------------------------------------------------------------------------------------

    def end_all(self) -> None:
        """Kills everything that the command has started and that still runs, then reaps all of it.

        Dead processes are not reaped before the last one is dead. They count against the limit of processes, so a
        command that forks faster than it can be killed reaches that limit.
        """
        limit = time.monotonic() + PATIENCE
        if self.over is None and self.pid:
            try:  # noqa: SIM105 - contextlib takes 3 ms to import
                os.killpg(self.pid, _signal.SIGKILL)
            except OSError:
                pass
        while True:
            living = descendants()
            for pid, _ in living:
                if pid != self.pid or self.over is not None:
                    self.killed.add(pid)
                send(pid, _signal.SIGKILL)
            # A process that was forked during the look may have been missed; only the kernel knows that none is left.
            if not living and self._bury():
                return
            if time.monotonic() > limit:
                self.survivors = max(1, len(living))
                self._bury()
                return
            select.select([], [], [], 0.002)

    def _bury(self) -> bool:
        """Reaps all dead children; returns whether no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid == self.pid:
                self.over = status, time.monotonic()

    def _clear(self) -> None:
        if self.given["scratch"] is not None:
            from horae.external.folder_removal import remove_tree

            try:
                remove_tree(self.given["scratch"])
            except OSError as error:
                self.say(OUTPUT, f"horae: its directory could not be removed: {error}\n".encode())

    def _end(self) -> bytes:
        status, ended = self.over or (_signal.SIGKILL, time.monotonic())
        code, number = (-1, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), 0)
        if self.given["wrapper"] and 128 < code < 160:  # bubblewrap reports a signal as shells do
            code, number = -1, code - 128
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures = (
            code,
            number,
            int((used.ru_utime + used.ru_stime) * 1_000_000),
            int((ended - self.begun_at) * 1_000_000),
            self.left_out,
            int(self.timed_out),
            int(self.stopped),
            0 if self.stopped or self.timed_out or self.given["wrapper"] else len(self.killed),
            self.survivors,
            int(code <= 0 or not self.given["wrapper"] or EXIT_CODE in _emptied(self.told_status)),
        )
        return " ".join(str(each) for each in figures).encode()


def _anybody() -> bool:
    """Returns whether any child is left, dead or alive. If there is none, no descendant is left either."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _emptied(descriptor: int) -> bytes:
    found = b""
    try:
        while piece := os.read(descriptor, 512):
            found += piece
    except BlockingIOError:
        pass
    return found
