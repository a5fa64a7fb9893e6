"""The audit key, which seals of the audit trail are keyed with: random, kept in the catalog, wrapped by the master key.

A user who can write to the database can rewrite an unkeyed chain of seals. Without the master key that user cannot
compute the codes of keyed seals. A new master key wraps the same audit key, so old seals stay valid.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from horae.core.audit import KEY_BYTES
from horae.errors import SecretError

if TYPE_CHECKING:
    from horae.security.keys import Keyring
    from horae.store.protocols.people import PeopleStore, SealHead

NAME = " audit key"
"""The name that the wrapped key is bound to. No secret's name begins with a space, so no secret can take its place."""


async def audit_key(vault: PeopleStore, keyring: Keyring, *, make: bool) -> bytes | None:
    """The catalog's audit key, or None where it has none. With `make`, creates the key where there is none and this
    process has a master key. Raises SecretError where the key cannot be decrypted here."""
    record = await vault.audit_key()
    if record is None:
        if not make or keyring.current_id is None:
            return None
        key = secrets.token_bytes(KEY_BYTES)
        wrapped, key_id = keyring.encrypt(key, name=NAME, job=None)
        # Another node may have been faster; then its key is the catalog's.
        await vault.keep_audit_key(wrapped, key_id, was=None, key=key)
        record = await vault.audit_key()
        assert record is not None
    return keyring.decrypt(record)


async def seal_all(
    vault: PeopleStore, keyring: Keyring, at_once: int, *, thorough: bool = True, known: SealHead | None = None
) -> int:
    """Writes a digest of the present rights and seals every row that is not sealed yet; returns the number of rows.

    `at_once` is the number of rows per transaction, and `thorough` is passed to `PeopleStore.note_rights`. Creates the
    audit key where there is none and a master key is here. Where the audit key cannot be decrypted here, seals nothing
    and leaves it to nodes that have the master key. Raises Conflict as `PeopleStore.seal` does.
    """
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


async def rewrap(vault: PeopleStore, keyring: Keyring) -> bool:
    """Wraps the audit key with the current master key; returns whether that changed it. Raises SecretError where the
    master key that wraps it now is not here."""
    record = await vault.audit_key()
    if record is None or record.key_id == keyring.current_id:
        return False
    wrapped, key_id = keyring.encrypt(keyring.decrypt(record), name=NAME, job=None)
    return await vault.keep_audit_key(wrapped, key_id, was=record.value)
