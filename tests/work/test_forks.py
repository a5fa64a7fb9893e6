"""Apps in processes that fork, as web servers and task queues make them: real forks, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests.store.catalogs import Place

HANGS = 120.0
"""Seconds after which the program is taken to hang."""
BEGIN = """
import asyncio, os, sys, threading
from horae import Every, Horae
app = Horae(sys.argv[1])

def forked(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
            sys.stdout.flush()
            os._exit(0)
        except BaseException as error:
            print("raised", type(error).__name__, error, getattr(error, "hint", ""))
            sys.stdout.flush()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

@app.job("tidy", Every("1h"))
def tidy():
    return 1

def triggered():
    app.sync.trigger("tidy", key=str(os.getpid()))
    print("child", app.sync.runs("tidy")[0].job_name)
    app.sync.close()
"""


def ran(url: str, body: str) -> tuple[list[str], str]:
    """What a program that begins as above prints, and what it complains of."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEGIN + dedent(body), url],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
        env={**os.environ, "HORAE_CONFIG": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_an_app_whose_store_was_opened_before_a_fork_works_on_both_sides_of_it(place: Place) -> None:
    said, complaints = ran(
        place.url,
        """
        app.sync.apply(app)
        for _ in range(3):
            assert forked(triggered) == 0
        app.sync.trigger("tidy", key="mine")
        print("runs", len(app.sync.runs("tidy")))
        app.sync.close()
        """,
    )
    assert said == ["child tidy", "child tidy", "child tidy", "runs 4"]
    assert complaints == ""


def test_a_store_that_async_code_left_open_is_no_obstacle_either(place: Place) -> None:
    said, _ = ran(
        place.url,
        """
        asyncio.run(app.apply(app))
        assert forked(triggered) == 0
        assert forked(lambda: asyncio.run(app.jobs())) == 0
        print("runs", len(app.sync.runs("tidy")))
        """,
    )
    assert said == ["child tidy", "runs 1"]


def test_a_node_that_was_started_before_a_fork_runs_in_the_parent_alone(place: Place) -> None:
    """On PostgreSQL the child has an app that was not started; on SQLite it is told at once what to do."""
    said, _ = ran(
        place.url,
        """
        app.start()
        status = forked(triggered)
        print("status", status, "engine", app.engine is not None)
        print("nodes", len(asyncio.run(app.home.call(lambda store: store.nodes()))))
        app.stop()
        """,
    )
    if place.kind == "postgres":
        assert said == ["child tidy", "status 0 engine True", "nodes 1"]
        return
    (refused, *rest) = said
    assert "SQLite cannot be used across a fork" in refused
    assert "docs/web-servers.md" in refused
    assert rest == ["status 1 engine True", "nodes 1"]


def test_after_a_fork_the_child_may_be_the_one_that_starts_the_node(place: Place) -> None:
    said, complaints = ran(
        place.url,
        """
        app.sync.apply(app)
        def works():
            app.start()
            run = app.sync.trigger("tidy")
            while app.sync.report(run.run_id).outcome != "COMPLETED":
                threading.Event().wait(0.01)
            print("completed")
            app.stop()
        assert forked(works) == 0
        print("parent", app.engine is None, len(app.sync.runs("tidy")))
        app.sync.close()
        """,
    )
    assert said == ["completed", "parent True 1"]
    assert complaints == ""


def test_another_app_of_the_child_on_a_file_that_its_parent_has_open_is_refused_too(tmp_path: Path) -> None:
    said, _ = ran(
        f"sqlite:///{tmp_path / 'horae.db'}",
        """
        app.start()
        status = forked(lambda: Horae(sys.argv[1]).sync.jobs())
        other = forked(lambda: print("other", len(Horae(sys.argv[1] + "2").sync.jobs())))
        print(status, other)
        app.stop()
        """,
    )
    assert "SQLite cannot be used across a fork" in said[0]
    assert said[1:] == ["other 0", "1 0"]


def test_a_store_in_memory_stays_with_the_process_that_opened_it(tmp_path: Path) -> None:
    said, _ = ran(
        "sqlite://",
        """
        app.sync.apply(app)
        status = forked(app.sync.jobs)
        fresh = forked(lambda: print("fresh", len(Horae("sqlite://").sync.jobs())))
        print(status, fresh, len(app.sync.jobs()))
        """,
    )
    assert "a store in memory belongs to the process that opened it" in said[0]
    assert said[1:] == ["fresh 0", "1 0 1"]


@pytest.mark.parametrize("used", ["busy", "loop"])
def test_a_store_that_is_in_use_at_the_moment_of_the_fork_is_left_to_the_parent(tmp_path: Path, used: str) -> None:
    """A call under way in another thread, and a loop that the fork is made in: neither is disturbed."""
    bodies = {
        "busy": """
        app.sync.apply(app)
        begun, go_on = threading.Event(), threading.Event()
        async def held(store):
            begun.set()
            while not go_on.is_set():
                await asyncio.sleep(0.01)
            return len(await store.jobs())
        answers = []
        thread = threading.Thread(target=lambda: answers.append(app.home.call_blocking(held)))
        thread.start()
        begun.wait()
        print(forked(triggered))
        go_on.set()
        thread.join()
        print(answers)
        """,
        "loop": """
        async def main():
            await app.apply(app)
            print(forked(triggered))
            print([len(await app.jobs())])
        asyncio.run(main())
        """,
    }
    said, _ = ran(f"sqlite:///{tmp_path / 'horae.db'}", bodies[used])
    assert "SQLite cannot be used across a fork" in said[0]
    assert said[1:] == ["1", "[1]"]


def test_a_child_of_a_started_node_ends_as_any_program_does(place: Place) -> None:
    said, complaints = ran(
        place.url,
        """
        app.start()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            sys.exit(7)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print("jobs", len(app.sync.jobs()))
        app.stop()
        """,
    )
    assert said == ["ended 7", "jobs 1"]
    assert complaints == ""
