"""Faulty krontab lines: each is told with its file, its line and the column the caret ^ stands at."""

from __future__ import annotations

import pytest

from horae.errors import InvalidKrontab
from horae.formats.krontab.parser import parse_file, parse_line
from horae.formats.krontab.tokens import LONGEST_LINE

BAD = [
    # The cron expression.
    ("^0 3 * *", "5 fields, found 4"),
    ("  ^0", "5 fields, found 1"),
    ("0 3 * * ^name=a command=b", 'but "name=a" follows early'),
    ("0 3 * ^@tz(UTC) * name=a command=b", "follows early"),
    ("0 3 ^user=x * * name=a command=b", "follows early"),
    ("^60 3 * * * name=a command=b", "minute field has the value 60 out of range"),
    (" \t^0 24 * * * name=a command=b", "hour field has the value 24"),
    ("^0 3 32 * * name=a command=b", "day field"),
    ("^0 3 * 13 * name=a command=b", "month field"),
    ("^0 3 * * 8 name=a command=b", "weekday field"),
    ("^0 3 * * funday name=a command=b", "weekday field"),
    ("^*/0 3 * * * name=a command=b", "a step of 0"),
    ("^0 3 5-1 * * name=a command=b", "wraps around"),
    ("^0 0 31 2 * name=a command=b", "never fires"),
    ("^0 3 * * ? name=a command=b", "Quartz"),
    ("^@fortnightly name=a command=b", "not a known macro"),
    ("^@reboot name=a command=b", "not a known macro"),
    ("^0 0 31 2 * @tz(Europe/Berlin) name=a command=b", "never fires"),
    ("0 3 * * * ^* name=a command=b", "is neither a modifier nor a field"),
    # Quotes, parentheses, letters.
    ('0 3 * * * name=a command=^"b', "this quote is never closed"),
    ('0 3 * * * name=a command="b c" user=d^"e', "this quote is never closed"),
    (r'0 3 * * * name=a command=^"b\"', "this quote is never closed"),
    ('0 3 * * * @seed(daily,salt=^"x) name=a command=b', "this quote is never closed"),
    ("0 3 * * * @tz^(UTC name=a command=b", "this parenthesis is never closed"),
    ("0 3 * * * @win^(after,1h name=a command=b", "this parenthesis is never closed"),
    ("0 3 * * * name=a command=b^\0c", "cannot be printed"),
    ("0 3 * * * name=a command=b^\rc", "cannot be printed"),
    ("^\ufeff0 3 * * * name=a command=b", "cannot be printed"),
    ("0 3 * * * name=a command=b^\ud800", "cannot be printed"),
    # Modifiers.
    ("0 3 * * * ^@zone(UTC) name=a command=b", 'unknown modifier "@zone"'),
    ("0 3 * * * ^@ name=a command=b", "unknown modifier"),
    ("0 3 * * * ^@TZ(UTC) name=a command=b", 'unknown modifier "@TZ"'),
    ("0 3 * * * ^@daily name=a command=b", "unknown modifier"),
    ("0 3 * * * ^@tz name=a command=b", "needs its arguments in parentheses"),
    ("0 3 * * * ^@tz(UTC)x name=a command=b", "needs its arguments in parentheses"),
    ("0 3 * * * @tz(UTC) ^@tz(UTC) name=a command=b", "@tz stands twice"),
    ("0 3 * * * @win(after,1h) name=a ^@win(after,2h) command=b", "@win stands twice"),
    ("0 3 * * * @seed(daily) ^@seed(weekly) name=a command=b", "@seed stands twice"),
    ("0 3 * * * @dist(uniform) ^@dist(normal) name=a command=b", "@dist stands twice"),
    ("0 3 * * * @policy(suspend=true) ^@policy(suspend=true) name=a command=b", "@policy stands twice"),
    ("0 3 * * * ^@tz() name=a command=b", "@tz takes 1 argument"),
    ("0 3 * * * ^@tz(UTC,UTC) name=a command=b", "@tz takes 1 argument"),
    ("0 3 * * * ^@tz(Mars/Olympus) name=a command=b", "Mars/Olympus"),
    ("0 3 * * * ^@win(after) name=a command=b", "@win takes 2 arguments"),
    ("0 3 * * * ^@win(after,1h,2h) name=a command=b", "@win takes 2 arguments"),
    ("0 3 * * * ^@win(beside,1h) name=a command=b", 'unknown window mode "beside"'),
    ("0 3 * * * ^@win(after,soon) name=a command=b", "soon"),
    ("0 3 * * * ^@win(after,-1h) name=a command=b", "-1h"),
    ("0 3 * * * ^@dist(poisson) name=a command=b", "poisson"),
    ("0 3 * * * @dist(^) name=a command=b", "@dist begins with a name"),
    ("0 3 * * * @dist(^shape=2) name=a command=b", "@dist begins with a name"),
    ("0 3 * * * @dist(skewEarly,^2) name=a command=b", "@dist takes key=value"),
    ("0 3 * * * @dist(skewEarly,shape=2, ^shape=3) name=a command=b", "shape stands twice in @dist"),
    ("0 3 * * * @win(after,1h) ^@dist(normal,shape=2) name=a command=b", "shape"),
    ("0 3 * * * ^@dist(skewEarly,shape=-2) name=a command=b", "shape"),
    ("0 3 * * * ^@seed(hourly) name=a command=b", 'unknown seed strategy "hourly"'),
    ("0 3 * * * ^@seed(daily,pepper=x) name=a command=b", 'unknown seed parameter "pepper"'),
    ("0 3 * * * @seed(daily,salt=a, ^salt=b) name=a command=b", "salt stands twice in @seed"),
    ("0 3 * * * @policy(^) name=a command=b", "@policy takes key=value"),
    ("0 3 * * * @policy(^suspend) name=a command=b", "@policy takes key=value"),
    ("0 3 * * * @policy(suspend=true,^suspend=true) name=a command=b", "suspend stands twice in @policy"),
    ("0 3 * * * ^@policy(retries=3) name=a command=b", 'unknown policy "retries"'),
    ("0 3 * * * ^@policy(concurrency=maybe) name=a command=b", 'unknown concurrency "maybe"'),
    ("0 3 * * * ^@policy(suspend=yes) name=a command=b", "suspend is true or false"),
    ("0 3 * * * ^@policy(deadline=tomorrow) name=a command=b", "deadline"),
    ("0 3 * * * @only(^) name=a command=b", "@only takes clauses"),
    ("0 3 * * * @only(^8-18) name=a command=b", "@only takes clauses"),
    ("0 3 * * * @only(hours=8-18; ^hours=20) name=a command=b", "hours stands twice in @only"),
    ("0 3 * * * @only(hours=8-18;^minutes=5) name=a command=b", 'unknown clause "minutes"'),
    ("0 3 * * * @avoid(^hours=25) name=a command=b", "Invalid avoid constraint hours"),
    ("0 3 * * * @only(dow=mon; ^between=8-9) name=a command=b", "Invalid only constraint between"),
    ("0 3 * * * @only(hours=8) @avoid(^dates=2026-02-30) name=a command=b", "Invalid avoid constraint dates"),
    ("0 3 * * * @only(dates=2026-01-01;^date=2026-01-02) name=a command=b", "dates stands twice in @only"),
    # Fields.
    ("0 3 * * * ^nam=a command=b", 'unknown field "nam"'),
    ("0 3 * * * ^Name=a command=b", 'unknown field "Name"'),
    ("0 3 * * * ^=a command=b", 'unknown field ""'),
    ("0 3 * * * name=a command=b ^c", "is neither a modifier nor a field"),
    ("0 3 * * * name=a ^name=b command=c", "name= stands twice"),
    ("0 3 * * * name=a command=b ^command=c", "command= stands twice"),
    ("0 3 * * * name=a command=b user=c ^user=c", "user= stands twice"),
    ("0 3 * * * name=a command=b env=A=1 ^env=A=2", "env A stands twice"),
    ("0 3 * * * name=a command=b ^env=A", "env needs NAME=value"),
    ("0 3 * * * name=a command=b ^env=1A=2", "env needs NAME=value"),
    ("0 3 * * * name=a command=b ^env==2", "env needs NAME=value"),
    ("0 3 * * * name=a command=b ^env=Ä=2", "env needs NAME=value"),
    ("0 3 * * * ^name= command=b", "name"),
    ('0 3 * * * ^name=" a" command=b', "must not begin or end with a space"),
    ("0 3 * * * name=a ^command=", "command= is empty"),
    ('0 3 * * * name=a ^command=""', "command= is empty"),
    ("0 3 * * * name=a command=b ^user=", "user= is empty"),
    ('0 3 * * * name=a command=b ^description=""', "description= is empty"),
    ("0 3 * * * name=a command=b ^shell=yes", "shell is true or false"),
    ("0 3 * * * name=a command=b ^umask=8", "umask is octal"),
    ("0 3 * * * name=a command=b ^umask=", "umask is octal"),
    ("0 3 * * * name=a command=b ^umask=00022", "umask is octal"),
    ("0 3 * * * name=a command=b ^timeout=never", "timeout"),
    ("0 3 * * * name=a command=b ^timeout=-5s", "timeout"),
    ("0 3 * * * command=b^", "name= is missing"),
    ("0 3 * * * name=a^", "command= is missing"),
    ("0 3 * * *^", "name= is missing"),
    ("@daily^", "name= is missing"),
]


