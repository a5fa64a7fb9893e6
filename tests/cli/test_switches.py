"""Variables of the environment that are yes or no are read in one way."""

from __future__ import annotations

import pytest

from horae.cli import files
from horae.cli.catalog_access import RemoteCatalog
from horae.cli.completion import names
from horae.errors import InvalidInput

FAR = "http://horae.example:8421"
YES = ("1", "true", "yes", "on", "TRUE")
NO = ("", "0", "false", "no", "off", "False", " 0 ")


@pytest.mark.parametrize("value", YES)
def test_a_variable_that_says_yes_lets_a_token_go_over_plain_http(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(files.INSECURE, value)
    RemoteCatalog(FAR, "token").close()
    assert names._is_near("horae.example")


@pytest.mark.parametrize("value", [*NO, None])
def test_a_variable_that_says_no_does_not(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv(files.INSECURE, raising=False)
    else:
        monkeypatch.setenv(files.INSECURE, value)
    with pytest.raises(InvalidInput, match="http"):
        RemoteCatalog(FAR, "token")
    assert not names._is_near("horae.example")
    assert names._is_near("127.0.0.1")
