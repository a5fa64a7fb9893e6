"""The program's name as the user can type it, so that a printed command works when it is pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_SCRIPT = "horae"


def program() -> str:
    """Returns `horae` if that script is on the path; else its file, or the interpreter with `-m horae`, quoted for a
    shell. A file below the current folder is given relative to it."""
    started = Path(sys.argv[0])
    if started.name != _SCRIPT:
        return f"{_typed(Path(sys.executable), 'python', 'python3')} -m {_SCRIPT}"
    return _typed(Path(os.path.abspath(started)), _SCRIPT)  # noqa: PTH100 - resolve() would leave a virtual environment


def _typed(file: Path, *names: str) -> str:
    for name in names:
        if shutil.which(name) == str(file):
            return name
    folder = Path.cwd()
    return shlex.quote(str(file.relative_to(folder) if file.is_relative_to(folder) else file))
