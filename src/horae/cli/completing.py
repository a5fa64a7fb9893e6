"""What Tab offers: the words that may follow by the grammar, and the names that the catalog has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from horae.cli.opening import Catalog, LocalCatalog
from horae.control.queries import VIEW
from horae.control.tables import TABLES, readable
from horae.ddl import completions
from horae.ddl.printer import name_text
from horae.ddl.text import RAW_WORDS, tokens
from horae.errors import HoraeError

try:
    import readline
except ImportError:  # a Python without it: nothing is completed
    readline = None  # type: ignore[assignment]  # None stands for a Python without it

_DELIMITERS = " \t\n,();="
_WORDS_OF_SELECT = (
    *("FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "AS", "AND", "OR", "NOT"),
    *("IN", "IS NULL", "IS NOT NULL", "LIKE", "BETWEEN", "DISTINCT", "DESC", "ASC", "UNION ALL", "CASE", "WHEN"),
    *("THEN", "ELSE", "END", "count(*)", "max(", "min(", "avg(", "sum("),
)
_TABLES_FOLLOW = ("FROM", "JOIN", "TABLE", ",")
_MOST_JOBS = 10_000
"""More than that nobody completes; asking for them would keep whoever presses Tab waiting."""
_COMMANDS = ("\\?", "\\j", "\\r", "\\d", "\\x", "\\timing", "\\q")


@dataclass(frozen=True, slots=True)
class Names:
    """What the catalog has. Tables and their columns are without `sys.`."""

    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def table_names(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The catalog's tables that may be read, each with its columns. Whose database it is is found out by asking."""
    for number, dialect in enumerate(_dialects(catalog), start=1):
        try:
            rows = catalog.call("sql", text=TABLES[dialect]).results[-1].rows or []
        except HoraeError:
            if number == len(_dialects(catalog)):
                raise
            continue
        return readable(rows)
    return {}


def _dialects(catalog: Catalog) -> tuple[str, ...]:
    return (catalog.dialect,) if isinstance(catalog, LocalCatalog) else tuple(TABLES)


def all_names(catalog: Catalog) -> Names:
    """What whoever asks may see. Nothing is asked that would be refused: a refusal is written down."""
    me = catalog.call("me")
    jobs: tuple[str, ...] = ()
    while len(jobs) < _MOST_JOBS:
        page = catalog.call("list_jobs", offset=len(jobs), limit=1000)
        jobs += tuple(job.name for job in page.jobs)
        if page.next_offset is None:
            break
    tables = table_names(catalog) if me.is_admin or VIEW in me.grants else {}
    if not me.is_admin:
        return Names(jobs, tables=tables)
    users = tuple(user.name for user in catalog.call("users").users)
    roles = tuple(role.name for role in catalog.call("roles").roles)
    secrets = tuple(dict.fromkeys(each.name for each in catalog.call("secrets").secrets))
    return Names(jobs, users, roles, secrets, tables)


def offered(before: str, word: str, names: Callable[[], Names]) -> list[str]:
    """What may stand after `before` and begins with `word`; words as the user writes them, in small letters or not."""
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


def _offered_to_select(keys: list[str], word: str, names: Callable[[], Names]) -> list[str]:
    tables = names().tables
    if keys[-1] in _TABLES_FOLLOW[:2] or word.lower().startswith("sys."):
        return _beginning(word, (f"sys.{each}" for each in tables))
    mentioned = [each for each in tables if each.upper() in keys]
    columns = dict.fromkeys(column for each in mentioned or tables for column in tables[each])
    words = [each.lower() if word.islower() else each for each in _WORDS_OF_SELECT]
    return _beginning(word, [*columns, *words, *(f"sys.{each}" for each in tables)])


def _fitting(keys: list[str], names: Names) -> Iterable[str]:
    """The names of the kind that is asked for, told by the last word before them that says so."""
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
    """The words and signs of the statement that `before` ends in, in capitals."""
    keys: list[str] = []
    for token in tokens(before):
        if token.key == ";":
            keys = []
        elif token.kind not in ("end", "unended"):
            keys.append(token.key if token.kind != "quoted" else token.text)
    return keys


def _beginning(word: str, choices: Iterable[str]) -> list[str]:
    return [each for each in choices if each.lower().startswith(word.lower())]


class Completer:
    """Tab in a shell. Names are read when they are first wanted, and again after each statement."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._names: Names | None = None
        self._found: list[str] = []
        self._pending: Callable[[], str] = str

    def install(self, pending: Callable[[], str]) -> None:
        """`pending` are the lines of the statement that is being typed, without the present one."""
        if readline is None:
            return
        self._pending = pending
        readline.set_completer(self._complete)
        readline.set_completer_delims(_DELIMITERS)
        # Another library stands in for it on some systems, and has a language of its own.
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

    def _known(self) -> Names:
        if self._names is None:
            if self._catalog.is_missing():
                return Names()
            self._names = all_names(self._catalog)
        return self._names
