"""Master keys, and encryption of secrets with AES-256-GCM, each value bound to its row.

A key is 32 bytes that the database never sees. Rows name it by its id, a digest that reveals nothing of the key. An
encrypted value is the byte 1, a random nonce of 12 bytes, and the ciphertext with its tag. Key id, secret name and job
name are authenticated with it, so a value that was moved to another row cannot be decrypted there.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import shlex
import stat
import string
import subprocess
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from horae.errors import HoraeError, SecretError, shown
from horae.security.audit.key import rewrap
from horae.security.concealment import take_variable

if TYPE_CHECKING:
    from horae.store.protocols.people import PeopleStore, SecretRecord

KEY_BYTES = 32
BATCH = 100
"""Secrets that one transaction of `rotate` encrypts anew."""
_FORM = b"\x01"
_NONCE = 12
_ROUNDS = 20
_MOST_READ = 4096
_COMMAND_SECONDS = 30
_MAKE_ONE = (
    "Make one: `horae secret key --out horae.key`, and name it as key_file under [secrets] in the configuration."
)


class Keyring:
    """The current master key, which encrypts, and older keys, which only decrypt. Without any key, every use raises
    SecretError."""

    __slots__ = ("_keys", "current_id")

    def __init__(self, current: bytes | None = None, *older: bytes) -> None:
        self._keys: dict[str, bytes] = {}
        for key in (*(() if current is None else (current,)), *older):
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise SecretError(f"A master key has {KEY_BYTES} bytes", hint=_MAKE_ONE)
            self._keys.setdefault(key_id(key), key)
        self.current_id = None if current is None else key_id(current)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all keys in this keyring."""
        return frozenset(self._keys)

    def __repr__(self) -> str:
        return f"<Keyring current={self.current_id} known={sorted(self._keys)}>"

    def __reduce__(self) -> str:
        raise TypeError("A Keyring holds keys: it is not to be sent anywhere")

    def encrypt(self, value: bytes, *, name: str, job: str | None) -> tuple[bytes, str]:
        """The encrypted value as a row stores it, and the id of its key."""
        # Imported late: only a process that uses secrets pays for the import.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if self.current_id is None:
            raise _no_key()
        nonce = secrets.token_bytes(_NONCE)
        bound = _associated(self.current_id, name, job)
        sealed = AESGCM(self._keys[self.current_id]).encrypt(nonce, value, bound)
        return _FORM + nonce + sealed, self.current_id

    def decrypt(self, record: SecretRecord) -> bytes:
        """The decrypted value of a row. Raises SecretError where its key is not here, or the row was changed or
        moved."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not self._keys:
            raise _no_key()
        key = self._keys.get(record.key_id)
        if key is None:
            raise SecretError(
                f"{_title(record.name, record.job)} is under the master key {shown(record.key_id)}, which is not here",
                hint="Name the file of that key in older_key_files under [secrets], then run `horae secret rotate`.",
                details={"secret": record.name, "key_id": record.key_id},
            )
        bound = _associated(record.key_id, record.name, record.job)
        value = bytes(record.value)
        try:
            if value[:1] != _FORM:
                raise InvalidTag
            return AESGCM(key).decrypt(value[1 : 1 + _NONCE], value[1 + _NONCE :], bound)
        except (InvalidTag, ValueError):
            # Without a cause: no part of the value may appear in a traceback.
            raise SecretError(
                f"{_title(record.name, record.job)} does not open: its row was changed, or moved from another secret",
                hint="Set the secret again, and look into sys.audit for who touched it.",
                details={"secret": record.name, "key_id": record.key_id},
            ) from None


def key_id(key: bytes) -> str:
    return sha256(b"horae master key\0" + key).hexdigest()[:16]


def generate_key() -> str:
    """A new master key, as text for a file or a variable."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def load_keyring(
    *,
    key_file: str | None = None,
    key_environment: str | None = None,
    key_command: Sequence[str] | str | None = None,
    older_key_files: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Keyring:
    """Reads the keys that a configuration names; a keyring without keys where it names none. Blocks while the command
    runs. Raises SecretError for a key that cannot be read or is invalid, and for more than one source.

    A key in this process' own environment is removed from it. `environment` is read instead, and not changed, where it
    is given."""
    named = [each for each in (key_file, key_environment, key_command) if each]
    if len(named) > 1:
        raise SecretError("Several sources are named for the master key", hint="Keep one of them under [secrets].")
    current: bytes | None = None
    if key_file:
        current = key_from_file(key_file)
    elif key_environment:
        if environment is None:
            taken = take_variable(key_environment)
            environment = {} if taken is None else {key_environment: taken}
        current = key_from_environment(key_environment, environment)
    elif key_command:
        current = key_from_command(key_command)
    return Keyring(current, *(key_from_file(each) for each in older_key_files))


