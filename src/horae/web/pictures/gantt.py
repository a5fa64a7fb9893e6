"""A run's tasks and attempts as a Gantt chart. Positions are percent of the width.

The first lane is the run itself, with the wait before its start. A task's lane has a bar for each attempt and a thin
one where it waits for the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from horae.api.responses.job_responses import Attempt, Report, Task
from horae.web.pictures.moments import moment
from horae.web.words import length_text

NARROWEST = 0.5
_LETTER = 0.95
"""The assumed width of a label's letter, in percent of a lane of some 700 points."""
_MOST_TICKS = 8
_STEPS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800),
)
_WAITED_AT_MOST = 1.0
"""The longest wait before a run that is drawn, as a multiple of the run's length; a longer one is given as text."""


@dataclass(frozen=True, slots=True)
class GanttBar:
    """A bar in a lane. `kind` is `attempt`, `run`, `wait` (between attempts) or `lag` (before the run began); `state`
    decides its colour."""

    kind: str
    state: str
    left: float
    width: float
    title: str
    label: str = ""
    anchor: str = ""
    is_open: bool = False
    """Whether it has not ended. Then it goes on to the end of the axis."""
    label_at: float | None = None
    """The position where its label begins or ends, beside the bar; None if there is no room."""
    label_anchor: str = "start"

    @property
    def right(self) -> float:
        return round(self.left + self.width, 3)


@dataclass(frozen=True, slots=True)
class TaskLane:
    name: str
    state: str
    bars: tuple[GanttBar, ...]
    note: str = ""
    is_run: bool = False


@dataclass(frozen=True, slots=True)
class AxisTick:
    left: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    begin: datetime
    end: datetime
    lanes: tuple[TaskLane, ...]
    ticks: tuple[AxisTick, ...]
    waited: float | None = None
    """Seconds from the chosen time to the beginning, if the axis leaves them out."""
    begin_is_chosen: bool = False

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


def chart(report: Report, state: str, now: datetime) -> Chart | None:
    """Returns the chart of a run at `now`; None if nothing has begun."""
    started, completed = moment(report.started_at), moment(report.completed_at)
    times = [each for task in report.tasks for each in _times(task)]
    if started is not None:
        times += [each for each in (started, completed) if each is not None]
    if not times:
        return None
    is_active = completed is None
    last = max([*times, now] if is_active else times)
    first = min(times)
    chosen = moment(report.chosen_time) or moment(report.scheduled_time)
    waited = None
    is_chosen = False
    if chosen is not None and chosen < first:
        if (first - chosen).total_seconds() <= _WAITED_AT_MOST * max((last - first).total_seconds(), 1.0):
            first, is_chosen = chosen, True
        else:
            waited = (first - chosen).total_seconds()
    if last <= first:
        last = first + timedelta(seconds=1)
    axis = _Axis(first, last)
    lanes = [_run_lane(axis, report, state, chosen, started, completed), *(_lane(axis, task) for task in report.tasks)]
    return Chart(first, last, tuple(lanes), ticks((last - first).total_seconds()), waited, is_chosen)


def ticks(seconds: float) -> tuple[AxisTick, ...]:
    """Returns at most nine ticks at round times on an axis of that many seconds, the first at its beginning."""
    step = next(
        (each for each in _STEPS if seconds / each <= _MOST_TICKS), 604_800.0 * ceil(seconds / 604_800 / _MOST_TICKS)
    )
    count = int(seconds / step + 1e-9)
    return tuple(AxisTick(_hundredths(number * step / seconds), _offset(number * step)) for number in range(count + 1))


@dataclass(frozen=True, slots=True)
class _Axis:
    begin: datetime
    end: datetime

    def span(self, since: datetime, until: datetime) -> tuple[float, float]:
        """Returns left and width in percent. A span too short to be seen is widened, but stays inside the axis."""
        whole = (self.end - self.begin).total_seconds()
        left = min(max((since - self.begin).total_seconds() / whole, 0.0), 1.0) * 100
        right = min(max((until - self.begin).total_seconds() / whole, 0.0), 1.0) * 100
        width = max(right - left, NARROWEST)
        return round(min(left, 100 - width), 3), round(width, 3)


