"""Prompts for the user: confirmations, and passwords and secrets, which are not echoed."""

from __future__ import annotations

import sys
from getpass import getpass

from horae.cli import files
from horae.errors import Conflict, InvalidInput


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Asks the user on a terminal, unless `yes`. Raises Conflict if the answer is not yes, and without a terminal or
    with JSON, where only `yes` confirms."""
    if yes:
        return
    if as_json or sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise Conflict("Nobody can be asked here, and this cannot be undone", hint="Say --yes to have it done.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Conflict("Nothing was done", hint="Answer y to have it done.")


def prompt_hidden_change(what: str) -> tuple[str, str]:
    """Asks for the old value once and the new value twice, and returns both. Without a terminal they are the first two
    lines of standard input. Raises InvalidInput if either is missing."""
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            old = getpass(f"Old {what}: ")
        except EOFError:
            old = ""
        new = prompt_hidden(f"New {what}") if old else ""
    else:
        old, new = (*files.read_text("-").splitlines(), "", "")[:2]
    if not old or not new:
        raise InvalidInput(
            f"{what}: the old and the new one are needed",
            hint="Type them when asked, or give them on standard input, the old one first, each on its line.",
        )
    return old, new


def prompt_hidden(what: str, *, lines: bool = False) -> str:
    """Asks for a value twice on a terminal and returns it. Without a terminal it is the first line of standard input,
    or, with `lines`, all of it without the final line end. Raises InvalidInput if the value is empty or differs."""
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            value = getpass(f"{what}: ")
            if value and getpass(f"{what}, once more: ") != value:
                raise InvalidInput("That was not the same twice", hint="Try again.")
        except EOFError:
            value = ""
    else:
        text = files.read_text("-")
        value = text.removesuffix("\n").removesuffix("\r") if lines else (text.splitlines() or [""])[0]
    if not value:
        raise InvalidInput(f"{what}: nothing was given", hint="Type it when asked, or give it on standard input.")
    return value
