"""Options of tasks by kind: where SQL runs, how a program is started, and which secrets a task gets.

    SQL         connection
    PROCEDURE   connection, arguments, database (true: a procedure of the catalog's own database)
    EXTERNAL    shell, env, cwd, user, group, umask, stdout, stderr
    any kind    secrets: [{"name": …, "variable": …, "as": "env" or "file"}, …]

`variable` is the environment variable that has the value. With "file" it has a path from which the value can be read,
once. The values of options are plain: text, numbers, booleans, lists and mappings of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horae.core.job.ids import checked_name, checked_text
from horae.errors import InvalidDefinition, shown

DELIVERED = ("env", "file")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_UMASK = 0o777


def checked_options(kind: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `given`, checked and sorted by name. Raises InvalidDefinition, also for an option unknown to `kind`."""
    if not isinstance(given, Mapping):
        raise InvalidDefinition(f"Invalid options {shown(given)}: must be a mapping from names to values")
    known = _KNOWN[kind]
    for name in given:
        if name not in known:
            raise InvalidDefinition(
                f"Unknown option {shown(name)} of {kind} work", hint=f"Known options: {', '.join(sorted(known))}."
            )
    return {name: _CHECKS[name](name, value) for name, value in sorted(given.items())}


def checked_variable(name: str) -> str:
    """Returns `name` if it is a valid name of an environment variable. Raises InvalidDefinition."""
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise InvalidDefinition(
            f"Invalid environment variable {shown(name)}", hint="Use letters, digits and _, and no digit first."
        )
    return name


def _name(option: str, value: Any) -> str:
    return checked_name(value, option)


def _text(option: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidDefinition(f"Invalid {option} {shown(value)}: must be text, and not empty")
    checked_text(value, option)
    return value


def _flag(option: str, value: Any) -> bool:
    if type(value) is not bool:
        raise InvalidDefinition(f"Invalid {option} {shown(value)}: must be True or False")
    return value


def _umask(option: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_UMASK:
        raise InvalidDefinition(f"Invalid {option} {shown(value)}: must be a number from 0 to 0o777")
    return value


def _environment(option: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise InvalidDefinition(f"Invalid {option} {shown(value)}: must map variables to text")
    return {checked_variable(name): checked_text(value[name], name) or "" for name in sorted(value)}


def _arguments(option: str, value: Any) -> list[Any]:
    plain = isinstance(value, Sequence) and not isinstance(value, str)
    if not plain or not all(each is None or isinstance(each, str | int | float | bool) for each in value):
        raise InvalidDefinition(f"Invalid {option} {shown(value)}: must be a list of text, numbers, booleans and None")
    return [checked_text(each, option) if isinstance(each, str) else each for each in value]


def _secrets(option: str, value: Any) -> list[dict[str, str]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidDefinition(f"Invalid {option} {shown(value)}: must be a list")
    found: dict[str, dict[str, str]] = {}
    for each in value:
        if not isinstance(each, Mapping) or each.keys() - {"name", "variable", "as"} or "name" not in each:
            raise InvalidDefinition(f"Invalid secret {shown(each)}: needs a name, and may have a variable and as")
        name = checked_name(each["name"], "secret name")
        variable = checked_variable(each.get("variable") or re.sub(r"\W", "_", name).upper())
        delivered = each.get("as", "env")
        if delivered not in DELIVERED:
            raise InvalidDefinition(f"Invalid secret {shown(name)}: as must be one of {', '.join(DELIVERED)}")
        if variable in found:
            raise InvalidDefinition(f"Two secrets would be in the variable {shown(variable)}")
        found[variable] = {"name": name, "variable": variable, "as": delivered}
    return list(found.values())


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "connection": _name,
    "arguments": _arguments,
    "database": _flag,
    "shell": _flag,
    "env": _environment,
    "cwd": _text,
    "user": _name,
    "group": _name,
    "umask": _umask,
    "stdout": _text,
    "stderr": _text,
    "secrets": _secrets,
}
_KNOWN = {
    "PYTHON": {"secrets"},
    "SQL": {"connection", "secrets"},
    "PROCEDURE": {"connection", "arguments", "database", "secrets"},
    "EXTERNAL": {"shell", "env", "cwd", "user", "group", "umask", "stdout", "stderr", "secrets"},
}
