"""`horae user`, `role`, `grant`, `revoke`, `secret` and `audit` on a real catalog."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.store.databases import Databases

from horae.cli.commands.people import read_privileges
from horae.core.rate_limit import Throttle
from horae.store.catalog.people import grant_rows

VALUE = "s3cr3t-value-42"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # A master key lies where a configuration is looked for.
    monkeypatch.chdir(tmp_path)
    key = tmp_path / "horae.key"
    key.write_text(inside("secret", "key").out)
    key.chmod(0o600)
    (tmp_path / "horae.toml").write_text('[secrets]\nkey_file = "horae.key"\n')
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", url)
    return url


def asked(*arguments: str, store: str, stdin: str = "") -> Any:
    done = inside(*arguments, "--store", store, "--json", stdin=stdin)
    assert done.code == 0, done.errors
    return json.loads(done.out)


def test_users_are_made_changed_and_dropped(store: str) -> None:
    done = inside("user", "create", "ann", "--password", "--admin", "--store", store, stdin="hunter2hunter2\n")
    assert (done.code, done.out) == (0, "created user ann\n")
    assert "without a password" in inside("user", "create", "bob", "--store", store).out
    people = {each["name"]: each for each in asked("user", "list", store=store)["users"]}
    assert (people["ann"]["has_password"], people["ann"]["is_admin"]) == (True, True)
    assert (people["bob"]["has_password"], people["bob"]["is_enabled"]) == (False, True)
    assert inside("user", "alter", "bob", "--store", store).code == 2
    assert inside("user", "alter", "bob", "--disable", "--admin", "--store", store).code == 0
    bob = asked("user", "list", store=store)["users"][1]
    assert (bob["is_admin"], bob["is_enabled"]) == (True, False)
    assert inside("user", "drop", "bob", "nobody", "--store", store).code == 1
    assert inside("user", "drop", "bob", "ann", "--store", store).out == "dropped 2 users\n"
    assert inside("user", "create", "local", "--store", store).code == 1


def test_a_password_is_never_an_argument_and_is_not_repeated(store: str) -> None:
    refused = horae("user", "create", "ann", "--password", "hunter2hunter2", "--store", store)
    assert refused.code == 2
    assert "hunter2" not in refused.errors + refused.out
    assert "is asked for" in refused.errors
    assert inside("user", "create", "ann", "--password", "--store", store, stdin="").code == 2


def test_old_passwords_are_counted_from_one_command_to_the_next(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # However long the commands take, no try comes back.
    monkeypatch.setattr(grant_rows, "OLD_PASSWORDS", Throttle(4, 1e-6))
    inside("user", "create", "ann", "--password", "--store", store, stdin="hunter2hunter2")
    own = ("user", "alter", "ann", "--password", "--store", store, "--user", "ann")
    said = "ALTER USER ann PASSWORD 'hunter3' OLD PASSWORD 'hunter1'"
    for turn in range(4):
        sql = ("sql", said, "--store", store, "--user", "ann")
        done = inside(*sql) if turn % 2 else inside(*own, stdin="hunter1\nhunter3\n")
        assert (done.code, "the old one is wrong" in done.errors) == (1, True)
    refused = inside(*own, stdin="hunter2hunter2\nhunter3\n")
    assert (refused.code, "too many old ones were tried" in refused.errors) == (1, True)
    assert "Try again in" in refused.errors
    # The administrator needs no old one, and gives the tries back.
    assert inside("user", "alter", "ann", "--password", "--store", store, stdin="hunter4hunter4\n").code == 0
    assert inside(*own, stdin="hunter4hunter4\nhunter3\n").code == 0


def test_everybody_may_change_their_own_password_and_no_more(store: str) -> None:
    inside("user", "create", "ann", "--password", "--store", store, stdin="hunter2hunter2")
    own = ("user", "alter", "ann", "--password", "--store", store, "--user", "ann")
    without = inside(*own, stdin="hunter3hunter3\n")
    assert (without.code, "the old and the new one are needed" in without.errors) == (2, True)
    wrong = inside(*own, stdin="hunter1hunter1\nhunter3hunter3\n")
    assert (wrong.code, "the old one is wrong" in wrong.errors) == (1, True)
    inside("token", "create", "--user", "ann", "--store", store)
    assert inside(*own, "--revoke-tokens", stdin="hunter2hunter2\nhunter3hunter3\n").code == 0
    assert [each["is_live"] for each in asked("token", "list", store=store)["tokens"]] == [False]
    assert inside(*own, stdin="hunter3hunter3\nhunter4hunter4\n").code == 0
    inside("user", "create", "bob", "--store", store)
    first = inside("user", "alter", "bob", "--password", "--store", store, "--user", "bob", stdin="x\ny\n")
    assert (first.code, "has no password yet" in first.errors) == (1, True)
    assert inside("user", "alter", "bob", "--revoke-tokens", "--store", store).code == 2
    refused = inside("user", "alter", "ann", "--admin", "--store", store, "--user", "ann")
    assert (refused.code, "only administrators may" in refused.errors) == (1, True)
    assert inside("user", "list", "--store", store, "--user", "ann").code == 1


def test_roles_and_privileges_are_granted_and_taken_back(store: str) -> None:
    inside("user", "create", "ann", "--store", store)
    assert inside("role", "create", "ops", "--description", "who operates", "--store", store).code == 0
    assert (
        inside("grant", "CREATE", "JOB,", "VIEW JOB HISTORY", "--to", "ops", "--store", store).out == "2 grants given\n"
    )
    assert inside("grant", "ops", "--to", "ann", "--store", store).out == "1 membership given\n"
    granted = inside("grant", "EXECUTE", "JOB", "--on", "job", 'my "job"', "--to", "ann", "--store", store)
    assert granted.out == "1 grant given\n"
    (role,) = asked("role", "list", store=store)["roles"]
    assert (role["members"], role["grants"]) == (["ann"], ["CREATE JOB", "VIEW JOB HISTORY"])
    ann = asked("user", "list", store=store)["users"][0]
    assert (ann["roles"], ann["grants"]) == (["ops"], ['EXECUTE JOB ON JOB "my ""job"""'])
    assert asked("revoke", "CREATE JOB", "--from", "ops", store=store)["count"] == 1
    assert asked("revoke", "CREATE JOB", "--from", "ops", store=store)["count"] == 0
    assert inside("role", "drop", "ops", "--store", store).code == 0
    assert asked("user", "list", store=store)["users"][0]["roles"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("grant", "CREATE JOB", "ops", "--to", "ann"),
        ("grant", "EXECUTE JOB", "--on", "thing", "x", "--to", "ann"),
        ("grant", "ops", "--on", "job", "x", "--to", "ann"),
        ("grant", "CREATE JOB", "--on", "job", "x", "--to", "ann"),
        ("grant", "SELECT", "--to", "ann"),
        ("grant", "CREATE JOB"),
    ],
)
def test_a_grant_that_means_nothing_is_refused(store: str, words: tuple[str, ...]) -> None:
    inside("user", "create", "ann", "--store", store)
    inside("role", "create", "ops", "--store", store)
    assert inside(*words, "--store", store).code == 2


