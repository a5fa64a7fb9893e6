"""Text of the differences between two definitions, part by part, so that nothing that differs looks the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Protocol

from horae.core.job.policies import NO_RETRY
from horae.core.schedule.schedules import schedule_from_dict
from horae.errors import HoraeError
from horae.services.plan.terminal_words import harmless

LONGEST = 60
"""Characters of the longest value that is printed on one line."""
MOST_LINES = 12
"""Lines of a long text that are printed of one change."""
_WIDEST = 160
_AROUND = 20
"""Characters that are printed before the first difference."""
_MOST_PARTS = 20
"""Parts of one value that are listed by themselves. Where more differ, the value is printed as a whole."""
_MOST_COMPARED = 2_000
"""Lines up to which two texts are compared line by line."""
SIGNS = {"-": "red", "+": "green"}
"""Colours of lines that differ, by their first character."""
_TASKS = "tasks"
_NO_RETRY = NO_RETRY.to_dict()
_TOLD_BY_TEXT = {"cron": {"expr", "tz"}, "every": {"interval", "start"}, "iso8601": {"text", "tz"}, "once": {"at"}}
"""Fields that the text of a schedule shows, by its kind."""
_USUAL: Mapping[str, Any] = {
    "schedule.dialect": "extended",
    "schedule.gap": "skip",
    "schedule.fold": "auto",
    "window.distribution": "uniform",
    "window.seed": "stable",
    "retry.factor": 1,
    "retry.jitter": 0,
}
"""Values of parts that a definition leaves out."""


class ChangeLike(Protocol):
    """A change, of core or of a server's answer."""

    @property
    def path(self) -> str: ...

    @property
    def before(self) -> Any: ...

    @property
    def after(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class PartDifference:
    """One part that differs, with both values and both texts; None: a side does not have it. `note` replaces texts that
    would not show the difference."""

    path: str
    before: Any
    after: Any
    said_before: str | None = None
    said_after: str | None = None
    note: str | None = None

    @property
    def is_long(self) -> bool:
        """Whether it takes more than one line."""
        return self.note is None and any(len(each) > LONGEST or "\n" in each for each in self._said)

    @property
    def text(self) -> str:
        """The whole difference."""
        before, after = self._said
        return f"{self.path}: {f'{before} -> {after}' if self.note is None else self.note}"

    @property
    def short(self) -> str:
        """The difference on one line. Of long values it has the text around the first difference."""
        if not self.is_long:
            return self.text
        before, after = _excerpts(*self._said)
        return f"{self.path}: {before} -> {after}"

    def lines(self) -> list[str]:
        """Returns long values line by line: `- ` before, `+ ` after, with one unchanged line beside them."""
        before, after = self.said_before, self.said_after
        if before is None or after is None:
            sign, text = ("+", after) if before is None else ("-", before)
            return _few([f"{sign} {line[:_WIDEST]}" for line in (text or "").splitlines()])
        was, will = before.splitlines(), after.splitlines()
        lines: list[str] = []
        if len(was) + len(will) <= _MOST_COMPARED and max(map(len, (*was, *will)), default=0) <= _WIDEST:
            lines = [
                "…" if line.startswith("@@") else f"{line[0]} {line[1:]}"
                for line in list(unified_diff(was, will, n=1, lineterm=""))[2:]
            ]
        if not lines:
            return [f"{sign} {text}" for sign, text in zip("-+", _excerpts(before, after), strict=True)]
        return _few(lines[1:])

    @property
    def _said(self) -> tuple[str, str]:
        before, after = self.said_before, self.said_after
        return "none" if before is None else before, "none" if after is None else after


def describe_changes(changes: Iterable[ChangeLike]) -> tuple[PartDifference, ...]:
    """Splits changes for the reader: values into their parts; a task that comes or goes is one part."""
    by_path = {each.path: (each.before, each.after) for each in changes}
    found = _of_tasks(by_path)
    for path, (before, after) in by_path.items():
        found += _parts(path, before, after)
    return tuple(sorted(found, key=lambda each: each.path))


def _of_tasks(by_path: dict[str, tuple[Any, Any]]) -> list[PartDifference]:
    """Returns the tasks that are new, gone, renamed, or in another order. Removes their changes from `by_path`."""
    if _TASKS not in by_path:
        return []
    was, will = (list(each or ()) for each in by_path.pop(_TASKS))
    gone, new = [name for name in was if name not in will], [name for name in will if name not in was]
    before = {name: _taken(by_path, name, 0) for name in gone}
    after = {name: _taken(by_path, name, 1) for name in new}
    found = []
    if len(gone) == len(new) == 1 and before[gone[0]] == after[new[0]]:
        was_called, called = gone[0], new[0]
        path, note = f"{_TASKS}.{called}", f"renamed, was {was_called}"
        found.append(PartDifference(path, before[was_called], after[called], was_called, called, note))
    else:
        for name, said in before.items():
            found.append(PartDifference(f"{_TASKS}.{name}", said, None, _task(said), note="gone"))
        for name, said in after.items():
            found.append(PartDifference(f"{_TASKS}.{name}", None, said, None, _task(said), f"new, {_task(said)}"))
    stay, stayed = [name for name in was if name in will], [name for name in will if name in was]
    if stay != stayed:
        found.append(PartDifference(_TASKS, was, will, ", ".join(stay), ", ".join(stayed)))
    return found


def _taken(by_path: dict[str, tuple[Any, Any]], name: str, side: int) -> dict[str, Any]:
    """Removes and returns the fields of a task that one side does not have."""
    begin = f"{_TASKS}.{name}."
    own = [path for path in by_path if path.startswith(begin) and by_path[path][1 - side] is None]
    keys = {path: path.removeprefix(begin) for path in own}
    mine = {path: key for path, key in keys.items() if "." not in key or key.startswith("settings.")}
    return {key: by_path.pop(path)[side] for path, key in mine.items()}


def _task(said: Mapping[str, Any]) -> str:
    kind, handler = str(said.get("kind", "")), said.get("handler")
    is_shown = kind == "PYTHON" and isinstance(handler, str) and 0 < len(handler) <= LONGEST
    return f"{kind} {handler}" if is_shown else kind


def _parts(path: str, before: Any, after: Any) -> list[PartDifference]:
    if path == "schedule":
        return _of_schedules(before, after)
    found = list(_apart(path, before, after))
    return found if len(found) <= _MOST_PARTS else [_whole(path, before, after)]


def _apart(path: str, before: Any, after: Any) -> Iterator[PartDifference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping) and _NO_RETRY not in (before, after):
        for key in sorted({*before, *after}, key=str):
            usual = _USUAL.get(f"{path.rpartition('.')[2]}.{key}")
            was, will = before.get(key, usual), after.get(key, usual)
            inner = f"{path}.{key}"
            if was != will:
                # The parameters of a distribution are listed under the distribution itself.
                is_taken = key == "params" and path.endswith(".distribution")
                yield from _apart(path if is_taken else inner, was, will)
            elif was is None and (key in before) != (key in after):
                yield PartDifference(inner, None, None, *("null" if key in each else None for each in (before, after)))
        return
    if _is_listing(before) and _is_listing(after) and len(before) == len(after):
        differ = [place for place in range(len(before)) if before[place] != after[place]]
        if all(isinstance(each[place], Mapping) for place in differ for each in (before, after)):
            for place in differ:
                yield from _apart(f"{path}[{place}]", before[place], after[place])
            return
    yield _whole(path, before, after)


def _is_listing(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _of_schedules(before: Any, after: Any) -> list[PartDifference]:
    said = [_schedule_text(each) for each in (before, after)]
    whole = PartDifference("schedule", before, after, *said)
    if before is None or after is None or before.get("kind") != after.get("kind"):
        return [whole]
    shown = _TOLD_BY_TEXT.get(str(before.get("kind")), set()) if said[0] != said[1] else set()
    was, will = ({key: value for key, value in each.items() if key not in shown} for each in (before, after))
    more = [] if said[0] != said[1] and not shown else list(_apart("schedule", was, will))
    return [whole, *more] if said[0] != said[1] else more


def _schedule_text(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return str(schedule_from_dict(value))
    except HoraeError:
        return "a schedule that cannot be read here"


def _whole(path: str, before: Any, after: Any) -> PartDifference:
    # Keys are sorted, so that both sides have the same order. Where only one side has keys, they stay as written.
    ordered = not (isinstance(before, str | None) or isinstance(after, str | None))
    said = [_value(path, each, ordered=ordered) for each in (before, after)]
    if harmless(said[0] or "none") == harmless(said[1] or "none"):
        # The texts look the same: a number and its text, or invisible characters.
        said = [json.dumps(each, sort_keys=True, default=str) for each in (before, after)]
    return PartDifference(path, before, after, *said)


def _value(path: str, value: Any, *, ordered: bool) -> str | None:
    name = path.rpartition(".")[2]
    if value is None:
        return "local" if path == "owner" else None
    if value == _NO_RETRY and name == "retry":
        return "none"
    if isinstance(value, str) and value:
        return value
    if name == "update_policy" and isinstance(value, Mapping) and len(value) == 1:
        return "=".join(*value.items())
    text = _json(value, ordered=ordered)
    return text if len(text) <= LONGEST or isinstance(value, str) else _json(value, ordered=ordered, indent=2)


def _json(value: Any, *, ordered: bool, indent: int | None = None) -> str:
    try:
        return json.dumps(value, indent=indent, sort_keys=ordered, ensure_ascii=False, default=str)
    except TypeError:
        # Keys of several types cannot be sorted.
        return json.dumps(value, indent=indent, ensure_ascii=False, default=str, skipkeys=True)


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Returns both texts on one line each, from shortly before the first difference."""
    pairs = enumerate(zip(before, after, strict=False))
    first = next((place for place, (one, other) in pairs if one != other), min(len(before), len(after)))
    begin = max(0, first - _AROUND)
    return _excerpt(before, begin), _excerpt(after, begin)


def _excerpt(text: str, begin: int) -> str:
    cut = text[begin : begin + LONGEST].replace("\n", "\\n").replace("\t", "\\t")
    return f"{'…' if begin else ''}{cut}{'…' if begin + LONGEST < len(text) else ''}"


def _few(lines: list[str]) -> list[str]:
    left = len(lines) - MOST_LINES
    return lines if left <= 0 else [*lines[:MOST_LINES], f"… {left} more {'line' if left == 1 else 'lines'}"]
