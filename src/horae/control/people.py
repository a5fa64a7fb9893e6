"""What administrators do: users, roles, grants, secrets, settings, the audit trail. Everybody else is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horae.core.access import Grant, ObjectKind, Privilege
from horae.core.ids import checked_name
from horae.errors import InvalidInput, shown
from horae.security import passwords
from horae.security.access import Gate
from horae.security.keys import Keyring, generate_key, rotate
from horae.security.trail import Verification, verify
from horae.store.vault import RoleRecord, UserRecord, Vault

MOST_SECRET = 64 * 1024
"""Bytes a secret may have."""


class People:
    """Everything about who may do what, in the name of whoever the gate was made for."""

    def __init__(
        self,
        vault: Vault,
        gate: Gate,
        keyring: Callable[[], Keyring],
        known: Callable[[str, Any, Mapping[str, Any]], Any],
    ) -> None:
        """`keyring` gives the master keys, and is asked only when one is needed. `known` checks a setting's value and
        gives it back in its own type; it raises where there is no such setting."""
        self._vault = vault
        self._gate = gate
        self._keyring = keyring
        self._known = known

    @property
    def _by(self) -> str:
        return self._gate.who.name

    # ---- users and roles ---------------------------------------------------------------------------------------------

    async def users(self) -> tuple[UserRecord, ...]:
        await self._gate.require_admin("list users")
        return await self._vault.users()

    async def roles(self) -> tuple[RoleRecord, ...]:
        await self._gate.require_admin("list roles")
        return await self._vault.roles()

    async def create_user(self, name: str, password: str | None = None, *, is_admin: bool = False) -> None:
        await self._gate.require_admin(f"create the user {shown(name)}")
        hashed = None if password is None else await passwords.hashed_apart(password)
        await self._vault.create_user(
            checked_name(name, "user name"), password_hash=hashed, is_admin=is_admin, by=self._by
        )

    async def alter_user(
        self,
        name: str,
        *,
        password: str | None = None,
        is_admin: bool | None = None,
        is_enabled: bool | None = None,
    ) -> None:
        """Whoever is not an administrator may change their own password, and nothing else."""
        own = name == self._by and is_admin is None and is_enabled is None
        if not own:
            await self._gate.require_admin(f"change the user {shown(name)}")
        hashed = None if password is None else await passwords.hashed_apart(password)
        await self._vault.alter_user(name, password_hash=hashed, is_admin=is_admin, is_enabled=is_enabled, by=self._by)

    async def drop_user(self, name: str, *, if_exists: bool = False) -> bool:
        """Whether there was one. With `if_exists` it is looked up first: a verb that fails would spoil those that share
        its transaction."""
        await self._gate.require_admin(f"drop the user {shown(name)}")
        if if_exists and await self._vault.principal(name) is None:
            return False
        await self._vault.drop_user(name, by=self._by)
        return True

    async def create_role(self, name: str, description: str = "") -> None:
        await self._gate.require_admin(f"create the role {shown(name)}")
        await self._vault.create_role(checked_name(name, "role name"), description=description, by=self._by)

    async def drop_role(self, name: str, *, if_exists: bool = False) -> bool:
        """As `drop_user`."""
        await self._gate.require_admin(f"drop the role {shown(name)}")
        if if_exists and await self._vault.role_grants(name) is None:
            return False
        await self._vault.drop_role(name, by=self._by)
        return True

    async def grant(self, grants: Sequence[Grant], to: Sequence[str]) -> int:
        await self._gate.require_admin("grant privileges")
        _check_grants(grants)
        return await self._vault.grant(grants, to, by=self._by)

    async def revoke(self, grants: Sequence[Grant], of: Sequence[str]) -> int:
        await self._gate.require_admin("revoke privileges")
        _check_grants(grants)
        return await self._vault.revoke(grants, of, by=self._by)

    async def add_members(self, roles: Sequence[str], users: Sequence[str]) -> int:
        await self._gate.require_admin("grant roles")
        return await self._vault.add_members(roles, users, by=self._by)

    async def remove_members(self, roles: Sequence[str], users: Sequence[str]) -> int:
        await self._gate.require_admin("revoke roles")
        return await self._vault.remove_members(roles, users, by=self._by)

    async def set_owner(self, job: str, user: str) -> None:
        await self._gate.require_admin(f"give the job {shown(job)} to another")
        await self._vault.set_owner(job, user, by=self._by)

    # ---- settings ----------------------------------------------------------------------------------------------------

    async def settings(self) -> Mapping[str, Any]:
        """What ALTER SYSTEM has set, by name."""
        await self._gate.require_admin("read the settings")
        return await self._vault.settings()

    async def set_setting(self, name: str, value: Any) -> None:
        """`value` None takes it back."""
        await self._gate.require_admin(f"set {name}")
        checked = self._known(name, value, await self._vault.settings())
        await self._vault.set_setting(name, checked, by=self._by)

    # ---- secrets -----------------------------------------------------------------------------------------------------

    async def put_secret(self, name: str, value: str, *, job: str | None = None, replace: bool = False) -> None:
        """A job's own secret may also be set by whoever owns the job."""
        if job is None:
            await self._gate.require_admin(f"set the secret {shown(name)}")
        else:
            await self._gate.require_owner(job, f"set its secret {shown(name)}")
        checked_name(name, "secret name")
        plain = value.encode()
        if not plain or len(plain) > MOST_SECRET:
            raise InvalidInput(f"Secret {shown(name)} must have 1 to {MOST_SECRET} bytes, not {len(plain)}")
        sealed, key_id = self._keyring().encrypt(plain, name=name, job=job)
        await self._vault.put_secret(name, sealed, key_id=key_id, job=job, replace=replace, by=self._by)

    async def drop_secret(self, name: str, *, job: str | None = None, if_exists: bool = False) -> None:
        if job is None:
            await self._gate.require_admin(f"drop the secret {shown(name)}")
        else:
            await self._gate.require_owner(job, f"drop its secret {shown(name)}")
        if if_exists:
            found = await self._vault.secret(name, job)
            if found is None or found.job != job:
                return
        await self._vault.drop_secret(name, job=job, by=self._by)

    async def secrets(self) -> list[dict[str, Any]]:
        """Names, never values."""
        await self._gate.require_admin("list secrets")
        return [
            {"name": each.name, "job": each.job, "key_id": each.key_id, "updated_at": each.updated_at}
            for each in await self._vault.secrets()
        ]

    async def rotate_secrets(self) -> int:
        """Encrypts every secret under the current master key; how many were not yet."""
        await self._gate.require_admin("rotate secrets")
        return await rotate(self._vault, self._keyring(), by=self._by)

    # ---- the trail ---------------------------------------------------------------------------------------------------

    async def verify_audit(
        self, *, head: str | None = None, progress: Callable[[int], None] | None = None
    ) -> Verification:
        """Seals what is not yet sealed, then goes through everything."""
        await self._gate.require_admin("verify the audit trail")
        while await self._vault.seal():
            pass
        return await verify(self._vault, head=head, progress=progress)


def _check_grants(grants: Sequence[Grant]) -> None:
    for each in grants:
        if each.kind is ObjectKind.TABLE and not all(part.strip(' "') for part in each.name.split(".")):
            raise InvalidInput(
                f"{each.privilege} needs a table", hint=f"Write: GRANT {each.privilege} ON TABLE name TO …."
            )
        if each.kind is ObjectKind.NOTHING and each.name:
            raise InvalidInput(f"{each.privilege} is not on anything", hint="Leave ON … out.")


__all__ = ["People", "Privilege", "Verification", "generate_key"]
