"""`make golden`: writes what is made from other files: the reference, pictures of states, schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from horae import declarative, errors
from horae.core.run.lifecycle import MACHINES, StateMachine
from horae.errors import HoraeError, InvalidInput, StoreError
from horae.formats.sql.grammar import GRAMMAR, TOKENS
from horae.formats.toml.job_file import JOB_FILE_SCHEMA
from horae.formats.toml.keys import CLAUSES, FILE, FILE_JOB, PARTITION, RETRY, SCHEDULE, SECRET, TASK, WINDOW
from horae.store.schema import schema_text
from horae.web.http.problems import status_of
from tools.diagrams import DIAGRAMS
from tools.pictures import state_picture
from tools.reference_commands import commands_page
from tools.reference_events import events_page
from tools.reference_http import http_page
from tools.reference_settings import settings_page
from tools.writing import cell, page, slug, table

DOCS = Path(__file__).parents[1] / "docs"
_BRANCH = re.compile(r"(\w+) +(\d{4}) +(\S.*)")
"""One of the tree at the head of errors.py, with what is said of it there."""


def lifecycle_page() -> str:
    """Every machine as a picture and as a table."""
    intro = (
        "Where a row may begin, and where each state may go. Anything else raises `IllegalTransition` and changes "
        "nothing. A state that goes nowhere is terminal: its row is never edited again. What people may do in which "
        "state: [operations.md](operations.md)."
    )
    parts = [intro]
    for machine in MACHINES:
        parts.append(f"## {machine.name.capitalize()}")
        parts.append(f"![States of a {machine.name}](pictures/{picture_name(machine)})")
        rows = [[state, ", ".join(sorted(machine.moves[state])) or "terminal"] for state in machine.states]
        parts.append(table(["from", "to"], [["(birth)", ", ".join(sorted(machine.births))], *rows]))
    return page("Lifecycle", *parts)


def picture_name(machine: StateMachine) -> str:
    return f"lifecycle-{slug(machine.name)}.svg"


def errors_page() -> str:
    """The error tree as a table, by number."""
    named = [(errors, name) for name in errors.__all__] + [(declarative, name) for name in declarative.__all__]
    found = [each for module, name in named if isinstance(each := getattr(module, name), type)]
    classes = sorted((each for each in found if issubclass(each, HoraeError)), key=lambda each: each.number)
    said = {name: words for name, _, words in _BRANCH.findall(errors.__doc__ or "")}
    rows = [
        [
            str(each.number),
            f"`{each.code}`",
            f"`{each.__name__}`",
            f"`{each.__mro__[1].__name__}`",
            str(status_of(each.__new__(each))),
            "3" if issubclass(each, StoreError) else "2" if issubclass(each, InvalidInput) else "1",
            cell(said.get(each.__name__, "")),
        ]
        for each in classes
    ]
    intro = (
        "Every error is a `horae.HoraeError` with a stable `code` and `number`, a message that says what was wrong and "
        "where, often a `hint` with the next step, and `details` for programs. HTTP tells it with a status and the "
        "same code, the command line with an exit code."
    )
    return page("Errors", intro, table(["number", "code", "class", "is a", "HTTP", "exit", ""], rows))


def sql_grammar_page() -> str:
    """The grammar that the parser reads by, section by section."""
    intro = (
        "What the parser reads by, word for word; [sql.md](sql.md) says what it means. CAPITALS are words, in any "
        "case; words beside each other stand together. Signs are in quotes. `[ a ]` may be left out, `{ a }` may "
        "stand any number of times, `a | b` is one of them. A statement ends with `;` or with the text. One that "
        "begins with SELECT, WITH or VALUES is the database's to read."
    )
    sections = []
    for section in GRAMMAR.split("# ")[1:]:
        title, _, rules = section.partition("\n")
        sections.append(f"## {title}\n\n```\n{rules.strip()}\n```")
    rows = [f"| `{name}` | {meaning} |" for name, meaning in TOKENS.items()]
    tokens = "\n".join(["| token | |", "|---|---|", *rows])
    return page("SQL grammar", intro, *sections, f"## Tokens\n\n{tokens}")


_TABLES = (
    ("The file", FILE, "What stands at the top, and in its sections."),
    ("A job", FILE_JOB, "`[jobs.NAME]`. It has exactly one schedule and exactly one kind of work, or a list of tasks."),
    ("A task", TASK, "`[[jobs.NAME.tasks]]`. It has exactly one kind of work."),
    ("A schedule of several", SCHEDULE, "Each of `schedules`. It has exactly one kind of schedule."),
    ("retry", RETRY, ""),
    ("window", WINDOW, "What the times in it mean: [windows.md](windows.md)."),
    ("only and avoid", CLAUSES, "Numbers, text, or a list of either; of each clause any value is enough."),
    ("secrets", SECRET, "A name alone stands for a table with that name."),
    ("partition", PARTITION, ""),
)


def job_keys_page() -> str:
    """Every key of jobs.toml, table by table."""
    intro = (
        "What [jobs-toml.md](jobs-toml.md) explains, key by key. Keys that must be there are **bold**. The same for "
        "editors: [jobs.schema.json](jobs.schema.json)."
    )
    parts = [intro]
    for title, keys, about in _TABLES:
        rows = ["| key | takes | meaning |", "|---|---|---|"]
        for name, key in keys.keys.items():
            shown = f"**`{name}`**" if name in keys.required else f"`{name}`"
            beside = f" Goes with {', '.join(f'`{each}`' for each in key.beside)}." if key.beside else ""
            rows.append(f"| {shown} | {key.shape.said} | {key.about}{beside} |")
        parts += [f"## {title}", *([about] if about else []), "\n".join(rows)]
    return page("Keys of jobs.toml", *parts)


def job_file_schema() -> str:
    """The JSON Schema of jobs.toml, for editors."""
    return json.dumps(JOB_FILE_SCHEMA, indent=2, ensure_ascii=False) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "lifecycle.md": lifecycle_page,
    "errors.md": errors_page,
    "sql-grammar.md": sql_grammar_page,
    "jobs-toml-keys.md": job_keys_page,
    "jobs.schema.json": job_file_schema,
    "http-operations.md": http_page,
    "commands.md": commands_page,
    "settings.md": settings_page,
    "events.md": events_page,
    **{f"pictures/{picture_name(each)}": partial(state_picture, each) for each in MACHINES},
    **{f"pictures/architecture-{name}.svg": made for name, made in DIAGRAMS.items()},
}
SCHEMAS = {dialect: DOCS / "schema" / f"{dialect}.sql" for dialect in ("sqlite", "postgres")}


def schema_file(dialect: str) -> str:
    """The whole schema in one file: the sum of the migrations, in order."""
    return f"-- The sum of the migrations, made by `make golden`; write a migration instead.\n\n{schema_text(dialect)}"


def main() -> None:
    for folder in ("pictures", "schema"):
        (DOCS / folder).mkdir(exist_ok=True)
    for name, made in PAGES.items():
        (DOCS / name).write_text(made(), encoding="utf-8")
    for dialect, path in SCHEMAS.items():
        path.write_text(schema_file(dialect), encoding="utf-8")


if __name__ == "__main__":
    main()
