"""`horae sql`: runs statements from the command line, a file or standard input, or starts a shell."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from horae.api.requests import LONGEST_SQL
from horae.cli import files
from horae.cli.catalog_access import CatalogAccess, open_catalog
from horae.cli.screen.rows import harmless, show_rows
from horae.errors import HoraeError, InvalidInput, InvalidStatement, without_passwords
from horae.formats.sql import parse
from horae.formats.sql.statements import AlterUser, CreateSecret, CreateUser
from horae.formats.sql.tokens import split
from horae.services.sql.session import READING, Result, SqlSession

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen
    from horae.services.service import Service

_OFTEN = 0.2
"""Seconds before the first sign of progress, and between two."""
ResultCallback = Callable[[Result], None]


def run(arguments: Namespace, screen: Screen) -> int:
    text = _read_statements(arguments, screen)
    with open_catalog(arguments) as catalog:
        if text is None:
            # Imported here: only the interactive shell needs it.
            from horae.cli.shell.shell import Shell

            return Shell(catalog, screen).run()
        carry_out(catalog, screen, text, each=arguments.each)
        return 0


def carry_out(
    catalog: CatalogAccess, screen: Screen, text: str, *, each: bool = False, by_column: bool = False
) -> None:
    """Runs the statements in `text` and shows each result. Without `each` they share one transaction. `by_column`
    prints one column a line instead of tables."""
    _allow_creation(catalog, screen, text)
    done: list[Result] = []
    progress = _Progress(screen)

    def came(result: Result) -> None:
        progress.clear()
        done.append(result)
        show(screen, result, by_column=by_column)

    try:
        if catalog.is_local:
            _run_local(catalog, text, came, progress, each=each)
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
        _add_place(error, text)
        raise
    progress.clear()
    screen.data({"results": [result.to_dict() for result in done]})


class _Progress:
    """A progress bar for statements, drawn at most every `_OFTEN` seconds and not before the first."""

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


def _run_local(catalog: CatalogAccess, text: str, came: ResultCallback, progress: _Progress, *, each: bool) -> None:
    async def work(service: Service) -> None:
        async for result in SqlSession(service).results(text, each=each, progress=progress):
            came(result)

    catalog.ask(work)


def _one_by_one(catalog: CatalogAccess, text: str, came: ResultCallback, progress: _Progress) -> None:
    """Sends a server one statement after the other, so that the results before an error are shown. All are parsed
    first, as with an opened store: a syntax error in the last one is found before anything is done."""
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
    """Returns a server's result as the local session would return it."""
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
    """Prints one result as text. With JSON it prints nothing."""
    if screen.as_json:
        return
    if result.statement == "SHOW CREATE JOB":
        # Just the statement, so that the output can be kept in a file and run.
        for _, text in result:
            screen.line(f"{text if screen.width is None else harmless(text)};")
        return
    if result.columns and result:
        show_rows(screen, result.columns, result, by_column=by_column, of_users=True)
    if result.message != result.statement:
        screen.line(screen.style(f"({result.message})", "dim") if result.columns else result.message)


def _read_statements(arguments: Namespace, screen: Screen) -> str | None:
    """Returns the statements to run; None starts the interactive shell."""
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


def _allow_creation(catalog: CatalogAccess, screen: Screen, text: str) -> None:
    """Allows the catalog to be created if it is missing and any of the statements may change something."""
    if not catalog.is_missing():
        return
    statements = parse(text)
    if statements and not all(isinstance(each, READING) for each in statements):
        catalog.create()
        screen.note(f"horae: there was no catalog at {without_passwords(catalog.url)}: it is created")


def _add_place(error: HoraeError, text: str) -> None:
    """Adds to the hint where the failed statement begins, if there are several."""
    line = error.details.get("line")
    if line is not None and not isinstance(error, InvalidStatement) and text.strip().rstrip(";").count(";"):
        error.hint = f"The statement begins at line {line}. {error.hint or ''}".rstrip()
