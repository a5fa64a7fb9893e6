"""Commands that misbehave, as real processes: each is held within its limits and leaves nothing behind.

Every test runs once as it is and once in namespaces (where bubblewrap is installed), for what must hold must hold in
both. `LABEL` is on the command line of everything that the tests start, so that whatever is left can be found.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.executors import commands
from tests.executors.bench import all_end, comes_true
from tests.executors.commands import (
    ENDLESS,
    NOBODY,
    Place,
    carrying,
    lone_user,
    needs_bubblewrap,
    needs_python,
    needs_root,
    work,
)
from tools.disturb import UNDISTURBED

from horae.core.time.duration import format_duration
from horae.errors import CommandFailed
from horae.external import command
from horae.external.command import CommandHandle, run_command, start_command

LABEL = f"87{os.getpid():07d}"
"""Also a number of seconds, for sleep."""
SLEEP = f"sleep {LABEL}"


@pytest.fixture(params=["none", pytest.param("namespaces", marks=needs_bubblewrap)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with commands.place() as place:
        place.allow(sandbox=request.param)
        yield place
        assert carrying(LABEL) == []
        assert list(place.scratch.iterdir()) == []


cancel, kill = CommandHandle.cancel, CommandHandle.kill


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_command_that_computes_without_end_is_ended_by_its_cpu_limit(place: Place) -> None:
    place.allow(cpu_seconds=1)
    result = place.sh("while :; do :; done").result
    assert (result.signal, result.timed_out) == (signal.SIGXCPU, False)
    assert result.message == "was killed by signal 24 (SIGXCPU: it reached its CPU limit)"
    assert 0.5 < result.cpu_seconds < 3


@needs_python
def test_one_that_catches_the_warning_is_killed_a_moment_later(place: Place) -> None:
    place.allow(cpu_seconds=1)
    ended = place.python("import signal\nsignal.signal(24, lambda *_: print('caught', flush=True))\nwhile True: pass")
    assert ended.text.startswith("caught\n")
    assert ended.result.signal == signal.SIGKILL


@needs_python
def test_a_command_that_wants_more_memory_than_it_may_have_does_not_get_it(place: Place) -> None:
    place.allow(memory=200 * 1024**2)
    ended = place.python("try: x = b'x' * 2**30\nexcept MemoryError: print('refused')")
    assert ended.lines == ["refused"]
    assert place.python("x = b'x' * 2**26").result.succeeded


def test_a_file_cannot_grow_beyond_its_limit(place: Place) -> None:
    place.allow(file_size=1024 * 1024)
    result = place.sh("exec cat /dev/zero > big").result
    assert result.signal == signal.SIGXFSZ
    assert (place.work / "big").stat().st_size == 1024 * 1024
    assert place.sh("exec cat /dev/zero", stdout="bigger").result.signal == signal.SIGXFSZ
    assert (place.work / "bigger").stat().st_size == 1024 * 1024


@needs_python
def test_a_command_cannot_open_more_files_than_it_may(place: Place) -> None:
    place.allow(open_files=32)
    script = (
        "import os\n"
        "count = 0\n"
        "try:\n"
        "    while True: count += bool(os.dup(1))\n"
        "except OSError as error: print(count, error.errno)\n"
    )
    assert place.python(script).lines == ["29 24"]


@needs_root
@needs_python
def test_a_limit_cannot_be_raised_again(place: Place) -> None:
    place.as_nobody()
    script = (
        "import resource\n"
        "for name in ('NOFILE', 'FSIZE', 'CPU', 'CORE', 'AS', 'NPROC'):\n"
        "    which = getattr(resource, 'RLIMIT_' + name)\n"
        "    most = resource.getrlimit(which)[1]\n"
        "    try: resource.setrlimit(which, (most + 1, most + 1))\n"
        "    except ValueError as error: print(name, error)\n"
    )
    refused = "not allowed to raise maximum limit"
    names = ("NOFILE", "FSIZE", "CPU", "CORE", "AS", "NPROC")
    assert place.python(script).lines == [f"{name} {refused}" for name in names]


def test_a_limit_that_the_node_has_itself_is_not_exceeded(place: Place) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    place.allow(open_files=most + 1 if most != resource.RLIM_INFINITY else 1)
    assert place.sh("ulimit -Hn").text.strip() == str(most if most != resource.RLIM_INFINITY else 1)


@needs_root
@needs_python
def test_a_fork_bomb_fills_its_own_limit_and_is_gone_in_the_end(place: Place) -> None:
    place.as_user(lone_user())
    bomb = f"{place.program('bomb', commands.FORK_BOMB)} {LABEL}"
    result = place.out_of_time(bomb, processes=40, grace=0.2).result
    assert (result.timed_out, result.signal, result.survivors) == (True, signal.SIGKILL, 0)


@needs_root
@needs_python
def test_a_command_cannot_have_more_processes_than_it_may(place: Place) -> None:
    place.as_user(lone_user())
    place.allow(processes=10)
    script = (
        "import os, time\n"
        "count = 0\n"
        "try:\n"
        "    while count < 500:\n"
        "        if not os.fork(): time.sleep(1000)\n"
        "        count += 1\n"
        "except OSError as error: print(error.errno)\n"
    )
    ended = place.python(script)
    assert ended.lines == ["11"], "it could have as many as it liked"


# ---- who it is -------------------------------------------------------------------------------------------------------


@needs_root
def test_a_command_runs_as_the_policys_user_with_no_group_of_the_nodes(place: Place) -> None:
    place.as_nobody()
    assert place.sh("id -un; id -gn; id -Gn; cat /etc/shadow; echo x > /etc/horae-x").lines[:3] == [
        NOBODY,
        "nogroup",
        "nogroup",
    ]
    assert not Path("/etc/horae-x").exists()


@needs_root
def test_a_setuid_program_gains_nothing(place: Place) -> None:
    place.as_nobody()
    copy = place.programs / "become-root"
    copy.write_bytes(Path("/usr/bin/id").resolve().read_bytes())
    os.chown(copy, 0, 0)
    copy.chmod(0o6755)
    assert place.run("become-root -u").lines == ["65534"]
    assert place.run("sh -c 'grep NoNewPrivs /proc/self/status'").lines == ["NoNewPrivs:\t1"]


@needs_root
def test_another_users_processes_are_out_of_reach(place: Place) -> None:
    place.as_nobody()
    node = os.getpid()
    script = f"kill -0 {node} 2>/dev/null && echo reached; cat /proc/{node}/environ 2>/dev/null && echo read; true"
    assert place.sh(script).text == ""


# ---- stopping --------------------------------------------------------------------------------------------------------


def test_a_cancelled_command_can_clean_up_and_is_told_of_as_stopped(place: Place) -> None:
    place.allow(grace=ENDLESS)
    # A child that the shell has only just forked may lose the signal: none is started after "ready".
    ended = place.during("trap 'echo cleaning; exit 7' TERM; echo ready; while :; do :; done", cancel)
    assert ended.lines == ["ready", "cleaning"]
    assert (ended.result.status, ended.result.stopped, ended.result.succeeded) == (7, True, False)
    assert ended.result.message == "was stopped; it ended with status 7"


def test_what_a_command_started_has_the_whole_grace_even_if_the_command_is_quick_to_go(place: Place) -> None:
    place.allow(sandbox="none", grace=ENDLESS)
    slow = place.program(
        "slow", "#!/bin/sh\ntrap 'sleep 0.2; echo cleaned up; exit' TERM\necho ready\nwhile :; do sleep 0.01; done\n"
    )
    ended = place.during(f"{slow} {LABEL} & wait", cancel)
    assert (ended.lines[-1], ended.result.signal) == ("cleaned up", signal.SIGTERM)


def test_a_command_that_does_nothing_about_it_ends_by_the_signal(place: Place) -> None:
    place.allow(grace=ENDLESS)
    ended = place.during(f"echo ready; exec {SLEEP}", cancel)
    assert (ended.result.signal, ended.result.stopped) == (signal.SIGTERM, True)


def test_one_that_ignores_being_asked_is_killed_after_the_grace(place: Place) -> None:
    result = place.during(f"trap '' TERM; echo ready; while :; do {SLEEP}; done", cancel).result
    assert (result.signal, result.stopped, result.timed_out) == (signal.SIGKILL, True, False)
    assert result.seconds >= 0.3


def test_a_kill_does_not_wait(place: Place) -> None:
    place.allow(grace=ENDLESS)
    ended = place.during(f"trap '' TERM; echo ready; while :; do {SLEEP}; done", kill)
    assert (ended.result.signal, ended.result.stopped) == (signal.SIGKILL, True)


def test_a_kill_after_a_cancel_does_not_wait_either(place: Place) -> None:
    place.allow(grace=ENDLESS)

    def both(handle: CommandHandle) -> None:
        handle.cancel()
        handle.kill()

    assert place.during(f"trap '' TERM; echo ready; while :; do {SLEEP}; done", both).result.signal == signal.SIGKILL


def test_time_that_is_up_stops_a_command_that_ignores_being_asked(place: Place) -> None:
    command = f"sh -c 'trap \"\" TERM; echo ready; while :; do {SLEEP}; done'"
    result = place.out_of_time(command, grace=0.2).result
    assert (result.signal, result.timed_out, result.stopped) == (signal.SIGKILL, True, False)
    limit = place.policy.time_limit
    assert limit is not None
    told = format_duration(timedelta(seconds=limit))
    assert result.message.startswith(f"took longer than the time limit of {told} and was stopped; it was killed by")
    assert result.seconds >= limit + 0.2


def test_a_command_that_has_stopped_itself_is_ended_all_the_same(place: Place) -> None:
    place.allow(time_limit=0.3, grace=0.2)
    result = place.sh(f"sh -c 'kill -STOP $$; {SLEEP}'; {SLEEP}").result
    assert (result.timed_out, result.survivors) == (True, 0)


def test_a_command_that_is_cancelled_before_it_has_begun_does_not_stay(place: Place) -> None:
    async def life() -> command.CommandResult:
        handle = start_command(work(f"sh -c '{SLEEP}'"), place.policy, output=print)
        handle.cancel()
        assert handle.begun.cancelled() is False
        return await handle.result()

    assert asyncio.run(life()).stopped


def test_a_run_that_is_cancelled_waits_until_nothing_is_left(place: Place) -> None:
    async def life() -> list[str]:
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            run_command(work(f"sh -c 'echo ready; {SLEEP}'"), place.policy, output=lambda _: begun.set())
        )
        await begun.wait()
        assert carrying(LABEL)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return carrying(LABEL)

    assert asyncio.run(life()) == []


def test_an_event_stops_a_run(place: Place) -> None:
    async def life() -> command.CommandResult:
        stop = asyncio.Event()
        said = work(f"sh -c 'echo ready; {SLEEP}'")
        return await run_command(said, place.policy, output=lambda _: stop.set(), stop=stop)

    assert asyncio.run(life()).stopped


# ---- what it leaves --------------------------------------------------------------------------------------------------

ESCAPES = {
    "a child": f"{SLEEP} &",
    "a child that ignores everything": f"(trap '' TERM HUP INT; {SLEEP}) &",
    "a session of its own": f"setsid {SLEEP} &",
    "a daemon": f"(setsid sh -c '({SLEEP} &) ; ({SLEEP} &)' &)",
    "a daemon without our environment": f"(env -i setsid sh -c '(env -i {SLEEP} </dev/null >/dev/null 2>&1 &)' &)",
    "a stopped child": f"sh -c 'kill -STOP $$; {SLEEP}' &",
    "many": f"for i in 1 2 3 4 5 6 7 8; do (setsid {SLEEP} &); done",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
def test_whatever_a_command_leaves_behind_is_gone_when_it_ends(place: Place, escape: str) -> None:
    assert place.sh(f"{escape}\necho ready").result.succeeded
    assert carrying(LABEL) == []


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
def test_whatever_a_command_has_started_is_gone_when_it_is_cancelled(place: Place, escape: str) -> None:
    ended = place.during(f"{escape}\necho ready; {SLEEP}", cancel)
    assert ended.result.stopped
    assert ended.result.survivors == 0
    assert carrying(LABEL) == []


def test_whatever_a_command_has_started_is_gone_when_the_loop_is(place: Place) -> None:
    async def life() -> None:
        begun = asyncio.Event()
        start_command(
            work(f"sh -c '(setsid {SLEEP} &) ; echo ready; {SLEEP}'"), place.policy, output=lambda _: begun.set()
        )
        await begun.wait()

    asyncio.run(life())
    assert carrying(LABEL) == []


def test_a_killed_scheduler_takes_its_commands_with_it(place: Place) -> None:
    script = textwrap.dedent(f"""
        import asyncio, os
        from horae.core.program.policy import ExternalPolicy
        from horae.external.command import CommandWork, run_command

        def said(text):
            # A fork that outlives us holds our end of every socket open: that must not keep the command alive.
            if not os.fork():
                os.execlp("sleep", "sleep", "3")
            print(text, end="", flush=True)

        policy = ExternalPolicy(enabled=True, commands=("/bin/sh",), sandbox={str(place.policy.sandbox)!r})
        work = CommandWork("sh -c '(setsid {SLEEP} &) ; echo ready; {SLEEP}'", "job", "occ_1", 1)
        asyncio.run(run_command(work, policy, output=said))
    """)
    variables = {**os.environ, "TMPDIR": str(place.scratch)}
    scheduler = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=variables)
    assert scheduler.stdout is not None
    with scheduler.stdout:
        assert scheduler.stdout.readline() == "ready\n"
        left = [int(each.split()[0]) for each in carrying(LABEL)]
        assert len(left) >= 2
        scheduler.kill()
        scheduler.wait()
    assert all_end(left)
    assert comes_true(lambda: not list(place.scratch.iterdir())), "its directory is still there"


def test_a_command_whose_launcher_is_killed_is_swept_up(place: Place) -> None:
    def strike(handle: CommandHandle) -> None:
        assert handle.launcher_pid is not None
        os.kill(handle.launcher_pid, signal.SIGKILL)

    place.allow(working_directory=None)
    with pytest.raises(CommandFailed, match=r"launcher of the command died \(status -9\)"):
        place.during(f"(setsid {SLEEP} &) ; {SLEEP} & echo ready; {SLEEP}", strike)
    assert carrying(LABEL) == []


def test_a_launcher_that_hangs_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_UNHEARD", 0.2)
    popen: Any = subprocess.Popen
    # Nobody else is to wake the launcher.
    monkeypatch.setattr(
        subprocess, "Popen", lambda *given, env, **more: popen(*given, env={**env, UNDISTURBED: "1"}, **more)
    )

    def strike(handle: CommandHandle) -> None:
        launcher = Path(f"/proc/{handle.launcher_pid}/stat")
        assert handle.launcher_pid is not None
        os.kill(handle.launcher_pid, signal.SIGSTOP)
        assert comes_true(lambda: launcher.read_text().rpartition(")")[2].split()[0] == "T")
        handle.kill()

    with pytest.raises(CommandFailed, match="launcher of the command died"):
        place.during(f"(setsid {SLEEP} &) ; echo ready; {SLEEP}", strike)
    assert carrying(LABEL) == []


def test_signals_meant_for_the_scheduler_do_not_end_the_launcher(place: Place) -> None:
    def strike(handle: CommandHandle) -> None:
        assert handle.launcher_pid is not None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(handle.launcher_pid, number)
        (place.work / "go").touch()

    ended = place.during("echo ready; while [ ! -e go ]; do sleep 0.01; done; echo done", strike)
    assert (ended.lines, ended.result.succeeded) == (["ready", "done"], True)
