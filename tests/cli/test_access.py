"""`horae access`: a catalog is closed by its first credential, and opened again by hand alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.inside import inside


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("migrate", "--store", url).code == 0
    return url


def test_a_catalog_that_lost_its_last_token_is_closed_until_it_is_opened_by_hand(store: str) -> None:
    assert "open: whoever is on the machine" in inside("access", "show", "--store", store).out
    made = json.loads(inside("token", "create", "--store", store, "--json").out)["token"]
    refused = inside("access", "open", "--yes", "--store", store)
    assert refused.code == 1
    assert "a token that is live" in refused.errors
    assert inside("token", "revoke", made["token_id"], "--store", store).code == 0
    shown = json.loads(inside("access", "show", "--store", store, "--json").out)
    assert (shown["is_open"], shown["has_credentials"]) == (False, False)
    assert "nobody has one that is live" in inside("access", "show", "--store", store).out
    assert inside("access", "open", "--yes", "--store", store).code == 0
    assert json.loads(inside("access", "show", "--store", store, "--json").out)["is_open"]
    assert "CATALOG_OPENED" in inside("audit", "list", "--store", store).out


def test_nothing_is_opened_unless_somebody_says_yes(store: str) -> None:
    made = json.loads(inside("token", "create", "--store", store, "--json").out)["token"]
    assert inside("token", "revoke", made["token_id"], "--store", store).code == 0
    assert "--yes" in inside("access", "open", "--store", store).errors
    assert not json.loads(inside("access", "show", "--store", store, "--json").out)["is_open"]


def test_a_server_cannot_be_asked_to_open_its_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_SERVER", "http://127.0.0.1:9")
    assert "not through a server" in inside("access", "open", "--yes").errors
