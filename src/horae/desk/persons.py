"""Answers about people: users, roles, tokens, secrets by name."""

from __future__ import annotations

from horae.desk.shapes import Shape, Time


class Me(Shape, frozen=True, kw_only=True):
    """Who asks. `sign_in`: open (whoever reaches the server is the administrator), session or token."""

    name: str
    is_admin: bool
    roles: list[str]
    grants: list[str]
    sign_in: str = "local"
    version: str = ""


class User(Shape, frozen=True, kw_only=True):
    name: str
    is_admin: bool
    is_enabled: bool
    has_password: bool
    roles: list[str]
    grants: list[str]
    created_at: Time | None


class Users(Shape, frozen=True, kw_only=True):
    users: list[User]


class Role(Shape, frozen=True, kw_only=True):
    name: str
    description: str
    members: list[str]
    grants: list[str]
    created_at: Time


class Roles(Shape, frozen=True, kw_only=True):
    roles: list[Role]


class Secret(Shape, frozen=True, kw_only=True):
    """A secret's name, never its value."""

    name: str
    job: str | None
    key_id: str
    updated_at: Time | None


class Secrets(Shape, frozen=True, kw_only=True):
    secrets: list[Secret]


class Rotated(Shape, frozen=True, kw_only=True):
    rotated: int


class Token(Shape, frozen=True, kw_only=True):
    token_id: str
    user: str
    label: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    is_live: bool


class Tokens(Shape, frozen=True, kw_only=True):
    tokens: list[Token]


class NewToken(Shape, frozen=True, kw_only=True):
    """`secret` is told this once."""

    token: Token
    secret: str


class Told(Shape, frozen=True, kw_only=True):
    """What was done, in a sentence."""

    name: str
    message: str
