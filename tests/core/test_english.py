"""`describe()`: what an expression says, in English."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from horae import Cron

SAID = {
    "* * * * *": "Every minute",
    "*/5 * * * *": "Every 5 minutes",
    "*/7 * * * *": "At 0, 7, 14, 21, 28, 35, 42, 49 and 56 minutes past every hour",
    "0 * * * *": "Every hour, on the hour",
    "1 * * * *": "At 1 minute past every hour",
    "0,30 * * * *": "Every 30 minutes",
    "0 */2 * * *": "Every 2 hours, on the hour",
    "15 */3 * * *": "At 15 minutes past every third hour",
    "*/10 */2 * * *": "Every 10 minutes of every second hour",
    "0 9 * * *": "At 09:00 every day",
    "@daily": "At 00:00 every day",
    "0 9,12,17 * * *": "At 09:00, 12:00 and 17:00 every day",
    "0 9 * * 1-5": "At 09:00 on Monday through Friday",
    "0 9 * * 1,2": "At 09:00 on Monday and Tuesday",
    "0 9 * * 0,3,6": "At 09:00 on Sunday, Wednesday and Saturday",
    "*/15 9-17 * * mon-fri": "Every 15 minutes from 09:00 to 17:59 on Monday through Friday",
    "*/15 9,11 * * *": "Every 15 minutes in hours 09 and 11",
    "*/15 9 * * *": "At 09:00, 09:15, 09:30 and 09:45 every day",
    "5,10,15 3-5 * * *": "At 5, 10 and 15 minutes past hours 03 through 05",
    "0 0 1 * *": "At 00:00 on day 1 of the month",
    "0 0 1-7 * *": "At 00:00 on days 1 through 7 of the month",
    "0 0 29 2 *": "At 00:00 on day 29 of the month in February",
    "0 0 1 1 *": "At 00:00 on day 1 of the month in January",
    "0 0 * 6-8 *": "At 00:00 in June through August",
    "15 3 1,15 * 1": "At 03:15 on days 1 and 15 of the month and on every Monday",
}


@pytest.mark.parametrize(("expression", "said"), SAID.items(), ids=SAID)
def test_an_expression_is_said_in_english(expression: str, said: str) -> None:
    assert Cron(expression).describe() == said


def test_equal_schedules_are_said_alike() -> None:
    assert Cron("0 9 * * mon-fri").describe() == Cron("00 9 * * 1,2,3,4,5").describe()


def test_vixie_s_both_days_are_said_as_a_condition() -> None:
    said = Cron("0 0 13 * */5", dialect="vixie").describe()
    assert said == "At 00:00 on day 13 of the month if that is Sunday or Friday"


def test_zone_and_bounds_are_said_too() -> None:
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, tzinfo=UTC)
    said = Cron("@hourly", tz="Europe/Berlin", start=start, end=end).describe()
    assert said == (
        "Every hour, on the hour, Europe/Berlin time, from 2026-01-01T00:00:00Z, until 2026-12-31T00:00:00Z"
    )
