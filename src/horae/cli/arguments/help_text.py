"""The grouped command list of `horae --help`, and the message for an unknown command."""

from __future__ import annotations

import argparse

from horae.services.plan.terminal_words import did_you_mean

GROUPS = (
    ("run jobs", ("serve", "worker", "demo")),
    ("look and operate", ("job", "run", "node", "sql", "doctor")),
    ("define jobs as code", ("plan", "apply", "export", "simulate")),
    ("preview schedules, without a store", ("next", "explain", "lint")),
    ("look after the catalog", ("migrate", "backup", "restore", "audit")),
    ("say who may do what", ("user", "role", "grant", "revoke", "token", "secret", "access")),
    ("set up the shell", ("completion",)),
)
_WIDTH = 12


def grouped(summaries: dict[str, str]) -> str:
    """Returns the commands with their summaries, group by group. Commands without a group come last."""
    lines: list[str] = []
    left = dict(summaries)
    for title, names in (*GROUPS, ("others", tuple(summaries))):
        present = [name for name in names if name in left]
        if present:
            lines += ["", f"{title}:"]
            lines += [f"  {name:<{_WIDTH}} {left.pop(name)}" for name in present]
    return "\n".join(lines[1:])


def summaries_of(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> dict[str, str]:
    return {each.dest: each.help or "" for each in commands._choices_actions}  # noqa: SLF001 - no public way to it


def unknown_command(word: str, prog: str, known: tuple[str, ...]) -> str:
    """Returns the message for a word that is not a command of `prog`.

    It names the group that has such an action, else the nearest command, else all commands.
    """
    said = f"there is no command {word!r}"
    if " " not in prog:
        # Imported here: it imports this module.
        from horae.cli.arguments.commands import build_parser
        from horae.cli.commands.completion import inner_commands

        inside = [f"{prog} {path}" for path in inner_commands(build_parser()) if path.endswith(f" {word}")]
        if inside:
            return f"{said}\n       Did you mean {', or '.join(inside)}?"
    near = did_you_mean(word, known)
    listed = f"{prog} --help lists them" if " " not in prog else f"{prog} has {', '.join(known)}"
    return f"{said}\n       {near or listed + '.'}"
