"""docs/commands.md: every command with its arguments and options, out of the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from horae.cli.arguments.commands import build_parser
from tools.writing import cell, code, page, table

_INTRO = """
What `horae COMMAND --help` says, for all of them; [cli.md](cli.md) explains them, with examples. Every command takes
`--help`, and `--json` for one JSON document instead of text.
"""
_PLACES = ("--store", "--server", "--token-file", "--user")
_SHARED = {"--json", "--help", *_PLACES}


def commands_page() -> str:
    parser = build_parser()
    found = list(_commands("horae", parser))
    parts = [_INTRO, _catalog_options(found)]
    for words, each in found:
        inner = _inner(each)
        is_group = inner is not None
        parts.append(f"{'##' if words.count(' ') == 1 else '###'} {words}")
        parts.append(cell(each.description or ""))
        if is_group:
            continue
        parts.append(f"```\n{_usage(words, each)}\n```")
        rows = [_row(action) for action in each._actions if not _is_shared(action)]  # noqa: SLF001 - no other way in
        if rows:
            parts.append(table(["", "takes", "does"], rows))
        asked = [name for name in _PLACES if name in each._option_string_actions]  # noqa: SLF001 - as above
        if asked:
            parts.append(f"Also {_several([code(name) for name in asked])}, as above.")
    return page("Commands", *parts)


def _several(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _catalog_options(found: list[tuple[str, argparse.ArgumentParser]]) -> str:
    """What says which catalog, and as whom: the same in every command that has it."""
    (sample,) = [each for words, each in found if words == "horae job list"]
    rows = [_row(sample._option_string_actions[name]) for name in _PLACES]  # noqa: SLF001 - as above
    return table(["for commands on a catalog", "takes", ""], rows)


def _commands(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = _inner(parser)
    for name, each in (inner.choices if inner is not None else {}).items():
        yield f"{words} {name}", each
        yield from _commands(f"{words} {name}", each)


def _inner(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    kind = argparse._SubParsersAction  # noqa: SLF001 - argparse has no other name for it
    return next((each for each in parser._actions if isinstance(each, kind)), None)  # noqa: SLF001 - as above


def _is_shared(action: argparse.Action) -> bool:
    return bool(_SHARED & set(action.option_strings)) or action.help == argparse.SUPPRESS


def _usage(words: str, parser: argparse.ArgumentParser) -> str:
    positional = [_placed(each) for each in parser._actions if not each.option_strings]  # noqa: SLF001 - as above
    required = [
        f"{each.option_strings[0]} {_taken(each)}".strip()
        for each in parser._actions  # noqa: SLF001 - as above
        if each.option_strings and each.required
    ]
    return " ".join([words, *positional, *required, "[OPTION…]"])


def _placed(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest).upper()
    return {"?": f"[{name}]", "*": f"[{name}…]", "+": f"{name}…"}.get(str(action.nargs), name)


def _taken(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices is not None:
        return "|".join(map(str, action.choices))
    name = str(action.metavar or action.dest).upper()
    return {"?": f"[{name}]", "*": f"[{name}…]", "+": f"{name}…"}.get(str(action.nargs), name)


def _row(action: argparse.Action) -> list[str]:
    said = cell(action.help or "")
    if not action.option_strings:
        return [code(_placed(action)), "", said]
    # Choices side by side would break the table's row.
    taken = " or ".join(map(code, filter(None, _taken(action).split("|"))))
    return [", ".join(map(code, action.option_strings)), taken, said]
