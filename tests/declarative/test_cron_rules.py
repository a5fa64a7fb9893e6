"""The cron language: what the grammar allows, what each rule refuses and in which words, and which days are meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horae.declarative import (
    CronCalculationError,
    CronExpressionInvalidError,
    FieldParseError,
    InvalidCronExpressionError,
    Scheduler,
    next_occurrence,
    previous_occurrence,
)

STEP = 'has a step in "{}", which POSIX cron does not know'
FIVE = "must have exactly 5 fields (minute hour day month weekday), found {}"


async def callback() -> None: ...


def refused(expression: str) -> CronExpressionInvalidError:
    with pytest.raises(CronExpressionInvalidError) as caught:
        _ = Scheduler("sqlite://", tz="UTC").initialize([("a", expression, callback, timedelta(0))])
    return caught.value


def accepted(expression: str) -> None:
    Scheduler("sqlite://", tz="UTC").initialize([("a", expression, callback, timedelta(0))]).close()


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "0 0 * * *",
        "15 3 * * 1-5",
        "0,30 * * * *",
        "0 12 14 2 *",
        "  0 0 * * *  ",
        "\t0\t0 \t * * *\t",
        "00 00 01 01 00",
        "000000000059 23 31 12 6",
        "0-59 0-23 1-31 1-12 0-6",
        "5-5 * * * *",
        "1,1,1 * * * *",
        "1,5-10,20-30,59 0,12 * * *",
        "0 0 29 2 *",
        "0 0 31 1,2 *",
        "0 0 31 2 1",
        f"{','.join(map(str, range(60)))} {','.join(map(str, range(24)))} {','.join(map(str, range(1, 32)))} * *",
    ],
)
def test_whatever_the_grammar_allows_is_accepted(expression: str) -> None:
    accepted(expression)


RULES = [
    # exactly five fields between spaces and tabs
    ("", "expression", FIVE.format(0)),
    ("   ", "expression", FIVE.format(0)),
    ("*", "expression", FIVE.format(1)),
    ("* * * *", "expression", FIVE.format(4)),
    ("* * * * * *", "expression", FIVE.format(6)),
    ("0 0 * * * 2026", "expression", FIVE.format(6)),
    ("*\n* * * *", "expression", FIVE.format(4)),
    ("*\u00a0* * * *", "expression", FIVE.format(4)),
    ("* * * * *\n", "weekday", "has '*\\n', which is not a number"),
    # no steps
    ("*/15 * * * *", "minute", STEP.format("*/15")),
    ("0-30/5 * * * *", "minute", STEP.format("0-30/5")),
    ("5/10 * * * *", "minute", STEP.format("5/10")),
    ("0 */2 * * *", "hour", STEP.format("*/2")),
    ("0 0 * * */2", "weekday", STEP.format("*/2")),
    # no names
    ("0 0 * jan *", "month", "has 'jan', which is not a number (POSIX cron knows no names)"),
    ("0 0 * * mon", "weekday", "has 'mon', which is not a number (POSIX cron knows no names)"),
    ("0 0 * * MON-FRI", "weekday", "has 'MON', which is not a number (POSIX cron knows no names)"),
    ("0 0 * * sunday", "weekday", "has 'sunday', which is not a number"),
    # no macros
    ("@daily", "expression", "is a macro, which POSIX cron does not know"),
    ("@hourly", "expression", "is a macro, which POSIX cron does not know"),
    (" @reboot ", "expression", "is a macro, which POSIX cron does not know"),
    # nothing of Quartz
    ("0 0 ? * *", "day", "has '?', which is not a number"),
    ("0 0 L * *", "day", "has 'L', which is not a number"),
    ("0 0 15W * *", "day", "has '15W', which is not a number"),
    ("0 0 * * 5L", "weekday", "has '5L', which is not a number"),
    ("0 0 * * 5#2", "weekday", "has '5#2', which is not a number"),
    # no seventh weekday
    ("0 0 * * 7", "weekday", "has the value 7 out of range 0-6"),
    ("0 0 * * 5-7", "weekday", "has the value 7 out of range 0-6"),
    ("0 0 * * 0,7", "weekday", "has the value 7 out of range 0-6"),
    # no range that wraps around
    ("30-10 * * * *", "minute", "has a range that wraps around: 30-10 (write it as two ranges)"),
    ("0 22-2 * * *", "hour", "has a range that wraps around: 22-2 (write it as two ranges)"),
    ("0 0 * * 5-1", "weekday", "has a range that wraps around: 5-1 (write it as two ranges)"),
    # no values out of range
    ("60 * * * *", "minute", "has the value 60 out of range 0-59"),
    ("0 24 * * *", "hour", "has the value 24 out of range 0-23"),
    ("0 0 0 * *", "day", "has the value 0 out of range 1-31"),
    ("0 0 32 * *", "day", "has the value 32 out of range 1-31"),
    ("0 0 * 0 *", "month", "has the value 0 out of range 1-12"),
    ("0 0 * 13 *", "month", "has the value 13 out of range 1-12"),
    ("0 0 * * 8", "weekday", "has the value 8 out of range 0-6"),
    ("0-60 * * * *", "minute", "has the value 60 out of range 0-59"),
    ("99999999999999999999999 * * * *", "minute", "has the value 99999999999999999999 out of range 0-59"),
    # nothing but decimal digits
    ("1e1 * * * *", "minute", "has '1e1', which is not a number"),
    ("0x10 * * * *", "minute", "has '0x10', which is not a number"),
    ("+5 * * * *", "minute", "has '+5', which is not a number"),
    ("-5 * * * *", "minute", "has a range or step without a number"),
    ("1.5 * * * *", "minute", "has '1.5', which is not a number"),
    ("1_0 * * * *", "minute", "has '1_0', which is not a number"),
    ("\u0665 * * * *", "minute", "has '\\u0665', which is not a number"),
    ("\u00b2 * * * *", "minute", "has '\\xb2', which is not a number"),
    ("\uff15 * * * *", "minute", "has '\\uff15', which is not a number"),
    # nothing that the grammar does not have
    (", * * * *", "minute", "has an empty element in its list"),
    ("1, * * * *", "minute", "has an empty element in its list"),
    ("1,,2 * * * *", "minute", "has an empty element in its list"),
    ("*,5 * * * *", "minute", 'has "*" inside a list'),
    ("5,* * * * *", "minute", 'has "*" inside a list'),
    ("** * * * *", "minute", "has '**', which is not a number"),
    ("1- * * * *", "minute", "has a range or step without a number"),
    ("1-2-3 * * * *", "minute", "has '2-3', which is not a number"),
    ("*-5 * * * *", "minute", "has '*', which is not a number"),
    ("H * * * *", "minute", "has 'H', which is not a number"),
    ("0 0 * * *;", "weekday", "has '*;', which is not a number"),
    # nothing that never comes
    ("0 0 30 2 *", "day", "never fires: no month it names has a day 30"),
    ("0 0 31 4,6,9,11 *", "day", "never fires: no month it names has a day 31"),
]


@pytest.mark.parametrize(("expression", "field", "reason"), RULES, ids=[rule[0] or "nothing" for rule in RULES])
def test_whatever_else_is_refused_with_its_field_and_the_reason(expression: str, field: str, reason: str) -> None:
    error = refused(expression)
    assert error.details == {"expression": expression, "field": field, "reason": reason}
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in expression)
    assert str(error) == f'Invalid cron expression "{shown}": {field} field {reason}'


@pytest.mark.parametrize("expression", ["60 * * * *", "* * * * mon", "* * *", "@daily"])
def test_a_refused_expression_was_caused_by_the_parsers_own_error(expression: str) -> None:
    error = refused(expression)
    cause = error.__cause__
    assert type(cause) is InvalidCronExpressionError
    assert cause.details == error.details
    assert str(cause) == str(error)


@pytest.mark.parametrize(
    ("expression", "value", "name", "message"),
    [
        ("0 0 * 1,13 *", "1,13", "month", "month field has the value 13 out of range 1-12"),
        ("\t60 \t* * * *", "60", "minute", "minute field has the value 60 out of range 0-59"),
        ("* * * * *\n", "*\n", "weekday", "weekday field has '*\\n', which is not a number"),
    ],
)
def test_a_refused_field_is_the_cause_of_the_parsers_error(
    expression: str, value: str, name: str, message: str
) -> None:
    parser = refused(expression).__cause__
    assert isinstance(parser, InvalidCronExpressionError)
    field = parser.__cause__
    assert type(field) is FieldParseError
    assert field.details == {"fieldValue": value, "fieldName": name}
    assert str(field) == message


# ---- which minutes are meant -----------------------------------------------------------------------------------------


def days(expression: str, year: int, month: int) -> list[int]:
    """The days of a month on which an expression comes due."""
    moment, found = datetime(year, month, 1, tzinfo=UTC) - timedelta(minutes=1), []
    while (moment := next_occurrence(expression, moment)).replace(day=1) == datetime(year, month, 1, tzinfo=UTC):
        found.append(moment.day)
    return found


MONDAYS, DAYS = [5, 12, 19, 26], list(range(1, 32))
"""Of January 2026."""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 * * *", DAYS),
        ("0 0 * * 1", MONDAYS),
        ("0 0 15 * *", [15]),
        ("0 0 1,15 * 1", sorted([1, 15, *MONDAYS])),
        ("0 0 12 * 1", MONDAYS),
        # Restricted means: not a bare asterisk, however much is named.
        ("0 0 1-31 * 1", DAYS),
        ("0 0 15 * 0-6", DAYS),
        ("0 0 13 * 5", [2, 9, 13, 16, 23, 30]),
    ],
)
def test_of_two_restricted_day_fields_either_is_enough_and_otherwise_the_restricted_one_counts(
    expression: str, expected: list[int]
) -> None:
    assert days(expression, 2026, 1) == expected


def test_the_month_restricts_whatever_the_day_fields_say() -> None:
    assert days("0 0 1 1 1", 2026, 1) == [1, *MONDAYS]
    assert next_occurrence("0 0 1 2 1", datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 2, 1, tzinfo=UTC)


def test_sunday_is_nought_and_saturday_six() -> None:
    assert days("0 0 * * 0", 2026, 1) == [4, 11, 18, 25]
    assert days("0 0 * * 6", 2026, 1) == [3, 10, 17, 24, 31]


def test_lists_and_ranges_name_what_they_say() -> None:
    moment, minutes = datetime(2026, 1, 1, 9, 59, tzinfo=UTC), []
    for _ in range(5):
        moment = next_occurrence("5-7,0,59 10 * * *", moment)
        minutes.append(moment.minute)
    assert minutes == [0, 5, 6, 7, 59]


def test_a_leap_day_comes_every_four_years() -> None:
    first = next_occurrence("0 0 29 2 *", datetime(2026, 1, 1, tzinfo=UTC))
    assert first == datetime(2028, 2, 29, tzinfo=UTC)
    assert previous_occurrence("0 0 29 2 *", first) == datetime(2024, 2, 29, tzinfo=UTC)


def test_an_occurrence_is_at_the_very_start_of_its_minute() -> None:
    found = next_occurrence("* * * * *", datetime(2026, 1, 1, 10, 0, 30, 5, tzinfo=UTC))
    assert found == datetime(2026, 1, 1, 10, 1, tzinfo=UTC)
    assert next_occurrence("* * * * *", found) == datetime(2026, 1, 1, 10, 2, tzinfo=UTC)


def test_where_the_calendar_ends_the_calculation_fails_with_its_cause() -> None:
    now = datetime(9999, 3, 1, tzinfo=UTC)
    with pytest.raises(CronCalculationError) as caught:
        next_occurrence("0 0 29 2 *", now)
    error = caught.value
    assert str(error) == f"Failed to calculate next occurrence: {error.details['cause']}"
    assert set(error.details) == {"expression", "currentTime", "cause"}
    assert error.details["expression"] == "0 0 29 2 *"
    assert error.details["currentTime"] == "9999-03-01T00:00:00Z"
    assert isinstance(error.details["cause"], ValueError)


def test_where_the_calendar_begins_the_calculation_fails_too() -> None:
    with pytest.raises(CronCalculationError, match=r"^Failed to calculate next occurrence: "):
        previous_occurrence("0 0 29 2 *", datetime(1, 3, 1, tzinfo=UTC))


def test_an_occurrence_of_nonsense_is_refused_as_in_a_registration() -> None:
    with pytest.raises(CronExpressionInvalidError):
        next_occurrence("@daily", datetime(2026, 1, 1, tzinfo=UTC))
