"""People: users, roles, what they may do, tokens, secrets by name. Who is no administrator sees their own part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horae.core.access import KIND_OF, LOCAL_NAME, Privilege, quoted
from horae.desk.asking import ListTokens, Nothing
from horae.desk.persons import Role, Secret, Token, User
from horae.errors import SecretError
from horae.web.rendering import render
from horae.web.site import Visit

PRIVILEGES = tuple((str(each), str(KIND_OF[each])) for each in Privilege)
"""Each privilege with the kind of thing it is on; "": on nothing in particular."""
LASTS = (("30d", "30 days"), ("90d", "90 days"), ("365d", "a year"), ("", "until it is revoked"))


@dataclass(frozen=True, slots=True)
class Held:
    """Something that somebody has, and the statement that takes it away."""

    text: str
    revoke: str


@dataclass(frozen=True, slots=True)
class Person:
    user: User
    roles: tuple[Held, ...]
    grants: tuple[Held, ...]
    is_me: bool
    is_local: bool


@dataclass(frozen=True, slots=True)
class Part:
    role: Role
    members: tuple[Held, ...]
    grants: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    token: Token
    state: str


def person(user: User, me: str) -> Person:
    return Person(
        user,
        tuple(Held(role, membership(role, user.name)) for role in user.roles),
        tuple(Held(grant, revoking(grant, user.name)) for grant in user.grants),
        is_me=user.name == me,
        is_local=user.name == LOCAL_NAME,
    )


def part(role: Role) -> Part:
    return Part(
        role,
        tuple(Held(member, membership(role.name, member)) for member in role.members),
        tuple(Held(grant, revoking(grant, role.name)) for grant in role.grants),
    )


def revoking(grant: str, whom: str) -> str:
    """The statement that takes back a grant, which is already written as statements write it."""
    return f"REVOKE {grant} FROM {quoted(whom)}"


def membership(role: str, whom: str) -> str:
    return f"REVOKE {quoted(role)} FROM {quoted(whom)}"


def passes(tokens: Iterable[Token]) -> list[Pass]:
    """Tokens, those that open something first."""
    shown = [Pass(each, "LIVE" if each.is_live else "REVOKED" if each.revoked_at else "EXPIRED") for each in tokens]
    return sorted(shown, key=lambda each: each.state != "LIVE")


async def page(visit: Visit, request: Request) -> Response:
    me = await visit.desk.me(Nothing())
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
        tokens=passes(own.tokens),
        privileges=PRIVILEGES,
        lasts=LASTS,
        **values,
    )


async def _all(visit: Visit, me: str) -> dict[str, Any]:
    users = await visit.desk.users(Nothing())
    roles = await visit.desk.roles(Nothing())
    secrets: list[Secret] = []
    fault = None
    try:
        secrets = (await visit.desk.secrets(Nothing())).secrets
    except SecretError as error:
        # Without a master key there are none to show; people are here all the same.
        fault = error
    return {
        "people": [person(user, me) for user in sorted(users.users, key=lambda each: each.name)],
        "roles": [part(role) for role in sorted(roles.roles, key=lambda each: each.name)],
        "secrets": sorted(secrets, key=lambda each: (each.name, each.job or "")),
        "secrets_fault": fault,
    }


PAGES = (("/people", "people", page),)
