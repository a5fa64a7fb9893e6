"""`horae access`: shows whether servers of a catalog require signing in, and opens a closed catalog again."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.catalog_access import CatalogAccess, open_catalog
from horae.cli.prompts import confirm

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen
    from horae.services.service import Service

_OPEN = "open: whoever is on the machine of its server is the administrator there"
_CLOSED = "closed: everybody signs in with a password or a token"
_NOBODY = "; nobody has one that is live: make one with `horae user create` or `horae token create`"


def run(arguments: Namespace, screen: Screen) -> int:
    with open_catalog(arguments) as catalog:
        if arguments.action == "open":
            confirm(
                "Let whoever is on the server's machine be the administrator, without a password?",
                yes=arguments.yes,
                as_json=arguments.json,
            )
            was_closed = catalog.ask(_reopened)
            screen.data({"is_open": True, "was_closed": was_closed})
            screen.line(
                f"The catalog {'is' if was_closed else 'was'} open. Servers that run learn of it at their next start"
            )
        else:
            _show(screen, catalog)
    return 0


def _show(screen: Screen, catalog: CatalogAccess) -> None:
    is_closed, has_credentials = catalog.ask(_state)
    screen.data({"is_open": not is_closed, "has_credentials": has_credentials})
    screen.line(f"The catalog is {_OPEN if not is_closed else _CLOSED + ('' if has_credentials else _NOBODY)}")


async def _state(service: Service) -> tuple[bool, bool]:
    return await service.store.is_closed(), await service.store.has_credentials()


async def _reopened(service: Service) -> bool:
    return await service.store.reopen(by=service.who.name)
