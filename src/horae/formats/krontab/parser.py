"""Parses krontab: one job a line, with a cron expression, modifiers and a command.

    <cron> [@tz(..)] [@win(mode,dur)] [@dist(name,k=v)] [@seed(strategy,salt=..)] [@policy(k=v)]
    [@only(..)]… [@avoid(..)]…
    name=.. command=.. [user= group= cwd= env=K=V shell=true umask= timeout= stdout= stderr= description=]

Modifiers and fields may come in any order after the cron expression. `#` begins a comment. A value with spaces is
written in double quotes, where a backslash escapes a quote or a backslash. `env` may be given more than once. Every
error names its file, line and column. Printing a parsed line and parsing it again gives the same job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ParamSpec, TypeVar

from horae.core.job.ids import checked_name
from horae.core.schedule.schedules import Cron
from horae.core.shape import known_words
from horae.core.time.duration import parse_duration
from horae.core.window.constraint import ConstraintClause, Constraints, parse_clause
from horae.core.window.decision import MODES, SEED_STRATEGIES
from horae.core.window.distribution import UNIFORM, Distribution
from horae.core.window.window import Window
from horae.errors import HoraeError, InvalidCron, InvalidKrontab, JobNotFound, shown
from horae.formats.krontab.printer import format_line
from horae.formats.krontab.tokens import KrontabPiece, pieces

MODIFIERS = ("tz", "win", "dist", "seed", "policy", "only", "avoid")
TEXT_FIELDS = ("user", "group", "cwd", "stdout", "stderr", "description")
FIELDS = ("name", "command", "env", "shell", "umask", "timeout", *TEXT_FIELDS)
POLICIES = ("concurrency", "deadline", "suspend")
CONCURRENCY = {"forbid": "skip", "allow": "allow", "replace": "replace"}
MOST_FAULTS = 1000
_ZERO = timedelta(0)
_FREE = Constraints()
_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class KrontabJob:
    """One parsed line. Two are equal when they define the same job, wherever they were written."""

    name: str
    command: str
    schedule: Cron
    window: Window
    concurrency: str = "forbid"
    deadline: timedelta = _ZERO
    suspend: bool = False
    user: str | None = None
    group: str | None = None
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    shell: bool = False
    umask: int | None = None
    timeout: timedelta | None = None
    stdout: str | None = None
    stderr: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        return format_line(self)


@dataclass(frozen=True, slots=True)
class KrontabLine:
    """A job and the number of its line, counted from 1."""

    line: int
    job: KrontabJob


def parse_line(text: str, *, file: str = "<krontab>", line: int = 1) -> KrontabJob | None:
    """The job on one line, or None for a blank line or a comment. Raises InvalidKrontab."""
    found = pieces(text, file, line)
    return _Reader(found, file, line, len(text)).job() if found else None


def parse_file(text: str, *, file: str = "<krontab>") -> tuple[tuple[KrontabLine, ...], tuple[InvalidKrontab, ...]]:
    """Every job and every error in `text`. A name that is defined twice is an error of its second line. Reading stops
    after MOST_FAULTS errors."""
    jobs: list[KrontabLine] = []
    faults: list[InvalidKrontab] = []
    lines: dict[str, int] = {}
    for number, content in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        try:
            job = parse_line(content, file=file, line=number)
            if job is None:
                continue
            if job.name in lines:
                reason = f"job {shown(job.name)} is already defined on line {lines[job.name]}"
                raise InvalidKrontab(reason, file=file, line=number, column=1)
        except InvalidKrontab as fault:
            faults.append(fault)
            if len(faults) == MOST_FAULTS:
                reason = f"{MOST_FAULTS} faults so far: the rest of the file is not read"
                faults.append(InvalidKrontab(reason, file=file, line=number, column=1))
                break
            continue
        lines[job.name] = number
        jobs.append(KrontabLine(number, job))
    return tuple(jobs), tuple(faults)


def read_jobs(text: str, *, file: str) -> tuple[KrontabLine, ...]:
    """Every job of a file. Raises its first error, InvalidKrontab."""
    jobs, faults = parse_file(text, file=file)
    if faults:
        first = faults[0]
        hint = " ".join(filter(None, (first.hint, f"All faults: horae lint {file}" if len(faults) > 1 else None)))
        raise InvalidKrontab(first.reason, file=file, line=first.line, column=first.column, hint=hint or None)
    return jobs


def find_job(text: str, name: str, *, file: str) -> KrontabJob:
    """The job called `name`. Raises JobNotFound, and first InvalidKrontab for an error anywhere in the file."""
    jobs = read_jobs(text, file=file)
    for each in jobs:
        if each.job.name == name:
            return each.job
    known = ", ".join(each.job.name for each in jobs) or "none"
    raise JobNotFound(f"No job {shown(name)} in {file}", hint=f"Jobs there: {known}.", details={"name": name})


class _Reader:
    """Reads the pieces of one line, with their columns for errors."""

    def __init__(self, found: list[KrontabPiece], file: str, line: int, length: int) -> None:
        self.pieces = found
        self.file = file
        self.line = line
        self.end = length + 1

    def fault(self, reason: str, column: int, hint: str | None = None) -> InvalidKrontab:
        return InvalidKrontab(reason, file=self.file, line=self.line, column=column, hint=hint)

    def at(self, column: int, read: Callable[_Given, _Read], *given: _Given.args, **named: _Given.kwargs) -> _Read:
        """Calls `read`, and raises its errors with this line and `column`."""
        try:
            return read(*given, **named)
        except InvalidKrontab:
            raise
        except HoraeError as error:
            raise self.fault(error.message, column, error.hint) from error

    def job(self) -> KrontabJob:
        expression, rest = self._expression()
        modifiers: dict[str, KrontabPiece] = {}
        only: list[tuple[ConstraintClause, ...]] = []
        avoid: list[ConstraintClause] = []
        fields: dict[str, KrontabPiece] = {}
        env: dict[str, str] = {}
        for piece in rest:
            if not piece.raw.startswith("@"):
                self._field(piece, fields, env)
                continue
            name = self._modifier(piece, modifiers)
            if name == "only":
                only.append(self._clauses(piece, name))
            elif name == "avoid":
                avoid += self._clauses(piece, name)
        for name in ("name", "command"):
            if name not in fields:
                raise self.fault(f"{name}= is missing", self.end)
        (zone,) = self._arguments(modifiers["tz"], "zone") if "tz" in modifiers else ("UTC",)
        column = self.pieces[0].column
        concurrency, deadline, suspend = self._policy(modifiers.get("policy"))
        timeout = fields.get("timeout")
        return KrontabJob(
            name=self.at(fields["name"].column, checked_name, fields["name"].value),
            command=self._filled(fields["command"]),
            schedule=self.at(modifiers["tz"].column if "tz" in modifiers else column, self._cron, expression, zone),
            window=self._window(modifiers, only, avoid),
            concurrency=concurrency,
            deadline=deadline,
            suspend=suspend,
            env=tuple(env.items()),
            shell=self._flag(fields["shell"]) if "shell" in fields else False,
            umask=self._umask(fields["umask"]) if "umask" in fields else None,
            timeout=self.at(timeout.column, parse_duration, timeout.value, name="timeout") if timeout else None,
            **{name: self._filled(fields[name]) if name in fields else None for name in TEXT_FIELDS},
        )

    def _cron(self, expression: str, zone: str) -> Cron:
        try:
            return Cron(expression, tz=zone, fold="both")
        except InvalidCron as error:
            raise self.fault(error.message, self.pieces[0].column, error.hint) from error

    def _expression(self) -> tuple[str, list[KrontabPiece]]:
        first = self.pieces[0]
        count = 1 if first.text.startswith("@") and "(" not in first.text else 5
        if len(self.pieces) < count:
            raise self.fault(f"a cron expression has 5 fields, found {len(self.pieces)}", first.column)
        for piece in self.pieces[1:count]:
            if piece.text.startswith("@") or "=" in piece.text:
                reason = f"a cron expression has 5 fields, but {piece.shown} follows early"
                raise self.fault(reason, piece.column)
        return " ".join(piece.text for piece in self.pieces[:count]), self.pieces[count:]

    def _modifier(self, piece: KrontabPiece, modifiers: dict[str, KrontabPiece]) -> str:
        name, opened, rest = piece.text[1:].partition("(")
        if name not in MODIFIERS:
            hint = known_words(f"@{name}", [f"@{known}" for known in MODIFIERS], "modifiers")
            raise self.fault(f"unknown modifier {shown('@' + name)}", piece.column, hint)
        if not opened or not rest.endswith(")"):
            raise self.fault(f"@{name} needs its arguments in parentheses: @{name}(…)", piece.column)
        if name in modifiers and name not in ("only", "avoid"):
            raise self.fault(f"@{name} stands twice", piece.column)
        modifiers[name] = piece
        return name

    def _field(self, piece: KrontabPiece, fields: dict[str, KrontabPiece], env: dict[str, str]) -> None:
        name, equals, _ = piece.text.partition("=")
        if not equals or name not in FIELDS:
            if equals:
                raise self.fault(f"unknown field {shown(name)}", piece.column, known_words(name, FIELDS, "fields"))
            hint = 'What to run is written command=…, and in double quotes where it has blanks: command="/bin/x --all".'
            raise self.fault(f"{piece.shown} is neither a modifier nor a field", piece.column, hint)
        if name == "env":
            key, middle, value = piece.value.partition("=")
            if not middle or not key.isidentifier() or not key.isascii():
                raise self.fault(f"env needs NAME=value, found {shown(piece.value)}", piece.column)
            if key in env:
                raise self.fault(f"env {key} stands twice", piece.column)
            env[key] = value
        elif name in fields:
            raise self.fault(f"{name}= stands twice", piece.column)
        else:
            fields[name] = piece

    def _arguments(self, piece: KrontabPiece, *names: str) -> list[str]:
        found = [text for text, _ in piece.arguments(",")]
        if len(found) != len(names) or not all(found):
            count = f"{len(names)} argument{'s' if len(names) > 1 else ''}"
            raise self.fault(f"{piece.head} takes {count}: {piece.head}({','.join(names)})", piece.column)
        return found

    def _window(
        self,
        modifiers: dict[str, KrontabPiece],
        only: list[tuple[ConstraintClause, ...]],
        avoid: list[ConstraintClause],
    ) -> Window:
        mode, length, exact = self._placement(modifiers["win"]) if "win" in modifiers else ("after", _ZERO, False)
        column = modifiers["win"].column if "win" in modifiers else 1
        if mode not in MODES:
            raise self.fault(f"unknown window mode {shown(mode)}", column, f"Choose one of: {', '.join(MODES)}.")
        distribution, seed, salt = UNIFORM, "stable", ""
        if "dist" in modifiers:
            distribution = Distribution(*self._named(modifiers["dist"]))
        if "seed" in modifiers:
            seed, options = self._named(modifiers["seed"])
            salt = options.pop("salt", "")
            if options or seed not in SEED_STRATEGIES:
                wrong = f"seed parameter {shown(next(iter(options)))}" if options else f"seed strategy {shown(seed)}"
                hint = f"Write @seed(strategy,salt=…), the strategy one of: {', '.join(SEED_STRATEGIES)}."
                raise self.fault(f"unknown {wrong}", modifiers["seed"].column, hint)
        constraints = _FREE
        if only or avoid:
            constraints = Constraints(
                [{clause.kind: clause.text for clause in clauses} for clauses in only] or None,
                [{clause.kind: clause.text} for clause in avoid] or None,
            )
        duration = self.at(column, parse_duration, length, name="window")
        spoken = modifiers["dist"].column if "dist" in modifiers else column
        return self.at(spoken, Window, mode, duration, distribution, seed, salt, constraints, exact)  # type: ignore[arg-type]  # mode and seed were checked above

    def _placement(self, piece: KrontabPiece) -> tuple[str, str, bool]:
        """Mode and duration of @win, and whether `exact` follows them."""
        found = [text for text, _ in piece.arguments(",")]
        if len(found) == 3 and all(found[:2]) and found[2] == "exact":
            return found[0], found[1], True
        mode, length = self._arguments(piece, "mode", "duration")
        return mode, length, False

    def _named(self, piece: KrontabPiece) -> tuple[str, dict[str, str]]:
        """A name and the `key=value` pairs after it."""
        (name, column), *rest = piece.arguments(",")
        if not name or "=" in name:
            raise self.fault(f"{piece.head} begins with a name", column)
        return name, self._pairs(piece, rest)

    def _pairs(self, piece: KrontabPiece, arguments: list[tuple[str, int]]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for text, column in arguments:
            key, equals, value = text.partition("=")
            if not equals or not key:
                raise self.fault(f"{piece.head} takes key=value, found {shown(text)}", column)
            if key in pairs:
                raise self.fault(f"{key} stands twice in {piece.head}", column)
            pairs[key] = value
        return pairs

    def _policy(self, piece: KrontabPiece | None) -> tuple[str, timedelta, bool]:
        if piece is None:
            return "forbid", _ZERO, False
        pairs, column = self._pairs(piece, piece.arguments(",")), piece.column
        for key in pairs:
            if key not in POLICIES:
                hint = known_words(key, POLICIES, "keys")
                raise self.fault(f"unknown policy {shown(key)}", column, hint)
        concurrency = pairs.get("concurrency", "forbid")
        if concurrency not in CONCURRENCY:
            hint = f"Choose one of: {', '.join(CONCURRENCY)}."
            raise self.fault(f"unknown concurrency {shown(concurrency)}", column, hint)
        deadline = self.at(column, parse_duration, pairs.get("deadline", _ZERO), name="deadline")
        suspend = pairs.get("suspend", "false")
        if suspend not in ("true", "false"):
            raise self.fault(f"suspend is true or false, found {shown(suspend)}", column)
        return concurrency, deadline, suspend == "true"

    def _clauses(self, piece: KrontabPiece, side: str) -> tuple[ConstraintClause, ...]:
        clauses: dict[str, ConstraintClause] = {}
        for text, column in piece.arguments(";"):
            kind, equals, value = text.partition("=")
            if not equals or not value:
                raise self.fault(f"{piece.head} takes clauses such as hours=8-18, found {shown(text)}", column)
            clause = self.at(column, parse_clause, kind.strip(), value, side)
            if clause.kind in clauses:
                raise self.fault(f"{clause.kind} stands twice in {piece.head}", column)
            clauses[clause.kind] = clause
        return tuple(clauses[kind] for kind in sorted(clauses))

    def _filled(self, piece: KrontabPiece) -> str:
        if not piece.value:
            raise self.fault(f"{piece.text.partition('=')[0]}= is empty", piece.column)
        return piece.value

    def _flag(self, piece: KrontabPiece) -> bool:
        if piece.value not in ("true", "false"):
            raise self.fault(f"shell is true or false, found {shown(piece.value)}", piece.column)
        return piece.value == "true"

    def _umask(self, piece: KrontabPiece) -> int:
        if not 1 <= len(piece.value) <= 4 or any(digit not in "01234567" for digit in piece.value):
            raise self.fault(f"umask is octal such as 027, found {shown(piece.value)}", piece.column)
        return int(piece.value, 8)
