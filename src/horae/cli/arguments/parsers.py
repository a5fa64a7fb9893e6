"""The building blocks of every command's arguments: the parser class, argument types, common options."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

Command = Callable[[argparse.Namespace, "Screen"], int]
STORE_HELP = "the catalog (default $HORAE_STORE, else sqlite:///horae.db)"
SERVER_HELP = "ask a running server instead, http://HOST:PORT (default $HORAE_SERVER)"
ZONE_HELP = "show times on the clocks of this zone, and read times without an offset on them (default: this host's)"
FILE_HELP = "the file that has the token for the server (default: the token is $HORAE_TOKEN)"
WATCH = 2.0
"""Seconds after which `--watch` draws again even if nothing changed."""
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+")


class Parser(argparse.ArgumentParser):
    """A parser whose message about surplus words names the usual cause, such as an unquoted cron expression.

    Options cannot be abbreviated: `--token` would be read as `--token-file`, with the token itself as its value.
    """

    def __init__(self, *positional: Any, **keywords: Any) -> None:
        super().__init__(*positional, **{"allow_abbrev": False} | keywords)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += self._near_option(message.partition(": ")[2].split())
            said = self.prog.split() + sys.argv[1:2]
            if "next" in said:
                message += '\n       Put a cron expression in quotes: horae next "0 9 * * 1-5".'
            elif "--password" in sys.argv:
                # The surplus word may be the password itself, so the message does not repeat it.
                message = "--password takes no value: it is asked for, or read from standard input"
            elif "secret" in said:
                message = "a secret's value is never an argument: it is asked for, or read from standard input"
            elif any(word == "--token" or word.startswith("--token=") for word in sys.argv):
                message = "a token is never an argument: it is in $HORAE_TOKEN, or in a file, --token-file FILE"
        if "--exit-code" in sys.argv:
            # With --exit-code, 2 means that something would change.
            self.print_usage(sys.stderr)
            self.exit(1, f"{self.prog}: error: {message}\n")
        super().error(message)

    def _near_option(self, words: Sequence[str]) -> str:
        from horae.services.plan.terminal_words import did_you_mean

        parser: argparse.ArgumentParser = self
        for word in sys.argv[1:]:
            parser = _inner(parser).get(word, parser)
        shown = [name for each in parser._actions if each.help != argparse.SUPPRESS for name in each.option_strings]  # noqa: SLF001 - no public way to it
        near = next((did_you_mean(word.partition("=")[0], shown) for word in words if word.startswith("--")), None)
        return f"\n       {near}" if near else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001 - as below
            from horae.cli.arguments.help_text import unknown_command

            raise argparse.ArgumentError(None, unknown_command(str(value), self.prog, tuple(action.choices)))
        super()._check_value(action, value)

    def format_help(self) -> str:
        """Returns the help text; that of `horae` itself lists the commands in groups."""
        commands = next((each for each in self._actions if isinstance(each, argparse._SubParsersAction)), None)  # noqa: SLF001 - as above
        if commands is None or " " in self.prog:
            return super().format_help()
        from horae.cli.arguments.help_text import grouped, summaries_of

        listed = grouped(summaries_of(commands))
        options = "options:\n  -h, --help    show this help\n  --version     show the version"
        return f"usage: {self.prog} COMMAND …\n\n{self.description}\n\n{listed}\n\n{options}\n\n{self.epilog}\n"


def _inner(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the subcommands of a parser by name."""
    groups = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001 - as above
    return {name: each for group in groups for name, each in group.choices.items()}


Commands = argparse._SubParsersAction  # noqa: SLF001 - the class has no public name


# ---- argument types: they return the text unchanged; shell completion tells kinds of arguments apart by them ---------


def job_name(text: str) -> str:
    return text


def run_id(text: str) -> str:
    return text


def user_name(text: str) -> str:
    return text


def role_name(text: str) -> str:
    return text


