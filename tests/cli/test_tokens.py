"""`horae token`, and who comes in to a server with one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.web.serving import Served, serving


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("migrate", "--store", url).code == 0
    assert inside("user", "create", "ann", "--store", url).code == 0
    return url


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path / 'served.db'}", is_running=False) as served:
        yield served


def test_a_token_stands_alone_on_the_output_so_that_it_can_be_sent_to_a_file(store: str) -> None:
    made = inside("token", "create", "--user", "ann", "--label", "laptop", "--store", store)
    assert made.code == 0
    assert made.out.startswith("horae_")
    assert made.out.count("\n") == 1
    assert "of ann, good until 2" in made.errors
    assert made.out.strip() not in made.errors
    (listed,) = json.loads(inside("token", "list", "--store", store, "--json").out)["tokens"]
    assert (listed["user"], listed["label"], listed["is_live"]) == ("ann", "laptop", True)
    assert made.out.strip() not in inside("token", "list", "--store", store, "--json").out


def test_a_token_lasts_as_long_as_is_said(store: str) -> None:
    forever = json.loads(inside("token", "create", "--lasts", "forever", "--store", store, "--json").out)
    assert (forever["token"]["user"], forever["token"]["expires_at"]) == ("local", None)
    assert inside("token", "create", "--lasts", "soon", "--store", store).code == 2
    assert inside("token", "create", "--user", "nobody", "--store", store).code == 1


def test_a_revoked_token_is_still_listed_and_is_no_longer_live(store: str) -> None:
    made = json.loads(inside("token", "create", "--user", "ann", "--store", store, "--json").out)["token"]
    revoked = inside("token", "revoke", made["token_id"], "--store", store)
    assert revoked.out == f"token {made['token_id']} of ann lets nobody in any more\n"
    listed = inside("token", "list", "--user", "ann", "--store", store).out
    assert "revoked" in listed
    assert "(1 token, 0 live)" in listed
    assert inside("token", "revoke", "no-such-token", "--store", store).code == 1


def test_whoever_has_a_token_comes_in_and_may_do_what_its_user_may(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inside("sql", "CREATE JOB etl SCHEDULE = NONE AS 'SELECT 1'", "--server", server.url).code == 0
    open_to_all = inside("user", "create", "ann", "--server", server.url)
    assert open_to_all.code == 0, open_to_all.errors
    file = tmp_path / "token"
    file.write_text(inside("token", "create", "--server", server.url, "--user", "ann").out)
    refused = inside("job", "list", "--server", server.url)
    assert refused.code == 1, "a server with a credential lets nobody in without"
    came = ("--server", server.url, "--token-file", str(file))
    assert inside("job", "list", *came).out == "(0 jobs)\n"
    assert "GRANT" in inside("job", "trigger", "etl", *came).errors
    monkeypatch.setenv("HORAE_TOKEN", file.read_text().strip())
    (own,) = json.loads(inside("token", "list", "--server", server.url, "--json").out)["tokens"]
    assert own["user"] == "ann"
    assert inside("token", "revoke", own["token_id"], "--server", server.url).code == 0
    assert inside("job", "list", "--server", server.url).code == 1


def test_a_token_is_never_an_argument_and_is_not_repeated(server: Served) -> None:
    secret = "horae_" + "hunter2" * 2
    for words in (("--token", secret), (f"--token={secret}",), ("--token-file", secret)):
        refused = horae("job", "list", "--server", server.url, *words)
        assert refused.code == 2, words
        assert secret not in refused.errors + refused.out


def test_a_file_without_a_token_and_a_token_for_a_store_are_refused(store: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert inside("job", "list", "--server", "http://127.0.0.1:1", "--token-file", str(empty)).code == 2
    assert inside("job", "list", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "none")).code == 1
    refused = inside("job", "list", "--store", store, "--token-file", os.devnull)
    assert (refused.code, "--server" in refused.errors) == (2, True)


def test_a_token_is_not_sent_where_everybody_could_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_TOKEN", "horae_hunter2hunter2")
    refused = inside("job", "list", "--server", "http://192.0.2.1:1")
    assert (refused.code, "read it" in refused.errors) == (2, True)
