"""The key that seals of the audit trail are keyed with: random, kept in the catalog, wrapped by the master key.

Whoever can write to the database can write the plain chain of seals anew. Without the master key they cannot give the
new seals their codes. Another master key wraps the same audit key, so that old seals stay good.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from horae.core.trail import KEY_BYTES
from horae.errors import SecretError

if TYPE_CHECKING:
    from horae.security.keys import Keyring
    from horae.store.vault import Head, Vault

NAME = " audit key"
"""What it is bound to: no secret's name begins with a space, so none opens in its place."""


async def audit_key(vault: Vault, keyring: Keyring, *, make: bool) -> bytes | None:
    """The catalog's audit key; with `make` it is made where there is none and a master key is here. None where there is
    none. Raises SecretError where there is one that does not open here."""
    record = await vault.audit_key()
    if record is None:
        if not make or keyring.current_id is None:
            return None
        key = secrets.token_bytes(KEY_BYTES)
        wrapped, key_id = keyring.encrypt(key, name=NAME, job=None)
        # Another node may have been faster: then its key is the catalog's.
        await vault.keep_audit_key(wrapped, key_id, was=None, key=key)
        record = await vault.audit_key()
        assert record is not None
    return keyring.decrypt(record)


async def seal_all(
    vault: Vault, keyring: Keyring, at_once: int, *, thorough: bool = True, known: Head | None = None
) -> int:
    """Seals every row that is not sealed yet, and what rights there are, under the audit key where there is one or can
    be; how many rows there were. `thorough`: as `Vault.note_rights` has it.
    Where there is one that does not open here, nothing is sealed: that is left to nodes that have the master key.
    Raises Conflict as `Vault.seal` does."""
    try:
        key = await audit_key(vault, keyring, make=True)
    except SecretError:
        return 0
    await vault.note_rights(thorough=thorough)
    count = 0
    while True:
        sealed = await vault.seal(at_once, key, known=known)
        count += sealed
        if sealed < at_once:
            return count


async def rewrap(vault: Vault, keyring: Keyring) -> bool:
    """Wraps the audit key by the current master key; whether it was not yet. Raises SecretError where the key that it
    is wrapped by is not here."""
    record = await vault.audit_key()
    if record is None or record.key_id == keyring.current_id:
        return False
    wrapped, key_id = keyring.encrypt(keyring.decrypt(record), name=NAME, job=None)
    return await vault.keep_audit_key(wrapped, key_id, was=record.value)
