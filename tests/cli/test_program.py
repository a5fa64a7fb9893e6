"""A command line that Horae prints can be typed as it was printed, whether or not `horae` is on the path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import horae

from horae.cli.program import program

SCRIPT = Path(sys.executable).with_name("horae")
EMPTY_PATH = "/usr/bin:/bin"


def test_python_m_horae_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "horae", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"horae \d+\.\d+\.\d+\S*\n", done.stdout)
    assert horae("no-such-command").code == 2


def placed(folder: Path, name: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("started", "interpreter", "path", "typed"),
    [
        ("bin/horae", "bin/python", "bin", "horae"),
        ("bin/horae", "bin/python", "", "bin/horae"),
        ("../horae", "bin/python", "bin", "{outer}/horae"),
        ("a b/horae", "bin/python", "", "'a b/horae'"),
        ("lib/horae/__main__.py", "bin/python", "bin", "python -m horae"),
        ("lib/horae/__main__.py", "bin/python3", "bin", "python3 -m horae"),
        ("lib/horae/__main__.py", "bin/python", "", "bin/python -m horae"),
        ("lib/horae/__main__.py", "other/python", "bin", "other/python -m horae"),
    ],
)
def test_the_program_is_named_as_a_shell_here_would_find_it(
    started: str, interpreter: str, path: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    for name in ("bin/horae", "bin/python", started, interpreter):
        placed(here, name)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", f"{here / path}:{EMPTY_PATH}" if path else EMPTY_PATH)
    monkeypatch.setattr(sys, "argv", [str(here / started)])
    monkeypatch.setattr(sys, "executable", str(here / interpreter))
    if interpreter == "bin/python3":
        (here / "bin/python").unlink()
    assert program() == typed.format(outer=tmp_path)


def test_the_command_that_the_demo_prints_works_as_it_was_printed(tmp_path: Path) -> None:
    """The demonstration is started as `make demo` starts it: by a script that is not on the path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HORAE_")}
    environment |= {"PATH": EMPTY_PATH, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [SCRIPT, "demo", "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as demo:
        try:
            assert demo.stdout is not None
            said = next(line for line in demo.stdout if line.startswith("  From here"))
            command = said.removeprefix("  From here").strip()
            typed = subprocess.run(
                ["/bin/sh", "-c", command], capture_output=True, text=True, env=environment, check=False
            )
            assert (typed.returncode, typed.stderr) == (0, "")
            assert "heartbeat" in typed.stdout
        finally:
            demo.terminate()
