"""Completion in the shell: the words that the grammar allows next, and names in the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from horae.cli.catalog_access import CatalogAccess, LocalCatalog
from horae.errors import HoraeError
from horae.formats.sql import completions
from horae.formats.sql.printer import name_text
from horae.formats.sql.tokens import RAW_WORDS, tokens
from horae.services.queries import VIEW
from horae.services.tables import TABLES, readable

try:
    import readline
except ImportError:  # a Python without readline has no completion
    readline = None  # type: ignore[assignment]  # None stands for a Python without it

_DELIMITERS = " \t\n,();="
_WORDS_OF_SELECT = (
    *("FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "AS", "AND", "OR", "NOT"),
    *("IN", "IS NULL", "IS NOT NULL", "LIKE", "BETWEEN", "DISTINCT", "DESC", "ASC", "UNION ALL", "CASE", "WHEN"),
    *("THEN", "ELSE", "END", "count(*)", "max(", "min(", "avg(", "sum("),
)
_TABLES_FOLLOW = ("FROM", "JOIN", "TABLE", ",")
_MOST_JOBS = 10_000
"""How many jobs are read at most, so that the user does not wait long at Tab."""
_COMMANDS = ("\\?", "\\j", "\\r", "\\d", "\\x", "\\timing", "\\q")


@dataclass(frozen=True, slots=True)
class CatalogNames:
    """The names in the catalog that the user may see. Tables have no `sys.` prefix; each comes with its columns."""

    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def table_names(catalog: CatalogAccess) -> dict[str, tuple[str, ...]]:
    """Returns the catalog's readable tables, each with its columns. A server does not say which database it has, so
    the statements of each dialect are tried in turn."""
    for number, dialect in enumerate(_dialects(catalog), start=1):
        try:
            rows = catalog.call("sql", text=TABLES[dialect]).results[-1].rows or []
        except HoraeError:
            if number == len(_dialects(catalog)):
                raise
            continue
        return readable(rows)
    return {}


def _dialects(catalog: CatalogAccess) -> tuple[str, ...]:
    return (catalog.dialect,) if isinstance(catalog, LocalCatalog) else tuple(TABLES)


def all_names(catalog: CatalogAccess) -> CatalogNames:
    """Returns the names that the user may see. It calls nothing that would be refused, since refusals go to the audit
    trail."""
    me = catalog.call("me")
    jobs: tuple[str, ...] = ()
    while len(jobs) < _MOST_JOBS:
        page = catalog.call("list_jobs", offset=len(jobs), limit=1000)
        jobs += tuple(job.name for job in page.jobs)
        if page.next_offset is None:
            break
    tables = table_names(catalog) if me.is_admin or VIEW in me.grants else {}
    if not me.is_admin:
        return CatalogNames(jobs, tables=tables)
    users = tuple(user.name for user in catalog.call("users").users)
    roles = tuple(role.name for role in catalog.call("roles").roles)
    secrets = tuple(dict.fromkeys(each.name for each in catalog.call("secrets").secrets))
    return CatalogNames(jobs, users, roles, secrets, tables)


def offered(before: str, word: str, names: Callable[[], CatalogNames]) -> list[str]:
    """Returns the words and names that may follow `before` and begin with `word`. Keywords are in lower case if `word`
    is."""
    if not before.strip() and word.startswith("\\"):
        return [each for each in _COMMANDS if each.startswith(word)]
    if before.lstrip().startswith("\\"):
        shell = before.split()[0]
        choices: Iterable[str] = names().jobs if shell == "\\r" else names().tables if shell == "\\d" else ()
        return _beginning(word, choices)
    keys = _keys_of_the_last(before)
    if keys and keys[0] in RAW_WORDS:
        return _offered_to_select(keys, word, names)
    following = completions(before)
    is_small = word.islower()
    words = [each.lower() if is_small else each for each in following if each.isupper() or each.isdigit()]
    found = [each for each in words if each.lower().startswith(word.lower())]
    if any(each in following for each in ("a name", "the id of a run")):
        found += _beginning(word, (name_text(each) for each in _fitting(keys, names())))
    return found


def _offered_to_select(keys: list[str], word: str, names: Callable[[], CatalogNames]) -> list[str]:
    tables = names().tables
    if keys[-1] in _TABLES_FOLLOW[:2] or word.lower().startswith("sys."):
        return _beginning(word, (f"sys.{each}" for each in tables))
    mentioned = [each for each in tables if each.upper() in keys]
    columns = dict.fromkeys(column for each in mentioned or tables for column in tables[each])
    words = [each.lower() if word.islower() else each for each in _WORDS_OF_SELECT]
    return _beginning(word, [*columns, *words, *(f"sys.{each}" for each in tables)])


def _fitting(keys: list[str], names: CatalogNames) -> Iterable[str]:
    """Returns the names of the kind that the last keyword in `keys` calls for, such as users after USER."""
    for key in reversed(keys):
        match key:
            case "USER":
                return names.users
            case "ROLE":
                return names.roles
            case "SECRET" | "SECRETS":
                return names.secrets
            case "TABLE":
                return [f"sys.{each}" for each in names.tables]
            case "TO" | "FROM" | "OWNER":
                return (*names.users, *names.roles)
            case "AS" if keys[-2:-1] == ["RUN"]:
                return names.roles
            case "GRANT" | "REVOKE":
                return names.roles
            case "JOB" | "ON" | "FOR" | "RUNS":
                return names.jobs
    return ()


def _keys_of_the_last(before: str) -> list[str]:
    """Returns the words and signs of the last statement in `before`, in capitals."""
    keys: list[str] = []
    for token in tokens(before):
        if token.key == ";":
            keys = []
        elif token.kind not in ("end", "unended"):
            keys.append(token.key if token.kind != "quoted" else token.text)
    return keys


def _beginning(word: str, choices: Iterable[str]) -> list[str]:
    return [each for each in choices if each.lower().startswith(word.lower())]


class ShellCompleter:
    """The completer of the shell. It reads names at the first Tab after each statement."""

    def __init__(self, catalog: CatalogAccess) -> None:
        self._catalog = catalog
        self._names: CatalogNames | None = None
        self._found: list[str] = []
        self._pending: Callable[[], str] = str

    def install(self, pending: Callable[[], str]) -> None:
        """Makes readline use this completer. `pending` returns the statement's earlier lines."""
        if readline is None:
            return
        self._pending = pending
        readline.set_completer(self._complete)
        readline.set_completer_delims(_DELIMITERS)
        # On some systems libedit stands in for readline. Its configuration has another syntax.
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def forget(self) -> None:
        self._names = None

    def _complete(self, word: str, index: int) -> str | None:
        if index == 0:
            before = self._pending() + readline.get_line_buffer()[: readline.get_begidx()]
            # Inside a string or a comment there is nothing to complete.
            is_inside = any(token.kind == "unended" for token in tokens(before))
            self._found = [] if is_inside else offered(before, word, self._known)
            if len(self._found) == 1 and not self._found[0].endswith("("):
                self._found[0] += " "
        return self._found[index] if index < len(self._found) else None

    def _known(self) -> CatalogNames:
        if self._names is None:
            if self._catalog.is_missing():
                return CatalogNames()
            self._names = all_names(self._catalog)
        return self._names
