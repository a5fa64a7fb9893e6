"""What tests have calculated: functions that another process finds here by their names."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from horae.api.handlers.schedules import previewed
from horae.api.requests import PreviewSchedule
from horae.api.responses.catalog_responses import Preview
from horae.core.schedule.schedules import Cron
from horae.security.concealment import is_concealed

ENDLESS = "every 13s"
"""The preview that `previewed_or_endless` never answers."""


def hang(folder: str, *_: object) -> NoReturn:
    """Leaves the number of its process in the folder, and never comes back."""
    (Path(folder) / str(os.getpid())).touch()
    while True:
        pass


def previewed_or_endless(folder: str, asked: PreviewSchedule, now: datetime) -> Preview:
    if asked.text == ENDLESS:
        hang(folder)
    return previewed(asked, now)


def surroundings() -> dict[str, Any]:
    """What a process has around it."""
    # The descriptor with which the folder is read is gone when it is looked at.
    files = [str(each.readlink()) for each in list(Path("/proc/self/fd").iterdir()) if each.is_symlink()]
    return {"pid": os.getpid(), "variables": dict(os.environ), "files": files, "is_concealed": is_concealed()}


def invalid_cron() -> None:
    Cron("61 * * * *")


def failing() -> None:
    raise ValueError("no luck")


def end() -> NoReturn:
    os._exit(3)


def much(size: int) -> int:
    return len(bytearray(size))


class OnlyHere:
    """A schedule's like of a program that no other process can import: its name leads elsewhere."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _only_in, (os.getpid(),)


def _only_in(pid: int) -> OnlyHere:
    if os.getpid() != pid:
        raise ImportError("there is no such module here")
    return OnlyHere()


def told(_: OnlyHere) -> int:
    return os.getpid()
