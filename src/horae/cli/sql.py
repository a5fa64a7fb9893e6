"""`horae sql`: statements from the command line, a file or standard input; without any, a shell."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from horae.cli import files
from horae.cli.opening import Catalog, opened
from horae.cli.rows import harmless, show_rows
from horae.ddl import parse
from horae.ddl.session import READING, Result, Session
from horae.ddl.statements import AlterUser, CreateSecret, CreateUser
from horae.ddl.text import split
from horae.desk.asking import LONGEST_SQL
from horae.errors import HoraeError, InvalidInput, InvalidStatement, without_passwords

if TYPE_CHECKING:
    from horae.cli.screen import Screen
    from horae.control.service import Service

_OFTEN = 0.2
"""Seconds before the first sign of progress, and between two."""
Told = Callable[[Result], None]


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
    progress = _Progress(screen)

    def came(result: Result) -> None:
        progress.clear()
        done.append(result)
        show(screen, result, by_column=by_column)

    try:
        if catalog.is_local:
            _here(catalog, text, came, progress, each=each)
        elif each:
            _one_by_one(catalog, text, came, progress)
        else:
            for result in catalog.call("sql", text=_sendable(text)).results:
                came(_result(result))
        if not done:
            raise InvalidStatement("There is no statement", line=1, column=1, hint="Write one: SHOW JOBS.")
    except HoraeError as error:
        progress.clear()
        if done and screen.as_json:
            screen.data({"results": [result.to_dict() for result in done]})
            screen.flush()
        _place(error, text)
        raise
    progress.clear()
    screen.data({"results": [result.to_dict() for result in done]})


class _Progress:
    """How many of the statements are done: told after a while, and not too often."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._told_at = monotonic()
        self._is_told = False

    def __call__(self, count: int, of: int) -> None:
        if monotonic() - self._told_at >= _OFTEN:
            self._told_at, self._is_told = monotonic(), True
            self._screen.bar(count, of, "statements")

    def clear(self) -> None:
        if self._is_told:
            self._is_told = False
            self._screen.progress("")


def _here(catalog: Catalog, text: str, came: Told, progress: _Progress, *, each: bool) -> None:
    async def work(service: Service) -> None:
        async for result in Session(service).results(text, each=each, progress=progress):
            came(result)

    catalog.ask(work)


def _one_by_one(catalog: Catalog, text: str, came: Told, progress: _Progress) -> None:
    """Sends a server one statement after the other, so that what was done before a fault is told. All of them are read
    here first, as they are where a store is opened: a slip in the last one is found before anything is done."""
    parse(text)
    pieces = list(split(text))
    for number, piece in enumerate(pieces):
        progress(number, len(pieces))
        try:
            for result in catalog.call("sql", text=_sendable(piece.text)).results:
                came(_result(result))
        except HoraeError as error:
            error.details["line"] = piece.mark.line
            raise


def _sendable(text: str) -> str:
    if not text.strip():
        raise InvalidStatement("There is no statement", line=1, column=1, hint="Write one: SHOW JOBS.")
    if len(text) > LONGEST_SQL:
        raise InvalidInput(
            f"{len(text):,} characters are too many to send at once: a server takes {LONGEST_SQL:,}",
            hint="Split the file, or send its statements one by one (--each).",
        )
    return text


def _result(found: Any) -> Result:
    """What a server told, as it would be had here."""
    rows = [tuple(row) for row in found.rows or ()]
    return Result(
        found.statement,
        found.message,
        rows,
        tuple(found.columns or ()),
        rowcount=found.rowcount,
        cut=found.cut,
    )


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
        show_rows(screen, result.columns, result, by_column=by_column, of_users=True)
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
        screen.note(f"horae: there was no catalog at {without_passwords(catalog.url)}: it is created")


def _place(error: HoraeError, text: str) -> None:
    """Of several statements, says which was at fault."""
    line = error.details.get("line")
    if line is not None and not isinstance(error, InvalidStatement) and text.strip().rstrip(";").count(";"):
        error.hint = f"The statement begins at line {line}. {error.hint or ''}".rstrip()