@pytest.mark.parametrize(("marked", "fragment"), BAD, ids=[f"{marked!a}"[1:70] for marked, _ in BAD])
def test_a_fault_is_told_where_it_stands(marked: str, fragment: str) -> None:
    text, column = marked.replace("^", ""), marked.index("^") + 1
    with pytest.raises(InvalidKrontab) as caught:
        parse_line(text, file="jobs.krontab", line=7)
    fault = caught.value
    assert fragment in fault.reason
    assert (fault.file, fault.line, fault.column) == ("jobs.krontab", 7, column)
    assert str(fault).startswith(f"jobs.krontab:7:{column}: ")
    assert fault.details == {"file": "jobs.krontab", "line": 7, "column": column, "reason": fault.reason}


@pytest.mark.parametrize(("marked", "fragment"), BAD, ids=[f"{marked!a}"[1:70] for marked, _ in BAD])
def test_a_fault_in_a_file_has_the_number_of_its_line(marked: str, fragment: str) -> None:
    text, column = marked.replace("^", ""), marked.index("^") + 1
    jobs, faults = parse_file(f"# head\r\n\r\n{text}\r\n0 1 * * * name=good command=true\r\n", file="jobs")
    assert [(fault.line, fault.column) for fault in faults] == [(3, column)]
    assert fragment in faults[0].reason
    assert [(each.line, each.job.name) for each in jobs] == [(4, "good")]