def _run_lane(
    axis: _Axis,
    report: Report,
    state: str,
    chosen: datetime | None,
    started: datetime | None,
    completed: datetime | None,
) -> TaskLane:
    bars = []
    begun = started or completed
    if chosen is not None and begun is not None and axis.begin <= chosen < begun:
        left, width = axis.span(chosen, begun)
        if (begun - chosen).total_seconds() / (axis.end - axis.begin).total_seconds() > NARROWEST / 100:
            waited = length_text((begun - chosen).total_seconds())
            bars.append(GanttBar("lag", "PENDING", left, width, f"due, not begun for {waited}"))
    if started is not None:
        until = completed or axis.end
        left, width = axis.span(started, until)
        took = length_text((until - started).total_seconds())
        title = f"run {state.lower().replace('_', ' ')}, {took}" + ("" if completed else " so far")
        bars.append(GanttBar("run", state, left, width, title, took, is_open=completed is None))
    return TaskLane(report.job, state, labelled(bars), is_run=True)


def _lane(axis: _Axis, task: Task) -> TaskLane:
    bars: list[GanttBar] = []
    before: datetime | None = None
    for attempt in task.attempts:
        begun, ended = moment(attempt.started_at), moment(attempt.ended_at)
        if begun is None:
            continue
        if before is not None and begun > before:
            left, width = axis.span(before, begun)
            bars.append(
                GanttBar(
                    "wait",
                    "PENDING",
                    left,
                    width,
                    f"waited {length_text((begun - before).total_seconds())} to try again",
                )
            )
        bars.append(_attempt(axis, task, attempt, begun, ended))
        before = ended or axis.end
    if task.state == "PENDING" and before is not None and before < axis.end:
        left, width = axis.span(before, axis.end)
        bars.append(GanttBar("wait", "PENDING", left, width, "waits to try again", is_open=True))
    return TaskLane(task.name, task.state, labelled(bars), _note(task))


def labelled(bars: list[GanttBar]) -> tuple[GanttBar, ...]:
    """Places each bar's label to its right, else to its left, else nowhere, so that it covers no other bar."""
    solid = [each for each in bars if each.kind != "wait"]
    placed = []
    taken = 0.0
    for each in bars:
        if not each.label:
            placed.append(each)
            continue
        room = len(each.label) * _LETTER + 1.5
        after = min((other.left for other in solid if other.left >= each.right and other is not each), default=100.0)
        before = max((other.right for other in solid if other.right <= each.left and other is not each), default=0.0)
        if after - each.right >= room:
            placed.append(replace(each, label_at=each.right))
            taken = each.right + room
        elif each.left - max(before, taken) >= room:
            placed.append(replace(each, label_at=each.left, label_anchor="end"))
        else:
            placed.append(each)
    return tuple(placed)


def _attempt(axis: _Axis, task: Task, attempt: Attempt, begun: datetime, ended: datetime | None) -> GanttBar:
    until = ended or axis.end
    left, width = axis.span(begun, until)
    took = length_text((until - begun).total_seconds())
    state = attempt.state.lower()
    title = f"{task.name}, attempt {attempt.number}: {state}, {took}" + ("" if ended else " so far")
    return GanttBar(
        "attempt",
        attempt.state,
        left,
        width,
        title,
        took if len(task.attempts) == 1 else f"{attempt.number}: {took}",
        anchor=f"attempt-{attempt.attempt_id}",
        is_open=ended is None,
    )


def _note(task: Task) -> str:
    if task.cancelled_by:
        return f"stopped by {task.cancelled_by}"
    return "" if task.attempts else (task.reason or "")


def _times(task: Task) -> list[datetime]:
    texts = [text for each in task.attempts for text in (each.started_at, each.ended_at)]
    return [at for at in map(moment, texts) if at is not None]


def _offset(seconds: float) -> str:
    return "0" if not seconds else f"+{length_text(seconds)}"


def _hundredths(part: float) -> float:
    return round(min(part, 1.0) * 100, 3)
