"""`horae secret`: makes master keys; sets, lists and drops secrets; encrypts them under another key."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.catalog_access import CatalogAccess, json_values, open_catalog
from horae.cli.files import write_private
from horae.cli.program import program
from horae.cli.prompts import prompt_hidden
from horae.cli.screen.rows import counted, harmless, show_rows
from horae.services.people import generate_key

if TYPE_CHECKING:
    from horae.api.responses.people_responses import Told
    from horae.cli.screen.screen import Screen


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
        # Asked before the catalog is opened, so that it is not held open while the user types.
        value = prompt_hidden(f"Value of {arguments.name}", lines=True)
    with open_catalog(arguments) as catalog:
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


def _list(screen: Screen, catalog: CatalogAccess) -> None:
    secrets = catalog.call("secrets").secrets
    screen.data({"secrets": json_values(secrets)})
    if secrets:
        rows = [(each.name, each.job, each.key_id, each.updated_at) for each in secrets]
        show_rows(screen, ("secret", "job", "key", "changed"), rows)
    screen.line(screen.style(f"({counted(len(secrets), 'secret')})", "dim"))


def _done(arguments: Namespace, screen: Screen, told: Told) -> None:
    screen.data({"name": arguments.name, "job": arguments.job, "message": told.message})
    screen.line(harmless(told.message))
