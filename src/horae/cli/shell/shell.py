"""The shell of `horae sql`: statements line by line, with history, completion and a few backslash commands."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from horae.cli.catalog_access import CatalogAccess
from horae.cli.commands.sql import carry_out
from horae.cli.screen.rows import harmless, show_rows
from horae.cli.shell.completion import ShellCompleter, table_names
from horae.cli.shell.history import ShellHistory
from horae.errors import HoraeError, InvalidInput, shown
from horae.formats.sql.printer import name_text
from horae.formats.sql.tokens import ended, tokens
from horae.version import __version__

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

PROMPT = "horae> "
MORE = "    -> "
_HELP = (
    ("statement;", "carry it out; it may take several lines, and ends with ;"),
    (r"\?", "this list"),
    (r"\j", "jobs"),
    (r"\r [job]", "runs, the newest first"),
    (r"\d [table]", "the catalog's tables, or the columns of one"),
    (r"\x", "one column to a line, or tables again"),
    (r"\timing", "how long each statement took, or not"),
    (r"\q", "leave; so does Ctrl-D"),
    ("Tab", "complete words and names"),
    ("Ctrl-C", "drop what was typed, stop what is under way"),
)


class Shell:
    """One session of the shell. Errors are printed and the session continues."""

    def __init__(self, catalog: CatalogAccess, screen: Screen) -> None:
        self._catalog = catalog
        self._screen = screen
        self._by_column = False
        self._timing = False
        self._completer = ShellCompleter(catalog)
        self._history = ShellHistory()
        self._pending = ""
        self._own: dict[str, Callable[[str], None]] = {
            "?": self._help,
            "h": self._help,
            "j": self._jobs,
            "r": self._runs,
            "d": self._describe,
            "x": self._expand,
            "timing": self._time,
        }

    def run(self) -> int:
        self._completer.install(lambda: self._pending)
        self._history.load()
        self._greet()
        while True:
            # Ctrl-C drops the typed text or stops the running statement. It never ends the shell.
            try:
                self._screen.flush()
                line = input(MORE if self._pending else PROMPT)
                if not self._pending and line.strip().rstrip(";").lower() in (r"\q", "quit", "exit"):
                    return 0
                self._take(line)
            except KeyboardInterrupt:
                self._pending = ""
                self._screen.note("")
            except EOFError:
                self._screen.note("")
                return 0

    def _greet(self) -> None:
        who = "" if self._catalog.user is None else f" as {self._catalog.user}"
        self._screen.line(
            f"horae {__version__}, {_without_password(self._catalog.url)}{who}. \\? for help, \\q to leave."
        )
        try:
            if self._catalog.is_missing():
                self._screen.line("There is no catalog yet: the first statement that changes something creates it.")
        except HoraeError as error:
            self._screen.error(error)

    def _take(self, line: str) -> None:
        """Takes a line: a backslash command, or part of a statement, which is run when it is complete."""
        if not self._pending and line.lstrip().startswith("\\"):
            self._history.keep(line)
            self._guarded(lambda: self._command(line.strip()[1:]))
            return
        if not self._pending and line.strip().lower() in ("help", "?"):
            self._help("")
            return
        self._pending += line + "\n"
        if not ended(self._pending):
            return
        text, self._pending = self._pending.strip(), ""
        if next(tokens(text)).kind == "end":
            return
        self._history.keep(text)
        self._guarded(lambda: self._carry_out(text))

    def _guarded(self, work: Callable[[], None]) -> None:
        started = perf_counter()
        try:
            work()
        except HoraeError as error:
            self._screen.flush()
            self._screen.error(error)
        except KeyboardInterrupt:
            self._screen.note("interrupted: look whether it was done, or say it again")
        finally:
            self._completer.forget()
        if self._timing:
            self._screen.line(self._screen.style(f"{(perf_counter() - started) * 1000:.1f} ms", "dim"))

    def _carry_out(self, text: str) -> None:
        carry_out(self._catalog, self._screen, text, by_column=self._by_column)

    # ---- backslash commands ------------------------------------------------------------------------------------------

    def _command(self, text: str) -> None:
        name, _, rest = harmless(text).partition(" ")
        found = self._own.get(name.rstrip(";"))
        if found is None:
            raise InvalidInput(f"The shell has no command \\{name}", hint="\\? lists them.")
        found(rest.strip().rstrip(";").strip())

    def _help(self, _: str) -> None:
        for name, what in _HELP:
            self._screen.line(f"  {self._screen.style(name.ljust(12), 'cyan')} {what}")

    def _jobs(self, _: str) -> None:
        self._carry_out("SHOW JOBS")

    def _runs(self, job: str) -> None:
        named = job if job.startswith('"') or not job else name_text(job)
        self._carry_out(f"SHOW JOB RUNS FOR {named}" if job else "SHOW JOB RUNS")

    def _describe(self, table: str) -> None:
        found = table_names(self._catalog)
        if not table:
            show_rows(self._screen, ("table", "columns"), [(f"sys.{name}", len(found[name])) for name in sorted(found)])
            return
        columns = found.get(table.lower().removeprefix("sys."))
        if columns is None:
            raise InvalidInput(f"The catalog has no table {shown(table)}", hint="\\d lists them.")
        for column in columns:
            self._screen.line(f"  {column}")

    def _expand(self, _: str) -> None:
        self._by_column = not self._by_column
        self._screen.line("one column to a line" if self._by_column else "tables")

    def _time(self, _: str) -> None:
        self._timing = not self._timing
        self._screen.line(f"timing is {'on' if self._timing else 'off'}")


def _without_password(url: str) -> str:
    """Returns the URL without user, password and parameters, so that no secret is shown on the terminal."""
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite":
        return url
    return f"{scheme}{separator}{rest.partition('?')[0].rpartition('@')[2]}"
