"""The master keys: where they come from, what opens under them, and how everything moves to a new one."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.security.vaults import MemoryVault

from horae.errors import SecretError
from horae.security import keys
from horae.security.keys import Keyring, generate_key, key_id, load_keyring, rotate
from horae.store.protocols.people import SecretRecord

OLD, NEW, OTHER = bytes(range(32)), bytes(range(1, 33)), b"k" * 32
names = st.text(min_size=1, max_size=20)
jobs = st.none() | names
unhurried = settings(deadline=None)
"""An example may be the one during which the machine does something else."""


def record(ring: Keyring, value: bytes, name: str = "token", job: str | None = None) -> SecretRecord:
    sealed, key = ring.encrypt(value, name=name, job=job)
    return SecretRecord(name, job, sealed, key)


@unhurried
@given(st.binary(max_size=300), names, jobs, st.binary(min_size=32, max_size=32))
def test_what_is_encrypted_opens_again_with_the_same_key_whatever_others_are_there(
    value: bytes, name: str, job: str | None, key: bytes
) -> None:
    kept = record(Keyring(key), value, name, job)
    assert Keyring(key).decrypt(kept) == value
    assert Keyring(OTHER, key).decrypt(kept) == value
    assert len(value) < 4 or value not in kept.value


@unhurried
@given(st.binary(max_size=40), names, jobs, names, jobs)
def test_a_value_opens_in_no_other_row_than_its_own(
    value: bytes, name: str, job: str | None, other_name: str, other_job: str | None
) -> None:
    kept = record(Keyring(OLD), value, name, job)
    assume((name, job) != (other_name, other_job))
    with pytest.raises(SecretError, match="moved from another secret"):
        Keyring(OLD).decrypt(replace(kept, name=other_name, job=other_job))


@unhurried
@given(st.binary(max_size=40), st.data())
def test_no_bit_of_a_value_can_be_changed_and_no_byte_taken_away(value: bytes, data: st.DataObject) -> None:
    kept = record(Keyring(OLD), value)
    bit = data.draw(st.integers(0, len(kept.value) * 8 - 1))
    flipped = bytearray(kept.value)
    flipped[bit // 8] ^= 1 << bit % 8
    shorter = kept.value[: data.draw(st.integers(0, len(kept.value) - 1))]
    for tampered in (bytes(flipped), shorter, kept.value + b"\0"):
        with pytest.raises(SecretError, match="its row was changed") as error:
            Keyring(OLD).decrypt(replace(kept, value=tampered))
        assert error.value.__cause__ is None


def test_the_same_value_is_never_encrypted_to_the_same_bytes() -> None:
    ring = Keyring(OLD)
    assert len({record(ring, b"same").value for _ in range(50)}) == 50


def test_a_job_and_a_name_that_run_together_are_still_told_apart() -> None:
    kept = record(Keyring(OLD), b"value", "ab", "c")
    with pytest.raises(SecretError):
        Keyring(OLD).decrypt(replace(kept, name="a", job="bc"))


def test_without_a_key_every_use_says_how_to_make_one() -> None:
    for use in (
        lambda: Keyring().encrypt(b"x", name="a", job=None),
        lambda: Keyring().decrypt(record(Keyring(OLD), b"x")),
    ):
        with pytest.raises(SecretError, match="no master key") as error:
            use()
        assert "horae secret key" in (error.value.hint or "")


def test_an_unknown_key_is_named_by_its_id_and_where_to_put_it() -> None:
    with pytest.raises(SecretError, match=key_id(OLD)) as error:
        Keyring(NEW).decrypt(record(Keyring(OLD), b"x"))
    assert "older_key_files" in (error.value.hint or "")


def test_older_keys_open_but_do_not_encrypt() -> None:
    assert Keyring(NEW, OLD).decrypt(record(Keyring(OLD), b"x")) == b"x"
    assert record(Keyring(NEW, OLD), b"x").key_id == key_id(NEW)


def test_an_id_has_sixteen_hex_digits_and_is_not_the_bare_digest_of_the_key() -> None:
    from hashlib import sha256

    assert len(key_id(OLD)) == 16
    assert not sha256(OLD).hexdigest().startswith(key_id(OLD))


def test_neither_keys_nor_values_show_and_a_keyring_cannot_be_sent_away() -> None:
    ring = Keyring(OTHER)
    assert "kkkk" not in repr(ring)
    assert OTHER.hex() not in repr(ring)
    assert "value" not in repr(record(ring, b"value")).replace("value=", "")
    with pytest.raises(TypeError):
        pickle.dumps(ring)


@pytest.mark.parametrize("key", [b"", b"short", b"k" * 31, b"k" * 33, "k" * 32])
def test_a_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(SecretError, match="32 bytes"):
        Keyring(key)


# ---- where keys come from --------------------------------------------------------------------------------------------


def key_file(folder: Path, content: bytes, mode: int = 0o600) -> str:
    path = folder / "master.key"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


WRITINGS = [
    OTHER,
    OTHER + b"\n",
    OLD,
    base64.b64encode(OLD) + b"\n",
    base64.b64encode(b"\xff" * 32),
    base64.urlsafe_b64encode(b"\xff" * 32).rstrip(b"="),
    OLD.hex().encode() + b" \n",
    OLD.hex().upper().encode(),
]


@pytest.mark.parametrize("content", WRITINGS)
def test_a_file_may_have_the_key_bare_as_hex_or_as_base64(tmp_path: Path, content: bytes) -> None:
    ring = load_keyring(key_file=key_file(tmp_path, content))
    assert ring.current_id in {key_id(OTHER), key_id(OLD), key_id(b"\xff" * 32)}


def test_a_new_key_is_text_that_is_read_back_and_never_the_same(tmp_path: Path) -> None:
    first, second = generate_key(), generate_key()
    assert first != second
    made = load_keyring(key_file=key_file(tmp_path, first.encode()))
    assert made.current_id == key_id(base64.b64decode(first))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o601])
def test_a_key_file_that_others_may_touch_is_refused_with_the_command_that_helps(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, base64.b64encode(OLD), mode)
    with pytest.raises(SecretError, match=f"{mode:04o}") as error:
        load_keyring(key_file=path)
    assert f"chmod 600 {path}" in (error.value.hint or "")
    Path(path).chmod(stat.S_IRUSR)
    assert load_keyring(key_file=path).current_id == key_id(OLD)


@pytest.mark.parametrize("content", [b"", b"\n", b"secret passphrase", OLD.hex()[:-1].encode(), b"!" * 44, b"A" * 40])
def test_what_is_no_key_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SecretError, match="no master key in the file") as error:
        load_keyring(key_file=key_file(tmp_path, content))
    assert "passphrase" not in str(error.value)


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (tmp_path / "none", tmp_path, pipe):
        with pytest.raises(SecretError, match="cannot be read"):
            load_keyring(key_file=str(path))


def test_a_key_from_the_environment_must_be_there() -> None:
    assert load_keyring(key_environment="KEY", environment={"KEY": OLD.hex()}).current_id == key_id(OLD)
    for environment in ({}, {"KEY": ""}):
        with pytest.raises(SecretError, match="KEY is not set"):
            load_keyring(key_environment="KEY", environment=environment)
    with pytest.raises(SecretError, match="the variable KEY"):
        load_keyring(key_environment="KEY", environment={"KEY": "nonsense"})


def test_a_key_from_a_command_is_what_it_prints() -> None:
    program = [sys.executable, "-c", f"print('{OLD.hex()}')"]
    assert load_keyring(key_command=program).current_id == key_id(OLD)
    text = f"{sys.executable} -c \"print('{OLD.hex()}')\""
    assert load_keyring(key_command=text).current_id == key_id(OLD)


def test_a_command_that_fails_is_told_by_its_status_and_not_by_what_it_printed() -> None:
    program = [sys.executable, "-c", "import sys; print('half a key'); sys.exit('the reason')"]
    with pytest.raises(SecretError, match="status 1") as error:
        load_keyring(key_command=program)
    assert "half" not in str(error.value)
    assert "reason" not in str(error.value)
    with pytest.raises(SecretError, match="does not start"):
        load_keyring(key_command=["/nonexistent/program"])
    with pytest.raises(SecretError, match="is empty"):
        load_keyring(key_command="  ")


def test_a_command_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_COMMAND_SECONDS", 0.05)
    with pytest.raises(SecretError, match="took longer"):
        load_keyring(key_command=[sys.executable, "-c", "import time; time.sleep(60)"])


def test_two_sources_are_one_too_many_and_none_is_a_keyring_without_keys() -> None:
    with pytest.raises(SecretError, match="Several sources"):
        load_keyring(key_file="a", key_environment="B")
    assert load_keyring().current_id is None


def test_older_files_are_read_too(tmp_path: Path) -> None:
    older = key_file(tmp_path, base64.b64encode(OLD))
    ring = load_keyring(key_environment="KEY", environment={"KEY": NEW.hex()}, older_key_files=[older])
    assert ring.decrypt(record(Keyring(OLD), b"x")) == b"x"


# ---- rotation --------------------------------------------------------------------------------------------------------


def filled(count: int) -> MemoryVault:
    vault = MemoryVault()
    for number in range(count):
        job = None if number % 2 else f"job {number}"
        sealed, key = Keyring(OLD).encrypt(b"value %d" % number, name=f"s{number}", job=job)
        vault.put(f"s{number}", sealed, key, job)
    return vault


def opened(vault: MemoryVault, ring: Keyring) -> set[bytes]:
    return {ring.decrypt(each) for each in vault.secrets_kept.values()}


def test_everything_is_encrypted_anew_in_batches_and_a_second_time_is_nothing() -> None:
    vault = filled(keys.BATCH * 2 + 1)
    ring = Keyring(NEW, OLD)
    assert asyncio.run(rotate(vault.kept, ring, by="local")) == keys.BATCH * 2 + 1
    assert opened(vault, Keyring(NEW)) == {b"value %d" % number for number in range(keys.BATCH * 2 + 1)}
    assert vault.events() == ["SECRETS_ROTATED"] * 3
    assert asyncio.run(rotate(vault.kept, ring, by="local")) == 0
    assert len(vault.events()) == 3


class Contested(MemoryVault):
    """Somebody changes a secret between the reading and the writing of each of the first few rounds."""

    left = 0

    async def replace_secrets(self, changed: Sequence[tuple[SecretRecord, bytes, str]], *, by: str) -> int:
        if self.left:
            self.left -= 1
            sealed, key = Keyring(OLD).encrypt(b"newer", name=changed[0][0].name, job=changed[0][0].job)
            self.put(changed[0][0].name, sealed, key, changed[0][0].job)
        return await super().replace_secrets(changed, by=by)


def test_a_secret_changed_meanwhile_keeps_its_newer_value_and_moves_to_the_new_key_all_the_same() -> None:
    vault = Contested(**vars(filled(5)))
    vault.left = 2
    assert asyncio.run(rotate(vault.kept, Keyring(NEW, OLD), by="local")) == 5
    assert opened(vault, Keyring(NEW)) == {b"newer", *(b"value %d" % number for number in range(1, 5))}


def test_rotation_gives_up_on_secrets_that_never_stand_still() -> None:
    vault = Contested(**vars(filled(1)))
    vault.left = 1000
    with pytest.raises(SecretError, match="keep changing"):
        asyncio.run(rotate(vault.kept, Keyring(NEW, OLD), by="local"))


def test_what_does_not_open_is_named_and_the_rest_is_done() -> None:
    vault = filled(3)
    sealed, key = Keyring(OTHER).encrypt(b"x", name="lost", job=None)
    vault.put("lost", sealed, key)
    with pytest.raises(SecretError, match=r'1 secrets could not be .* \(3 were\): Secret "lost"'):
        asyncio.run(rotate(vault.kept, Keyring(NEW, OLD), by="local"))
    assert {each.key_id for each in vault.secrets_kept.values()} == {key_id(NEW), key_id(OTHER)}


def test_rotation_needs_a_current_key() -> None:
    with pytest.raises(SecretError, match="no master key"):
        asyncio.run(rotate(filled(1).kept, Keyring(None, OLD), by="local"))
