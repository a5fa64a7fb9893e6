"""What `horae --help` lists: the commands in groups; and the command that a word which is none is near."""

from __future__ import annotations

import argparse

from horae.control.letters import did_you_mean

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
    """The commands with their summaries, group by group. What is in no group comes last."""
    lines: list[str] = []
    left = dict(summaries)
    for title, names in (*GROUPS, ("others", tuple(summaries))):
        present = [name for name in names if name in left]
        if present:
            lines += ["", f"{title}:"]
            lines += [f"  {name:<{_WIDTH}} {left.pop(name)}" for name in present]
    return "\n".join(lines[1:])


def summaries_of(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> dict[str, str]:
    return {each.dest: each.help or "" for each in commands._choices_actions}  # noqa: SLF001 - argparse tells it in no other way


def unknown_command(word: str, prog: str, known: tuple[str, ...]) -> str:
    """What is said of a word that is no command there: the nearest that is, or the group that has such a command."""
    said = f"there is no command {word!r}"
    if " " not in prog:
        # Imported here: it imports this module.
        from horae.cli.arguments import build_parser
        from horae.cli.completion import inner_commands

        inside = [f"{prog} {path}" for path in inner_commands(build_parser()) if path.endswith(f" {word}")]
        if inside:
            return f"{said}\n       Did you mean {', or '.join(inside)}?"
    near = did_you_mean(word, known)
    listed = f"{prog} --help lists them" if " " not in prog else f"{prog} has {', '.join(known)}"
    return f"{said}\n       {near or listed + '.'}"
