"""Tasks as users write them, for processes of their own to find by name."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from horae.executors.run import Cancelled, Run

LONG = 600
"""Seconds that nobody waits for: longer than the patience of any test."""
SLEEP = [sys.executable, "-c", f"import time; time.sleep({LONG})"]


def give_pid() -> int:
    return os.getpid()


def surroundings() -> list[Any]:
    """Environment and arguments as the task has them, and as the system shows those that its process began with."""
    begun = [Path(f"/proc/self/{each}").read_bytes().decode() for each in ("environ", "cmdline")]
    shell = subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=True)
    return [os.environ.get("HORAE_CONNECTION_W"), sys.argv, *begun, "PWMARK" in shell.stdout]


def say_hello() -> dict[str, Any]:
    print("hello")
    print("bad news", file=sys.stderr)
    logging.getLogger("tasks").warning("as it happens")
    return {"rows": 42, "names": ["a", "é"]}


async def say_hello_later() -> str:
    await asyncio.sleep(0)
    print("hello")
    return "later"


def say_more_than_wanted() -> None:
    for _ in range(100):
        sys.stdout.write("x" * 1024 * 1024)


def say_from_threads() -> None:
    thread = threading.Thread(target=print, args=("from a thread",))
    thread.start()
    thread.join()


def log_details() -> None:
    logging.getLogger("tasks.details").debug("a detail")


def say_and_wait() -> None:
    print("step 1")
    time.sleep(LONG)


def fail() -> NoReturn:
    print("before")
    raise LookupError("nothing there")


def fail_unpicklably() -> NoReturn:
    class Local(Exception):
        def __init__(self) -> None:
            super().__init__("with a lock")
            self.lock = threading.Lock()

    raise Local


async def fail_later() -> NoReturn:
    await asyncio.sleep(0)
    raise LookupError("nothing there")


def return_a_socket() -> Any:
    return {"lock": threading.Lock()}


def return_too_much() -> str:
    return "x" * 2_000_000


def exit_by_request() -> NoReturn:
    sys.exit(3)


def exit_at_once() -> NoReturn:
    os._exit(7)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    ctypes.string_at(0)


def eat_memory() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(16 * 1024 * 1024))


def clean_up_when_asked() -> None:
    try:
        print("began", flush=True)
        time.sleep(LONG)
    except Cancelled:
        print("cleaned up")
        raise


async def clean_up_when_asked_later() -> None:
    try:
        print("began")
        await asyncio.sleep(LONG)
    except asyncio.CancelledError:
        print("cleaned up")
        raise


def ignore_requests() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("began")
    time.sleep(LONG)


def hold_the_interpreter() -> None:
    """Once it is asked to stop, never lets another thread, or a signal handler, have a turn. Not before: whoever asks
    has seen what it printed, which left by another thread."""
    with suppress(Cancelled):
        print("began")
        time.sleep(LONG)
    all(itertools.repeat(True))


def start_others() -> None:
    """A program and a fork, which outlive any task if nobody stops them."""
    program = subprocess.Popen(SLEEP)
    fork = os.fork()
    if fork == 0:
        time.sleep(LONG)
        os._exit(0)
    print(f"began {program.pid} {fork}")
    time.sleep(LONG)


def leave_others() -> list[int]:
    return [os.getpid(), subprocess.Popen(SLEEP).pid]


def leave_a_thread() -> int:
    threading.Thread(target=time.sleep, args=(LONG,)).start()
    return os.getpid()


def leave_another_directory() -> int:
    os.chdir("/")
    return os.getpid()


def fork_and_come_back() -> str:
    fork = os.fork()
    if fork:
        os.waitpid(fork, 0)
    return "parent" if fork else "child"


def look_around() -> dict[str, Any]:
    descriptors = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that was open for this list
            descriptors[link.name] = str(link.readlink())
    return {
        "descriptors": descriptors,
        "child": os.environ.get("HORAE_CHILD"),
        "leads": os.getpgrp() == os.getpid() == os.getsid(0),
        "argv": sys.argv,
        "stdin": sys.stdin.read(),
    }


def ask(run: Run) -> Any:
    return {"rows": run.transaction.execute("SELECT ?", [run.payload]), "attempt": run.attempt, "job": run.job_name}


async def ask_later(run: Run) -> Any:
    return await run.transaction.execute("SELECT ?", [run.payload])


def ask_and_tell_the_error(run: Run) -> str:
    try:
        run.transaction.execute("wrong", None)
    except Exception as error:  # noqa: BLE001 - which kind it is, is the question
        return f"{type(error).__name__}: {error}"
    return "no error"


def ask_for_ever(run: Run) -> None:
    print("began")
    run.transaction.execute("SELECT pg_sleep(1e9)")


def watch_the_flag(run: Run) -> bool:
    try:
        print("began")
        time.sleep(LONG)
    except Cancelled:
        run.done()
        return run.cancelled
    return False
