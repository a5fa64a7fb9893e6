"""Callables that nobody registered: imported by their path, where the configuration allows their module."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.world import simulate, states

from horae import Horae
from horae.app.process.import_paths import handler_finder, schedule_finder
from horae.core.job.requirements import may_import
from horae.errors import TaskNotFound
from horae.services.doctor.doctor import examine
from horae.testing.simulation import Simulation

ETL = """
import os
from functools import partial
from os import system

done = []

def extract(run):
    done.append(run.job_name)

async def load():
    done.append("load")

class Steps:
    @staticmethod
    def clean():
        done.append("clean")

class Counter:
    def __call__(self):
        done.append("called")

counter = Counter()
twice = partial(done.append, "twice")
number = 3

def needs_more(one, two): ...
def _private(): ...
"""


@pytest.fixture
def etl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `shop_etl` with a module `steps`, and a module that cannot be imported."""
    package = tmp_path / "shop_etl"
    package.mkdir()
    (package / "__init__.py").write_text(ETL)
    (package / "steps.py").write_text("from shop_etl import done\n\ndef transform():\n    done.append('transform')\n")
    (package / "broken.py").write_text("raise RuntimeError('no licence')\n")
    (package / "lacking.py").write_text("import a_module_nobody_has\n")
    (package / "ends.py").write_text("import argparse\n\nargparse.ArgumentParser().exit(3)\n")
    (package / "through.py").write_text("import shop_etl.ends\n")
    (package / "says.py").write_text("import sys\n\nsys.exit('bye')\n")
    (package / "silent.py").write_text("raise SystemExit\n")
    (package / "odd.py").write_text("class Odd(BaseException): ...\n\nraise Odd('why')\n")
    (package / "interrupted.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    for name in [each for each in sys.modules if each.split(".")[0] == "shop_etl"]:
        del sys.modules[name]


@pytest.mark.usefixtures("etl")
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("shop_etl.extract", "extract"),
        ("shop_etl:extract", "extract"),
        ("shop_etl.steps.transform", "transform"),
        ("shop_etl.steps:transform", "transform"),
        ("shop_etl.Steps.clean", "clean"),
        ("shop_etl:Steps.clean", "clean"),
        ("shop_etl.counter", "counter"),
        ("shop_etl.twice", "twice"),
    ],
)
def test_a_callable_is_found_by_its_path(path: str, name: str) -> None:
    find = handler_finder(["shop_etl"])
    assert find is not None
    found = find(path)
    assert callable(found)
    assert getattr(found, "__name__", name) == name


@pytest.mark.usefixtures("etl")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("shop_etl.system", 'comes from "posix", which is not allowed'),
        ("shop_etl.os.system", 'comes from "posix"'),
        ("shop_etl:os.path.join", 'comes from "posixpath"'),
        ("shop_etl.nothing", 'There is no nothing in "shop_etl"'),
        ("shop_etl.nowhere.nothing", 'There is no nowhere in "shop_etl"'),
        ("shop_etl.nowhere:nothing", "No module named 'shop_etl.nowhere'"),
        ("shop_etl.number", "which cannot be called"),
        ("shop_etl.steps", "There is no steps"),
        ("shop_etl._private", "is private"),
        ("shop_etl.__loader__.exec_module", "cannot be imported"),
        ("shop_etl:__loader__.exec_module", "is private"),
        ("shop_etl.done.append", 'comes from "Python itself"'),
        ("shop_etl.broken.run", "RuntimeError: no licence"),
        ("shop_etl.lacking.run", "No module named 'a_module_nobody_has'"),
        ("shop_etl.ends.run", "module shop_etl.ends called sys.exit(3)"),
        ("shop_etl.through:run", "module shop_etl.ends called sys.exit(3)"),
        ("shop_etl.says.run", 'module shop_etl.says called sys.exit("bye")'),
        ("shop_etl.silent.run", "module shop_etl.silent called sys.exit()"),
        ("shop_etl.odd.run", "Odd: why"),
    ],
)
def test_what_should_be_there_and_is_not_is_told_with_the_reason(path: str, reason: str) -> None:
    find = handler_finder(["shop_etl"])
    assert find is not None
    with pytest.raises(TaskNotFound) as refused:
        find(path)
    assert reason in refused.value.message


@pytest.mark.usefixtures("etl")
def test_an_interrupt_during_an_import_still_ends_the_program() -> None:
    find = handler_finder(["shop_etl"])
    assert find is not None
    with pytest.raises(KeyboardInterrupt):
        find("shop_etl.interrupted.run")
    with pytest.raises(KeyboardInterrupt):
        schedule_finder(["shop_etl"])("shop_etl.interrupted:Sunsets")


