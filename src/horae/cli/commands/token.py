"""`horae token`: creates, lists and revokes the tokens that programs use to sign in to a server."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.catalog_access import CatalogAccess, json_values, open_catalog
from horae.cli.files import write_private
from horae.cli.screen.rows import counted, harmless, show_rows
from horae.errors import HoraeError

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

_FOREVER = "forever"


def run(arguments: Namespace, screen: Screen) -> int:
    with open_catalog(arguments) as catalog:
        _ACTIONS[arguments.action](arguments, screen, catalog)
    return 0


def _create(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    lasts = None if arguments.lasts.lower() == _FOREVER else arguments.lasts
    made = catalog.call("create_token", user=arguments.whose, label=arguments.label, lasts=lasts)
    if arguments.out is not None:
        try:
            write_private(arguments.out, made.secret)
        except HoraeError:
            # The token was shown to no one and cannot be shown again, so it is revoked.
            catalog.call("revoke_token", token_id=made.token.token_id)
            raise
        screen.data(json_values(made.token) | {"out": arguments.out})
        screen.note(f"The token is in {harmless(arguments.out)}, which you alone may read")
    else:
        screen.data(json_values(made))
        # The token alone goes to standard output, so that it can be redirected to a file.
        screen.line(made.secret)
    until = (
        "until it is revoked" if made.token.expires_at is None else f"until {screen.clock.both(made.token.expires_at)}"
    )
    screen.note(f"token {made.token.token_id} of {harmless(made.token.user)}, good {until}")
    screen.note("It is kept nowhere and cannot be shown again. Whoever has it may do what that user may.")


def _list(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    tokens = catalog.call("tokens", user=arguments.whose).tokens
    screen.data({"tokens": json_values(tokens)})
    if tokens:
        rows = [
            (
                each.token_id,
                each.user,
                each.label,
                each.created_at,
                each.expires_at or "never",
                "yes" if each.is_live else "revoked" if each.revoked_at else "expired",
            )
            for each in tokens
        ]
        show_rows(screen, ("token", "user", "label", "created", "expires", "live"), rows, styles={"live": "state"})
    live = sum(each.is_live for each in tokens)
    screen.line(screen.style(f"({counted(len(tokens), 'token')}, {live} live)", "dim"))


def _revoke(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    token = catalog.call("revoke_token", token_id=arguments.id)
    told = f"token {token.token_id} of {token.user} lets nobody in any more"
    screen.data(json_values(token) | {"message": told})
    screen.line(harmless(told))


_ACTIONS = {"create": _create, "list": _list, "revoke": _revoke}
