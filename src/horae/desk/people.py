"""Questions about people: users, roles, tokens, secrets; and the trail of what they did."""

from __future__ import annotations

from horae.desk import asking, making, persons, sights
from horae.desk.about import Part
from horae.errors import InvalidInput


class People(Part):
    """Who there is, who may do what, who did what."""

    async def me(self, asked: asking.Nothing) -> persons.Me:
        return making.me(self.service.who, sign_in=self.about.sign_in, version=self.about.version)

    # ---- users and roles ---------------------------------------------------------------------------------------------

    async def users(self, asked: asking.Nothing) -> persons.Users:
        return persons.Users(users=[making.user(each) for each in await self.service.people.users()])

    async def create_user(self, asked: asking.CreateUser) -> persons.Told:
        await self.service.people.create_user(asked.name, asked.password, is_admin=asked.is_admin)
        without = "" if asked.password else f", without a password (horae user alter {asked.name} --password sets one)"
        return persons.Told(name=asked.name, message=f"created user {asked.name}{without}")

    async def alter_user(self, asked: asking.AlterUser) -> persons.Told:
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
        return persons.Told(name=asked.name, message=f"altered user {asked.name}")

    async def drop_user(self, asked: asking.Named) -> persons.Told:
        await self.service.people.drop_user(asked.name)
        return persons.Told(name=asked.name, message=f"dropped user {asked.name}")

    async def roles(self, asked: asking.Nothing) -> persons.Roles:
        return persons.Roles(roles=[making.role(each) for each in await self.service.people.roles()])

    async def create_role(self, asked: asking.CreateRole) -> persons.Told:
        await self.service.people.create_role(asked.name, asked.description)
        return persons.Told(name=asked.name, message=f"created role {asked.name}")

    async def drop_role(self, asked: asking.Named) -> persons.Told:
        await self.service.people.drop_role(asked.name)
        return persons.Told(name=asked.name, message=f"dropped role {asked.name}")

    # ---- tokens and secrets ------------------------------------------------------------------------------------------

    async def tokens(self, asked: asking.ListTokens) -> persons.Tokens:
        found = await self.service.tokens.list(asked.user)
        now = await self.service.now()
        return persons.Tokens(tokens=[making.token(each, now) for each in found])

    async def create_token(self, asked: asking.CreateToken) -> persons.NewToken:
        if self.about.sign_in == "token":
            # One that ends soon would else make one that never does. Administrators can have any, by other ways too.
            await self.service.gate.require_admin("make a token by way of another token")
        made = await self.service.tokens.create(asked.user, label=asked.label, lasts=asked.lasts)
        return persons.NewToken(token=making.token(made.record, await self.service.now()), secret=made.secret)

    async def revoke_token(self, asked: asking.ThatToken) -> persons.Token:
        record = await self.service.tokens.revoke(asked.token_id)
        return making.token(record, await self.service.now())

    async def secrets(self, asked: asking.Nothing) -> persons.Secrets:
        found = [
            persons.Secret(
                name=each["name"],
                job=each["job"],
                key_id=each["key_id"],
                updated_at=making.time_text(each["updated_at"]),
            )
            for each in await self.service.people.secrets()
        ]
        return persons.Secrets(secrets=found)

    async def put_secret(self, asked: asking.PutSecret) -> persons.Told:
        await self.service.people.put_secret(asked.name, asked.value, job=asked.job, replace=True)
        return persons.Told(name=asked.name, message=f"secret {asked.name}{_of(asked.job)} is kept")

    async def drop_secret(self, asked: asking.DropSecret) -> persons.Told:
        await self.service.people.drop_secret(asked.name, job=asked.job)
        return persons.Told(name=asked.name, message=f"secret {asked.name}{_of(asked.job)} is gone")

    async def rotate_secrets(self, asked: asking.Nothing) -> persons.Rotated:
        return persons.Rotated(rotated=await self.service.people.rotate_secrets())

    # ---- the trail ---------------------------------------------------------------------------------------------------

    async def list_audit(self, asked: asking.ListAudit) -> sights.AuditPage:
        found = await self.service.views.trail(
            before=asked.before,
            limit=asked.limit + 1,
            event=asked.event.strip().upper() if asked.event else None,
            actor=asked.actor or None,
            job=asked.job,
        )
        rows = found[: asked.limit]
        more = rows[-1].number if len(found) > asked.limit else None
        return sights.AuditPage(rows=[making.audit_row(each) for each in rows], next_before=more)

    async def verify_audit(self, asked: asking.VerifyAudit) -> sights.Verification:
        return making.verification(await self.service.people.verify_audit(head=asked.head, heads=asked.heads or ()))


def _of(job: str | None) -> str:
    return "" if job is None else f" of job {job}"
