"""Imports by path: custom schedules, and the callables of jobs that no program registered.

A catalog must not be able to run arbitrary code: what is imported for it must lie under a module that the setting
`modules` allows. A schedule may also come from a module that this program has imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from traceback import walk_tb
from types import ModuleType
from typing import Any

from horae.core.job.requirements import is_under
from horae.core.schedule.custom import ScheduleLike
from horae.errors import TaskNotFound, as_text, shown

Function = Callable[..., Any]

EXIT_ON_IMPORT_HINT = 'Put what is for the command line alone under if __name__ == "__main__": in that module.'
"""The hint for a module that ends the program when it is imported."""
_INSTALL = "Install it where this node runs, or correct the path."


def schedule_finder(allowed: Sequence[str]) -> Callable[[str], ScheduleLike | None]:
    """Returns a function that finds a custom schedule by its path, or returns None.

    The path names a class, which is called without arguments, or an object.
    """

    def find(path: str) -> ScheduleLike | None:
        module_name, _, name = path.partition(":")
        module = sys.modules.get(module_name)
        if module is None and is_under(module_name, allowed):
            try:
                module = import_module(module_name)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - SystemExit too: `horae doctor` reports the missing schedule
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
        return made if isinstance(made, ScheduleLike) else None

    return find


def handler_finder(allowed: Sequence[str]) -> Callable[[str], Function | None] | None:
    """Returns a function that finds a handler by its path: `package.module.function` or `package.module:function`.

    The function returns None for a path outside the allowed modules, and raises TaskNotFound for a path inside them
    that cannot be used. Returns None instead of a function if no module is allowed.
    """
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
        # Otherwise an allowed module would expose everything that it imports itself.
        raise TaskNotFound(
            f"{shown(path)} comes from {shown(home or 'Python itself')}, which is not allowed",
            hint="Name it where it is defined, and allow that module: modules in [scheduler].",
        )
    return found  # type: ignore[no-any-return]  # checked above: it is callable


def _is_elsewhere(found: Any) -> bool:
    """Whether the object's `__module__` names where it was defined. An instance carries its class' module instead."""
    return isinstance(found, type) or hasattr(found, "__qualname__")


def _imported(
    path: str, module_name: str, attributes: list[str], allowed: Sequence[str], *, splits: bool
) -> tuple[ModuleType, list[str]]:
    """Imports the module and returns it with the attributes to look up in it. In a dotted path the last parts of the
    module's name may be a class."""
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
        reason, hint = why_not_imported(error), EXIT_ON_IMPORT_HINT if isinstance(error, SystemExit) else _INSTALL
    raise TaskNotFound(f"The module of {shown(path)} cannot be imported here: {reason}", hint=hint)


def why_not_imported(error: BaseException) -> str:
    """Why an import failed, in words. For SystemExit it names the module that called sys.exit."""
    if not isinstance(error, SystemExit):
        return f"{type(error).__name__}: {error}"
    code = "" if error.code is None else shown(error.code) if isinstance(error.code, str) else as_text(error.code)
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    who = f"module {frames[-1].f_globals.get('__name__')}" if frames else "it"
    return f"{who} called sys.exit({code})"