def test_names_cannot_smuggle_in_a_statement(store: str) -> None:
    inside("user", "create", "ann", "--store", store)
    for name in ('ann"; DROP USER ann; --', "ann; DROP USER ann", "ann TO local"):
        assert inside("grant", "CREATE JOB", "--to", name, "--store", store).code == 1
        assert inside("user", "drop", name, "--store", store).code == 1
        assert inside("grant", name.split()[0], "--to", "ann", "--store", store).code in (1, 2)
    assert [each["name"] for each in asked("user", "list", store=store)["users"]] == ["ann", "local"]


def test_privileges_are_read_as_shells_hand_them_over() -> None:
    assert read_privileges(["create", "job,execute", "external", "job"]) == (["CREATE JOB", "EXECUTE EXTERNAL JOB"], [])
    assert read_privileges(["VIEW JOB HISTORY", "SELECT"]) == (["VIEW JOB HISTORY", "SELECT"], [])
    assert read_privileges(["create", "ops"]) == ([], ["create", "ops"])


def test_a_secret_is_set_from_standard_input_and_never_shown(store: str, tmp_path: Path) -> None:
    done = [
        inside("secret", "set", "token", "--store", store, stdin=f"{VALUE}\n"),
        inside("secret", "set", "token", "--store", store, stdin=f"{VALUE}-2"),
        inside("secret", "list", "--store", store),
        inside("secret", "list", "--store", store, "--json"),
        inside("audit", "list", "--store", store),
        inside("secret", "rotate", "--store", store),
    ]
    assert [each.code for each in done] == [0] * len(done)
    assert all(VALUE not in each.out + each.errors for each in done)
    assert VALUE.encode() not in (tmp_path / "horae.db").read_bytes()
    refused = inside("secret", "set", "token", VALUE, "--store", store)
    assert (refused.code, VALUE in refused.errors) == (2, False)
    assert inside("secret", "set", "token", "--store", store, stdin="").code == 2
    assert inside("secret", "drop", "token", "--store", store).code == 0
    assert inside("secret", "drop", "token", "--store", store).code == 1


