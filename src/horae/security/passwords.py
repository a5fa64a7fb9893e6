"""Passwords: Argon2id hashes, and a login that takes the same time whether the user exists or not."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from threading import BoundedSemaphore
from typing import TYPE_CHECKING
from unicodedata import normalize

from horae.core.access import Principal
from horae.core.job.ids import checked_name
from horae.errors import InvalidInput, InvalidName, LoginFailed, shown

if TYPE_CHECKING:
    from argon2 import PasswordHasher

    from horae.store.protocols.people import PeopleStore

LONGEST = 1024
"""The most characters of a password. Longer ones would let a client keep the server busy."""


@dataclass(frozen=True, slots=True)
class HashCost:
    """The cost of one hash: passes over `memory` KiB, in `lanes` lanes. The defaults are RFC 9106's second
    recommendation."""

    passes: int = 3
    memory: int = 64 * 1024
    lanes: int = 4


DEFAULT_COST = HashCost()
# The hash of a discarded random password, at the default cost: compared where a user has no hash.
_DUMMY_HASH = "$argon2id$v=19$m=65536,t=3,p=4$huWS68SyRvvYxMquyv6kZA$cGimaHtUpbQmxCpT29KON+syEKQXWUS2eZBpAFUjXP0"
# Each hash holds `HashCost.memory`. A flood of logins waits instead of taking all memory.
_MOST = 4
_AT_ONCE = BoundedSemaphore(_MOST)
# A thread pool of its own: logins do not wait for other work in threads, nor does that work wait for logins.
_THREADS = ThreadPoolExecutor(_MOST, thread_name_prefix="horae-password")


def hashed(password: str, *, cost: HashCost = DEFAULT_COST) -> str:
    """The hash to store, which includes its salt and cost. Takes about a tenth of a second, so do not call it in an
    event loop.

    Raises InvalidInput for a password that is empty, too long or not text.
    """
    plain = _checked(password)
    with _AT_ONCE:
        return _hasher(cost).hash(plain)


async def hashed_in_thread(password: str) -> str:
    """As `hashed`, in a thread, for an event loop."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, hashed, password)


def matches(password: str, kept: str) -> bool:
    """Whether `kept` is a hash of the password. False for an invalid password or hash. As slow as `hashed`."""
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


async def matches_in_thread(password: str, kept: str) -> bool:
    """As `matches`, in a thread, for an event loop."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, matches, password, kept)


def needs_rehash(kept: str, *, cost: HashCost = DEFAULT_COST) -> bool:
    """Whether a hash was made at another cost than `cost`, or is invalid."""
    from argon2.exceptions import InvalidHashError

    try:
        return _hasher(cost).check_needs_rehash(kept)
    except InvalidHashError:
        return True


async def login(vault: PeopleStore, name: str, password: str) -> Principal:
    """The principal `name`, if the password is right and the user is enabled.

    Raises LoginFailed otherwise, with the same message after the same time whatever was wrong, so a client cannot find
    out which users exist. The audit row has the reason. Audit: LOGIN, LOGIN_FAILED.
    """
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
        matches("x", kept or _DUMMY_HASH)
        return False
    return matches(password, kept or _DUMMY_HASH)


def _known(name: str) -> str:
    """The name, or "?" for an invalid one: a client may send anything, and the name is looked up and written down."""
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
    # The same keys produce differently composed letters on different systems.
    return normalize("NFC", password)


@lru_cache(maxsize=8)
def _hasher(cost: HashCost) -> PasswordHasher:
    # Imported late: only a process that hashes pays for the import.
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=cost.passes, memory_cost=cost.memory, parallelism=cost.lanes)
