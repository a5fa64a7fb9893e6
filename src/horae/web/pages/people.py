"""The page of users, roles, grants, tokens and secrets. A user who is not an administrator sees their own part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import EmptyRequest, ListTokens
from horae.api.responses.people_responses import Role, Secret, Token, User
from horae.core.access import KIND_OF, LOCAL_NAME, Privilege, quoted
from horae.errors import SecretError
from horae.web.page_renderer import render
from horae.web.site import Visit

PRIVILEGES = tuple((str(each), str(KIND_OF[each])) for each in Privilege)
"""Each privilege with the kind of object that it is granted on; empty for none."""
LASTS = (("30d", "30 days"), ("90d", "90 days"), ("365d", "a year"), ("", "until it is revoked"))


@dataclass(frozen=True, slots=True)
class RevocableGrant:
    """A grant or a membership, with the statement that revokes it."""

    text: str
    revoke: str


@dataclass(frozen=True, slots=True)
class UserView:
    user: User
    roles: tuple[RevocableGrant, ...]
    grants: tuple[RevocableGrant, ...]
    is_me: bool
    is_local: bool


@dataclass(frozen=True, slots=True)
class RoleView:
    role: Role
    members: tuple[RevocableGrant, ...]
    grants: tuple[RevocableGrant, ...]


@dataclass(frozen=True, slots=True)
class TokenView:
    token: Token
    state: str


def user_view(user: User, me: str) -> UserView:
    return UserView(
        user,
        tuple(RevocableGrant(role, revoke_role_statement(role, user.name)) for role in user.roles),
        tuple(RevocableGrant(grant, revoke_grant_statement(grant, user.name)) for grant in user.grants),
        is_me=user.name == me,
        is_local=user.name == LOCAL_NAME,
    )


def role_view(role: Role) -> RoleView:
    return RoleView(
        role,
        tuple(RevocableGrant(member, revoke_role_statement(role.name, member)) for member in role.members),
        tuple(RevocableGrant(grant, revoke_grant_statement(grant, role.name)) for grant in role.grants),
    )


def revoke_grant_statement(grant: str, whom: str) -> str:
    """Returns the statement that revokes a grant from a user or role. `grant` is already in SQL syntax."""
    return f"REVOKE {grant} FROM {quoted(whom)}"


def revoke_role_statement(role: str, whom: str) -> str:
    return f"REVOKE {quoted(role)} FROM {quoted(whom)}"


def token_views(tokens: Iterable[Token]) -> list[TokenView]:
    """Returns the tokens, live ones first."""
    shown = [
        TokenView(each, "LIVE" if each.is_live else "REVOKED" if each.revoked_at else "EXPIRED") for each in tokens
    ]
    return sorted(shown, key=lambda each: each.state != "LIVE")


async def page(visit: Visit, request: Request) -> Response:
    me = await visit.desk.me(EmptyRequest())
    own = await visit.desk.tokens(ListTokens(user=None if me.is_admin else me.name))
    values: dict[str, Any] = {"people": (), "roles": (), "secrets": (), "secrets_fault": None}
    if me.is_admin:
        values |= await _all(visit, me.name)
    own_password = next((each.user.has_password for each in values["people"] if each.is_me), True)
    return render(
        "people.html",
        visit,
        request,
        me=me,
        is_local=me.name == LOCAL_NAME,
        may_change_password=me.name != LOCAL_NAME and own_password,
        has_password=any(each.user.has_password for each in values["people"]),
        tokens=token_views(own.tokens),
        privileges=PRIVILEGES,
        lasts=LASTS,
        **values,
    )


async def _all(visit: Visit, me: str) -> dict[str, Any]:
    users = await visit.desk.users(EmptyRequest())
    roles = await visit.desk.roles(EmptyRequest())
    secrets: list[Secret] = []
    fault = None
    try:
        secrets = (await visit.desk.secrets(EmptyRequest())).secrets
    except SecretError as error:
        # Without a master key secrets cannot be listed, but the rest of the page is shown.
        fault = error
    return {
        "people": [user_view(user, me) for user in sorted(users.users, key=lambda each: each.name)],
        "roles": [role_view(role) for role in sorted(roles.roles, key=lambda each: each.name)],
        "secrets": sorted(secrets, key=lambda each: (each.name, each.job or "")),
        "secrets_fault": fault,
    }


PAGES = (("/people", "people", page),)
