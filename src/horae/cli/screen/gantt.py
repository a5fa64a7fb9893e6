"""A run as a Gantt chart in the terminal: each attempt of each task on one time axis."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from horae.cli.files import now
from horae.cli.screen.rows import harmless
from horae.cli.screen.screen import shorten
from horae.cli.screen.time_text import length_text

if TYPE_CHECKING:
    from horae.api.responses.job_responses import Attempt, Report
    from horae.cli.screen.screen import Screen

_WIDEST = 60
_NARROWEST = 12
_NAMES = 24


def draw(screen: Screen, report: Report) -> None:
    """Draws a row for each attempt, from the run's start to its end, or to now. Draws nothing before any attempt has
    started."""
    rows = [(task.name, each) for task in report.tasks for each in task.attempts if each.started_at is not None]
    if not rows:
        return
    starts = [_time(each.started_at) for _, each in rows]
    first = min(starts if report.started_at is None else [_time(report.started_at), *starts])
    last = max([_end(each) for _, each in rows] + ([_time(report.completed_at)] if report.completed_at else []))
    span = max((last - first).total_seconds(), 0.001)
    names = min(_NAMES, max(len(name) for name, _ in rows))
    room = _WIDEST if screen.width is None else screen.width - names - 24
    room = max(_NARROWEST, min(_WIDEST, room))
    full, empty = ("#", ".") if screen.plain else ("█", "·")
    screen.line()
    told = ""
    for name, each in rows:
        begin = int((_time(each.started_at) - first).total_seconds() / span * room)
        begin = min(begin, room - 1)
        length = max(1, round((_end(each) - _time(each.started_at)).total_seconds() / span * room))
        length = min(length, room - begin)
        bar = screen.style(empty * begin, "dim") + screen.coloured(full * length, each.state)
        rest = screen.style(empty * (room - begin - length), "dim")
        label = "" if name == told else shorten(harmless(name), names)
        told = name
        took = max(0.0, (_end(each) - _time(each.started_at)).total_seconds())
        state = screen.state(each.state)
        screen.line(f"  {label:<{names}}  {each.number}  {bar}{rest}  {length_text(took)} {state}")
    screen.line(f"  {'':<{names}}     {'0':<{room - len(length_text(span))}}{length_text(span)}")


def _end(attempt: Attempt) -> datetime:
    return _time(attempt.ended_at) if attempt.ended_at is not None else max(now(), _time(attempt.started_at))


def _time(text: str | None) -> datetime:
    return datetime.fromisoformat(text or "")