def test_a_secret_may_be_one_jobs_own(store: str) -> None:
    inside("sql", "CREATE JOB idle SCHEDULE = NONE AS 'SELECT 1'", "--store", store)
    assert inside("secret", "set", "token", "--job", "idle", "--store", store, stdin=VALUE).code == 0
    assert asked("secret", "list", store=store)["secrets"][0]["job"] == "idle"
    assert inside("secret", "drop", "token", "--store", store).code == 1
    assert inside("secret", "drop", "token", "--job", "idle", "--store", store).code == 0


def test_secrets_are_encrypted_anew_under_another_master_key(store: str, tmp_path: Path) -> None:
    inside("secret", "set", "token", "--store", store, stdin=VALUE)
    (tmp_path / "horae.key").rename(tmp_path / "older.key")
    key = tmp_path / "horae.key"
    key.write_text(json.loads(inside("secret", "key", "--json").out)["key"])
    key.chmod(0o600)
    assert inside("secret", "rotate", "--store", store).code == 1, "the older key is not named"
    configuration = '[secrets]\nkey_file = "horae.key"\nolder_key_files = ["older.key"]\n'
    (tmp_path / "horae.toml").write_text(configuration)
    assert asked("secret", "rotate", store=store) == {"rotated": 1}
    assert asked("secret", "rotate", store=store) == {"rotated": 0}


def test_without_a_master_key_a_secret_is_refused_with_the_way_to_get_one(store: str, tmp_path: Path) -> None:
    (tmp_path / "horae.toml").unlink()
    refused = inside("secret", "set", "token", "--store", store, stdin=VALUE)
    assert refused.code == 1
    assert "horae secret key" in refused.errors
    assert VALUE not in refused.errors


def test_a_trail_that_was_tampered_with_is_told_with_each_place(store: str, tmp_path: Path) -> None:
    inside("user", "create", "ann", "--store", store)
    fine = inside("audit", "verify", "--store", store)
    assert fine.code == 0
    head = json.loads(inside("audit", "verify", "--store", store, "--json").out)["head"]
    assert f"head {head}" in fine.out
    inside("user", "create", "bob", "--store", store)
    assert inside("audit", "verify", "--head", head, "--store", store).code == 0
    with sqlite3.connect(tmp_path / "horae.db") as connection:
        connection.execute("UPDATE audit SET actor = 'somebody else' WHERE audit_no = 1")
    connection.close()
    found = inside("audit", "verify", "--store", store)
    assert found.code == 1
    assert "ROWS_CHANGED" in found.out
    assert "tampered with, in 1 place" in found.out
    told = inside("audit", "verify", "--store", store, "--json")
    assert (told.code, json.loads(told.out)["findings"][0]["kind"]) == (1, "ROWS_CHANGED")
    assert inside("audit", "verify", "--head", "0" * 63 + "1", "--store", store).code == 1
    assert inside("audit", "verify", "--head", "nonsense", "--store", store).code == 2


def test_the_trail_is_listed_newest_first_with_the_names_of_jobs(store: str) -> None:
    inside("sql", "CREATE JOB idle SCHEDULE = NONE AS 'SELECT 1'", "--store", store)
    inside("job", "trigger", "idle", "--store", store)
    newest, before = asked("audit", "list", "--limit", "2", store=store)["audit"]
    assert (newest["job"], before["event"], before["job"]) == ("idle", "JOB_CREATED", "idle")
    assert inside("run", "show", newest["run"], "--store", store).code == 0
    assert "JOB_CREATED" in inside("audit", "list", "--store", store).out
    assert inside("audit", "list", "--limit", "0", "--store", store).code == 2


def test_people_and_the_trail_on_a_server(databases_18: Databases) -> None:
    url = databases_18.emptied()
    assert inside("user", "create", "cli-ann", "--password", "--store", url, stdin="hunter2hunter2").code == 0
    assert inside("role", "create", "cli-ops", "--store", url).code == 0
    assert inside("grant", "cli-ops", "--to", "cli-ann", "--store", url).code == 0
    assert inside("grant", "CREATE JOB", "--to", "cli-ops", "--store", url).code == 0
    made = "CREATE JOB mine SCHEDULE = NONE AS 'SELECT 1'"
    assert inside("sql", made, "--user", "cli-ann", "--store", url).code == 0
    listed = asked("audit", "list", store=url)["audit"]
    assert (listed[0]["event"], listed[0]["actor"]) == ("JOB_CREATED", "cli-ann")
    assert asked("audit", "verify", store=url)["ok"] is True
    assert inside("user", "drop", "cli-ann", "--store", url).code == 1, "the job is theirs"
    assert inside("job", "drop", "--yes", "mine", "--store", url).code == 0
    assert inside("user", "drop", "cli-ann", "--store", url).code == 0
    assert inside("role", "drop", "cli-ops", "--store", url).code == 0
