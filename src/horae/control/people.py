"""What administrators do: users, roles, grants, secrets, settings, the audit trail. Everybody else is refused."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from horae.core.access import Grant, ObjectKind, Privilege, Proof, proof_for_password, quoted
from horae.core.ids import checked_name
from horae.core.likeness import normal
from horae.core.shares import parse_limits
from horae.errors import Conflict, InvalidInput, RateLimited, SecretError, StoreReadOnly, shown
from horae.security import passwords
from horae.security.access import Gate
from horae.security.audit_key import audit_key, seal_all
from horae.security.head_file import read_heads
from horae.security.keys import Keyring, generate_key, rotate
from horae.security.trail import Verification, verify
from horae.store.vault import RoleRecord, UserRecord, Vault

SEALED_AT_ONCE = 5000
MOST_SECRET = 64 * 1024
"""Bytes a secret may have."""


class People:
    """Everything about who may do what, in the name of whoever the gate was made for."""

    def __init__(
        self,
        vault: Vault,
        gate: Gate,
        keyring: Callable[[], Awaitable[Keyring]],
        known: Callable[[str, Any, Mapping[str, Any]], Any],
        sign_in: str = "local",
        *,
        alone: bool = True,
    ) -> None:
        """`sign_in` is how whoever asks came in: local, open, session or token. `alone`: as `Service` has it.

        `keyring` gives the master keys, and is asked only when one is needed. `known` checks a setting's value and
        gives it back in its own type; it raises where there is no such setting."""
        self._vault = vault
        self._gate = gate
        self._keyring = keyring
        self._known = known
        self._sign_in = sign_in
        self._alone = alone

    @property
    def _by(self) -> str:
        return self._gate.who.name

    # ---- users and roles ---------------------------------------------------------------------------------------------

    async def users(self) -> tuple[UserRecord, ...]:
        await self._gate.require_sight("users", "list users")
        return await self._vault.users()

    async def roles(self) -> tuple[RoleRecord, ...]:
        await self._gate.require_sight("roles", "list roles")
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
        old_password: str | None = None,
        revoke_tokens: bool = False,
        is_admin: bool | None = None,
        is_enabled: bool | None = None,
        limits: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Whoever is not an administrator may change their own password, and nothing else. One's own takes the old one,
        and none is set by way of a token. Another password ends the user's sessions and, with `revoke_tokens`, their
        tokens. `limits` are as `core.shares.parse_limits` takes them."""
        if password is None and (old_password is not None or revoke_tokens):
            raise InvalidInput(
                "An old password, and tokens to revoke, are for a change of the password", hint="Give a new one too."
            )
        if normal(name) != name and (found := await self._vault.principal(name)) is not None:
            # Whose it is decides what it takes: one's own is no other's for being written otherwise.
            name = found.name
        own = name == self._by and is_admin is None and is_enabled is None and not limits
        if not own:
            await self._gate.require_admin(f"change the user {shown(name)}")
        was = None if password is None else await self._prove(name, old_password)
        hashed = None if password is None else await passwords.hashed_apart(password)
        changes = parse_limits(limits)
        if changes:
            await self._vault.set_limits(name, changes, by=self._by)
        if not changes or (password, is_admin, is_enabled) != (None, None, None):
            await self._vault.alter_user(
                name,
                password_hash=hashed,
                password_was=was,
                revoke_tokens=revoke_tokens,
                is_admin=is_admin,
                is_enabled=is_enabled,
                by=self._by,
            )

    async def _prove(self, name: str, old: str | None) -> str | None:
        """The hash that the old password matched, where one was needed: it must still be the one when the new one is
        written. Refuses whoever cannot prove what it takes."""
        proof, action = proof_for_password(self._gate.who, name, self._sign_in), f"set the password of {shown(name)}"
        if proof is Proof.ANOTHER_SIGN_IN:
            await self._gate.refuse(
                f"{shown(self._by)} may not {action} by way of a token",
                hint="Sign in at /login and do it there, or have an administrator do it.",
                action=action,
                name=name,
            )
        if proof is Proof.NOTHING:
            return None
        kept = await self._vault.password_hash(name)
        if kept is None:
            await self._gate.refuse(
                f"{shown(name)} has no password yet, and may not set the first one",
                hint="An administrator sets it.",
                action=action,
                name=name,
            )
        if old is None:
            await self._gate.refuse(
                f"{shown(name)} may not {action} without the old one",
                hint=f"Give old_password, or say: ALTER USER {quoted(name)} PASSWORD '…' OLD PASSWORD '…'.",
                action=action,
                name=name,
            )
        if not self._alone:
            # What undoes the whole would undo that it was tried.
            raise InvalidInput(
                "An old password is taken from a statement by itself",
                hint="Change the password first, and then do the rest; or do one statement after the other (--each).",
            )
        # Before it is compared: of many that come at once, each has to have its try.
        wait = math.ceil(await self._vault.take_password_try(name))
        if wait:
            await self._gate.refuse(
                f"{shown(name)} may not {action} now: too many old ones were tried",
                hint=f"Try again in {wait} s, or have an administrator set another.",
                action=action,
                name=name,
                kind=RateLimited,
                details={"retry_after": wait},
            )
        if not await passwords.matches_apart(old, kept):
            await self._gate.refuse(
                f"{shown(name)} may not {action}: the old one is wrong",
                hint="Try again, or have an administrator set another.",
                action=action,
                name=name,
            )
        return kept

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
        await self._gate.require_sight("settings", "read the settings")
        return await self._vault.settings()

    async def set_setting(self, name: str, value: Any) -> None:
        """`value` None takes it back."""
        await self._gate.require_admin(f"set {name}")
        checked = self._known(name, value, await self._vault.settings())
        # Again where it is written: others may set meanwhile what it has to fit.
        await self._vault.set_setting(name, checked, by=self._by, judge=lambda others: self._known(name, value, others))

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
        sealed, key_id = (await self._keyring()).encrypt(plain, name=name, job=job)
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
        await self._gate.require_sight("secrets", "list secrets")
        return [
            {"name": each.name, "job": each.job, "key_id": each.key_id, "updated_at": each.updated_at}
            for each in await self._vault.secrets()
        ]

    async def rotate_secrets(self) -> int:
        """Encrypts every secret under the current master key; how many were not yet."""
        await self._gate.require_admin("rotate secrets")
        return await rotate(self._vault, await self._keyring(), by=self._by)

    # ---- the trail ---------------------------------------------------------------------------------------------------

    async def verify_audit(
        self,
        *,
        head: str | None = None,
        heads: Sequence[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> Verification:
        """Seals what is not yet sealed, then goes through everything. Codes of seals are checked where the master key
        is here. On a store that takes no writes, what is not sealed stays so, and is counted."""
        await self._gate.require_admin("verify the audit trail")
        try:
            keyring = await self._keyring()
        except SecretError:
            keyring = Keyring()
        # Sealing writes rows, which are newer than everything.
        ends = await self._vault.trail_ends()
        with suppress(StoreReadOnly, Conflict):
            await seal_all(self._vault, keyring, SEALED_AT_ONCE)
        try:
            key = await audit_key(self._vault, keyring, make=False)
        except SecretError:
            key = None
        return await verify(self._vault, head=head, heads=heads, progress=progress, key=key, ends=ends)


def _check_grants(grants: Sequence[Grant]) -> None:
    for each in grants:
        if each.kind is ObjectKind.TABLE and not all(part.strip(' "') for part in each.name.split(".")):
            raise InvalidInput(
                f"{each.privilege} needs a table", hint=f"Write: GRANT {each.privilege} ON TABLE name TO …."
            )
        if each.kind is ObjectKind.NOTHING and each.name:
            raise InvalidInput(f"{each.privilege} is not on anything", hint="Leave ON … out.")


__all__ = ["People", "Privilege", "Verification", "generate_key", "read_heads"]
