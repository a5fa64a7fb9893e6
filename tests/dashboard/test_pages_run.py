"""The run page: lanes and bars by arithmetic, whose output is shown, what strangers printed made harmless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae.api.responses.job_responses import Attempt, Output, Report, Run, Task
from horae.web.pages.run import OUTPUT_SHOWN, attempt_views, chosen_attempt, outcomes, tail
from horae.web.pages.runs import first_line, origin_text, row_of
from horae.web.pictures.gantt import NARROWEST, GanttBar, chart, labelled, ticks
from horae.web.pictures.letters import pretty, readable, visible, without_escapes

BEGIN = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def at(seconds: float | None) -> str | None:
    return None if seconds is None else (BEGIN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def attempt(number: int, begun: float | None, ended: float | None, state: str = "SUCCESS") -> Attempt:
    return Attempt(
        attempt_id=f"attempt_{begun}_{number}",
        number=number,
        state=state,
        started_at=at(begun),
        ended_at=at(ended),
        error="Boom: <b>" if state == "FAILED" else None,
        traceback="Traceback:\n  <b>\x1b[2J" if state == "FAILED" else None,
    )


def task(name: str, *attempts: Attempt, state: str = "SUCCESS", **given: Any) -> Task:
    values: dict[str, Any] = {"cancelled_by": None, "reason": None, "result": None} | given
    return Task(task_run_id=f"run_{name}", name=name, state=state, failure="", attempts=list(attempts), **values)


def report(*tasks: Task, chosen: float = 0, started: float | None = 0, completed: float | None = 10) -> Report:
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
        scheduled_time="2026-03-01T09:00:00Z",
        chosen_time=at(chosen),
        started_at=at(started),
        completed_at=at(completed),
        covers_from=None,
        covers_to=None,
        lag_seconds=None,
        duration_seconds=None,
        tasks=list(tasks),
    )


def run(state: str = "COMPLETED", **given: Any) -> Run:
    values: dict[str, Any] = dict.fromkeys(("reason", "waiting_for", "replay_of", "cancelled_by", "error"))
    values |= {"started_at": at(2.5), "completed_at": at(4), "duration_seconds": 1.5, "retry_count": 0} | given
    return Run(
        run_id="occ_1",
        job="etl",
        state=state,
        origin="SCHEDULE",
        version=1,
        scheduled_time="2026-03-01T09:00:00Z",
        chosen_time="2026-03-01T09:00:00Z",
        **values,
    )


# ---- the picture -----------------------------------------------------------------------------------------------------


def test_a_bar_lies_where_its_attempt_was_in_hundredths_of_the_run() -> None:
    drawn = chart(report(task("one", attempt(1, 2, 7))), "COMPLETED", BEGIN)
    assert drawn is not None
    bar = drawn.lanes[1].bars[0]
    assert (bar.left, bar.width, bar.state, bar.kind) == (20, 50, "SUCCESS", "attempt")
    assert bar.title == "one, attempt 1: success, 5 s"


def test_between_two_attempts_there_is_a_thread_as_long_as_the_wait() -> None:
    tried = task("one", attempt(1, 0, 2, "FAILED"), attempt(2, 6, 10))
    drawn = chart(report(tried), "COMPLETED", BEGIN)
    assert drawn is not None
    assert [(bar.kind, bar.left, bar.right) for bar in drawn.lanes[1].bars] == [
        ("attempt", 0, 20),
        ("wait", 20, 60),
        ("attempt", 60, 100),
    ]


def test_what_still_runs_reaches_to_now() -> None:
    going = report(task("one", attempt(1, 0, None, "RUNNING"), state="RUNNING"), completed=None)
    drawn = chart(going, "RUNNING", BEGIN + timedelta(seconds=40))
    assert drawn is not None
    assert drawn.seconds == 40
    bar = drawn.lanes[1].bars[0]
    assert (bar.right, bar.is_open, bar.title) == (100, True, "one, attempt 1: running, 40 s so far")


def test_a_task_that_waits_to_try_again_has_a_thread_that_goes_on() -> None:
    parked = report(task("one", attempt(1, 0, 4, "FAILED"), state="PENDING"), completed=None)
    drawn = chart(parked, "PENDING", BEGIN + timedelta(seconds=8))
    assert drawn is not None
    wait = drawn.lanes[1].bars[-1]
    assert (wait.kind, wait.left, wait.right, wait.is_open) == ("wait", 50, 100, True)


def test_what_took_no_time_can_still_be_seen_and_stays_inside() -> None:
    drawn = chart(report(task("one", attempt(1, 10, 10))), "COMPLETED", BEGIN)
    assert drawn is not None
    bar = drawn.lanes[1].bars[0]
    assert bar.width == NARROWEST
    assert bar.right == 100


def test_a_short_wait_before_the_run_is_drawn_and_a_long_one_is_told() -> None:
    short = chart(report(task("one", attempt(1, 5, 10)), started=5), "COMPLETED", BEGIN)
    assert short is not None
    assert short.begin_is_chosen
    assert [bar.kind for bar in short.lanes[0].bars] == ["lag", "run"]
    assert short.waited is None
    late = chart(report(task("one", attempt(1, 5, 10)), chosen=-3_600, started=5), "COMPLETED", BEGIN)
    assert late is not None
    assert late.waited == 3_605
    assert [bar.kind for bar in late.lanes[0].bars] == ["run"]


def test_a_run_of_which_nothing_began_has_no_picture() -> None:
    assert chart(report(started=None, completed=None), "PENDING", BEGIN) is None


@pytest.mark.parametrize("seconds", [0.004, 0.3, 1, 13, 59, 61, 3_599, 86_400, 40 * 86_400, 9_999_999])
def test_an_axis_has_a_few_round_places_from_its_beginning_to_its_end(seconds: float) -> None:
    found = ticks(seconds)
    assert 1 <= len(found) <= 9
    assert found[0].left == 0
    assert found[0].label == "0"
    assert all(0 <= each.left <= 100 for each in found)
    assert [each.left for each in found] == sorted({each.left for each in found})


def test_a_label_stands_beside_its_bar_where_no_other_bar_is() -> None:
    wide = GanttBar("attempt", "SUCCESS", 0, 100, "", "1 s")
    left = GanttBar("attempt", "SUCCESS", 0, 30, "", "1 s")
    right = GanttBar("attempt", "SUCCESS", 96, 4, "", "1 s")
    assert labelled([wide])[0].label_at is None
    first, second = labelled([left, right])
    assert (first.label_at, first.label_anchor) == (30, "start")
    assert (second.label_at, second.label_anchor) == (96, "end")


def test_two_labels_never_share_a_gap_that_holds_only_one() -> None:
    first, second = labelled(
        [GanttBar("attempt", "FAILED", 0, 45, "", "1: 1.5 s"), GanttBar("attempt", "FAILED", 58, 42, "", "2: 1.5 s")]
    )
    assert first.label_at == 45
    assert second.label_at is None


# ---- attempts and output ---------------------------------------------------------------------------------------------


def test_output_is_that_of_what_runs_else_of_what_went_wrong_else_of_what_ended_last() -> None:
    done = task("done", attempt(1, 0, 9))
    failed = task("bad", attempt(1, 1, 2, "FAILED"), attempt(2, 3, 4, "FAILED"))
    going = task("going", attempt(1, 2, None, "RUNNING"))
    now = "2026-03-01T09:00:20Z"

    def chosen(*tasks: Task) -> str:
        found = chosen_attempt(attempt_views(report(*tasks), now), None)
        assert found is not None
        return found.title

    assert chosen(done, failed, going) == "going, attempt 1"
    assert chosen(done, failed) == "bad, attempt 2"
    assert chosen(done, task("later", attempt(1, 2, 9.5))) == "later, attempt 1"
    assert chosen_attempt((), None) is None
    asked = attempt_views(report(done, failed, going), now)
    assert chosen_attempt(asked, asked[0].attempt_id) is asked[0]
    assert chosen_attempt(asked, "attempt_of_another_run") is not None


def test_an_attempt_that_runs_has_taken_as_long_as_it_is_now() -> None:
    found = attempt_views(report(task("one", attempt(1, 2, None, "RUNNING"))), "2026-03-01T09:00:12Z")
    assert found[0].seconds == 10
    lost = attempt_views(report(task("one", attempt(1, 2, None, "LOST"))), "2026-03-01T09:00:12Z")
    assert lost[0].seconds is None


def test_a_page_brings_the_end_of_long_output_and_says_that_it_is_not_all() -> None:
    lines = "".join(f"line {number}\n" for number in range(5_000))
    text, is_cut = tail(Output(attempt_id="attempt_1", text=lines, next=7))
    assert is_cut
    assert len(text) <= OUTPUT_SHOWN
    assert text.startswith("line ")
    assert text.endswith("line 4999\n")
    assert tail(Output(attempt_id="attempt_1", text="short", next=1)) == ("short", False)
    assert tail(None) == ("", False)


def test_an_attempt_that_failed_has_its_traceback_without_what_is_meant_for_a_terminal() -> None:
    found = attempt_views(report(task("bad", attempt(1, 1, 2, "FAILED"), attempt(2, 3, 4))), "2026-03-01T09:00:12Z")
    assert [each.trace for each in found] == ["Traceback:\n  <b>", ""]


def test_a_task_whose_attempt_says_why_it_failed_does_not_say_it_twice() -> None:
    assert outcomes([task("bad", attempt(1, 1, 2, "FAILED"), state="FAILED", reason="Boom: <b>")]) == ()


def test_tasks_tell_what_they_returned_and_who_stopped_them() -> None:
    told = outcomes(
        [
            task("plain", attempt(1, 0, 1)),
            task("returns", attempt(1, 0, 1), result={"rows": 3}),
            task("stopped", state="CANCELLED", cancelled_by="returns", reason="sibling failed"),
        ]
    )
    assert [each.task for each in told] == ["returns", "stopped"]
    assert told[0].result == '{\n  "rows": 3\n}'
    assert told[1].cancelled_by == "returns"


# ---- what strangers print --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1b]never ended", ""),
        ("10%\r50%\r100%", "100%"),
        ("longer\rshort", "shortr"),
        ("dos\r\nline", "dos\nline"),
        ("\x1bcreset", "reset"),
    ],
)
def test_what_is_meant_for_a_terminal_is_not_shown(printed: str, shown: str) -> None:
    assert without_escapes(printed) == shown


def test_what_cannot_be_seen_is_shown_as_what_it_is() -> None:
    assert visible("a\x00b\x07\x7f") == "a␀b␇␡"
    assert visible("user\u202egnp.exe") == "user⟨U+202E⟩gnp.exe"
    assert visible("zero\u200bwidth\ufeff") == "zero⟨U+200B⟩width⟨U+FEFF⟩"
    assert visible("tab\tand\nline, é, 漢, 🕰") == "tab\tand\nline, é, 漢, 🕰"


def test_text_without_end_is_cut_in_its_middle_where_it_says_so() -> None:
    shown = readable("x" * 1_000 + "y" * 1_000, 100)
    assert shown.startswith("x" * 50)
    assert shown.endswith("y" * 50)
    assert "1,900 characters left out" in shown


def test_results_are_json_that_can_be_read_whatever_is_in_them() -> None:
    assert pretty({"é": [1, None]}) == '{\n  "é": [\n    1,\n    null\n  ]\n}'
    assert "U+202E" in pretty("\u202e")


# ---- the list --------------------------------------------------------------------------------------------------------


def test_a_line_of_the_list_tells_the_lag_and_the_first_line_of_what_went_wrong() -> None:
    failed = row_of(run("FAILED", error="ValueError: <b>\nsecond line"))
    assert failed.lag == 2.5
    assert failed.remark == "ValueError: <b>"
    assert row_of(run("COMPLETED", error="an earlier try")).remark == ""
    again = run("FAILED", error="ValueError: <b>\nsecond line", reason="ValueError: <b> (after 3 attempts)")
    assert row_of(again).remark == "ValueError: <b> (after 3 attempts)"
    assert row_of(run("FAILED", error="ValueError", reason="superseded")).remark == "ValueError"
    assert row_of(run("COMPLETED", replay_reason="it is back")).remark == "replay: it is back"
    assert row_of(run("PENDING", waiting_for="pool", started_at=None)).remark == "waits for pool"
    assert row_of(run("PENDING", started_at=None)).lag is None
    span = run("SKIPPED", reason="paused", started_at=None, count=1440, covers_to="2026-03-02T09:00:00Z")
    assert row_of(span).remark == "paused 1\u202f440 times, up to 2026-03-02 09:00:00 UTC"


def test_an_origin_is_told_in_words() -> None:
    assert origin_text("TRIGGER") == "trigger"
    assert origin_text("SCHEDULE", is_recovery=True) == "schedule, recovery"


def test_a_first_line_is_never_longer_than_it_may_be() -> None:
    assert first_line("a" * 500, 20) == "a" * 19 + "…"
