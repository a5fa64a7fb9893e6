"""What is drawn: a run's attempts on a line of time, a job's year, its latest outcomes, how far a work is."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta

import pytest

from horae.api.responses.job_responses import Attempt, Calendar, Day, Report, Task
from horae.cli.screen import gantt
from horae.cli.screen.heatmap import draw_job
from horae.cli.screen.screen import STRIP, Screen, strip_of


class Paper(io.StringIO):
    """Output that is a terminal, or is none."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def screen_on(paper: Paper, *, colour: bool = False, plain: bool = False) -> Screen:
    screen = Screen(out=paper, errors=paper)
    screen.colour, screen.plain = colour, plain
    return screen


def at(second: float) -> str:
    return (datetime(2027, 3, 1, tzinfo=UTC) + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")


def attempt(number: int, state: str, start: float | None, end: float | None) -> Attempt:
    return Attempt(
        attempt_id=f"attempt_{number}",
        number=number,
        state=state,
        started_at=None if start is None else at(start),
        ended_at=None if end is None else at(end),
        error=None,
    )


def report(*tasks: tuple[str, list[Attempt]], started: float | None = 0, completed: float | None = 10) -> Report:
    return Report(
        run_id="occ_1",
        job="etl",
        version=1,
        origin="SCHEDULE",
        outcome="COMPLETED",
        reason=None,
        mode="parallel",
        failure="fail_fast",
        is_recovery=False,
        replay_of=None,
        cancelled_by=None,
        scheduled_time=at(0),
        chosen_time=at(0),
        started_at=None if started is None else at(started),
        completed_at=None if completed is None else at(completed),
        covers_from=None,
        covers_to=None,
        lag_seconds=0,
        duration_seconds=10,
        tasks=[
            Task(
                task_run_id=f"run_{name}",
                name=name,
                state="SUCCESS",
                failure="fail_fast",
                cancelled_by=None,
                reason=None,
                result=None,
                attempts=attempts,
            )
            for name, attempts in tasks
        ],
    )


def test_attempts_stand_where_they_ran_and_are_as_long_as_they_took() -> None:
    paper = Paper()
    gantt.draw(
        screen_on(paper, plain=True),
        report(
            ("extract", [attempt(1, "SUCCESS", 0, 5)]),
            ("load", [attempt(1, "FAILED", 5, 6), attempt(2, "SUCCESS", 8, 10)]),
        ),
    )
    lines = paper.getvalue().splitlines()
    assert lines[1:] == [
        f"  extract  1  {'#' * 30}{'.' * 30}  5.0 s SUCCESS",
        f"  load     1  {'.' * 30}{'#' * 6}{'.' * 24}  1.0 s FAILED",
        f"           2  {'.' * 48}{'#' * 12}  2.0 s SUCCESS",
        f"              0{' ' * 55}10 s",
    ]


@pytest.mark.parametrize(
    ("length", "told"), [(0, "0 s"), (0.004, "0.004 s"), (75, "1 min 15 s"), (7_260, "2 h 01 min")]
)
def test_an_attempt_of_any_length_has_a_bar_that_fits(length: float, told: str) -> None:
    paper = Paper()
    gantt.draw(screen_on(paper, plain=True), report(("a", [attempt(1, "SUCCESS", 0, length)]), completed=length))
    (bar,) = paper.getvalue().splitlines()[1:-1]
    assert bar.split()[2].strip(".").count("#") == len(bar.split()[2].strip("."))
    assert len(bar.split()[2]) == 60
    assert bar.endswith(f"  {told} SUCCESS")


def test_a_clock_that_was_set_back_draws_no_nonsense() -> None:
    paper = Paper()
    gantt.draw(screen_on(paper, plain=True), report(("a", [attempt(1, "SUCCESS", 5, 2)]), started=3, completed=2))
    (bar,) = paper.getvalue().splitlines()[1:-1]
    assert bar.endswith("  0 s SUCCESS")


def test_a_run_that_has_not_started_has_no_picture() -> None:
    paper = Paper()
    gantt.draw(screen_on(paper), report(("a", [attempt(1, "PENDING", None, None)]), started=None, completed=None))
    assert paper.getvalue() == ""


def test_a_year_shows_how_days_ended_and_what_is_to_come() -> None:
    states = {
        date(2027, 1, 4): {"COMPLETED": 2},
        date(2027, 1, 5): {"COMPLETED": 1, "FAILED": 1},
        date(2027, 1, 6): {"CANCELLED": 1},
        date(2027, 1, 7): {"SKIPPED": 1},
    }
    first = date(2027, 1, 1)
    days = [
        Day(
            date=(first + timedelta(days=number)).isoformat(),
            runs=states.get(first + timedelta(days=number), {}),
            coming=1 if number == 7 else 0,
            marks=["clocks_change"] if number == 9 else ["today"] if number == 8 else [],
        )
        for number in range(365)
    ]
    calendar = Calendar(
        job="etl",
        year=2027,
        timezone="Europe/Berlin",
        days=days,
        runs={"COMPLETED": 3, "FAILED": 1},
        coming=1,
        clock_changes=["2027-01-10"],
    )
    paper = Paper()
    draw_job(screen_on(paper, plain=True), calendar)
    lines = paper.getvalue().splitlines()
    second_week = [line[8] for line in lines[1:8]]
    assert second_week == ["#", "x", "~", "s", "o", "|", "!"]
    assert "2027 Europe/Berlin: 3 COMPLETED, 1 FAILED; 1 to come" in paper.getvalue()
    assert "clocks change: 2027-01-10" in paper.getvalue()
    coloured = Paper()
    draw_job(screen_on(coloured, colour=True), calendar)
    assert "\033[38;5;196m■" in coloured.getvalue(), "a day that failed is red"
    assert "\033[38;5;25m□" in coloured.getvalue()


def test_outcomes_are_told_apart_without_colour_and_coloured_with_it() -> None:
    states = ["COMPLETED", "FAILED", "RUNNING", "SKIPPED", "MISSED", "CANCELLED", "COMPLETED_WITH_ERRORS"]
    paper = Paper()
    plain = strip_of(screen_on(paper, plain=True), states)
    assert plain == "+x>.oc!"
    assert len(set(strip_of(screen_on(paper), states))) == len(states)
    screen_on(paper, colour=True).table(["latest"], [["■✗"]], [STRIP])
    assert "\033[32m■\033[0m\033[31m✗\033[0m" in paper.getvalue()


def test_states_have_their_colours() -> None:
    screen = screen_on(Paper(), colour=True)
    assert screen.state("FAILED") == "\033[31mFAILED\033[0m"
    assert screen.state("never heard of") == "never heard of"


def test_how_far_a_work_is_is_told_only_where_somebody_looks() -> None:
    paper = Paper(is_terminal=True)
    screen = screen_on(paper, plain=True)
    screen.bar(1, 4, "rows")
    assert paper.getvalue() == "\r\033[K######..................  25%  1 of 4 rows"
    screen.bar(0, 0, "rows")
    assert paper.getvalue().endswith("100%  0 of 0 rows")
    piped = Paper()
    screen_on(piped).bar(1, 4, "rows")
    assert piped.getvalue() == ""
