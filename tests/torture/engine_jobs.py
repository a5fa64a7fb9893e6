"""The jobs of the engine's torture: every policy there is, on schedules of a few seconds, each start written down.

A line of the log is one write to a file opened for appending, so that lines of many processes never mix. `START` comes
before the work, `END` when it is over, however it went; a process that was killed wrote no END. Times are the machine's
monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from horae import Bounded, Every, Horae, Queue, Retry, Run, Window

LOG = "HORAE_TORTURE_LOG"
"""The variable that names the log: tasks in processes of their own inherit it."""
STORE = "HORAE_TORTURE_STORE"
EFFECTS = ("effect", "thread_effect", "flaky_effect", "failing_effect", "process_effect")
"""Tasks that insert one row through `run.transaction`; a task's name begins with the name of what it runs."""
POOLS = {"narrow": 3, "single": 1}

_files: dict[str, int] = {}


class Meant(Exception):
    """A failure that the torture wants."""


def write(kind: str, run: Run) -> None:
    path = os.environ[LOG]
    file = _files.get(path)
    if file is None:
        file = _files[path] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    line = f"{kind} {time.monotonic():.6f} {os.getpid()} {run.run_id} {run.attempt} {run.job_name} {run.task_name}\n"
    os.write(file, line.encode())


@contextmanager
def noted(run: Run) -> Iterator[None]:
    write("START", run)
    try:
        yield
    finally:
        write("END", run)


def draw(run: Run, sides: int, what: str = "") -> int:
    """The same for every attempt of one task of one run, on every node."""
    return int.from_bytes(sha256(f"{run.run_id}{run.task_name}{what}".encode()).digest()[:4], "big") % sides


def seconds(run: Run) -> float:
    """How long this one works: what its job's payload says."""
    return float((run.payload or {}).get("seconds", 0.0))


# ---- what tasks do ---------------------------------------------------------------------------------------------------


async def quick(run: Run) -> int:
    with noted(run):
        await asyncio.sleep(draw(run, 5) / 100)
    return draw(run, 100)


async def slow(run: Run) -> None:
    with noted(run):
        await asyncio.sleep(seconds(run))


def thread(run: Run) -> None:
    """In a thread; looks now and then whether it is to stop."""
    with noted(run):
        ends = time.monotonic() + seconds(run)
        while time.monotonic() < ends and not run.cancelled:
            time.sleep(0.02)


def stubborn(run: Run) -> None:
    """In a thread, and deaf."""
    with noted(run):
        time.sleep(seconds(run))


async def flaky(run: Run) -> None:
    """Fails none, one or two times, then succeeds."""
    with noted(run):
        await asyncio.sleep(0.005)
        if run.attempt <= draw(run, 3):
            raise Meant(f"attempt {run.attempt} fails")


async def failing(run: Run) -> None:
    with noted(run):
        raise Meant("it always does")


def process(run: Run) -> dict[str, int]:
    with noted(run):
        time.sleep(draw(run, 4) / 50)
    return {"pid": os.getpid()}


def process_mortal(run: Run) -> None:
    """Takes its process with it now and then."""
    with noted(run):
        if run.attempt == 1 and draw(run, 2) == 0:
            os._exit(3)


def process_hanging(run: Run) -> None:
    with noted(run):
        time.sleep(60)


def inserting(run: Run) -> tuple[str, tuple[Any, ...]]:
    values = (run.run_id, run.task_name, run.attempt, os.getpid())
    if os.environ[STORE].startswith("postgres"):
        return "INSERT INTO public.effects (run_id, task, attempt, pid) VALUES (%s, %s, %s, %s)", values
    return "INSERT INTO sys.effects (run_id, task, attempt, pid) VALUES (?, ?, ?, ?)", values


async def effect(run: Run) -> None:
    with noted(run):
        await run.transaction.execute(*inserting(run))
        await asyncio.sleep(draw(run, 3) / 100)


def thread_effect(run: Run) -> None:
    with noted(run):
        run.transaction.execute(*inserting(run))
        time.sleep(draw(run, 3) / 100)


async def flaky_effect(run: Run) -> None:
    with noted(run):
        await run.transaction.execute(*inserting(run))
        if run.attempt <= draw(run, 2):
            raise Meant("after the insert")


async def failing_effect(run: Run) -> None:
    with noted(run):
        await run.transaction.execute(*inserting(run))
        raise Meant("after the insert, always")


def process_effect(run: Run) -> None:
    with noted(run):
        run.transaction.execute(*inserting(run))


# ---- the jobs --------------------------------------------------------------------------------------------------------


def define_jobs(app: Horae) -> None:
    """Some two hundred jobs."""
    for name, limit in POOLS.items():
        app.pool(name, limit)
    app.task("remind")(quick)
    _crossed(app)
    _groups(app)
    _waiting(app)
    _limited(app)
    _once_only(app)
    _processes(app)
    _effects(app)
    _out_of_time(app)


