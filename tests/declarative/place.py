"""A declarative scheduler that has not begun, over a catalog that is not there: what it refuses leaves it so."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from horae.declarative import Scheduler, SchedulerError, SchedulerState

MINUTE = timedelta(minutes=1)
EVERY = "* * * * *"


async def callback() -> None:
    """What stands in every good registration here."""


GOOD = ("good", EVERY, callback, MINUTE)


class Place:
    """A scheduler that has not begun, over a catalog that is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heard: list[str] = []
        self.scheduler = Scheduler(
            f"sqlite:///{folder}/state.db", tz="UTC", listener=lambda event: self.heard.append(event.name)
        )

    def refused(self, registrations: Any) -> SchedulerError:
        """What the call itself raises, nothing being awaited; nothing has happened then."""
        with pytest.raises(SchedulerError) as caught:
            _ = self.scheduler.initialize(registrations)
        assert self.scheduler.state is SchedulerState.UNINITIALIZED
        assert self.scheduler.identifier is None
        assert self.heard == []
        assert list(self.folder.iterdir()) == []
        return caught.value

    def accepted(self, registrations: Any) -> None:
        begun = self.scheduler.initialize(registrations)
        assert inspect.iscoroutine(begun)
        begun.close()
        assert list(self.folder.iterdir()) == []
