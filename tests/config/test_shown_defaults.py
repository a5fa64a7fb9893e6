"""The defaults that docs/settings.md shows: each can be written down as it stands there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from tools.reference_settings import settings_page

from horae.config.loader import EXTERNAL
from horae.config.server import ServerSettings, server_keys
from horae.config.values import ValueSource
from horae.core.program.policy import ExternalPolicy

SECTIONS: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "Of a server": (ServerSettings, server_keys(Path())),
    "Of programs": (ExternalPolicy, EXTERNAL),
}


def written(shown: str) -> Any:
    """What a reader of the page would put into a file: TOML where it is such, else text."""
    values = []
    for text in re.findall("`([^`]*)`", shown):
        try:
            values.append(tomllib.loads(f"value = {text}")["value"])
        except tomllib.TOMLDecodeError:
            values.append(text)
    return values if len(values) > 1 else values[0]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_default_that_is_shown_is_read_back_as_what_it_is(section: str) -> None:
    kind, readers = SECTIONS[section]
    defaults = {
        each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in fields(kind)
    }
    page = settings_page().partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE))
    assert rows.keys() == readers.keys()
    for key, shown in rows.items():
        name, read = readers[key]
        if shown == "none":
            assert not defaults[name], key
        else:
            assert read(written(shown), ValueSource("docs/settings.md", key)) == defaults[name], key
