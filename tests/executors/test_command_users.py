"""Whom a command runs as: what a task may ask for, and what a node that is not root can do."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from tests.executors import commands
from tests.executors.commands import (
    FORK_BOMB,
    LIMIT,
    NOBODY,
    Place,
    interpreter_for_all,
    lone_user,
    needs_python,
    needs_root,
    work,
)

from horae.core.program.policy import ExternalPolicy
from horae.errors import CommandRefused
from horae.external.sandbox import identity

DAEMON = "daemon"


@pytest.fixture
def place() -> Iterator[Place]:
    with commands.place() as place:
        yield place


def ids(name: str) -> tuple[int, int]:
    found = pwd.getpwnam(name)
    return found.pw_uid, found.pw_gid


def test_nobody_is_switched_to_where_nobody_is_named() -> None:
    assert identity(work("x"), ExternalPolicy()) is None


def test_a_user_or_group_that_the_machine_does_not_have_is_refused() -> None:
    with pytest.raises(CommandRefused, match='no user "horae-none"'):
        identity(work("x", user="horae-none"), ExternalPolicy())
    with pytest.raises(CommandRefused, match='no group "horae-none"'):
        identity(work("x", group="horae-none"), ExternalPolicy())


@needs_root
def test_a_user_comes_with_all_its_groups_and_no_other() -> None:
    user, group = ids(DAEMON)
    found = identity(work("x"), ExternalPolicy(user=DAEMON))
    assert found == (user, group, sorted(set(os.getgrouplist(DAEMON, group))))


@needs_root
def test_a_task_may_become_less_than_root_where_the_policy_names_nobody(place: Place) -> None:
    assert place.sh("id -un; id -gn; id -Gn", user=DAEMON).lines == [DAEMON, DAEMON, DAEMON]
    assert place.sh("id -un; id -gn; id -Gn", group=DAEMON).lines == ["root", DAEMON, DAEMON]


@needs_root
def test_a_task_cannot_be_anybody_but_whom_the_policy_names() -> None:
    policy = ExternalPolicy(user=NOBODY)
    assert identity(work("x", user=NOBODY), policy) == identity(work("x"), policy)
    for user in ("root", DAEMON):
        with pytest.raises(CommandRefused, match=f'Commands run as "nobody" on this node, not as "{user}"'):
            identity(work("x", user=user), policy)


@needs_root
def test_a_task_cannot_give_the_policys_user_a_group_it_is_not_in() -> None:
    with pytest.raises(CommandRefused, match='"nobody" is not in group "root"'):
        identity(work("x", group="root"), ExternalPolicy(user=NOBODY))
    with pytest.raises(CommandRefused, match='in group "daemon" on this node, not in "root"'):
        identity(work("x", group="root"), ExternalPolicy(user=NOBODY, group=DAEMON))
    found = identity(work("x"), ExternalPolicy(user=NOBODY, group=DAEMON))
    assert found is not None
    assert found[1] == grp.getgrnam(DAEMON).gr_gid


@needs_root
@needs_python
def test_a_node_that_is_not_root_contains_its_commands_too_and_switches_to_nobody_else(place: Place) -> None:
    """The whole of it once more, by a node that runs as an ordinary user: its launcher is then the command's equal."""
    interpreter = interpreter_for_all()
    if interpreter is None:
        pytest.skip("no Python is installed here that users other than root could run")
    user = lone_user()  # whose processes are counted
    number, group = ids(user)
    os.chown(place.work, number, group)
    os.chown(place.scratch, number, group)
    script = textwrap.dedent(f"""
        import asyncio, concurrent.futures.thread, os, sys
        from dataclasses import replace
        from horae.core.program.policy import ExternalPolicy
        from horae.errors import CommandRefused
        from horae.external.command import CommandWork, run_command

        os.setgroups([])
        os.setresgid({group}, {group}, {group})
        os.setresuid({number}, {number}, {number})
        sys.executable = {interpreter!r}
        policy = ExternalPolicy(
            enabled=True, commands=("/bin/sh",), environment=(), processes=40, open_files=50, time_limit={LIMIT},
            grace=0.2, sandbox="none",
        )

        def run(script, policy=policy, **options):
            pieces = []
            work = CommandWork(f"sh -c '{{script}}'", "nightly", "occ_1", 1, **options)
            result = asyncio.run(run_command(work, policy, output=pieces.append))
            return "".join(pieces).strip(), result

        print(run("id -un; ulimit -Hn")[0].split())
        print(run("cat /proc/$PPID/environ 2>/dev/null && echo read; ls /proc/$PPID/fd 2>/dev/null; true")[0] or "shut")
        print(run("(setsid sleep 1000 &); sleep 1000 & echo left")[1].leftovers)
        for limit in (0.5, 5.0, {LIMIT / 2}):
            said, bomb = run("exec {place.program("bomb", FORK_BOMB)}", replace(policy, time_limit=limit))
            if said == "ready":
                break  # else the machine was too slow for it to begin
        print(said, bomb.survivors, bomb.timed_out, bomb.signal)
        print(run("id -un", user={user!r})[0])
        for option in ("user", "group"):
            try:
                run("id", **{{option: "daemon"}})
            except CommandRefused as error:
                print(error)
        try:
            run("kill -9 $PPID; sleep 1000")
        except Exception as error:
            print(error)
        print(os.listdir({str(place.scratch)!r}))
    """)
    variables = {**os.environ, "TMPDIR": str(place.scratch)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=3 * LIMIT, env=variables, check=False
    )
    switch = 'cannot run as "daemon": only a node that root started can switch'
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            f"['{user}', '50']",
            "shut",
            "2",
            "ready 0 True 9",
            user,
            f"Commands {switch}",
            f"Commands {switch}",
            "The launcher of the command died (status -9), and so did it",
            "[]",
        ],
        "",
    )
