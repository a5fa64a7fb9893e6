"""Operations on users, roles, tokens and secrets, and on the audit trail."""

from __future__ import annotations

from horae.api import requests
from horae.api.context import OperationGroup
from horae.api.responses import catalog_responses, conversion, people_responses
from horae.errors import InvalidInput


class UserOperations(OperationGroup):
    """Reads and changes users, roles, tokens and secrets, and reads the audit trail."""

    async def me(self, asked: requests.EmptyRequest) -> people_responses.Me:
        return conversion.me(self.service.who, sign_in=self.about.sign_in, version=self.about.version)

    # ---- users and roles ---------------------------------------------------------------------------------------------

    async def users(self, asked: requests.EmptyRequest) -> people_responses.Users:
        return people_responses.Users(users=[conversion.user(each) for each in await self.service.people.users()])

    async def create_user(self, asked: requests.CreateUserRequest) -> people_responses.Told:
        await self.service.people.create_user(asked.name, asked.password, is_admin=asked.is_admin)
        without = "" if asked.password else f", without a password (horae user alter {asked.name} --password sets one)"
        return people_responses.Told(name=asked.name, message=f"created user {asked.name}{without}")

    async def alter_user(self, asked: requests.AlterUserRequest) -> people_responses.Told:
        if asked.password is None and asked.is_admin is None and asked.is_enabled is None and not asked.limits:
            raise InvalidInput("Nothing is to be changed", hint="Give password, is_admin, is_enabled or limits.")
        await self.service.people.alter_user(
            asked.name,
            password=asked.password,
            old_password=asked.old_password,
            revoke_tokens=asked.revoke_tokens,
            is_admin=asked.is_admin,
            is_enabled=asked.is_enabled,
            limits=asked.limits or {},
        )
        return people_responses.Told(name=asked.name, message=f"altered user {asked.name}")

    async def drop_user(self, asked: requests.NameRequest) -> people_responses.Told:
        await self.service.people.drop_user(asked.name)
        return people_responses.Told(name=asked.name, message=f"dropped user {asked.name}")

    async def roles(self, asked: requests.EmptyRequest) -> people_responses.Roles:
        return people_responses.Roles(roles=[conversion.role(each) for each in await self.service.people.roles()])

    async def create_role(self, asked: requests.CreateRoleRequest) -> people_responses.Told:
        await self.service.people.create_role(asked.name, asked.description)
        return people_responses.Told(name=asked.name, message=f"created role {asked.name}")

    async def drop_role(self, asked: requests.NameRequest) -> people_responses.Told:
        await self.service.people.drop_role(asked.name)
        return people_responses.Told(name=asked.name, message=f"dropped role {asked.name}")

    # ---- tokens and secrets ------------------------------------------------------------------------------------------

    async def tokens(self, asked: requests.ListTokens) -> people_responses.Tokens:
        found = await self.service.tokens.list(asked.user)
        now = await self.service.now()
        return people_responses.Tokens(tokens=[conversion.token(each, now) for each in found])

    async def create_token(self, asked: requests.CreateToken) -> people_responses.NewToken:
        if self.about.sign_in == "token":
            # A token that expires soon could otherwise create one that never expires. Administrators may, since they
            # have other ways.
            await self.service.gate.require_admin("make a token by way of another token")
        made = await self.service.tokens.create(asked.user, label=asked.label, lasts=asked.lasts)
        return people_responses.NewToken(
            token=conversion.token(made.record, await self.service.now()), secret=made.secret
        )

    async def revoke_token(self, asked: requests.TokenRequest) -> people_responses.Token:
        record = await self.service.tokens.revoke(asked.token_id)
        return conversion.token(record, await self.service.now())

    async def secrets(self, asked: requests.EmptyRequest) -> people_responses.Secrets:
        found = [
            people_responses.Secret(
                name=each["name"],
                job=each["job"],
                key_id=each["key_id"],
                updated_at=conversion.time_text(each["updated_at"]),
            )
            for each in await self.service.people.secrets()
        ]
        return people_responses.Secrets(secrets=found)

    async def put_secret(self, asked: requests.PutSecret) -> people_responses.Told:
        await self.service.people.put_secret(asked.name, asked.value, job=asked.job, replace=True)
        return people_responses.Told(name=asked.name, message=f"secret {asked.name}{_of(asked.job)} is kept")

    async def drop_secret(self, asked: requests.DropSecretRequest) -> people_responses.Told:
        await self.service.people.drop_secret(asked.name, job=asked.job)
        return people_responses.Told(name=asked.name, message=f"secret {asked.name}{_of(asked.job)} is gone")

    async def rotate_secrets(self, asked: requests.EmptyRequest) -> people_responses.Rotated:
        return people_responses.Rotated(rotated=await self.service.people.rotate_secrets())

    # ---- audit trail -------------------------------------------------------------------------------------------------

    async def list_audit(self, asked: requests.ListAudit) -> catalog_responses.AuditPage:
        found = await self.service.views.trail(
            before=asked.before,
            limit=asked.limit + 1,
            event=asked.event.strip().upper() if asked.event else None,
            actor=asked.actor or None,
            job=asked.job,
        )
        rows = found[: asked.limit]
        more = rows[-1].number if len(found) > asked.limit else None
        return catalog_responses.AuditPage(rows=[conversion.audit_row(each) for each in rows], next_before=more)

    async def verify_audit(self, asked: requests.VerifyAudit) -> catalog_responses.Verification:
        return conversion.verification(await self.service.people.verify_audit(head=asked.head, heads=asked.heads or ()))


def _of(job: str | None) -> str:
    return "" if job is None else f" of job {job}"
