"""Schedules of users' own, found by the import path the catalog keeps.

A path names a class, which is made without arguments, or an object. Its module must be part of this program already, or
lie under one of the modules that the setting `modules` allows to be imported: a catalog does not get to run any code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from horae.core.custom import Schedules


def finder(allowed: Sequence[str]) -> Callable[[str], Schedules | None]:
    """What finds a schedule by its path, or answers None."""

    def find(path: str) -> Schedules | None:
        module_name, _, name = path.partition(":")
        module = sys.modules.get(module_name)
        if module is None and any(module_name == each or module_name.startswith(f"{each}.") for each in allowed):
            try:
                module = import_module(module_name)
            except Exception:  # noqa: BLE001 - whatever its import raises, it is not here; `horae doctor` says so
                return None
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        try:
            made = found() if isinstance(found, type) else found
        except Exception:  # noqa: BLE001 - as above
            return None
        return made if isinstance(made, Schedules) else None

    return find
