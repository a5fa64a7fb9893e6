"""Writes what is made from other files: lifecycle diagrams, errors, the SQL grammar, the schema of each dialect."""

from __future__ import annotations

from pathlib import Path

from horae import declarative, errors
from horae.core.lifecycle import MACHINES, diagram
from horae.ddl.grammar import GRAMMAR, TOKENS
from horae.store.migrating import schema_text

DOCS = Path(__file__).parents[1] / "docs"
STORE = Path(__file__).parents[1] / "src" / "horae" / "store"
_NOTE = "<!-- Made from the code by `make golden`; edit the code instead. -->"


def lifecycle_page() -> str:
    """Every machine as a diagram and as a table."""
    parts = ["# Lifecycle", _NOTE]
    parts.append(
        "Where a row may begin, and where each state may go. Anything else raises `IllegalTransition` and changes "
        "nothing. A state that goes nowhere is terminal: its row is never edited again."
    )
    for machine in MACHINES:
        parts.append(f"## {machine.name.capitalize()}")
        parts.append(f"```mermaid\n{diagram(machine)}\n```")
        rows = [f"| {state} | {', '.join(sorted(machine.moves[state])) or 'terminal'} |" for state in machine.states]
        born = f"| (birth) | {', '.join(sorted(machine.births))} |"
        parts.append("\n".join(["| from | to |", "|---|---|", born, *rows]))
    return "\n\n".join(parts) + "\n"


def errors_page() -> str:
    """The error tree as a table, by number."""
    named = [(errors, name) for name in errors.__all__] + [(declarative, name) for name in declarative.__all__]
    found = [each for module, name in named if isinstance(each := getattr(module, name), type)]
    classes = sorted((each for each in found if issubclass(each, errors.HoraeError)), key=lambda each: each.number)
    rows = [f"| {each.number} | `{each.code}` | `{each.__name__}` | `{each.__mro__[1].__name__}` |" for each in classes]
    intro = (
        "Every error is a `horae.HoraeError` with a stable `code` and `number`, a message that says what was wrong and "
        "where, often a `hint` with the next step, and `details` for programs."
    )
    table = "\n".join(["| number | code | class | is a |", "|---|---|---|---|", *rows])
    return "\n\n".join(["# Errors", _NOTE, intro, table]) + "\n"


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
    return "\n\n".join(["# SQL grammar", _NOTE, intro, *sections, f"## Tokens\n\n{tokens}"]) + "\n"


PAGES = {"lifecycle.md": lifecycle_page, "errors.md": errors_page, "sql-grammar.md": sql_grammar_page}
SCHEMAS = {dialect: STORE / dialect / "schema.sql" for dialect in ("sqlite", "postgres")}


def schema_file(dialect: str) -> str:
    """The whole schema in one file: the sum of the migrations, in order."""
    return f"-- The sum of the migrations, made by `make golden`; write a migration instead.\n\n{schema_text(dialect)}"


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    for dialect, path in SCHEMAS.items():
        path.write_text(schema_file(dialect), encoding="utf-8")


if __name__ == "__main__":
    main()