def _crossed(app: Horae) -> None:
    """Every overlap policy with every recovery policy, with work that is short, long, in threads, and that fails."""
    overlaps: dict[str, Any] = {
        "skip": "skip",
        "allow": "allow",
        "queue": Queue(2),
        "coalesce": "coalesce",
        "replace": "replace",
    }
    recoveries: dict[str, Any] = {
        "last": "last",
        "all": "all",
        "none": "none",
        "bounded": Bounded(max_occurrences=3),
        "compressed": "compressed",
    }
    index = 0
    for overlap, overlapping in overlaps.items():
        for recovery, recovering in recoveries.items():
            name = f"{overlap}-{recovery}"
            every = Every(f"{3 + index % 4}s")
            common: dict[str, Any] = {"overlap": overlapping, "recovery": recovering}
            if index % 2:
                app.job(f"{name}-slow", every, payload={"seconds": 1 + index % 4}, **common)(slow)
                retry = Retry(2, "200ms", factor=2.0, jitter=0.5)
                app.job(f"{name}-flaky", every, retry=retry, **common)(flaky)
            else:
                app.job(f"{name}-quick", every, **common)(quick)
                app.job(f"{name}-thread", every, payload={"seconds": 0.4 + index % 3}, **common)(thread)
            index += 1


def _groups(app: Horae) -> None:
    """Several tasks, one of which fails, and a cleanup that always gets its turn."""
    for mode in ("sequential", "parallel"):
        for failure in ("fail_fast", "continue", "retry_on_failure"):
            for index, middle in enumerate((flaky, failing, slow, quick)):
                name = f"group-{mode}-{failure}-{middle.__name__}"
                job = app.job(name, Every(f"{3 + index}s"), mode=mode, failure=failure, payload={"seconds": 0.7})
                job.task(name="first")(quick)
                job.task(name="middle", retry=Retry(1, "300ms"))(middle)
                job.task(name="last")(thread)
                job.task(name="cleanup", failure="continue")(quick)


def _waiting(app: Horae) -> None:
    """Windows, deadlines, dependencies."""
    for index in range(4):
        windows = {"after": Window.after("3s"), "before": Window.before("2s"), "around": Window.around("4s")}
        for mode, window in windows.items():
            app.job(f"window-{mode}-{index}", Every(f"{3 + index}s"), window=window)(quick)
        app.job(
            f"deadline-{index}",
            Every("2s"),
            deadline="1s",
            overlap=Queue(3),
            payload={"seconds": 1.5},
        )(slow)
        every = Every("4s")
        app.job(f"chain-{index}-first", every)((quick, flaky, failing, thread)[index])
        app.job(f"chain-{index}-second", every, depends_on=[f"chain-{index}-first"])(quick)
        app.job(f"chain-{index}-third", every, depends_on=[f"chain-{index}-second"])(quick)


def _limited(app: Horae) -> None:
    for index in range(10):
        overlap: Any = "allow" if index % 2 else Queue(3)
        app.job(f"narrow-{index}", Every("4s"), pool="narrow", overlap=overlap, payload={"seconds": 0.3})(slow)
    for index in range(4):
        app.job(f"single-{index}", Every("4s"), pool="single", payload={"seconds": 0.3})(thread)
        app.job(f"alone-{index}", Every("2s"), max_concurrent=1, overlap="allow", payload={"seconds": 1.2})(slow)


def _once_only(app: Horae) -> None:
    """Delivered at most once."""
    for index in range(6):
        common: dict[str, Any] = {"delivery": "at_most_once", "payload": {"seconds": 0.2 + index / 2}}
        every = Every(f"{2 + index % 3}s")
        app.job(f"most-quick-{index}", every, **common)(quick)
        app.job(f"most-slow-{index}", every, **common)(slow)
        app.job(f"most-thread-{index}", every, overlap="replace", **common)(thread)
        job = app.job(f"most-group-{index}", every, mode=("sequential", "parallel")[index % 2], **common)
        job.task(name="first")(quick)
        job.task(name="second")(thread)
        job.task(name="third")(quick)


def _processes(app: Horae) -> None:
    for index in range(2):
        common: dict[str, Any] = {"isolation": "process"}
        app.job(f"process-{index}", Every("3s"), **common)(process)
        app.job(f"process-most-{index}", Every("4s"), delivery="at_most_once", **common)(process)
        app.job(f"process-mortal-{index}", Every("5s"), retry=Retry(1, "100ms"), **common)(process_mortal)
        app.job(f"process-hanging-{index}", Every("6s"), task_timeout="700ms", **common)(process_hanging)


def _effects(app: Horae) -> None:
    """What is written through `run.transaction`. Every task here that is in EFFECTS has one row if it succeeded."""
    for index in range(5):
        every = Every(f"{3 + index % 3}s")
        app.job(f"effect-{index}", every)(effect)
        app.job(f"effect-thread-{index}", every)(thread_effect)
        app.job(f"effect-flaky-{index}", every, retry=Retry(2, "100ms"))(flaky_effect)
        app.job(f"effect-failing-{index}", every)(failing_effect)
        app.job(f"effect-most-{index}", every, delivery="at_most_once", overlap="replace")(effect)
        job = app.job(f"effect-group-{index}", every, mode=("sequential", "parallel")[index % 2], overlap=Queue(2))
        job.task(name="first")(quick)
        job.task(name="effect")(effect)
        job.task(name="flaky_effect", retry=Retry(1, "100ms"))(flaky_effect)
        job.task(name="thread_effect")(thread_effect)
    app.job("effect-process", Every("3s"), isolation="process")(process_effect)


def _out_of_time(app: Horae) -> None:
    for index in range(2):
        every = Every("5s")
        common: dict[str, Any] = {"payload": {"seconds": 2.0}}
        app.job(f"late-task-{index}", every, task_timeout="400ms", retry=Retry(1, "100ms"), **common)(slow)
        app.job(f"late-run-{index}", every, execution_timeout="600ms", **common)(slow)
        app.job(f"late-stubborn-{index}", every, task_timeout="300ms", **common)(stubborn)
        app.job(f"patient-{index}", every, retry=Retry(None, "400ms"))(flaky)
