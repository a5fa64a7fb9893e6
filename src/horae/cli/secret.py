"""`horae secret`: master keys made, secrets set, listed by name, dropped, encrypted under another key."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.asking import hidden
from horae.cli.files import write_private
from horae.cli.opening import Catalog, opened, plain
from horae.cli.program import program
from horae.cli.rows import counted, harmless, show_rows
from horae.control.people import generate_key

if TYPE_CHECKING:
    from horae.cli.screen import Screen
    from horae.desk.persons import Told


def run(arguments: Namespace, screen: Screen) -> int:
    if arguments.action == "key":
        key = generate_key()
        if arguments.out is not None:
            write_private(arguments.out, key)
            screen.data({"out": arguments.out})
            screen.note(f"The key is in {harmless(arguments.out)}, which you alone may read: name it as key_file")
            return 0
        screen.data({"key": key})
        screen.line(key)
        if sys.stdout.isatty():
            screen.note(f"Keep it where only Horae can read it: {program()} secret key --out horae.key")
        return 0
    value = None
    if arguments.action == "set":
        # Before the catalog is opened: whoever is slow to type keeps nobody waiting.
        value = hidden(f"Value of {arguments.name}", lines=True)
    with opened(arguments) as catalog:
        if arguments.action == "list":
            _list(screen, catalog)
        elif arguments.action == "rotate":
            count = catalog.call("rotate_secrets").rotated
            screen.data({"rotated": count})
            screen.line(f"{count} secret{' was' if count == 1 else 's were'} encrypted under the current master key")
        elif value is not None:
            _done(arguments, screen, catalog.call("put_secret", name=arguments.name, value=value, job=arguments.job))
        else:
            _done(arguments, screen, catalog.call("drop_secret", name=arguments.name, job=arguments.job))
    return 0


def _list(screen: Screen, catalog: Catalog) -> None:
    secrets = catalog.call("secrets").secrets
    screen.data({"secrets": plain(secrets)})
    if secrets:
        rows = [(each.name, each.job, each.key_id, each.updated_at) for each in secrets]
        show_rows(screen, ("secret", "job", "key", "changed"), rows)
    screen.line(screen.style(f"({counted(len(secrets), 'secret')})", "dim"))


def _done(arguments: Namespace, screen: Screen, told: Told) -> None:
    screen.data({"name": arguments.name, "job": arguments.job, "message": told.message})
    screen.line(harmless(told.message))
