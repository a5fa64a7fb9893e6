"""Parser actions for the clauses of a job. They refuse a clause that occurs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from horae.core.change.update_policy import Update
from horae.core.job.ids import checked_name
from horae.core.job.options import checked_options
from horae.core.job.placement import checked_partition
from horae.core.job.policies import Bounded, Queue
from horae.core.run.lifecycle import JobState
from horae.core.time.duration import parse_duration
from horae.errors import shown
from horae.formats.sql.parser_engine import Action, Keyword
from horae.formats.sql.statements import (
    DEFAULT,
    AtMoments,
    CronMoments,
    EveryMoments,
    IsoMoments,
    JobClause,
    Moments,
    TaskBody,
    TaskClause,
    WindowValue,
)
from horae.formats.sql.tokens import SourceSpan, SqlToken

RETRY_PARTS = ("MAX_RETRIES", "RETRY_BACKOFF", "RETRY_FACTOR", "MAX_BACKOFF", "JITTER")
_PROPERTIES_SET_BY = {
    "CATCH_UP": ("RECOVERY",),
    "RETRY": ("RETRY", *RETRY_PARTS),
    "TASKS": ("BODY",),
}
"""The properties that a clause sets. A clause that is not listed sets only the property of its own name."""
_KINDS = {"CALL": "PROCEDURE", "EXEC": "EXTERNAL", "PYTHON": "PYTHON"}
_OPTIONS = {
    "ON CONNECTION": "connection",
    "WORKING DIRECTORY": "cwd",
    "USER": "user",
    "GROUP": "group",
    "STDOUT": "stdout",
    "STDERR": "stderr",
}


def refuse_duplicate_clauses(clauses: Iterable[JobClause]) -> tuple[JobClause, ...]:
    """Returns `clauses`. Raises InvalidStatement where two of them set the same property."""
    seen: dict[str, JobClause] = {}
    kept = tuple(clauses)
    for clause in kept:
        settled = clause.value.keys() if clause.kind == "DST" else _PROPERTIES_SET_BY.get(clause.kind, (clause.kind,))
        for each in settled:
            first = seen.setdefault(each, clause)
            if first is clause:
                continue
            if first.kind == clause.kind:
                reason = f"{_spoken(clause)} stands twice"
            else:
                reason = f"{_spoken(clause)} cannot stand beside {_spoken(first)}: both say the same thing"
            raise clause.at.fault(reason, hint=f"The first is at line {first.at.line}, column {first.at.column}.")
    return kept


def _spoken(clause: JobClause) -> str:
    if clause.kind == "BODY":
        return "what is to be done (AS, CALL, EXEC, PYTHON)"
    return "the state" if clause.kind == "STATE" else clause.kind


def number(text: str, mark: SourceSpan) -> int | float:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise mark.fault("a number with too many digits") from None


def json_value(text: str, mark: SourceSpan) -> Any:
    """Parses strict JSON. Refuses NaN and Infinity, because other JSON readers do. Raises InvalidStatement."""
    try:
        return json.loads(text, parse_constant=_not_json)
    except RecursionError:
        raise mark.fault("the payload has too many levels") from None
    except ValueError as error:
        raise mark.fault(f"the payload is not JSON: {error}", hint="For example '{\"user\": 42}'.") from error


def _not_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


def pairs(items: Iterable[tuple[str, Any]], mark: SourceSpan, what: str) -> dict[str, Any]:
    """Returns the pairs as a mapping. Raises InvalidStatement for a duplicate name; `what` names the clause in the
    message."""
    found: dict[str, Any] = {}
    for name, value in items:
        if name in found:
            raise mark.fault(f"{shown(name)} stands twice in {what}")
        found[name] = value
    return found


def clause(items: list[Any], mark: SourceSpan) -> JobClause:
    head, *rest = items
    if isinstance(head, JobClause):
        return head
    made = _MADE.get(head)
    return JobClause(str(head), plain(rest[0]) if made is None else made(rest, mark), at=mark)


def plain(item: Any) -> Any:
    """Converts keywords: NONE and NULL to None, DEFAULT to `DEFAULT`, others to lower case. Returns other items
    unchanged."""
    if type(item) is not Keyword:
        return item
    if item in ("NONE", "NULL"):
        return None
    return DEFAULT if item == "DEFAULT" else item.lower()


def _name(items: list[Any], mark: SourceSpan) -> str:
    return mark.at(checked_name, items[0], "name")


def _dotted(items: list[Any], mark: SourceSpan) -> str:
    return ".".join(items)


def _count(items: list[Any], mark: SourceSpan) -> int | float:
    return number(items[0].text, mark)


def _duration(items: list[Any], mark: SourceSpan) -> Any:
    texts = [item.text if isinstance(item, SqlToken) else item for item in items if type(item) is not Keyword]
    return mark.at(parse_duration, " ".join(texts))


def literal(items: list[Any], mark: SourceSpan) -> Any:
    item = items[0]
    if isinstance(item, SqlToken):
        found = number(item.text, mark)
        return -found if mark.text.startswith("-") else found
    return {"TRUE": True, "FALSE": False, "NULL": None}[item] if type(item) is Keyword else item


def _pair(items: list[Any], mark: SourceSpan) -> tuple[str, str]:
    name, *rest = items
    return name, " ".join(item.text if isinstance(item, SqlToken) else item for item in rest)


def _state(items: list[Any], mark: SourceSpan) -> JobClause:
    return JobClause("STATE", JobState(items[0]), at=mark)


def _dst(items: list[Any], mark: SourceSpan) -> Mapping[str, str]:
    return pairs((("GAP" if each in ("SKIP", "SHIFT") else "FOLD", each.lower()) for each in items), mark, "DST")


def _depends(items: list[Any], mark: SourceSpan) -> tuple[str, ...]:
    return () if type(items[0]) is Keyword else tuple(items)


def _overlap(items: list[Any], mark: SourceSpan) -> Any:
    return mark.at(Queue, items[1]) if len(items) > 1 else Queue() if items[0] == "QUEUE" else plain(items[0])


def _update(items: list[Any], mark: SourceSpan) -> Any:
    if items[0] == "DEFAULT":
        return DEFAULT
    return mark.at(Update, items[0].lower(), horizon=items[1] if len(items) > 1 else None)


def _recovery(items: list[Any], mark: SourceSpan) -> Any:
    if items[0] != "BOUNDED":
        # NONE is the name of a policy here, not the lack of one.
        return DEFAULT if items[0] == "DEFAULT" else items[0].lower()
    bounds = pairs(items[1:], mark, "BOUNDED")
    return mark.at(Bounded, bounds.get("MAX_OCCURRENCES"), bounds.get("MAX_AGE"))


def _partition(items: list[Any], mark: SourceSpan) -> Mapping[str, Any] | None:
    strategy, *rest = items
    if strategy == "NONE":
        return None
    data: dict[str, Any] = {"strategy": str(strategy)}
    if strategy == "DYNAMIC":
        data["expression"] = rest[0]
    elif rest:
        data["shards"] = rest
    return mark.at(checked_partition, data)


def _expression(items: list[Any], mark: SourceSpan) -> str:
    text = mark.text
    return items[0] if text[:1] in ("'", "$") else text[1:-1].strip() if text[:1] == "(" else text


def _shard(items: list[Any], mark: SourceSpan) -> str:
    return items[0].text if isinstance(items[0], SqlToken) else items[0]


def _payload(items: list[Any], mark: SourceSpan) -> Any:
    return None if type(items[0]) is Keyword else json_value(items[0], mark)


def _schedule(items: list[Any], mark: SourceSpan) -> tuple[Moments, ...] | None:
    return None if items[0] == "NONE" else tuple(each for each in items if type(each) is not Keyword)


def _moments(items: list[Any], mark: SourceSpan) -> Moments:
    kind, first, *rest = items
    given = pairs(((str(rest[index]), plain(rest[index + 1])) for index in range(0, len(rest), 2)), mark, str(kind))
    match str(kind):
        case "CRON":
            return CronMoments(
                first,
                given.get("DIALECT"),
                given.get("IN"),
                given.get("ON GAP"),
                given.get("ON FOLD"),
                given.get("STARTS"),
                given.get("ENDS"),
            )
        case "AT":
            return AtMoments(first, given.get("THEN"))
        case "EVERY":
            return EveryMoments(first, given.get("STARTS"), given.get("ENDS"), given.get("ANCHOR"))
        case _:
            return IsoMoments(first, given.get("IN"), given.get("ANCHOR"))


_LIMITS = ("ONLY", "AVOID", "AVOID ALL")


def _window(items: list[Any], mark: SourceSpan) -> Any:
    mode, *rest = items
    if not rest:
        return plain(mode)
    options = [each for each in rest[1:] if each[0] not in _LIMITS]
    given = pairs(options, mark, "WINDOW")
    distribution, parameters = given.get("DISTRIBUTION", (None, ()))
    only, avoid, avoid_all = (tuple(value for name, value in rest[1:] if name == side) for side in _LIMITS)
    return WindowValue(
        mode.lower(),
        rest[0],
        distribution,
        parameters,
        given.get("SEED"),
        given.get("SALT"),
        only,
        avoid,
        avoid_all,
        given.get("EXACT", False),
    )


def _window_option(items: list[Any], mark: SourceSpan) -> tuple[str, Any]:
    head, *rest = items
    if head == "DISTRIBUTION":
        return "DISTRIBUTION", (rest[0], tuple(pairs(rest[1:], mark, "DISTRIBUTION").items()))
    if head in _LIMITS:
        side = str(head)
        if rest and type(rest[0]) is Keyword:
            side, rest = "AVOID ALL", rest[1:]
        return side, tuple(pairs(rest, mark, side).items())
    if head == "EXACT":
        return "EXACT", True
    return str(head), plain(rest[0])


def _body(items: list[Any], mark: SourceSpan) -> JobClause:
    parts = [each for each in items if each != "AS" or type(each) is not Keyword]
    if type(parts[0]) is Keyword:
        kind, handler, *rest = parts
        work = _KINDS[kind]
    else:
        work, handler, *rest = "SQL", *parts
    options = pairs(rest, mark, "what is to be done")
    return JobClause("BODY", TaskBody(work, handler, mark.at(checked_options, work, options)), at=mark)


def _arguments(items: list[Any], mark: SourceSpan) -> tuple[str, list[Any]]:
    return "arguments", items


def _option(items: list[Any], mark: SourceSpan) -> tuple[str, Any]:
    head, *rest = items
    if head in _OPTIONS:
        return _OPTIONS[head], rest[0]
    match str(head):
        case "SHELL" | "NO SHELL":
            return "shell", head == "SHELL"
        case "IN DATABASE" | "NOT IN DATABASE":
            return "database", head == "IN DATABASE"
        case "ENVIRONMENT":
            return "env", pairs(rest, mark, "ENVIRONMENT")
        case "SECRETS":
            return "secrets", rest
        case _:
            try:
                return "umask", int(rest[0].text, 8)
            except ValueError:
                raise mark.fault(f"UMASK {rest[0].text} is not octal", hint="For example UMASK 027.") from None


def _secret(items: list[Any], mark: SourceSpan) -> dict[str, str]:
    found = {"name": items[0]}
    if len(items) > 1 and items[1] == "AS" and type(items[1]) is Keyword:
        found["variable"] = items[2]
    if items[-1] == "IN FILE" and type(items[-1]) is Keyword:
        found["as"] = "file"
    return found


def _task(items: list[Any], mark: SourceSpan) -> TaskClause:
    name, body, *settings = items
    return TaskClause(name, body.value, refuse_duplicate_clauses(settings), at=mark)


def _tasks(items: list[Any], mark: SourceSpan) -> tuple[TaskClause, ...]:
    return tuple(items)


def _class(items: list[Any], mark: SourceSpan) -> str | None:
    return None if items[0] == "NONE" else str(items[0])


_MADE: dict[str, Callable[[list[Any], SourceSpan], Any]] = {
    "SCHEDULE": _schedule,
    "DST": _dst,
    "DEPENDS ON": _depends,
    "WINDOW": _window,
    "OVERLAP": _overlap,
    "RECOVERY": _recovery,
    "UPDATE_POLICY": _update,
    "CATCH_UP": _recovery,
    "CLASS": _class,
    "PARTITION BY": _partition,
    "PAYLOAD": _payload,
    "TAGS": _tasks,
    "TASKS": _tasks,
}
ACTIONS: dict[str, Action] = {
    "job_clause": clause,
    "setting": clause,
    "state": _state,
    "body": _body,
    "arguments": _arguments,
    "option": _option,
    "secret": _secret,
    "variable": _pair,
    "task": _task,
    "shard": _shard,
    "expression": _expression,
    "moments": _moments,
    "window_option": _window_option,
    "parameter": _pair,
    "limit": _pair,
    "bound": lambda items, mark: (str(items[0]), items[1]),
    "name": _name,
    "dotted": _dotted,
    "count": _count,
    "duration": _duration,
    "literal": literal,
}
