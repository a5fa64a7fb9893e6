"""Passwords: kept as hashes, compared alike whether they are right, wrong or nobody's, and always written down."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading

import pytest
from tests.security.vaults import MemoryVault

from horae.errors import AccessDenied, InvalidInput, LoginFailed
from horae.security import passwords
from horae.security.passwords import LONGEST, HashCost, hashed, login, matches, needs_rehash

CHEAP = HashCost(passes=1, memory=8, lanes=1)


def test_a_hash_matches_its_password_and_no_other_and_is_never_the_same() -> None:
    kept = hashed("correct horse", cost=CHEAP)
    assert kept.startswith("$argon2id$")
    assert matches("correct horse", kept)
    assert not matches("correct horse ", kept)
    assert kept != hashed("correct horse", cost=CHEAP)


def test_letters_composed_in_either_way_are_the_same_password() -> None:
    assert matches("cafe\u0301", hashed("caf\u00e9", cost=CHEAP))


@pytest.mark.parametrize("password", ["", "x" * (LONGEST + 1), "\ud800", None, b"bytes"])
def test_what_is_no_password_is_refused_and_matches_nothing(password: str) -> None:
    with pytest.raises(InvalidInput) as error:
        hashed(password, cost=CHEAP)
    assert "xxx" not in str(error.value)
    assert not matches(password, hashed("x", cost=CHEAP))


@pytest.mark.parametrize("kept", ["", "plain", "$argon2id$v=19$nonsense", "$2b$12$abcdefghijklmnopqrstuv"])
def test_what_is_no_hash_matches_nothing_and_wants_to_be_made_anew(kept: str) -> None:
    assert not matches("plain", kept)
    assert needs_rehash(kept, cost=CHEAP)


def test_the_longest_password_is_taken_whole() -> None:
    kept = hashed("x" * LONGEST, cost=CHEAP)
    assert matches("x" * LONGEST, kept)
    assert not matches("x" * (LONGEST - 1), kept)


def test_a_hash_at_another_cost_wants_to_be_made_anew() -> None:
    kept = hashed("x", cost=CHEAP)
    assert not needs_rehash(kept, cost=CHEAP)
    assert needs_rehash(kept)


def test_the_hash_of_nobody_costs_what_a_real_one_costs() -> None:
    assert not needs_rehash(passwords._DUMMY_HASH)


def vault_with(*, enabled: bool = True, password: bool = True) -> MemoryVault:
    vault = MemoryVault()
    vault.add_user("alice", is_enabled=enabled)
    if password:
        vault.hashes["alice"] = hashed("right", cost=CHEAP)
    return vault


def test_who_proves_it_is_let_in_and_written_down() -> None:
    vault = vault_with()
    assert asyncio.run(login(vault.kept, "alice", "right")) == vault.people["alice"]
    assert [(row.event, row.actor, row.outcome) for row in vault.rows] == [("LOGIN", "alice", "OK")]


CASES = {
    "no such user": (vault_with(), "bob", "right"),
    "wrong password": (vault_with(), "alice", "wrong"),
    "no password is set": (vault_with(password=False), "alice", "right"),
    "disabled": (vault_with(enabled=False), "alice", "right"),
}


@pytest.mark.parametrize("reason", CASES)
def test_every_failure_sounds_alike_compares_once_and_has_its_reason_in_the_trail_alone(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, name, password = CASES[reason]
    compared: list[str] = []
    real = passwords.matches

    def counting(given: str, kept: str) -> bool:
        compared.append(kept)
        return real(given, kept)

    monkeypatch.setattr(passwords, "matches", counting)
    vault.rows.clear()
    with pytest.raises(LoginFailed) as error:
        asyncio.run(login(vault.kept, name, password))
    assert str(error.value) == (
        f'Login of "{name}" failed: the name or the password is wrong, or the user may not log in'
    )
    assert isinstance(error.value, AccessDenied)
    assert len(compared) == 1
    assert [(row.event, row.actor, row.outcome) for row in vault.rows] == [("LOGIN_FAILED", name, "REFUSED")]
    assert json.loads(vault.rows[0].details or "") == {"reason": reason}


def test_a_password_that_is_none_is_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def always(given: str, kept: str) -> bool:
        compared.append(given)
        return True

    monkeypatch.setattr(passwords, "matches", always)
    with pytest.raises(LoginFailed):
        asyncio.run(login(vault_with().kept, "alice", "x" * 5000))
    assert compared == ["x"]


def test_a_name_that_can_be_no_name_is_neither_looked_up_nor_written_down() -> None:
    vault = vault_with()
    with pytest.raises(LoginFailed) as error:
        asyncio.run(login(vault.kept, "alice\n" + "x" * 10_000, "right"))
    assert len(str(error.value)) < 200
    assert vault.rows[0].actor == "?"


def test_hashing_is_not_done_in_the_event_loops_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[bool] = []
    monkeypatch.setattr(
        passwords, "matches", lambda given, kept: where.append(threading.current_thread() is threading.main_thread())
    )
    with pytest.raises(LoginFailed):
        asyncio.run(login(vault_with().kept, "alice", "right"))
    assert where == [False]


def test_the_room_is_entered_without_loading_the_libraries_that_hash_and_encrypt() -> None:
    program = (
        "import sys, horae.security.passwords, horae.security.keys, horae.security.access\n"
        "import horae.security.audit.verification\n"
        "print([name for name in ('argon2', 'cryptography') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
