"""The trace checker sees what it is there to see: each kind of wrong, put into a trace that is sound."""

from __future__ import annotations

import pytest
from tests.declarative.trace_checker import Wrong, check
from tests.declarative.trace_story import STORY, Found, Lines, changed, trace, with_added, without


def test_a_sound_trace_is_found_sound_and_counted() -> None:
    verdict = check(trace(STORY))
    assert verdict.violations == ()
    kinds = ("starts", "due", "retry", "restart", "late", "make-up", "pre-empted", "cut", "crash", "jump", "stop")
    assert [verdict.tally[kind] for kind in kinds] == [15, 8, 1, 1, 3, 2, 1, 1, 1, 1, 2]


WRONGS: dict[str, tuple[Lines, Found]] = {
    "a start before its minute": (
        changed("10:30:00 start half", "10:29:59 start half"),
        {(Wrong.NOT_OWED, "half")},
    ),
    "a second start in one minute": (
        with_added("10:41:00 success half", "10:41:10 start half", "10:41:10 failure half", "10:51:10 start half"),
        {(Wrong.NOT_OWED, "half"), (Wrong.TWO_AT_ONCE, "half")},
    ),
    "a second success for one minute": (
        with_added("10:41:00 success half", "10:41:10 start half", "10:41:20 success half"),
        {(Wrong.NOT_OWED, "half"), (Wrong.TWO_SUCCESSES, "half")},
    ),
    "a start late in a minute that was served": (
        with_added("10:00:20 success half", "10:00:50 start half", "10:00:50 success half"),
        {(Wrong.NOT_OWED, "half"), (Wrong.TWO_SUCCESSES, "half")},
    ),
    "a first start in a minute that does not match": (
        with_added("10:00:20 active", "10:00:20 start quarter", "10:00:20 success quarter"),
        {(Wrong.NOT_OWED, "quarter")},
    ),
    "no first start in a minute that matches": (
        without("10:00:20 start half", "10:00:20 success half"),
        {(Wrong.UNMET, "half")},
    ),
    "no start in a minute that matches": (
        without("11:15:00 start quarter", "11:16:00 success quarter"),
        {(Wrong.UNMET, "quarter")},
    ),
    "a start more than a minute late": (
        changed("10:15:00 start quarter", "10:16:01 start quarter", without("10:15:30 failure quarter")),
        {(Wrong.UNMET, "quarter")},
    ),
    "a start before anything was initialized": (
        ("09:59:00 start half", "09:59:01 success half", *STORY),
        {(Wrong.INACTIVE, "half")},
    ),
    "a start after stop was called": (
        with_added("11:31:00 stop", "11:31:01 start quarter", "11:32:00 success quarter"),
        {(Wrong.INACTIVE, "quarter"), (Wrong.TWO_SUCCESSES, "quarter")},
    ),
    "a start while the scheduler is stopped": (
        with_added("11:35:00 stopped", "12:00:00 start half", "12:00:00 success half"),
        {(Wrong.INACTIVE, "half")},
    ),
    "a start after a crash": (
        with_added("11:05:00 crash", "11:06:00 start quarter", "11:06:00 success quarter"),
        {(Wrong.INACTIVE, "quarter")},
    ),
    "a start of a task that is not registered": (
        with_added("10:41:00 success half", "10:45:00 start noon", "10:45:00 success noon"),
        {(Wrong.NOT_REGISTERED, "noon")},
    ),
    "no make-up run": (
        without("13:20:00 start quarter", "13:20:06 success quarter"),
        {(Wrong.UNMET, "quarter")},
    ),
    "two make-up runs": (
        with_added("13:20:06 success quarter", "13:20:06 start quarter", "13:20:07 success quarter"),
        {(Wrong.NOT_OWED, "quarter"), (Wrong.TWO_SUCCESSES, "quarter")},
    ),
    "a make-up run of a task that never ran": (
        with_added("13:20:00 active", "13:20:00 start noon", "13:20:00 success noon"),
        {(Wrong.NOT_OWED, "noon")},
    ),
    "a retry before its delay is over": (
        changed("10:40:10 start half", "10:40:09 start half"),
        {(Wrong.EARLY_RETRY, "half")},
    ),
    "a retry long after its delay is over": (
        changed(
            "10:40:10 start half", "10:41:11 start half", changed("10:41:00 success half", "10:42:00 success half")
        ),
        {(Wrong.UNMET, "half")},
    ),
    "no retry": (
        without("10:40:10 start half", "10:41:00 success half"),
        {(Wrong.UNMET, "half")},
    ),
    "a retry after a success": (
        with_added("11:16:00 success quarter", "11:16:30 start quarter", "11:16:30 success quarter"),
        {(Wrong.NOT_OWED, "quarter"), (Wrong.TWO_SUCCESSES, "quarter")},
    ),
    "a minute that does not pre-empt a retry": (
        changed("11:15:00 start quarter", "11:16:10 start quarter", without("11:16:00 success quarter")),
        {(Wrong.UNMET, "quarter"), (Wrong.NOT_QUIET, "quarter"), (Wrong.TWO_AT_ONCE, "quarter")},
    ),
    "no restart of a run that a crash cut off": (
        without("11:10:00 start half", "11:12:00 success half"),
        {(Wrong.UNMET, "half")},
    ),
    "two restarts of a run that a crash cut off": (
        with_added("11:12:00 success half", "11:12:00 start half", "11:13:00 success half"),
        {(Wrong.NOT_OWED, "half"), (Wrong.TWO_SUCCESSES, "half")},
    ),
    "a restart more than a minute late": (
        changed("11:10:00 start half", "11:11:01 start half"),
        {(Wrong.UNMET, "half")},
    ),
    "two runs of one task at once": (
        with_added("13:30:00 start half", "14:00:00 start half"),
        {(Wrong.TWO_AT_ONCE, "half"), (Wrong.NOT_OWED, "half"), (Wrong.TWO_SUCCESSES, "half")},
    ),
    "no run for a minute that passed during a run": (
        without("14:10:00 start half", "14:10:05 success half"),
        {(Wrong.UNMET, "half")},
    ),
    "two runs for a minute that passed during a run": (
        with_added("14:10:05 success half", "14:10:05 start half", "14:10:06 success half"),
        {(Wrong.NOT_OWED, "half"), (Wrong.TWO_SUCCESSES, "half")},
    ),
    "no run for minutes that passed in a jump": (
        without("16:50:00 start quarter", "16:51:00 success quarter"),
        {(Wrong.UNMET, "quarter")},
    ),
    "two runs for minutes that passed in a jump": (
        with_added("16:51:00 success quarter", "16:51:00 start half", "16:51:01 success half"),
        {(Wrong.NOT_OWED, "half"), (Wrong.TWO_SUCCESSES, "half")},
    ),
    "a stop that returns while a callback runs": (
        without("11:35:00 stopped", lines=with_added("11:31:00 stop", "11:34:59 stopped")),
        {(Wrong.NOT_QUIET, "half")},
    ),
    "an initialization before a stop has ended": (
        with_added("11:31:00 stop", "11:32:00 active"),
        {(Wrong.OUT_OF_ORDER, None)},
    ),
    "an end of what never began": (
        with_added("10:00:20 success half", "10:05:00 failure quarter"),
        {(Wrong.UNHEARD_OF, "quarter")},
    ),
    "an end that a crash had made impossible": (
        with_added("11:05:00 crash", "11:06:00 success half"),
        {(Wrong.UNHEARD_OF, "half")},
    ),
    "time that goes back": (
        changed("16:55:00 stop", "16:49:00 stop"),
        {(Wrong.OUT_OF_ORDER, None)},
    ),
}


@pytest.mark.parametrize("name", WRONGS)
def test_each_kind_of_wrong_is_reported(name: str) -> None:
    lines, expected = WRONGS[name]
    violations = check(trace(lines)).violations
    # One wrong may have others in its train, but it comes first.
    assert (violations[0].wrong, violations[0].task) in expected
    assert expected <= {(violation.wrong, violation.task) for violation in violations}
