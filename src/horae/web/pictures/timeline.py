"""Running runs and next starts on one time axis, a lane for each job. Positions are percent of the width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil

from horae.api.handlers.coming_starts import MOST_OF_ONE
from horae.api.responses.job_responses import Coming, Run
from horae.web.pictures.moments import moment

PAST = 0.08
"""The part of the axis before now, as a fraction of the part after now. Running runs began there."""
MOST_LANES = 12
MOST_MARKS = 48
"""How many starts of a lane are drawn one by one; more are drawn as a band."""
SPANS = {"1h": timedelta(hours=1), "6h": timedelta(hours=6)}
_STEPS = {"1h": timedelta(minutes=10), "6h": timedelta(hours=1)}


@dataclass(frozen=True, slots=True)
class StartMark:
    """One start. `tip` has times as {2026-…Z}, which the page shows in the reader's time zone."""

    at: float
    tip: str


@dataclass(frozen=True, slots=True)
class Band:
    """A band in a lane. `kind` is window, dense (many starts), onward (further starts) or running."""

    kind: str
    left: float
    width: float
    tip: str

    @property
    def top(self) -> int:
        return {"window": 8, "onward": 12}.get(self.kind, 6)

    @property
    def height(self) -> int:
        return 26 - 2 * self.top


@dataclass(slots=True)
class JobLane:
    job: str
    is_paused: bool = False
    first: str | None = None
    """The job's next start."""
    marks: list[StartMark] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    run_id: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    begin: str
    end: str
    now: float
    lanes: tuple[JobLane, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int
    """The number of jobs with starts or runs on the axis for which there is no lane."""
    later: Coming | None
    """The first start after the axis, if no start is on it."""


def timeline(coming: Sequence[Coming], running: Sequence[Run], now: datetime, span: str = "1h") -> Timeline:
    """Returns the timeline. Its axis begins a little before `now` and ends `span` after it."""
    length = SPANS[span]
    begin = now - length * PAST
    axis = _Axis(begin, length * (1 + PAST))
    lanes: dict[str, JobLane] = {}
    for run in running:
        lane = lanes.setdefault(run.job, JobLane(run.job))
        started = moment(run.started_at) or now
        lane.run_id = run.run_id
        lane.bands.append(_running(axis, started, now))
    inside, later = [], None
    for each in sorted(coming, key=lambda each: each.chosen or each.nominal):
        if axis.place(_start(each)) < 100:
            inside.append(each)
        else:
            later = later or each
    starts: dict[str, list[Coming]] = {}
    for each in inside:
        starts.setdefault(each.job, []).append(each)
    for job, each_start in starts.items():
        _add(lanes.setdefault(job, JobLane(job)), axis, each_start)
    shown = tuple(lanes.values())[:MOST_LANES]
    return Timeline(
        _text(begin),
        _text(axis.begin + axis.length),
        round(axis.place(now), 3),
        shown,
        _ticks(axis, _STEPS[span]),
        len(lanes) - len(shown),
        None if inside else later,
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    begin: datetime
    length: timedelta

    def place(self, at: datetime) -> float:
        return (at - self.begin) / self.length * 100

    def within(self, at: datetime) -> float:
        return min(max(self.place(at), 0.0), 100.0)


def _add(lane: JobLane, axis: _Axis, starts: Sequence[Coming]) -> None:
    lane.count = len(starts)
    lane.is_paused = all(each.paused for each in starts)
    lane.first = starts[0].chosen or starts[0].nominal
    if len(starts) > MOST_MARKS:
        left, right = axis.within(_start(starts[0])), axis.within(_start(starts[-1]))
        tip = f"{len(starts):,} starts from {{{lane.first}}} on"
        lane.bands.append(Band("dense", round(left, 2), round(max(right - left, 0.4), 2), tip))
        return
    for each in starts:
        opens, closes = moment(each.window_start), moment(each.window_end)
        tip = f"{{{each.chosen or each.nominal}}}"
        if opens is not None and closes is not None and closes > opens:
            left = axis.within(opens)
            width = max(axis.within(closes) - left, 0.4)
            tip += f"\nchosen between {{{each.window_start}}} and {{{each.window_end}}}"
            lane.bands.append(Band("window", round(left, 2), round(width, 2), ""))
        if each.chosen is None:
            tip += "\nno moment of its window will do"
        elif each.chosen != each.nominal:
            tip += f"\nslot {{{each.nominal}}}"
        if each.paused:
            tip += "\npaused: it will be skipped"
        lane.marks.append(StartMark(round(axis.within(_start(each)), 2), tip))
    if len(starts) >= MOST_OF_ONE:
        # The response has no more starts of a job than this, so a band shows that there are further ones.
        left = axis.within(_start(starts[-1])) + 1
        lane.bands.append(Band("onward", round(left, 2), round(max(100 - left, 0), 2), "and so on"))


def _running(axis: _Axis, started: datetime, now: datetime) -> Band:
    left, right = axis.within(started), axis.within(now)
    return Band("running", round(left, 2), round(max(right - left, 0.5), 2), f"running since {{{_text(started)}}}")


def _start(each: Coming) -> datetime:
    at = moment(each.chosen or each.nominal)
    assert at is not None
    return at


def _ticks(axis: _Axis, step: timedelta) -> tuple[tuple[float, str], ...]:
    seconds = step.total_seconds()
    first = ceil(axis.begin.timestamp() / seconds)
    last = int((axis.begin + axis.length).timestamp() / seconds)
    times = [datetime.fromtimestamp(number * seconds, UTC) for number in range(first, last + 1)]
    return tuple((round(axis.place(at), 3), _text(at)) for at in times)


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
