"""`horae completion`: prints a shell's completion script for commands, options and names, made from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horae.cli.arguments import parsers

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

MANY = 99
"""The number of values of an option that takes any number of them."""
_KINDS: Mapping[Callable[[str], Any], str] = {
    parsers.job_name: "jobs",
    parsers.run_id: "runs",
    parsers.user_name: "users",
    parsers.role_name: "roles",
    parsers.who_name: "people",
    parsers.secret_name: "secrets",
    parsers.token_id: "tokens",
    parsers.file_name: "files",
    parsers.job_state: "words:enabled paused disabled",
    parsers.run_state: "words:active pending queued running completed completed_with_errors failed failed_stale"
    " cancelled skipped missed unschedulable",
    parsers.run_origin: "words:schedule trigger replay backfill",
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command. `takes` is how many values follow it: 0, a number, or MANY. `kind` says what they are:
    `files`, `words:a b`, a kind of names in the catalog such as `jobs`, or empty for anything."""

    names: tuple[str, ...]
    summary: str
    takes: int
    kind: str


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command as completion needs it. `path` is its words, `commands` the names and summaries of its subcommands,
    `arguments` the kinds of its positional arguments in order. Where `endless`, the last argument repeats."""

    path: str
    commands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    arguments: tuple[str, ...]
    endless: bool


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    from horae.cli.completion.scripts import SCRIPTS

    text = SCRIPTS[arguments.shell](places())
    screen.data({"shell": arguments.shell, "script": text})
    screen.line(text.removesuffix("\n"))
    return 0


def places() -> list[CommandEntry]:
    """Returns every command, `horae` itself first and groups before their actions."""
    # Imported here: it imports the parsers of all commands, this one included.
    from horae.cli.arguments.commands import build_parser

    found: list[CommandEntry] = []
    left: list[tuple[str, argparse.ArgumentParser]] = [("", build_parser())]
    while left:
        path, parser = left.pop(0)
        place, inner = _read(path, parser)
        found.append(place)
        left += inner
    return found


def inner_commands(parser: argparse.ArgumentParser) -> list[str]:
    """Returns the paths of all actions in command groups, such as `job list`."""
    _, groups = _read("", parser)
    return [path for name, group in groups for path, _ in _read(name, group)[1]]


def _read(path: str, parser: argparse.ArgumentParser) -> tuple[CommandEntry, list[tuple[str, argparse.ArgumentParser]]]:
    commands: list[tuple[str, str]] = []
    options: list[Option] = []
    arguments: list[str] = []
    inner: list[tuple[str, argparse.ArgumentParser]] = []
    endless = False
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list its actions
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
    return CommandEntry(path, tuple(commands), tuple(options), tuple(arguments), endless), inner


def _takes(action: argparse.Action) -> int:
    if isinstance(action.nargs, int):
        return action.nargs
    # A value that is optional counts as none: the next word may be an argument.
    return {None: 1, "+": MANY, "*": MANY, "?": 0}[action.nargs]


def _kind(action: argparse.Action) -> str:
    if action.choices is not None:
        return "words:" + " ".join(map(str, action.choices))
    return _KINDS.get(action.type, "") if callable(action.type) else ""


def _summary(action: argparse.Action) -> str:
    return "" if not action.help or action.help == argparse.SUPPRESS else action.help.replace("%%", "%")
