"""Cron expressions: the grammar of three dialects, compiled to bit masks over days and minutes.

A compiled expression finds the next or the previous matching minute in wall time, in minutes since 1970. It keeps one
mask of the day's 1,440 minutes and, for each of the 14 shapes a year can have (weekday of January 1, leap or not), one
mask of the year's days. A search is a shift and a lowest set bit, plus one step for each year without a match.

    posix      *  n  n-m  lists
    extended   posix, and steps, names of months and days, 7 for Sunday, @daily and other macros
    vixie      extended, but where a day field begins with *, a day must match both day fields, and a list may have *
               among its elements
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from horae.errors import CronNeverFires, InvalidCron

DIALECTS = ("extended", "posix", "vixie")
LONGEST_EXPRESSION = 1000

MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One cron field: its name, its lowest and highest value, and the names that it accepts for numbers.

    `first_name` is the value of the first of `names`.
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0


MINUTE = FieldShape("minute", 0, 59)
HOUR = FieldShape("hour", 0, 23)
DAY = FieldShape("day", 1, 31)
MONTH = FieldShape("month", 1, 12, MONTH_NAMES, 1)
WEEKDAY = FieldShape("weekday", 0, 6, DAY_NAMES, 0)
FIELDS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class FieldFault(Exception):
    """The reason why one field is invalid. The caller adds the expression and raises a public error."""


@lru_cache(maxsize=4096)
def parse_field(text: str, shape: FieldShape, *, extended: bool, starred_lists: bool = False) -> int:
    """The values that `text` names, as a bit mask (bit n for value n). Raises FieldFault.

    `starred_lists`: a list may have `*` among its elements, as in Vixie cron.
    """
    if text == "*":
        return ((1 << (shape.high + 1)) - 1) & ~((1 << shape.low) - 1)
    mask = 0
    for element in text.split(","):
        mask |= _parse_element(element, shape, extended=extended, starred=starred_lists)
    return mask


def _parse_element(text: str, shape: FieldShape, *, extended: bool, starred: bool) -> int:
    if not text:
        raise FieldFault("has an empty element in its list")
    body, slash, step_text = text.partition("/")
    if slash and not extended:
        raise FieldFault(f'has a step in "{text[:40]}", which POSIX cron does not know')
    if body == "*":
        if not slash and not starred:
            raise FieldFault('has "*" inside a list')
        low, high = shape.low, shape.high
    else:
        first, dash, second = body.partition("-")
        low = _number(first, shape, extended=extended)
        if dash:
            high = _number(second, shape, extended=extended, ends_range=low > 0)
        elif slash:
            low, high = (0 if low > shape.high else low), shape.high
        else:
            high = low
        if low > high:
            raise FieldFault(f"has a range that wraps around: {low}-{high} (write it as two ranges)")
    mask = 0
    for value in range(low, high + 1, _step(step_text) if slash else 1):
        mask |= 1 << (0 if shape is WEEKDAY and value == 7 else value)
    return mask


def _number(text: str, shape: FieldShape, *, extended: bool, ends_range: bool = False) -> int:
    if not text:
        raise FieldFault("has a range or step without a number")
    high = 7 if shape is WEEKDAY and extended else shape.high
    if not _DIGITS.issuperset(text):
        named = text.lower()
        if extended and named in shape.names:
            value = shape.names.index(named) + shape.first_name
            # "fri-sun" ends on the Sunday that follows, as "5-7" does; "sun-sun" is one day.
            return 7 if shape is WEEKDAY and value == 0 and ends_range else value
        raise FieldFault(f"has {text[:40]!a}, which is not a number{_offer(named, shape, extended=extended)}")
    digits = text.lstrip("0") or "0"
    if len(digits) > 4 or not shape.low <= int(digits) <= high:
        raise FieldFault(f"has the value {text[:20]} out of range {shape.low}-{high}")
    return int(digits)


def _offer(text: str, shape: FieldShape, *, extended: bool) -> str:
    if text in shape.names:
        return " (POSIX cron knows no names)"
    if not extended:
        return ""
    if "?" in text or "#" in text or text in ("l", "w", "lw") or (text[:-1].isdigit() and text[-1] in "lw"):
        return " (Quartz's ?, L, W and # are not cron)"
    return f" nor one of {', '.join(shape.names)}" if shape.names else ""


def _step(text: str) -> int:
    if not text or not _DIGITS.issuperset(text):
        raise FieldFault(f"has a step {text[:40]!a} that is not a number")
    digits = text.lstrip("0")
    if not digits:
        raise FieldFault("has a step of 0")
    if len(digits) > 4:
        raise FieldFault(f"has the step {text[:20]} out of range 1-9999")
    return int(digits)


def _year_starts() -> tuple[list[int], bytes]:
    """For years 0 to 10002: the epoch day of January 1, and which of the 14 shapes the year has.

    Years outside 1 to 9999 have shape 14, which no day matches.
    """
    before = range(-1, 10_003)
    # The epoch day (days since 1970-01-01) of the January 1 that ends each year.
    days = [year * 365 + year // 4 - year // 100 + year // 400 - 719_162 for year in before]
    # 1970-01-01 was a Thursday; Sunday counts as 0.
    shapes = [(day + 4) % 7 * 2 + (after - day) % 365 for day, after in pairwise(days)]
    return days[:-1], bytes([14, *shapes[1:10_000], 14, 14, 14])


_JANUARY, _SHAPE = _year_starts()
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EVERY_SEVENTH = sum(1 << day for day in range(0, 366, 7))


@dataclass(frozen=True, slots=True, eq=False)
class CronTable:
    """A compiled expression. Wall minutes count from 1970-01-01T00:00 in wall time; the table knows no zone."""

    expression: str
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    either_day: bool
    """Whether both day fields are restricted, so that a day needs to match only one of them."""
    hourly: bool
    """Whether the hour field is `*` or `*/n`: the expression then means an interval, not a time of day."""
    minute_mask: int
    year_masks: tuple[int, ...]

    @property
    def meaning(self) -> tuple[object, ...]:
        """Equal for two expressions exactly when they match the same wall minutes."""
        # As bytes: the hash of a large int is a remainder, which many masks share.
        return (self.minute_mask.to_bytes(180, "little"), self.year_masks)

    def next_minute(self, minute: int) -> int | None:
        """The first matching wall minute after `minute`, or None when there is none up to the year 9999."""
        # Finding the year is inlined here and below: every search for a scheduled time runs this code.
        day, within = divmod(minute, 1440)
        year = 1970 + day * 400 // 146_097
        if _JANUARY[year] > day:
            year -= 1
        elif _JANUARY[year + 1] <= day:
            year += 1
        rest = self.year_masks[_SHAPE[year]] >> (day - _JANUARY[year])
        if rest & 1:
            later = self.minute_mask >> (within + 1)
            if later:
                return minute + (later & -later).bit_length()
        rest >>= 1
        while not rest:
            year += 1
            if year > 9999:
                return None
            day = _JANUARY[year] - 1
            rest = self.year_masks[_SHAPE[year]]
        first = self.minute_mask & -self.minute_mask
        return (day + (rest & -rest).bit_length()) * 1440 + first.bit_length() - 1

    def previous_minute(self, minute: int) -> int | None:
        """The last matching wall minute before `minute`, or None when there is none back to the year 1."""
        day, within = divmod(minute, 1440)
        year = 1970 + day * 400 // 146_097
        if _JANUARY[year] > day:
            year -= 1
        elif _JANUARY[year + 1] <= day:
            year += 1
        since = day - _JANUARY[year]
        rest = self.year_masks[_SHAPE[year]] & ((2 << since) - 1)
        if rest >> since:
            earlier = self.minute_mask & ((1 << within) - 1)
            if earlier:
                return day * 1440 + earlier.bit_length() - 1
            rest &= (1 << since) - 1
        while not rest:
            year -= 1
            if year < 1:
                return None
            rest = self.year_masks[_SHAPE[year]]
        return (_JANUARY[year] + rest.bit_length() - 1) * 1440 + self.minute_mask.bit_length() - 1

    def matches_minute(self, minute: int) -> bool:
        return self.next_minute(minute - 1) == minute


@lru_cache(maxsize=4096)
def compile_cron(expression: str, dialect: str = "extended") -> CronTable:
    """Reads and compiles `expression`. Raises InvalidCron, or CronNeverFires for one like `0 0 31 2 *`."""
    extended = dialect != "posix"
    texts = _split(expression, extended=extended)
    masks = []
    for text, shape in zip(texts, FIELDS, strict=True):
        try:
            masks.append(parse_field(text, shape, extended=extended, starred_lists=dialect == "vixie"))
        except FieldFault as fault:
            raise InvalidCron(expression, shape.name, str(fault)) from fault
    minutes, hours, days, months, weekdays = masks
    free = [text == "*" or (dialect == "vixie" and text.startswith("*")) for text in (texts[2], texts[4])]
    either_day = not any(free)
    year_masks = _year_masks(days, months, weekdays, either_day=either_day)
    if not any(year_masks):
        reason = f"never fires: no month it names has a day {texts[2]}"
        raise CronNeverFires(expression, "day", reason, hint="Choose a day that exists in one of the months named.")
    return CronTable(
        expression=expression,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        either_day=either_day,
        hourly="*" in texts[1].split(",") or (texts[1].startswith("*/") and "," not in texts[1]),
        minute_mask=_minute_mask(minutes, hours),
        year_masks=year_masks,
    )


def _split(expression: str, *, extended: bool) -> list[str]:
    if len(expression) > LONGEST_EXPRESSION:
        raise InvalidCron(expression, "expression", f"is longer than {LONGEST_EXPRESSION} characters")
    trimmed = expression.strip(" \t")
    if trimmed.startswith("@"):
        macro = MACROS.get(trimmed.lower()) if extended else None
        if macro is None:
            reason = "is a macro, which POSIX cron does not know" if not extended else "is not a known macro"
            hint = None if not extended else f"Known macros: {', '.join(MACROS)}."
            raise InvalidCron(expression, "expression", reason, hint=hint)
        trimmed = macro
    texts = trimmed.replace("\t", " ").split(" ")
    texts = [text for text in texts if text]
    if len(texts) != 5:
        reason = f"must have exactly 5 fields (minute hour day month weekday), found {len(texts)}"
        raise InvalidCron(expression, "expression", reason)
    return texts


@lru_cache(maxsize=4096)
def _minute_mask(minutes: int, hours: int) -> int:
    return sum(minutes << (hour * 60) for hour in range(24) if hours >> hour & 1)


@lru_cache(maxsize=4096)
def _year_masks(days: int, months: int, weekdays: int, *, either_day: bool) -> tuple[int, ...]:
    """The matching days of each shape of year, bit 0 for January 1. Shapes of leap years are odd."""
    by_date = [0, 0]
    in_month = [0, 0]
    for leap in (0, 1):
        start = 0
        for month, usual in enumerate(MONTH_LENGTHS, start=1):
            length = usual + 1 if leap and month == 2 else usual
            if months >> month & 1:
                whole = (1 << length) - 1
                by_date[leap] |= (days >> 1 & whole) << start
                in_month[leap] |= whole << start
            start += length
    masks = []
    for first_weekday in range(7):
        by_weekday = 0
        for weekday in range(7):
            if weekdays >> weekday & 1:
                by_weekday |= _EVERY_SEVENTH << (weekday - first_weekday) % 7
        for leap in (0, 1):
            either = by_date[leap] | by_weekday if either_day else by_date[leap] & by_weekday
            masks.append(either & in_month[leap])
    return (*masks, 0)
