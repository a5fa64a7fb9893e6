"""Describes cron expressions in English, from the compiled masks: equal lists read alike, however they are written."""

from __future__ import annotations

from horae.core.schedule.cron import CronTable

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MOST_TIMES = 6


def describe_cron(table: CronTable) -> str:
    """One sentence without its full stop: when in the day, on which days, in which months."""
    text = _times(_values(table.minutes, 60), _values(table.hours, 24))
    days = _days(table)
    months = _values(table.months >> 1, 12)
    if days:
        text += f" {days}"
    elif len(months) == 12 and text.startswith("At ") and " past " not in text:
        text += " every day"
    if len(months) < 12:
        text += f" in {_series([_MONTHS[month] for month in months], months)}"
    return text


def _values(mask: int, size: int) -> list[int]:
    return [value for value in range(size) if mask >> value & 1]


def _times(minutes: list[int], hours: list[int]) -> str:
    every_hour = len(hours) == 24
    if not every_hour and len(minutes) * len(hours) <= _MOST_TIMES:
        clock = [f"{hour:02d}:{minute:02d}" for hour in hours for minute in minutes]
        return f"At {_joined(clock)}"
    step = _even_step(minutes, 60)
    hour_step = _even_step(hours, 24)
    if every_hour:
        if minutes == [0]:
            return "Every hour, on the hour"
        return _every(step, "minute") if step else f"At {_minutes(minutes)} past every hour"
    if minutes == [0] and hour_step:
        return f"{_every(hour_step, 'hour')}, on the hour"
    if hour_step:
        rhythm = f"every {_ordinal(hour_step)} hour"
        return f"{_every(step, 'minute')} of {rhythm}" if step else f"At {_minutes(minutes)} past {rhythm}"
    past = f"hour {hours[0]:02d}" if len(hours) == 1 else f"hours {_series([f'{hour:02d}' for hour in hours], hours)}"
    if step:
        runs = hours == list(range(hours[0], hours[-1] + 1))
        span = f"from {hours[0]:02d}:00 to {hours[-1]:02d}:59" if runs else f"in {past}"
        return f"{_every(step, 'minute')} {span}"
    return f"At {_minutes(minutes)} past {past}"


def _every(step: int, unit: str) -> str:
    return f"Every {unit}" if step == 1 else f"Every {step} {unit}s"


def _minutes(minutes: list[int]) -> str:
    noun = "minute" if minutes == [1] else "minutes"
    return f"{_series([str(minute) for minute in minutes], minutes)} {noun}"


def _even_step(values: list[int], size: int) -> int | None:
    """The n for which `values` is every n-th value from 0, as `*/n` is when n divides `size`; else None."""
    if len(values) < 2 or values[0] != 0:
        return None
    step = values[1]
    return step if size % step == 0 and values == list(range(0, size, step)) else None


def _days(table: CronTable) -> str:
    days, weekdays = _values(table.days >> 1, 31), _values(table.weekdays, 7)
    dates = _dates([day + 1 for day in days])
    named = [_WEEKDAYS[day] for day in weekdays]
    names = _series(named, weekdays)
    if table.either_day:
        return "" if len(days) == 31 or len(weekdays) == 7 else f"on {dates} and on every {names}"
    if len(days) == 31:
        return "" if len(weekdays) == 7 else f"on {names}"
    return f"on {dates}" if len(weekdays) == 7 else f"on {dates} if that is {_joined(named, 'or')}"


def _dates(days: list[int]) -> str:
    noun = "day" if len(days) == 1 else "days"
    return f"{noun} {_series([str(day) for day in days], days)} of the month"


def _series(words: list[str], values: list[int]) -> str:
    """`words` as an English list, in which three or more consecutive `values` become a range."""
    parts: list[str] = []
    start = 0
    for position in range(1, len(values) + 1):
        if position < len(values) and values[position] == values[position - 1] + 1:
            continue
        if position - start >= 3:
            parts.append(f"{words[start]} through {words[position - 1]}")
        else:
            parts += words[start:position]
        start = position
    return _joined(parts)


def _joined(parts: list[str], last: str = "and") -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
