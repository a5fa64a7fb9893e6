"""`horae user`, `horae role`, `horae grant`, `horae revoke`: manages users, roles and privileges."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from horae.cli.catalog_access import CatalogAccess, json_values, open_catalog
from horae.cli.prompts import prompt_hidden, prompt_hidden_change
from horae.cli.screen.rows import counted, harmless, show_rows
from horae.errors import InvalidInput, shown
from horae.formats.sql.printer import name_text
from horae.services.people import Privilege

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

_KINDS = ("job", "secret", "connection", "table")
_PRIVILEGES = tuple(sorted((str(each) for each in Privilege), key=lambda text: -len(text.split())))
"""The privileges, those with the most words first, so that a longer one is matched before its beginning."""


def run(arguments: Namespace, screen: Screen) -> int:
    if arguments.group in ("grant", "revoke"):
        statement = grant_statement(arguments)
        with open_catalog(arguments) as catalog:
            _carry_out(screen, catalog, statement)
        return 0
    password = old = None
    if getattr(arguments, "password", False):
        # Asked before the catalog is opened, so that it is not held open while the user types.
        if arguments.action == "alter" and arguments.name == arguments.user:
            old, password = prompt_hidden_change(f"password of {arguments.name}")
        else:
            password = prompt_hidden(f"Password of {arguments.name}")
    with open_catalog(arguments) as catalog:
        if arguments.action == "list":
            _list(arguments, screen, catalog)
        elif arguments.action == "drop":
            names = ", ".join(name_text(name) for name in arguments.name)
            _carry_out(screen, catalog, f"DROP {arguments.group} {names}")
        elif arguments.group == "role":
            made = catalog.call("create_role", name=arguments.name, description=arguments.description)
            _done(screen, made)
        elif arguments.action == "create":
            made = catalog.call("create_user", name=arguments.name, password=password, is_admin=arguments.admin)
            _done(screen, made, has_password=password is not None)
        else:
            _alter(arguments, screen, catalog, password, old)
    return 0


def _list(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    if arguments.group == "user":
        users = catalog.call("users").users
        screen.data({"users": json_values(users)})
        rows = [
            [
                user.name,
                "ENABLED" if user.is_enabled else "DISABLED",
                user.is_admin,
                user.has_password,
                ", ".join(user.roles),
                ", ".join(user.grants),
            ]
            for user in users
        ]
        show_rows(screen, ["user", "state", "admin", "password", "roles", "grants"], rows)
        return
    roles = catalog.call("roles").roles
    screen.data({"roles": json_values(roles)})
    if roles:
        listed = [[role.name, ", ".join(role.members), ", ".join(role.grants), role.description] for role in roles]
        show_rows(screen, ["role", "members", "grants", "description"], listed)
    screen.line(screen.style(f"({counted(len(roles), 'role')})", "dim"))


def _alter(arguments: Namespace, screen: Screen, catalog: CatalogAccess, password: str | None, old: str | None) -> None:
    limits = {}
    for text in arguments.limit or ():
        kind, _, limits[kind] = text.partition("=")
    if arguments.revoke_tokens and password is None:
        raise InvalidInput("--revoke-tokens goes with --password", hint="`horae token revoke` revokes one.")
    if password is None and arguments.admin is None and arguments.enable is None and not limits:
        raise InvalidInput(
            "Nothing is to be changed", hint="Give --password, --admin, --no-admin, --enable, --disable or --limit."
        )
    altered = catalog.call(
        "alter_user",
        name=arguments.name,
        password=password,
        old_password=old,
        revoke_tokens=arguments.revoke_tokens,
        is_admin=arguments.admin,
        is_enabled=arguments.enable,
        limits=limits or None,
    )
    _done(screen, altered)


def grant_statement(arguments: Namespace) -> str:
    """Returns the SQL statement for the arguments of `horae grant` or `horae revoke`. Raises InvalidInput for
    arguments that do not go together."""
    privileges, roles = read_privileges(arguments.privilege)
    if privileges and roles:
        raise InvalidInput(
            f"Privileges and roles are granted one after the other: {', '.join(privileges)}; {', '.join(roles)}",
            hint=f"Known privileges: {', '.join(Privilege)}.",
        )
    given = privileges or [name_text(role) for role in roles]
    on = ""
    if arguments.on is not None:
        kind, name = arguments.on
        if kind.lower() not in _KINDS or roles:
            known = f"--on takes a kind and a name; kinds are {', '.join(_KINDS)}"
            raise InvalidInput(
                "A role is not granted on anything" if roles else f"There is no kind {shown(kind)}", hint=known
            )
        parts = name.split(".") if kind.lower() == "table" else [name]
        on = f" ON {kind.upper()} {'.'.join(name_text(part) for part in parts)}"
    preposition = "TO" if arguments.group == "grant" else "FROM"
    people = ", ".join(name_text(name) for name in arguments.who)
    return f"{arguments.group.upper()} {', '.join(given)}{on} {preposition} {people}"


def read_privileges(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits the words of a command line into privileges and roles. They may be quoted or not, with or without commas.
    Every word that belongs to no privilege is taken for a role."""
    left = " ".join(words).replace(",", " ").split()
    privileges: list[str] = []
    roles: list[str] = []
    while left:
        for privilege in _PRIVILEGES:
            parts = privilege.split()
            if [word.upper() for word in left[: len(parts)]] == parts:
                privileges.append(privilege)
                left = left[len(parts) :]
                break
        else:
            roles.append(left.pop(0))
    return privileges, roles


def _carry_out(screen: Screen, catalog: CatalogAccess, statement: str) -> None:
    result = catalog.call("sql", text=statement).results[-1]
    screen.data({"statement": result.statement, "message": result.message, "count": result.rowcount})
    screen.line(harmless(result.message))


def _done(screen: Screen, told: Any, **values: Any) -> None:
    screen.data(json_values(told) | values)
    screen.line(harmless(told.message))
