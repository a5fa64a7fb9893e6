"""`horae secret`: master keys made, secrets set, listed by name, dropped, encrypted under another key."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.asking import hidden
from horae.cli.opening import Catalog, opened
from horae.cli.rows import show_rows
from horae.control.people import generate_key

if TYPE_CHECKING:
    from horae.cli.screen import Screen


def run(arguments: Namespace, screen: Screen) -> int:
    if arguments.action == "key":
        key = generate_key()
        screen.data({"key": key})
        screen.line(key)
        if sys.stdout.isatty():
            screen.note("Keep it where only Horae can read it: horae secret key > horae.key, then chmod 600 horae.key")
        return 0
    value = None
    if arguments.action == "set":
        # Before the catalog is opened: whoever is slow to type keeps nobody waiting.
        value = hidden(f"Value of {arguments.name}", lines=True)
    with opened(arguments) as catalog:
        if arguments.action == "list":
            _list(screen, catalog)
        elif arguments.action == "rotate":
            count = catalog.ask(lambda service: service.people.rotate_secrets())
            screen.data({"rotated": count})
            screen.line(f"{count} secret{' was' if count == 1 else 's were'} encrypted under the current master key")
        elif value is not None:
            _set(arguments, screen, catalog, value)
        else:
            catalog.ask(lambda service: service.people.drop_secret(arguments.name, job=arguments.job))
            _done(screen, arguments, f"secret {arguments.name}{_of(arguments)} is gone")
    return 0


def _list(screen: Screen, catalog: Catalog) -> None:
    found = catalog.ask(lambda service: service.people.secrets())
    secrets = [
        each | {"updated_at": None if each["updated_at"] is None else f"{each['updated_at']:%Y-%m-%dT%H:%M:%SZ}"}
        for each in found
    ]
    screen.data({"secrets": secrets})
    if secrets:
        columns = ("name", "job", "key_id", "updated_at")
        show_rows(screen, ("secret", "job", "key", "changed"), [[each[name] for name in columns] for each in secrets])
    screen.line(screen.style(f"({len(secrets)} secret{'' if len(secrets) == 1 else 's'})", "dim"))


def _set(arguments: Namespace, screen: Screen, catalog: Catalog, value: str) -> None:
    catalog.ask(lambda service: service.people.put_secret(arguments.name, value, job=arguments.job, replace=True))
    _done(screen, arguments, f"secret {arguments.name}{_of(arguments)} is kept")


def _of(arguments: Namespace) -> str:
    return "" if arguments.job is None else f" of job {arguments.job}"


def _done(screen: Screen, arguments: Namespace, message: str) -> None:
    screen.data({"name": arguments.name, "job": arguments.job, "message": message})
    screen.line(message)
