"""The command line as a surface: every command takes --json, says what it does, and is documented."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from horae.cli.arguments.commands import build_parser

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "cli.md"


def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command by its words, those inside others too: `job`, `job list`."""
    found: dict[str, argparse.ArgumentParser] = {}
    left = [("", build_parser())]
    while left:
        words, parser = left.pop()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                inner = {f"{words} {name}".strip(): each for name, each in action.choices.items()}
                found |= inner
                left += inner.items()
    return found


def test_every_command_takes_json_and_has_a_summary() -> None:
    for name, parser in commands().items():
        assert "--json" in parser._option_string_actions, name
        assert parser.description, name


def test_every_command_and_every_option_is_documented() -> None:
    """A command has a section, its words first; one inside another has a row of that one's table."""
    page = DOCUMENTATION.read_text()
    for name, parser in commands().items():
        outer, _, inner = name.partition(" ")
        heading = re.search(rf"^## `horae {outer}[ `].*$", page, re.MULTILINE)
        assert heading is not None, name
        section = page[heading.start() :].split("\n## ")[0]
        title, said = heading[0], section
        if inner:
            row = re.search(rf"^\| `{inner}[ `].*$", section, re.MULTILINE)
            assert row is not None, name
            title, said = row[0].split("|")[1], row[0]
        for option in parser._option_string_actions:
            if option not in ("--help", "-h") and parser._option_string_actions[option].help != argparse.SUPPRESS:
                shared = option in ("--json", "--server", "--store", "--token-file", "--tz", "--user")
                assert f"`{option}" in (section if shared else said), f"{name} {option}"
        for action in parser._actions:
            if not action.option_strings:
                assert str(action.metavar or action.dest).upper() in title, f"{name} {action.dest}"
