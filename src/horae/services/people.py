"""Administration: users, roles, grants, secrets, settings, the audit trail."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from horae.core.access import Grant, ObjectKind, Privilege, Proof, proof_for_password, quoted
from horae.core.job.ids import checked_name
from horae.core.job.owner_limits import parse_limits
from horae.core.reserved_names import normal
from horae.errors import Conflict, InvalidInput, RateLimited, SecretError, StoreReadOnly, shown
from horae.security import passwords
from horae.security.access import AccessChecker
from horae.security.audit.head_file import read_heads
from horae.security.audit.key import audit_key, seal_all
from horae.security.audit.verification import TrailVerification, verify
from horae.security.keys import Keyring, generate_key, rotate
from horae.store.protocols.people import PeopleStore, RoleRecord, UserRecord

SEALED_AT_ONCE = 5000
MOST_SECRET = 64 * 1024
"""Bytes that a secret may have at most."""


class People:
    """Administration in the name of the gate's principal. Most operations require an administrator; the gate refuses
    others."""

    def __init__(
        self,
        vault: PeopleStore,
        gate: AccessChecker,
        keyring: Callable[[], Awaitable[Keyring]],
        known: Callable[[str, Any, Mapping[str, Any]], Any],
        sign_in: str = "local",
        *,
        alone: bool = True,
    ) -> None:
        """`sign_in` is how the principal signed in: local, open, session or token. `alone`: as in `Service`.

        `keyring` returns the master keys, and is called only when one is needed. `known` checks the value of a setting
        beside all others, and returns it in its own type. It raises for an unknown setting.
        """
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
        hashed = None if password is None else await passwords.hashed_in_thread(password)
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
        """Changes a user. A user who is not an administrator may change only their own password. A change of one's own
        password requires the old one, and a request that signed in by a token sets no password. A new password ends the
        user's sessions and, with `revoke_tokens`, their tokens. `limits` are as `core.job.owner_limits.parse_limits`
        takes them. Raises AccessDenied, RateLimited."""
        if password is None and (old_password is not None or revoke_tokens):
            raise InvalidInput(
                "An old password, and tokens to revoke, are for a change of the password", hint="Give a new one too."
            )
        if normal(name) != name and (found := await self._vault.principal(name)) is not None:
            # A user who spells their own name differently is still the same user, and needs the old password.
            name = found.name
        own = name == self._by and is_admin is None and is_enabled is None and not limits
        if not own:
            await self._gate.require_admin(f"change the user {shown(name)}")
        was = None if password is None else await self._prove(name, old_password)
        hashed = None if password is None else await passwords.hashed_in_thread(password)
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
        """Checks the old password where one is needed, and returns the hash that it matched: the new password is only
        written while that is still the one. Raises AccessDenied, and RateLimited after too many tries."""
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
            # A rollback of the larger transaction would undo the record of this try.
            raise InvalidInput(
                "An old password is taken from a statement by itself",
                hint="Change the password first, and then do the rest; or do one statement after the other (--each).",
            )
        # Counted before the comparison, so that of many requests at once each uses up a try.
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
        if not await passwords.matches_in_thread(old, kept):
            await self._gate.refuse(
                f"{shown(name)} may not {action}: the old one is wrong",
                hint="Try again, or have an administrator set another.",
                action=action,
                name=name,
            )
        return kept

    async def drop_user(self, name: str, *, if_exists: bool = False) -> bool:
        """Drops a user. Returns whether there was one. `if_exists` looks it up first: a call that fails would spoil the
        calls that share its transaction."""
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
        """Sets a setting of ALTER SYSTEM; None resets it."""
        await self._gate.require_admin(f"set {name}")
        checked = self._known(name, value, await self._vault.settings())
        # Checked again in the write: other settings that it has to fit may change meanwhile.
        await self._vault.set_setting(name, checked, by=self._by, judge=lambda others: self._known(name, value, others))

    # ---- secrets -----------------------------------------------------------------------------------------------------

    async def put_secret(self, name: str, value: str, *, job: str | None = None, replace: bool = False) -> None:
        """Encrypts and writes a secret. The owner of a job may also set the job's own secrets."""
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
        """Returns the secrets without their values."""
        await self._gate.require_sight("secrets", "list secrets")
        return [
            {"name": each.name, "job": each.job, "key_id": each.key_id, "updated_at": each.updated_at}
            for each in await self._vault.secrets()
        ]

    async def rotate_secrets(self) -> int:
        """Encrypts every secret under the current master key. Returns how many were under another."""
        await self._gate.require_admin("rotate secrets")
        return await rotate(self._vault, await self._keyring(), by=self._by)

    # ---- audit trail -------------------------------------------------------------------------------------------------

    async def verify_audit(
        self,
        *,
        head: str | None = None,
        heads: Sequence[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> TrailVerification:
        """Seals the rows that are not sealed yet, then verifies the whole audit trail. The codes of seals are checked
        only where the master key is at hand. In a read-only store the unsealed rows stay unsealed, and are counted."""
        await self._gate.require_admin("verify the audit trail")
        try:
            keyring = await self._keyring()
        except SecretError:
            keyring = Keyring()
        # Read first: sealing writes rows of its own.
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


__all__ = ["People", "Privilege", "TrailVerification", "generate_key", "read_heads"]
