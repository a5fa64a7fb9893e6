"""Handlers beside the job file that the operator names: usable as they are, unless somebody else can write them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.app.process.neighbour_handlers import handler_beside
from horae.app.process.targets import load_targets
from horae.errors import TaskNotFound
from horae.testing.simulation import Simulation

JOBS = """
[jobs.report]
every = "1h"
python = "reports.nightly"
"""
CODE = """
import os
ran = []
def nightly():
    ran.append("nightly")
def other():
    ran.append("other")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with jobs.toml and reports.py, elsewhere than where the process works."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    found = tmp_path / "jobs"
    found.mkdir(mode=0o755)
    (found / "jobs.toml").write_text(JOBS)
    (found / "reports.py").write_text(CODE)
    (found / "package" / "__pycache__").mkdir(parents=True)
    for name in ("helpers.py", "package/__init__.py", "package/native.so"):
        (found / name).touch()
    for each in found.rglob("*"):
        each.chmod(0o755 if each.is_dir() else 0o644)
    yield found
    for name in set(sys.modules) - before:
        del sys.modules[name]


def starts(target: Path, *, more: str = "") -> list[str]:
    """The jobs of a target that run within two hours."""

    async def main() -> list[str]:
        app = load_targets([str(target)], store="sqlite://").app
        async with Simulation(app) as sim:
            if more:
                await app.sql(more)
            return [each.task for each in await sim.advance("2h")]

    return asyncio.run(main())


def test_a_handler_beside_the_target_runs_without_any_setting(folder: Path) -> None:
    assert starts(folder / "jobs.toml") == ["nightly", "nightly"]
    assert sys.modules["reports"].ran == ["nightly", "nightly"]


def test_a_folder_as_the_target_does_as_well(folder: Path) -> None:
    assert starts(folder) == ["nightly", "nightly"]


@pytest.mark.parametrize("handler", ["reports.other", "reports.os.getcwd", "reports:other"])
def test_a_definition_that_comes_another_way_gets_nothing_from_beside_the_target(folder: Path, handler: str) -> None:
    text = f"CREATE JOB intruder SCHEDULE = EVERY '1h' AS PYTHON '{handler}'"
    assert "intruder" not in str(starts(folder / "jobs.toml", more=text))
    assert sys.modules["reports"].ran == ["nightly", "nightly"]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("reports.py", 0o666),
        ("reports.py", 0o664),
        ("jobs.toml", 0o664),
        ("helpers.py", 0o666),
        ("package", 0o777),
        ("package/__pycache__", 0o777),
        ("package/native.so", 0o666),
        (".", 0o777),
        (".", 0o775),
        (".", 0o1777),
    ],
)
def test_code_that_others_can_write_is_not_imported_and_the_log_says_why(
    folder: Path, name: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / name).chmod(mode)
    with caplog.at_level(logging.WARNING, "horae"):
        assert starts(folder / "jobs.toml") == []
    (line,) = {each.getMessage() for each in caplog.records if "cannot run" in each.getMessage()}
    path = (folder / name).resolve()
    assert line.startswith('report cannot run: no live node has the task "reports.nightly".')
    assert f"{path} can be written by other users (mode {mode:o})" in line
    assert 'modules = ["reports"] under [scheduler]' in line
    assert "reports" not in sys.modules


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_code_of_another_user_is_not_imported(folder: Path) -> None:
    os.chown(folder / "reports.py", 12345, 12345)
    with pytest.raises(TaskNotFound, match="belongs to another user"):
        handler_beside(folder / "jobs.toml", "reports.nightly")


def test_a_module_that_is_not_there_is_told_at_the_start_with_the_setting_that_would_allow_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "reports.py").unlink()
    with caplog.at_level(logging.WARNING, "horae"):
        assert starts(folder / "jobs.toml") == []
    lines = [each.getMessage() for each in caplog.records if "cannot run" in each.getMessage()]
    hint = 'Deploy the code that has it, or let a node import it: modules = ["reports"] under [scheduler].'
    # At the start, and when a run waits for it.
    assert lines == [f'report cannot run: no live node has the task "reports.nightly". {hint}'] * 2


def test_a_function_that_is_not_there_is_told_with_the_module(folder: Path) -> None:
    with pytest.raises(TaskNotFound, match='There is no nightely in "reports"'):
        handler_beside(folder / "jobs.toml", "reports.nightely")


def test_a_module_that_is_called_like_one_that_is_loaded_is_refused(folder: Path) -> None:
    (folder / "json.py").write_text("def dumps(): ...\n")
    with pytest.raises(TaskNotFound, match="another module is called json here"):
        handler_beside(folder / "jobs.toml", "json.dumps")


def test_a_package_beside_the_target_is_looked_through_for_files_that_others_can_write(folder: Path) -> None:
    package = folder / "etl"
    package.mkdir(mode=0o755)
    (package / "__init__.py").write_text("")
    (package / "load.py").write_text("def run(): return 1\n")
    for each in package.iterdir():
        each.chmod(0o644)
    found = handler_beside(folder / "jobs.toml", "etl.load.run")
    assert found is not None
    assert found() == 1
    (package / "load.py").chmod(0o646)
    with pytest.raises(TaskNotFound, match=r"load\.py can be written by other users"):
        handler_beside(folder / "jobs.toml", "etl.load.run")