def key_from_file(path: str | Path) -> bytes:
    """The key in a file. Refuses a file that other users than its owner have any rights on."""
    where = f"the file {shown(str(path))}"
    try:
        # Without blocking: a pipe without a writer is refused rather than waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            # Check the open file: the path may name another file by now.
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise SecretError(f"The master key cannot be read: {shown(str(path))} is no regular file")
            if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SecretError(
                    f"The master key in {where} can be read by others (mode {stat.S_IMODE(state.st_mode):04o})",
                    hint=f"Run: chmod 600 {shlex.quote(str(path))}",
                )
            return _parsed(file.read(_MOST_READ), where)
    except OSError as error:
        raise SecretError(f"The master key cannot be read: {error.strerror}: {path}", hint=_MAKE_ONE) from error


def key_from_environment(name: str, environment: Mapping[str, str]) -> bytes:
    found = environment.get(name)
    if not found:
        raise SecretError(f"The master key is not in the environment: {name} is not set", hint=_MAKE_ONE)
    return _parsed(found.encode("utf-8", "surrogateescape"), f"the variable {name}")


def key_from_command(command: Sequence[str] | str) -> bytes:
    """The key that a program prints, which is started without a shell. No output of the program appears in an error,
    because it may be secret."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words:
        raise SecretError("The command for the master key is empty")
    where = f"the output of {shown(words[0])}"
    try:
        done = subprocess.run(  # noqa: S603 - the administrator's own command, from the configuration
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_SECONDS, check=False
        )
    except OSError as error:
        raise SecretError(f"The command for the master key does not start: {error.strerror}: {words[0]}") from error
    except subprocess.TimeoutExpired:
        raise SecretError(f"The command for the master key took longer than {_COMMAND_SECONDS} s: {words[0]}") from None
    if done.returncode != 0:
        raise SecretError(f"The command for the master key ended with status {done.returncode}: {words[0]}")
    return _parsed(done.stdout, where)


async def rotate(vault: PeopleStore, keyring: Keyring, by: str) -> int:
    """Encrypts every secret, and the audit key, that is under another key with the current one. Returns the number of
    secrets.

    Safe to repeat, and while others change secrets: a secret that was changed meanwhile is read again. Raises
    SecretError for secrets that cannot be decrypted, after all others are done.
    """
    if keyring.current_id is None:
        raise _no_key()
    done = 0
    for _ in range(_ROUNDS):
        stale = [each for each in await vault.secrets() if each.key_id != keyring.current_id]
        failed: list[HoraeError] = []
        lost = False
        for start in range(0, len(stale), BATCH):
            changed = []
            for record in stale[start : start + BATCH]:
                try:
                    plain = keyring.decrypt(record)
                except SecretError as error:
                    failed.append(error)
                    continue
                changed.append((record, *keyring.encrypt(plain, name=record.name, job=record.job)))
            if changed:
                count = await vault.replace_secrets(changed, by=by)
                done += count
                lost = lost or count < len(changed)
        if failed:
            raise SecretError(
                f"{len(failed)} secrets could not be encrypted anew ({done} were): {failed[0].message}",
                hint=failed[0].hint,
            )
        if not lost:
            await rewrap(vault, keyring)
            return done
    raise SecretError(f"Secrets keep changing: {done} were encrypted anew, some were not", hint="Repeat it.")


def _associated(key: str, name: str, job: str | None) -> bytes:
    """The bytes authenticated with a value. Each part follows its length, so no two rows give the same bytes."""
    parts = [b"horae secret", key.encode(), name.encode()] + ([] if job is None else [job.encode()])
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _parsed(data: bytes, where: str) -> bytes:
    """A key from base64, hex or raw bytes."""
    for raw in (data, data.strip()):
        if len(raw) == KEY_BYTES:
            return bytes(raw)
    text = data.strip().decode("ascii", "replace")
    if len(text) == 2 * KEY_BYTES and all(letter in string.hexdigits for letter in text):
        return bytes.fromhex(text)
    try:
        standard = text.replace("-", "+").replace("_", "/")
        key = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretError(
            f"There is no master key in {where}: it must be {KEY_BYTES} bytes, as base64, hex or bare", hint=_MAKE_ONE
        )
    return key


def _no_key() -> SecretError:
    return SecretError("There is no master key, and secrets need one", hint=_MAKE_ONE)


def _title(name: str, job: str | None) -> str:
    return f"Secret {shown(name)}" + ("" if job is None else f" of job {shown(job)}")