def who_name(text: str) -> str:
    """A user or a role."""
    return text


def secret_name(text: str) -> str:
    return text


def token_id(text: str) -> str:
    return text


def file_name(text: str) -> str:
    return text


def job_state(text: str) -> str:
    return text


def run_state(text: str) -> str:
    return text


def run_origin(text: str) -> str:
    return text


def bounded_int(least: int, most: int) -> Callable[[str], int]:
    """Returns an argument type for whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def seconds(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not 0 < float(text) <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, more than 0 and at most 86400")
    return float(text)


# ---- commands --------------------------------------------------------------------------------------------------------


def command(
    commands: Commands[Parser], name: str, summary: str, epilog: str = "", *, module: str | None = None
) -> Parser:
    """Adds a command. Its `run` function is in the module of the same name in `horae.cli.commands`, or in `module`."""
    added = _add_parser(commands, name, summary, epilog)
    added.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    added.set_defaults(run=deferred_command(module or name))
    return added


def action(
    actions: Commands[Parser], name: str, summary: str, epilog: str = "", *, store: bool = True, user: bool = True
) -> Parser:
    """Adds an action to a command group. With `store` it takes the options that name a catalog, with `user` also
    `--user`, the user it acts as."""
    added = _add_parser(actions, name, summary, epilog)
    # The group has --json too. Without a default here, the action does not reset a --json before the action's name.
    added.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON document instead of text",
    )
    if store:
        add_store(added, user=user)
        add_timezone(added)
    return added


def add_store(added: argparse.ArgumentParser, *, user: bool = True, server: bool = True) -> None:
    """Adds the options that name the catalog: a store to open, or, with `server`, a running server."""
    if not server:
        added.add_argument("--store", metavar="URL", help=STORE_HELP)
    else:
        either = added.add_mutually_exclusive_group()
        either.add_argument("--store", metavar="URL", help=STORE_HELP)
        either.add_argument("--server", metavar="URL", help=SERVER_HELP)
        added.add_argument("--token-file", metavar="FILE", type=file_name, help=FILE_HELP)
    if user:
        added.add_argument(
            "--user",
            metavar="NAME",
            type=user_name,
            help="do it as this user, on a store that is opened here (default: as whoever opens it)",
        )


def add_concurrency(added: argparse.ArgumentParser) -> None:
    """Adds `--concurrency`, and its former name `--slots`, which still works."""
    number = bounded_int(1, 1_000_000)
    added.add_argument("--concurrency", metavar="N", dest="slots", type=number, help="runs at once (default 50)")
    added.add_argument("--slots", metavar="N", dest="slots", type=number, help=argparse.SUPPRESS)


def add_timezone(added: argparse.ArgumentParser) -> None:
    added.add_argument("--tz", metavar="ZONE", dest="timezone", help=ZONE_HELP)


def add_watch(added: argparse.ArgumentParser) -> None:
    added.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=seconds,
        const=WATCH,
        help=f"show it again at every change, and every SECONDS at least (default {WATCH:g}), until Ctrl-C",
    )


def with_watch_values(words: Sequence[str]) -> list[str]:
    """Returns the words with the default value added to each `--watch` without one. Otherwise argparse would take the
    next word, such as a job's name, as its value."""
    found: list[str] = []
    for index, word in enumerate(words):
        if word == "--":
            return [*found, *words[index:]]
        following = words[index + 1] if index + 1 < len(words) else ""
        found.append(f"{word}={WATCH:g}" if word == "--watch" and not _NUMBER.fullmatch(following) else word)
    return found


def deferred_command(module: str) -> Command:
    def run(arguments: argparse.Namespace, screen: Screen) -> int:
        code: int = import_module(f"horae.cli.commands.{module}").run(arguments, screen)
        return code

    return run


def _add_parser(commands: Commands[Parser], name: str, summary: str, epilog: str) -> Parser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