def test_a_folder_that_others_can_write_is_refused_however_it_is_reached(folder: Path) -> None:
    folder.chmod(0o1777)
    (folder / "sub").mkdir(mode=0o755)
    link = folder.parent / "link"
    link.symlink_to(folder)
    for file in (folder / "sub" / ".." / "jobs.toml", link / "jobs.toml"):
        with pytest.raises(TaskNotFound, match="can be written by other users"):
            handler_beside(file, "reports.nightly")


def test_code_behind_a_link_is_as_open_as_the_place_it_lies_in(folder: Path) -> None:
    shared = folder.parent / "shared"
    shared.mkdir()
    (shared / "tasks.py").write_text("def run(): ...\n")
    shared.chmod(0o777)
    (folder / "tasks.py").symlink_to(shared / "tasks.py")
    with pytest.raises(TaskNotFound, match="shared can be written by other users"):
        handler_beside(folder / "jobs.toml", "tasks.run")


def test_a_link_that_leads_nowhere_is_a_reason_and_no_crash(folder: Path) -> None:
    (folder / "lost.py").symlink_to(folder / "nowhere.py")
    with pytest.raises(TaskNotFound, match="cannot be looked at: No such file"):
        handler_beside(folder / "jobs.toml", "reports.nightly")


def test_a_folder_without_an_init_file_is_named_as_the_reason(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "sub").mkdir(mode=0o755)
    (folder / "sub" / "mod.py").write_text("def g(): ...\n")
    (folder / "jobs.toml").write_text('[jobs.a]\nevery = "1h"\npython = "sub.mod.g"\n')
    with caplog.at_level(logging.WARNING, "horae"):
        assert starts(folder / "jobs.toml") == []
    (line,) = {each.getMessage() for each in caplog.records if "cannot run" in each.getMessage()}
    assert f'"sub.mod.g" is not imported from {folder}: the folder sub there has no __init__.py' in line
    assert line.endswith(f"Put an empty file __init__.py into {folder / 'sub'}.")
    (folder / "sub" / "__init__.py").touch(mode=0o644)
    assert handler_beside(folder / "jobs.toml", "sub.mod.g") is not None


def test_a_folder_that_only_has_the_name_of_the_module_is_not_the_reason(folder: Path) -> None:
    (folder / "sub").mkdir(mode=0o755)
    assert handler_beside(folder / "jobs.toml", "sub.mod.g") is None
    assert handler_beside(folder / "jobs.toml", "sub.g") is None


@pytest.mark.parametrize("is_package", [False, True])
def test_a_link_to_code_elsewhere_is_named_as_the_reason_before_the_code_is_run(
    folder: Path, *, is_package: bool
) -> None:
    outside = folder.parent / "outside"
    outside.mkdir(mode=0o755)
    (outside / "__init__.py").write_text("raise RuntimeError('run')\n")
    (outside / "__init__.py").chmod(0o644)
    name, aim = ("linked", outside) if is_package else ("linked.py", outside / "__init__.py")
    (folder / name).symlink_to(aim)
    with pytest.raises(TaskNotFound) as refused:
        handler_beside(folder / "jobs.toml", "linked.run")
    assert refused.value.message == (
        f'"linked.run" is not imported from {folder}: {name} there is a link to {aim}, outside of it'
    )
    assert "Put the code itself into" in (refused.value.hint or "")


def test_a_link_to_code_in_the_same_folder_is_followed(folder: Path) -> None:
    (folder / "alias.py").symlink_to(folder / "reports.py")
    assert handler_beside(folder / "jobs.toml", "alias.nightly") is not None


def test_a_module_beside_a_link_to_the_job_file_is_named_as_such(folder: Path) -> None:
    link = folder.parent / "elsewhere" / "jobs.toml"
    link.symlink_to(folder / "jobs.toml")
    (link.parent / "mine.py").write_text("def run(): ...\n")
    with pytest.raises(TaskNotFound, match=r"is a link to a file in .*, and the module is looked for beside that file"):
        handler_beside(link, "mine.run")


def test_a_module_that_calls_sys_exit_when_imported_is_a_warning_and_the_other_jobs_run(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "ends.py").chmod(0o644)
    (folder / "jobs.toml").write_text(JOBS + '[jobs.ends]\nevery = "1h"\npython = "ends.f"\n')
    with caplog.at_level(logging.WARNING, "horae"):
        assert starts(folder / "jobs.toml") == ["nightly", "nightly"]
    (line,) = {each.getMessage() for each in caplog.records if "ends cannot run" in each.getMessage()}
    assert 'The module of "ends.f" cannot be imported here: module ends called sys.exit(3).' in line
    assert 'under if __name__ == "__main__"' in line