def test_a_schedule_of_one_s_own_whose_module_or_class_calls_sys_exit_is_not_here(etl: Path) -> None:
    (etl / "sunsets.py").write_text("import sys\n\nclass Sunsets:\n    def __init__(self):\n        sys.exit(3)\n")
    find = schedule_finder(["shop_etl"])
    assert find("shop_etl.ends:Sunsets") is None
    assert find("shop_etl.sunsets:Sunsets") is None


@pytest.mark.usefixtures("etl")
def test_nothing_outside_the_allowed_modules_is_looked_for() -> None:
    assert handler_finder([]) is None
    find = handler_finder(["shop_etl.steps"])
    assert find is not None
    for path in (
        "shop_etl.extract",
        "os.system",
        "os:system",
        "shop_etl_more.x",
        "extract",
        "",
        "a b.c",
        "shop_etl.steps",
    ):
        assert find(path) is None
    assert find("shop_etl.steps.transform") is not None
    assert "shop_etl.broken" not in sys.modules


def test_a_need_that_is_no_path_is_never_imported() -> None:
    assert may_import("etl.extract", ["etl"])
    assert may_import("etl.steps:run", ["etl"])
    assert not may_import("extract", ["extract"])
    assert not may_import("external ", ["external"])
    assert not may_import("etlx.extract", ["etl"])


def allowed(*modules: str) -> Horae:
    return Horae("sqlite://", settings={"modules": list(modules or ("shop_etl",)), "tee": False})


@pytest.mark.usefixtures("etl")
def test_jobs_of_a_file_run_what_their_paths_name(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(
        """
        [jobs.one]
        every = "1h"
        python = "shop_etl.extract"
        [jobs.several]
        every = "1h"
        tasks = [
          { name = "transform", python = "shop_etl.steps:transform" },
          { name = "load", python = "shop_etl:load" },
          { name = "clean", python = "shop_etl.Steps.clean", isolation = "process" },
        ]
        """
    )
    app = allowed()
    assert app.job_file(file) == ("one", "several")

    async def body(sim: Simulation) -> tuple[list[str], list[str]]:
        await sim.advance("1h")
        return await states(app, "one"), await states(app, "several")

    assert simulate(app, body) == (["COMPLETED"], ["COMPLETED"])
    # What ran in a process of its own left its mark there.
    assert sorted(sys.modules["shop_etl"].done) == ["load", "one", "transform"]


@pytest.mark.usefixtures("etl")
def test_a_job_that_somebody_defines_while_the_node_runs_is_learned_when_its_run_waits() -> None:
    app = allowed()

    async def body(sim: Simulation) -> list[str]:
        await app.sql("CREATE JOB later SCHEDULE = EVERY 1h PYTHON shop_etl.load")
        await sim.advance("59m")
        assert "shop_etl" not in sys.modules
        await sim.advance("31m")
        return await states(app, "later")

    assert simulate(app, body) == ["COMPLETED"]


@pytest.mark.usefixtures("etl")
def test_a_node_that_starts_has_what_the_catalog_s_jobs_need(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    settings = {"modules": ["shop_etl"], "tee": False}

    async def main() -> list[str]:
        first = Horae(url)
        await first.sql("CREATE JOB a SCHEDULE = EVERY 1h PYTHON shop_etl.extract")
        await first.sql("CREATE JOB b SCHEDULE = EVERY 1h PYTHON shop_etl.broken.run")
        await first.close()
        async with Horae(url, settings=settings) as app:
            found = await app.home.call(examine)
            assert "shop_etl.extract" in app.registry.names
            return [each.message for each in found.findings if each.check == "tasks"]

    assert asyncio.run(main()) == ['No live node has the task "shop_etl.broken.run"']


@pytest.mark.usefixtures("etl")
def test_what_cannot_be_a_task_is_said_and_not_had(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    app = allowed()
    assert app.registry.learn(["shop_etl.needs_more"])["shop_etl.needs_more"].startswith('Task "shop_etl.needs_more"')
    assert app.registry.names == frozenset()
    # Said once; tried again only when somebody says so.
    assert app.registry.learn(["shop_etl.needs_more"]) == {}
    app.registry.try_again()
    assert len(app.registry.learn(["shop_etl.needs_more"])) == 1


@pytest.mark.usefixtures("etl")
def test_a_name_that_an_app_registered_is_the_app_s_own() -> None:
    app = allowed()
    ran = []

    @app.task("shop_etl.extract")
    def mine() -> None:
        ran.append("mine")

    async def body(sim: Simulation) -> None:
        await app.sql("CREATE JOB a SCHEDULE = EVERY 1h PYTHON shop_etl.extract")
        await sim.advance("1h")

    simulate(app, body)
    assert ran == ["mine"]
    assert "shop_etl" not in sys.modules
