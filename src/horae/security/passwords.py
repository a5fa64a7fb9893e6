"""Passwords: kept as Argon2id hashes, compared in the same time whether there is anything to compare with or not."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from threading import BoundedSemaphore
from typing import TYPE_CHECKING
from unicodedata import normalize

from horae.core.access import Principal
from horae.core.ids import checked_name
from horae.errors import InvalidInput, InvalidName, LoginFailed, shown

if TYPE_CHECKING:
    from argon2 import PasswordHasher

    from horae.store.vault import Vault

LONGEST = 1024
"""Characters a password may have: more would be a way to keep the server busy."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one hash takes: passes over so many KiB of memory, in so many lanes. RFC 9106's second recommendation."""

    passes: int = 3
    memory: int = 64 * 1024
    lanes: int = 4


DEFAULT_COST = Cost()
# Of a random password that nobody kept, at the default cost.
_NOBODYS = "$argon2id$v=19$m=65536,t=3,p=4$huWS68SyRvvYxMquyv6kZA$cGimaHtUpbQmxCpT29KON+syEKQXWUS2eZBpAFUjXP0"
# Each hash holds its memory: a flood of logins waits in line instead of taking all there is.
_MOST = 4
_AT_ONCE = BoundedSemaphore(_MOST)
# Threads of their own, begun when they are needed: neither do logins wait for what else is in threads, nor it for them.
_THREADS = ThreadPoolExecutor(_MOST, thread_name_prefix="horae-password")


def hashed(password: str, *, cost: Cost = DEFAULT_COST) -> str:
    """The hash to keep, with its salt and cost in it. Takes a tenth of a second or so: not for an event loop.

    Raises InvalidInput for a password that is empty, too long or no text.
    """
    plain = _checked(password)
    with _AT_ONCE:
        return _hasher(cost).hash(plain)


async def hashed_apart(password: str) -> str:
    """As `hashed`, for an event loop, which goes on meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, hashed, password)


def matches(password: str, kept: str) -> bool:
    """Whether `kept` is a hash of that password. What is no password, or no hash, matches nothing. Slow as `hashed`."""
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        plain = _checked(password)
    except InvalidInput:
        return False
    try:
        with _AT_ONCE:
            return _hasher(DEFAULT_COST).verify(kept, plain)
    except (VerificationError, InvalidHashError):
        return False


async def matches_apart(password: str, kept: str) -> bool:
    """As `matches`, for an event loop, which goes on meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, matches, password, kept)


def needs_rehash(kept: str, *, cost: Cost = DEFAULT_COST) -> bool:
    """Whether a hash was made at another cost than today's, or is none."""
    from argon2.exceptions import InvalidHashError

    try:
        return _hasher(cost).check_needs_rehash(kept)
    except InvalidHashError:
        return True


async def login(vault: Vault, name: str, password: str) -> Principal:
    """Whoever proves to be `name`. Raises LoginFailed, and says the same whatever was wrong, after the same time: it
    does not tell which users there are. The audit row has the reason. Audit: LOGIN, LOGIN_FAILED."""
    known = _known(name)
    who = await vault.principal(known)
    kept = await vault.password_hash(known)
    right = await asyncio.get_running_loop().run_in_executor(_THREADS, _compared, password, kept)
    if who is not None and kept is not None and right and who.is_enabled:
        await vault.note("LOGIN", by=who.name, outcome="OK")
        return who
    if who is None:
        reason = "no such user"
    elif kept is None:
        reason = "no password is set"
    elif not right:
        reason = "wrong password"
    else:
        reason = "disabled"
    await vault.note("LOGIN_FAILED", by=known, outcome="REFUSED", details={"reason": reason})
    raise LoginFailed(
        f"Login of {shown(known)} failed: the name or the password is wrong, or the user may not log in",
        hint="An administrator finds the reason in sys.audit.",
    )


def _compared(password: str, kept: str | None) -> bool:
    try:
        _checked(password)
    except InvalidInput:
        matches("x", kept or _NOBODYS)
        return False
    return matches(password, kept or _NOBODYS)


def _known(name: str) -> str:
    """The name as it may be looked up and written down: a stranger may send anything."""
    try:
        return checked_name(name, "user name")
    except InvalidName:
        return "?"


def _checked(password: str) -> str:
    if not isinstance(password, str) or not password:
        raise InvalidInput("A password must be text, and not empty")
    if len(password) > LONGEST:
        raise InvalidInput(f"A password has at most {LONGEST} characters, not {len(password)}")
    if any("\ud800" <= letter <= "\udfff" for letter in password):
        raise InvalidInput("A password must be text: this has characters that are none")
    # The same keys give differently composed letters on different systems.
    return normalize("NFC", password)


@lru_cache(maxsize=8)
def _hasher(cost: Cost) -> PasswordHasher:
    # Imported late: only those who hash pay for it.
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=cost.passes, memory_cost=cost.memory, parallelism=cost.lanes)
