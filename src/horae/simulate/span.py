"""Reads the options of a simulation: the span, the zone, and how runs are drawn."""

from __future__ import annotations

from datetime import datetime, timedelta

from horae.core.time.duration import parse_duration
from horae.core.time.instant import floored
from horae.core.time.zone import zone
from horae.errors import InvalidDuration, InvalidInput, InvalidTime, shown
from horae.services.preview.preview import read_time
from horae.simulate.draws import DrawOptions
from horae.simulate.engine import SLOTS, SimulatedSpan
from horae.simulate.jobs import SimulatedJobs

FROM_HISTORY = "from-history"
NONE = "none"
_DAY = timedelta(days=1)


def read_span(
    start: str | None, end: str | None, *, timezone: str, now: datetime, cast: SimulatedJobs, slots: int | None = None
) -> SimulatedSpan:
    """The span from `start` (None: this minute) to `end`, a time or a duration such as 7d (None: one day).

    The concurrency limit is `slots`, else that of the catalog, else a node's default. Raises InvalidTime or
    InvalidInput.
    """
    begin = floored(now if start is None else read_time(start, timezone, now, "--from"))
    if start in (None, "now"):
        begin = begin.replace(second=0)
    finish = begin + _DAY if end is None else _end(end, begin, timezone, now)
    return SimulatedSpan(begin, finish, slots if slots is not None else cast.slots if cast.slots is not None else SLOTS)


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


def read_draw_options(seed: int, durations: str, failures: str, assumed: str) -> DrawOptions:
    """How runs are drawn. `durations` is from-history or a duration; `failures` is from-history or none.

    Raises InvalidInput.
    """
    if failures not in (FROM_HISTORY, NONE):
        raise InvalidInput(f"Invalid --failures {shown(failures)}", hint=f"Write {FROM_HISTORY} or {NONE}.")
    seconds = None if durations == FROM_HISTORY else parse_duration(durations, name="--durations").total_seconds()
    return DrawOptions(
        seed, seconds, parse_duration(assumed, name="--assume").total_seconds(), fails=failures == FROM_HISTORY
    )


def shown_timezone(given: str | None, cast: SimulatedJobs) -> str:
    """The zone in which times are read and shown: the given one, else the one that all jobs share, else UTC.

    Raises UnknownZone.
    """
    if given is not None:
        return zone(given).key
    shared = {part.spec.schedule.timezone for part in cast.parts if part.spec.schedule is not None}
    return shared.pop() if len(shared) == 1 else "UTC"
