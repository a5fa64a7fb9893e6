"""A program that pries: run as a job under each sandbox, it looks for the master key in the environment and the memory
of every process above it and in the key's file, and tries to read the configuration and the store. Each node is a real
process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.executors import commands
from tests.executors.commands import (
    LIMIT,
    NOBODY,
    PYTHON,
    Place,
    interpreter_for_all,
    needs_bubblewrap,
    needs_python,
    needs_root,
)

import horae
from horae.security.keys import generate_key

PRY = f"""#!{PYTHON}
import base64, os, re
text = os.environ["JOB_WANTED"][::-1].encode()
wanted = text, base64.b64decode(text)
found = set()

def look(name, path, *marks):
    try:
        with open(path, "rb") as file:
            if any(each in file.read() for each in marks):
                found.add(name)
    except OSError:
        pass

def look_into(pid):
    try:
        with open(f"/proc/{{pid}}/maps") as maps, open(f"/proc/{{pid}}/mem", "rb") as memory:
            for line in maps:
                start, end, rights = re.match("([0-9a-f]+)-([0-9a-f]+) (...)", line).groups()
                if not rights.startswith("rw"):
                    continue
                try:
                    memory.seek(int(start, 16))
                    piece = memory.read(int(end, 16) - int(start, 16))
                except (OSError, OverflowError, ValueError):
                    continue
                if any(each in piece for each in wanted):
                    found.add("memory")
                    return
    except OSError:
        pass

pid = os.getppid()
while pid > 1 and pid != int(os.environ["JOB_STOP"]):
    look("environment", f"/proc/{{pid}}/environ", *wanted)
    look_into(pid)
    try:
        with open(f"/proc/{{pid}}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        break
home = os.environ["JOB_HOME"]
look("key file", home + "/master.key", *wanted)
look("configuration", home + "/horae.toml", b"[external]")
for ending in ("", "-wal"):
    look("store", home + "/horae.db" + ending, b"SQLite format 3", b"sys.jobs")
if os.path.isdir(home + "/horae.db-nodes") and os.access(home + "/horae.db-nodes", os.R_OK):
    if os.listdir(home + "/horae.db-nodes"):
        found.add("nodes")
print("found:", ", ".join(sorted(found)) or "nothing")
"""
NODE = """
import asyncio, json, os, sys
from horae import Horae

async def main():
    home, program, variables = json.loads(sys.argv[1])
    app = Horae(f"sqlite:///{home}/horae.db", settings={"configuration": f"{home}/horae.toml", "tee": False})
    async with app:
        await app.sql("CREATE SECRET token = 'so that the key has been used'")
        given = ", ".join(f"{name} = '{value}'" for name, value in variables.items())
        await app.sql(f"CREATE JOB pry SCHEDULE = NONE RETRY = NONE EXEC '{program}' ENVIRONMENT ({given})")
        ((run_id, _),) = await app.sql("EXECUTE JOB pry")
        while (await app.runs("pry"))[0].state in ("PENDING", "RUNNING"):
            await asyncio.sleep(0.05)
        report = await app.report(run_id)
        told = await app.output(report.tasks[-1].attempts[-1].attempt_id)
        print(told.strip() or str(report), os.environ.get("HORAE_MASTER_KEY"))

asyncio.run(main())
"""
ROOT, ORDINARY = "root", NOBODY


@pytest.fixture
def place() -> Iterator[Place]:
    with commands.place() as place:
        yield place


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that is not in /tmp, which the sandbox hides as a whole."""
    with tempfile.TemporaryDirectory(prefix="horae-prying-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def pried(
    place: Place,
    sandbox: str,
    *,
    node: str = ROOT,
    key: str = "environment",
    more: str = "",
    folder: Path | None = None,
) -> str:
    """What a program found that a node started, and what is left of the key in the node's environment."""
    interpreter = interpreter_for_all()
    if interpreter is None or not all(each.stat().st_mode & 0o005 for each in Path(horae.__file__).resolve().parents):
        pytest.skip("no Python is installed here that users other than root could run with this Horae")
    home = (folder or place.root) / "home"
    home.mkdir(mode=0o755)
    secret = generate_key()
    user = f'user = "{NOBODY}"\n' if sandbox == "user" else ""
    text = (
        f'[external]\nenabled = true\ndirectories = ["{place.programs}"]\nsandbox = "{sandbox}"\n{user}'
        f'working_directory = "{place.work}"\n[secrets]\n{more}'
    )
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    if key == "file":
        (home / "master.key").touch(mode=0o600)
        (home / "master.key").write_text(secret)
        text += 'key_file = "master.key"\n'
    else:
        variables["HORAE_MASTER_KEY"] = secret
    (home / "horae.toml").touch(mode=0o600)
    (home / "horae.toml").write_text(text)
    number, group = commands.ids_of(node)
    for each in (home, place.work, *home.iterdir()):
        os.chown(each, number, group)
    if sandbox == "user":
        os.chown(place.work, *commands.ids_of(NOBODY))
    hunt = {"JOB_WANTED": secret[::-1], "JOB_STOP": str(os.getpid()), "JOB_HOME": str(home)}
    asked = json.dumps([str(home), place.program("pry", PRY), hunt])
    done = subprocess.run(
        [interpreter, "-c", NODE, asked],
        user=number,
        group=group,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=3 * LIMIT,
        env={**variables, "TMPDIR": str(place.scratch)},
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_root
@needs_python
@needs_bubblewrap
@pytest.mark.parametrize("key", ["environment", "file"])
def test_in_namespaces_a_program_finds_nothing_of_its_node_even_as_root(place: Place, outside: Path, key: str) -> None:
    assert pried(place, "namespaces", key=key, folder=outside) == "found: nothing None"


@needs_root
@needs_python
@pytest.mark.parametrize("key", ["environment", "file"])
def test_another_user_finds_nothing_of_its_node(place: Place, key: str) -> None:
    assert pried(place, "user", key=key) == "found: nothing None"


@needs_root
@needs_python
def test_without_a_sandbox_a_program_of_the_node_s_user_finds_the_files_and_not_the_key_in_the_node(
    place: Place,
) -> None:
    assert pried(place, "none", node=ORDINARY) == "found: configuration, nodes, store None"


@needs_root
@needs_python
def test_what_is_said_to_be_open_is_open_a_key_s_file_and_a_node_that_may_be_debugged(place: Place) -> None:
    found = pried(place, "none", node=ORDINARY, key="file", more="debuggable = true\n")
    assert found == "found: configuration, key file, memory, nodes, store None"
