"""What is found by its import path: schedules of users' own, and the callables of jobs that no program registered.

A catalog does not get to run any code: what is imported for it must lie under one of the modules that the setting
`modules` allows. Of a schedule the module may also be part of this program already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from traceback import walk_tb
from types import ModuleType
from typing import Any

from horae.core.custom import Schedules
from horae.core.needs import is_under
from horae.errors import TaskNotFound, shown, told

Function = Callable[..., Any]

UNGUARDED = 'Put what is for the command line alone under if __name__ == "__main__": in that module.'
"""What to do about a module that ends the program when it is imported."""
_INSTALL = "Install it where this node runs, or correct the path."


def finder(allowed: Sequence[str]) -> Callable[[str], Schedules | None]:
    """What finds a schedule by its path, or answers None. A path names a class, which is made without arguments, or an
    object."""

    def find(path: str) -> Schedules | None:
        module_name, _, name = path.partition(":")
        module = sys.modules.get(module_name)
        if module is None and is_under(module_name, allowed):
            try:
                module = import_module(module_name)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - SystemExit too: it is not here; `horae doctor` says so
                return None
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        try:
            made = found() if isinstance(found, type) else found
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - as above
            return None
        return made if isinstance(made, Schedules) else None

    return find


def callables(allowed: Sequence[str]) -> Callable[[str], Function | None] | None:
    """What finds a job's callable by its path, `package.module.function` or `package.module:function`; None where no
    module is allowed. It answers None for what lies under none of them, and raises TaskNotFound for what should be
    there and is not."""
    return (lambda path: _callable(path, allowed)) if allowed else None


def _callable(path: str, allowed: Sequence[str]) -> Function | None:
    module_name, colon, name = path.partition(":")
    if not colon:
        module_name, _, name = path.rpartition(".")
    parts = [*module_name.split("."), *name.split(".")]
    if not is_under(module_name, allowed) or not all(part.isidentifier() for part in parts):
        return None
    if any(part.startswith("_") for part in name.split(".")):
        raise TaskNotFound(f"{shown(path)} is private, so no job runs it", hint="Give it a name without _ before it.")
    module, attributes = _imported(path, module_name, name.split("."), allowed, splits=not colon)
    found: Any = module
    for part in attributes:
        if not hasattr(found, part):
            raise TaskNotFound(f"There is no {part} in {shown(getattr(found, '__name__', path))}, for {shown(path)}")
        found = getattr(found, part)
    if not callable(found) or isinstance(found, ModuleType):
        raise TaskNotFound(f"{shown(path)} is {shown(found)}, which cannot be called")
    home = getattr(found, "__module__", None)
    if _is_elsewhere(found) and not (isinstance(home, str) and is_under(home, allowed)):
        # Else a module that is allowed would give away everything that it imports itself.
        raise TaskNotFound(
            f"{shown(path)} comes from {shown(home or 'Python itself')}, which is not allowed",
            hint="Name it where it is defined, and allow that module: modules in [scheduler].",
        )
    return found  # type: ignore[no-any-return]  # it can be called


def _is_elsewhere(found: Any) -> bool:
    """Whether `found` was made where its __module__ says. An object that a module made of a foreign class was not."""
    return isinstance(found, type) or hasattr(found, "__qualname__")


def _imported(
    path: str, module_name: str, attributes: list[str], allowed: Sequence[str], *, splits: bool
) -> tuple[ModuleType, list[str]]:
    """The module, and what is to be looked up in it. With dots alone a class may stand between the two."""
    try:
        return import_module(module_name), attributes
    except ModuleNotFoundError as error:
        outer, dot, last = module_name.rpartition(".")
        missing = error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}."))
        if splits and missing and dot and is_under(outer, allowed) and not last.startswith("_"):
            return _imported(path, outer, [last, *attributes], allowed, splits=True)
        reason, hint = str(error), _INSTALL
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too: one module must not end the jobs of all others
        reason, hint = why_not_imported(error), UNGUARDED if isinstance(error, SystemExit) else _INSTALL
    raise TaskNotFound(f"The module of {shown(path)} cannot be imported here: {reason}", hint=hint)


def why_not_imported(error: BaseException) -> str:
    """What an import raised, in words; of SystemExit, which module asked for the program's end."""
    if not isinstance(error, SystemExit):
        return f"{type(error).__name__}: {error}"
    code = "" if error.code is None else shown(error.code) if isinstance(error.code, str) else told(error.code)
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    who = f"module {frames[-1].f_globals.get('__name__')}" if frames else "it"
    return f"{who} called sys.exit({code})"
