"""`horae sql`: statements from the command line, a file or standard input; without any, a shell."""

from __future__ import annotations

import sys
from argparse import Namespace
from time import monotonic
from typing import TYPE_CHECKING

from horae.cli import files
from horae.cli.opening import Catalog, opened
from horae.cli.rows import harmless, show_rows
from horae.control.service import Service
from horae.ddl import parse
from horae.ddl.session import READING, Result, Session
from horae.ddl.statements import AlterUser, CreateSecret, CreateUser
from horae.errors import HoraeError, InvalidInput, InvalidStatement

if TYPE_CHECKING:
    from horae.cli.screen import Screen

_OFTEN = 0.2
"""Seconds before the first sign of progress, and between two."""


def run(arguments: Namespace, screen: Screen) -> int:
    text = _given(arguments, screen)
    with opened(arguments) as catalog:
        if text is None:
            # Imported here: nobody else needs it.
            from horae.cli.shell import Shell

            return Shell(catalog, screen).run()
        carry_out(catalog, screen, text, each=arguments.each)
        return 0


def carry_out(catalog: Catalog, screen: Screen, text: str, *, each: bool = False, by_column: bool = False) -> None:
    """Carries out the statements of `text` and shows what each came to."""
    _see_to_the_catalog(catalog, screen, text)
    done: list[Result] = []
    told_at, is_told = monotonic(), False

    def progress(count: int, of: int) -> None:
        nonlocal told_at, is_told
        if monotonic() - told_at >= _OFTEN:
            told_at, is_told = monotonic(), True
            screen.progress(f"{count} of {of} statements")

    async def work(service: Service) -> None:
        async for result in Session(service).results(text, each=each, progress=progress):
            if is_told:
                screen.progress("")
            done.append(result)
            show(screen, result, by_column=by_column)

    try:
        catalog.ask(work)
        if not done:
            raise InvalidStatement("There is no statement", line=1, column=1, hint="Write one: SHOW JOBS.")
    except HoraeError as error:
        if is_told:
            screen.progress("")
        if done and screen.as_json:
            screen.data({"results": [result.to_dict() for result in done]})
            screen.flush()
        _place(error, text)
        raise
    screen.data({"results": [result.to_dict() for result in done]})


def show(screen: Screen, result: Result, *, by_column: bool = False) -> None:
    """One result for people."""
    if screen.as_json:
        return
    if result.statement == "SHOW CREATE JOB":
        # Just the statement: whoever keeps it in a file can run it from there.
        for _, text in result:
            screen.line(f"{text if screen.width is None else harmless(text)};")
        return
    if result.columns and result:
        show_rows(screen, result.columns, result, by_column=by_column)
    if result.message != result.statement:
        screen.line(screen.style(f"({result.message})", "dim") if result.columns else result.message)


def _given(arguments: Namespace, screen: Screen) -> str | None:
    """The text to carry out; None: somebody sits there and will type it."""
    words: list[str] = arguments.statement
    if len(words) > 1:
        raise InvalidInput(
            "A statement is one argument, and several were given", hint='Put it in quotes: horae sql "SHOW JOBS".'
        )
    if words and words != ["-"]:
        if arguments.file is not None:
            raise InvalidInput("A statement and --file do not go together", hint="Leave one of them out.")
        _warn_of_secrets(screen, words[0])
        return words[0]
    if arguments.file is not None:
        return files.read_text(arguments.file)
    is_awaited = sys.stdin is not None and sys.stdin.isatty() and not words
    return None if is_awaited else files.read_text("-")


def _warn_of_secrets(screen: Screen, text: str) -> None:
    try:
        statements = parse(text)
    except InvalidStatement:
        return
    for statement in statements:
        is_password = isinstance(statement, CreateUser | AlterUser) and statement.password is not None
        if is_password or isinstance(statement, CreateSecret):
            screen.note(
                "horae: what is on a command line can be seen by others on this machine, and is kept by shells;\n"
                "       give it on standard input, or use horae user and horae secret"
            )
            return


def _see_to_the_catalog(catalog: Catalog, screen: Screen, text: str) -> None:
    """A file that is not there yet is made by the first statement that changes something, and not by a look."""
    if not catalog.is_missing():
        return
    statements = parse(text)
    if statements and not all(isinstance(each, READING) for each in statements):
        catalog.create()
        screen.note(f"horae: there was no catalog at {catalog.url}: it is created")


def _place(error: HoraeError, text: str) -> None:
    """Of several statements, says which was at fault."""
    line = error.details.get("line")
    if line is not None and not isinstance(error, InvalidStatement) and text.strip().rstrip(";").count(";"):
        error.hint = f"The statement begins at line {line}. {error.hint or ''}".rstrip()
