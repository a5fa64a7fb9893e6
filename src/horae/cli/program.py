"""How the user types this program's name: a command that is printed works where it is pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_SCRIPT = "horae"


def program() -> str:
    """`horae` where that is the script on the path; else its file, or the interpreter with `-m horae`, quoted for a
    shell and relative where it lies below the current folder."""
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
