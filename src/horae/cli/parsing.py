"""What every command's arguments are made with: parsers, and commands that are imported when they run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from horae.cli.screen import Screen

Command = Callable[[argparse.Namespace, "Screen"], int]
STORE_HELP = "the catalog (default $HORAE_STORE, else sqlite:///horae.db)"


class Parser(argparse.ArgumentParser):
    """Says what is usually behind words too many: an expression the shell took apart, a password for all to see."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            said = self.prog.split() + sys.argv[1:2]
            if "next" in said:
                message += '\n       Put a cron expression in quotes: horae next "0 9 * * 1-5".'
            elif "--password" in sys.argv:
                # What is too much may be the password itself: it is not said again.
                message = "--password takes no value: it is asked for, or read from standard input"
            elif "secret" in said:
                message = "a secret's value is never an argument: it is asked for, or read from standard input"
        super().error(message)


Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no other name for what it gives


def command(
    commands: Commands[Parser], name: str, summary: str, epilog: str = "", *, module: str | None = None
) -> Parser:
    """A command that stands by itself; its `run` is in the module of its own name, or in `module`."""
    added = _added(commands, name, summary, epilog)
    added.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    added.set_defaults(run=late(module or name))
    return added


def action(actions: Commands[Parser], name: str, summary: str, epilog: str = "", *, store: bool = True) -> Parser:
    """One of a group's commands. Those that have to do with a store are done in somebody's name."""
    added = _added(actions, name, summary, epilog)
    # Also before the action, where the group's own takes it: here it must not take that back.
    added.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON document instead of text",
    )
    if store:
        add_store(added)
    return added


def add_store(added: argparse.ArgumentParser, *, user: bool = True) -> None:
    added.add_argument("--store", metavar="URL", help=STORE_HELP)
    if user:
        added.add_argument("--user", metavar="NAME", help="do it as this user (default: as whoever opens the store)")


def late(module: str) -> Command:
    def run(arguments: argparse.Namespace, screen: Screen) -> int:
        code: int = import_module(f"horae.cli.{module}").run(arguments, screen)
        return code

    return run


def _added(commands: Commands[Parser], name: str, summary: str, epilog: str) -> Parser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
