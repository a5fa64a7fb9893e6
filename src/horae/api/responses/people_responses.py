"""Responses about users, roles, tokens and secrets."""

from __future__ import annotations

from horae.api.responses.job_responses import ApiResponse, Time


class Me(ApiResponse, frozen=True, kw_only=True):
    """The caller."""

    name: str
    is_admin: bool
    roles: list[str]
    grants: list[str]
    sign_in: str = "local"
    """local, open (everyone who reaches the server is administrator), session or token."""
    version: str = ""


class User(ApiResponse, frozen=True, kw_only=True):
    name: str
    is_admin: bool
    is_enabled: bool
    has_password: bool
    roles: list[str]
    grants: list[str]
    created_at: Time | None


class Users(ApiResponse, frozen=True, kw_only=True):
    users: list[User]


class Role(ApiResponse, frozen=True, kw_only=True):
    name: str
    description: str
    members: list[str]
    grants: list[str]
    created_at: Time


class Roles(ApiResponse, frozen=True, kw_only=True):
    roles: list[Role]


class Secret(ApiResponse, frozen=True, kw_only=True):
    """A secret's name, never its value."""

    name: str
    job: str | None
    key_id: str
    updated_at: Time | None


class Secrets(ApiResponse, frozen=True, kw_only=True):
    secrets: list[Secret]


class Rotated(ApiResponse, frozen=True, kw_only=True):
    rotated: int


class Token(ApiResponse, frozen=True, kw_only=True):
    token_id: str
    user: str
    label: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    is_live: bool


class Tokens(ApiResponse, frozen=True, kw_only=True):
    tokens: list[Token]


class NewToken(ApiResponse, frozen=True, kw_only=True):
    """A new token."""

    token: Token
    secret: str
    """The token itself; it is shown only once."""


class Told(ApiResponse, frozen=True, kw_only=True):
    """What was done, as a sentence."""

    name: str
    message: str
