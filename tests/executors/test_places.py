"""Which callables another process can find, and the programs they live in."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.executors import tasks

from horae.errors import InvalidDefinition
from horae.executors.processes import check, locate


class Shop:
    def open(self) -> None: ...

    @staticmethod
    def close() -> None: ...

    @classmethod
    def clean(cls) -> None: ...

    def __call__(self) -> None: ...


def test_functions_of_a_module_and_of_its_classes_are_found_by_name() -> None:
    assert locate(tasks.fail) == ("tests.executors.tasks", "fail")
    assert locate(Shop.close) == (__name__, "Shop.close")
    assert locate(Shop.clean) == (__name__, "Shop.clean")
    assert locate(time.sleep) == ("time", "sleep")


def test_a_function_can_be_judged_before_its_module_has_it() -> None:
    answers = []

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        answers.append(check(function))
        return function

    namespace = {"__name__": "shop.orders", "decorator": decorator}
    exec("@decorator\ndef ship(): pass", namespace)  # noqa: S102 - a module in the making
    assert answers == [("shop.orders", "ship")]


def inner() -> Callable[[], None]:
    def local() -> None: ...

    return local


@pytest.mark.parametrize(
    "function",
    [lambda: None, inner(), Shop().open, Shop(), functools.partial(tasks.fail), [].append],
    ids=["lambda", "local", "method", "instance", "partial", "built-in method"],
)
def test_what_has_no_import_path_is_refused(function: Callable[..., Any]) -> None:
    assert locate(function) is None
    with pytest.raises(InvalidDefinition, match="cannot run in a process of its own"):
        check(function)


SCRIPT = """
import asyncio, os, sys
from horae.executors.processes import Processes, ProcessWork, locate

print("loaded as", __name__, "by", sys.argv[1:])
CALLS = []

def task():
    CALLS.append(1)
    return [__name__, len(sys.modules[__name__].CALLS), os.environ.get("HORAE_CHILD")]

async def main():
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    processes = Processes(loop)
    processes.submit(
        ProcessWork.of(locate(task)),
        done=lambda value, failure: ended.set_result((value, failure)),
        output=lambda text: print("kept:", text, end=""),
        request=None,
    )
    print(await ended)
    await processes.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_a_function_of_the_program_itself_runs_without_starting_the_program_again(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "my programs"
    folder.mkdir()
    (folder / "nightly.py").write_text(SCRIPT)
    command = [str(folder / "nightly.py")] if how == "script" else ["-m", "nightly"]
    ended = subprocess.run(
        [sys.executable, *command, "an argument"], capture_output=True, text=True, timeout=60, check=True, cwd=folder
    )
    name = "__mp_main__" if how == "script" else "nightly"
    loaded = f"loaded as {name} by ['an argument']"
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "loaded as __main__ by ['an argument']",
        loaded,
        f"kept: {loaded}",
        f"(['{name}', 1, '1'], None)",
    ]


@pytest.mark.parametrize("how", ["-c", "-"])
def test_a_program_without_a_file_has_no_place_for_its_functions(how: str) -> None:
    program = "from horae.executors.processes import locate\ndef task(): pass\nprint(locate(task))"
    ended = subprocess.run(
        [sys.executable, how, *([program] if how == "-c" else [])],
        input=program,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "None\n"
