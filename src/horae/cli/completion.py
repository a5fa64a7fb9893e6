"""`horae completion`: the script by which a shell completes commands, options and names, made of the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horae.cli import parsing

if TYPE_CHECKING:
    from horae.cli.screen import Screen

MANY = 99
"""More values than anybody types."""
_KINDS: Mapping[Callable[[str], Any], str] = {
    parsing.job_name: "jobs",
    parsing.run_id: "runs",
    parsing.user_name: "users",
    parsing.role_name: "roles",
    parsing.who_name: "people",
    parsing.secret_name: "secrets",
    parsing.token_id: "tokens",
    parsing.file_name: "files",
    parsing.job_state: "words:enabled paused disabled",
    parsing.run_state: "words:active pending queued running completed completed_with_errors failed failed_stale"
    " cancelled skipped missed unschedulable",
    parsing.run_origin: "words:schedule trigger replay backfill",
}


@dataclass(frozen=True, slots=True)
class Option:
    """`takes` is how many values follow: 0, a number, MANY; `kind` is what they are: `files`, `words:a b`, names that
    the catalog has, or empty for anything."""

    names: tuple[str, ...]
    summary: str
    takes: int
    kind: str


@dataclass(frozen=True, slots=True)
class Place:
    """One command of the line: its words, the commands inside it, its options, what its arguments are in order; the
    last of `arguments` goes on where it is `endless`."""

    path: str
    commands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    arguments: tuple[str, ...]
    endless: bool


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    from horae.cli.scripts import SCRIPTS

    text = SCRIPTS[arguments.shell](places())
    screen.data({"shell": arguments.shell, "script": text})
    screen.line(text.removesuffix("\n"))
    return 0


def places() -> list[Place]:
    """Every command there is, the whole line first."""
    # Imported here: it imports the parsers of everything, this one too.
    from horae.cli.arguments import build_parser

    found: list[Place] = []
    left: list[tuple[str, argparse.ArgumentParser]] = [("", build_parser())]
    while left:
        path, parser = left.pop(0)
        place, inner = _read(path, parser)
        found.append(place)
        left += inner
    return found


def inner_commands(parser: argparse.ArgumentParser) -> list[str]:
    """The words of the commands that stand inside groups: `job list`."""
    _, groups = _read("", parser)
    return [path for name, group in groups for path, _ in _read(name, group)[1]]


def _read(path: str, parser: argparse.ArgumentParser) -> tuple[Place, list[tuple[str, argparse.ArgumentParser]]]:
    commands: list[tuple[str, str]] = []
    options: list[Option] = []
    arguments: list[str] = []
    inner: list[tuple[str, argparse.ArgumentParser]] = []
    endless = False
    for action in parser._actions:  # noqa: SLF001 - argparse tells its parts in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            summaries = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001 - as above
            commands += [(name, summaries.get(name, "")) for name in action.choices]
            inner += [(f"{path} {name}".strip(), each) for name, each in action.choices.items()]
        elif action.option_strings and action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            options.append(Option(tuple(action.option_strings), _summary(action), _takes(action), _kind(action)))
        else:
            arguments.append(_kind(action))
            endless = action.nargs in ("*", "+")
    return Place(path, tuple(commands), tuple(options), tuple(arguments), endless), inner


def _takes(action: argparse.Action) -> int:
    if isinstance(action.nargs, int):
        return action.nargs
    # A value that may be left out is not waited for: what follows may be an argument.
    return {None: 1, "+": MANY, "*": MANY, "?": 0}[action.nargs]


def _kind(action: argparse.Action) -> str:
    if action.choices is not None:
        return "words:" + " ".join(map(str, action.choices))
    return _KINDS.get(action.type, "") if callable(action.type) else ""


def _summary(action: argparse.Action) -> str:
    return "" if not action.help or action.help == argparse.SUPPRESS else action.help.replace("%%", "%")
