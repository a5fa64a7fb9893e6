"""What must never be an argument: passwords and secrets, asked for without showing them or read from standard input."""

from __future__ import annotations

import sys
from getpass import getpass

from horae.cli import files
from horae.errors import InvalidInput


def hidden(what: str, *, lines: bool = False) -> str:
    """Asks for `what` twice on a terminal; else it is the first line of standard input, or, with `lines`, all of it
    without the line end at its end. Raises InvalidInput where nothing was given."""
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
