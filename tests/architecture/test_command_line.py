"""The command line as a surface: every command takes --json, says what it does, and is documented."""

from __future__ import annotations

import argparse
from pathlib import Path

from horae.cli.arguments import build_parser

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "cli.md"


def commands() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser()
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


def test_every_command_takes_json_and_has_a_summary() -> None:
    for name, parser in commands().items():
        assert "--json" in parser._option_string_actions, name
        assert parser.description, name


def test_every_command_and_every_option_is_documented() -> None:
    page = DOCUMENTATION.read_text()
    for name, parser in commands().items():
        assert f"## `horae {name}" in page, name
        section = page.split(f"## `horae {name}")[1].split("\n## ")[0]
        for option in parser._option_string_actions:
            if option not in ("--help", "-h"):
                assert f"`{option}" in section, f"{name} {option}"
        for action in parser._actions:
            if not action.option_strings:
                assert str(action.metavar or action.dest).upper() in section.splitlines()[0], f"{name} {action.dest}"
