"""What somebody asks for, as they type it: from when to when, on which clocks, with which chance."""

from __future__ import annotations

from datetime import datetime, timedelta

from horae.control.preview import read_time
from horae.core.duration import parse_duration
from horae.core.instant import floored
from horae.core.zone import zone
from horae.errors import InvalidDuration, InvalidInput, InvalidTime, shown
from horae.rehearsal.cast import Cast
from horae.rehearsal.draws import Chance
from horae.rehearsal.stage import SLOTS, Span

FROM_HISTORY = "from-history"
NONE = "none"
_DAY = timedelta(days=1)


def read_span(
    start: str | None, end: str | None, *, timezone: str, now: datetime, cast: Cast, slots: int | None = None
) -> Span:
    """From `start` (None: this minute) to `end`, a time or a length such as 7d (None: a day). Slots are those given, or
    what the catalog says, or as many as a node has. Raises InvalidTime, InvalidInput."""
    begin = floored(now if start is None else read_time(start, timezone, now, "--from"))
    if start in (None, "now"):
        begin = begin.replace(second=0)
    finish = begin + _DAY if end is None else _end(end, begin, timezone, now)
    return Span(begin, finish, slots if slots is not None else cast.slots if cast.slots is not None else SLOTS)


def _end(text: str, begin: datetime, timezone: str, now: datetime) -> datetime:
    try:
        return floored(read_time(text, timezone, now, "--to"))
    except InvalidTime as error:
        try:
            return begin + parse_duration(text, name="--to")
        except InvalidDuration:
            hint = "Write 2027-03-01, 2027-03-01T09:00, 2027-03-01T09:00:00+01:00, or how long: 12h, 7d."
            raise InvalidTime(error.message, hint=hint) from error
        except OverflowError:
            raise InvalidTime(f"Invalid --to {shown(text)}: lies beyond the year 9999") from error


def read_chance(seed: int, durations: str, failures: str, assumed: str) -> Chance:
    """`durations` is from-history or a length, `failures` from-history or none. Raises InvalidInput."""
    if failures not in (FROM_HISTORY, NONE):
        raise InvalidInput(f"Invalid --failures {shown(failures)}", hint=f"Write {FROM_HISTORY} or {NONE}.")
    seconds = None if durations == FROM_HISTORY else parse_duration(durations, name="--durations").total_seconds()
    return Chance(
        seed, seconds, parse_duration(assumed, name="--assume").total_seconds(), fails=failures == FROM_HISTORY
    )


def shown_timezone(given: str | None, cast: Cast) -> str:
    """The clocks that times are read and shown on: those given, or those that all jobs share, or UTC. Raises
    UnknownZone."""
    if given is not None:
        return zone(given).key
    shared = {part.spec.schedule.timezone for part in cast.parts if part.spec.schedule is not None}
    return shared.pop() if len(shared) == 1 else "UTC"