def test_a_line_longer_than_any_sane_one_is_refused() -> None:
    head = "0 3 * * * name=a command="
    assert parse_line(head + "b" * (LONGEST_LINE - len(head))) is not None
    with pytest.raises(InvalidKrontab, match="longer than") as caught:
        parse_line(head + "b" * (LONGEST_LINE - len(head) + 1))
    assert caught.value.column == LONGEST_LINE


def test_a_missing_field_is_told_before_a_comment_or_after_it() -> None:
    with pytest.raises(InvalidKrontab, match="command= is missing") as caught:
        parse_line("0 3 * * * name=a # command=b")
    assert caught.value.column in (len("0 3 * * * name=a") + 1, len("0 3 * * * name=a # command=b") + 1)


def test_a_quoted_word_is_no_modifier() -> None:
    for text in ('"@tz(UTC)"', '"@only(hours=8)"'):
        with pytest.raises(InvalidKrontab, match=r"neither a modifier nor a field|unknown field"):
            parse_line(f"0 3 * * * {text} name=a command=b")


def test_a_hint_names_what_is_known() -> None:
    with pytest.raises(InvalidKrontab) as modifier:
        parse_line("0 3 * * * @zone(UTC) name=a command=b")
    assert (
        modifier.value.hint == "Did you mean @only? Known modifiers: @tz, @win, @dist, @seed, @policy, @only, @avoid."
    )
    with pytest.raises(InvalidKrontab) as zone:
        parse_line("0 3 * * * @tz(Europe/Berln) name=a command=b")
    assert "Europe/Berlin" in str(zone.value.hint)
