"""How likely the draws of a window are to find none of the times that its constraints allow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from horae.core.allowance import allowed_stretches, seconds_in
from horae.core.decision import LONGEST_EXACT, MAX_ATTEMPTS, DecisionRequest, bounds_of
from horae.core.distribution import likelihood
from horae.core.duration import format_duration
from horae.core.instant import LAST, instant, seconds_of
from horae.core.schedule import Schedule
from horae.core.window import Window
from horae.core.zone import zone

SLOTS_LOOKED_AT = 28
"""Of a job that runs every day these are four weeks, so that every day of the week counts alike."""
_LOOK_AHEAD = 366 * 86_400
_MOST_EFFORT = 200_000
"""Clauses looked at, each on each day of a window; of a window that takes more, fewer slots are looked at."""
WORTH_SAYING = 0.001
HINT = (
    "Make the placement exact, which picks one of the allowed times where draws find none: exact=True in Python, "
    "exact = true in jobs.toml, EXACT in SQL, @win(mode,duration,exact) in a krontab. Or begin the window where only "
    "allows a start, and make it shorter."
)


@dataclass(frozen=True, slots=True)
class Room:
    """What the constraints leave of one window. `missed` is the chance that the draws find nothing of it."""

    allowed: int
    """Seconds."""
    width: int
    missed: float


@dataclass(frozen=True, slots=True)
class Odds:
    """How the next slots of a job fare. `closed` are those of which no second is allowed; `missed` is the chance that
    one of the others is UNSCHEDULABLE, `allowed` and `width` what the narrowest of them has, in seconds."""

    slots: int
    closed: int
    missed: float
    allowed: int
    width: int

    @property
    def is_narrow(self) -> bool:
        return self.missed >= WORTH_SAYING

    @property
    def rate(self) -> str:
        """The chance for people to read: `64 %`, `0.3 %`."""
        percent = self.missed * 100
        return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1f} %"

    def __str__(self) -> str:
        left, whole = (format_duration(timedelta(seconds=each)) for each in (self.allowed, self.width))
        return (
            f"about {self.rate} of its slots will be UNSCHEDULABLE by chance: only and avoid leave {left} of a window "
            f"of {whole}, and {MAX_ATTEMPTS} draws can miss that"
        )


def room_of(request: DecisionRequest) -> Room:
    """What is left of the window of one slot."""
    first, last, nominal = bounds_of(request)
    width = last - first
    rules = request.constraints.rules()
    if not rules:
        return Room(width + 1, width, 0.0)
    stretches = allowed_stretches(rules, zone(request.timezone), first, last)
    if not stretches or not width:
        return Room(seconds_in(stretches), width, 0.0 if stretches else 1.0)
    if request.exact:
        return Room(seconds_in(stretches), width, 0.0)
    chance = likelihood(request.distribution, width, nominal - first, request.window_mode)
    hit = min(sum(chance(begin - first, end - first) for begin, end in stretches), 1.0)
    return Room(seconds_in(stretches), width, (1.0 - hit) ** MAX_ATTEMPTS)


def odds_of(name: str, schedule: Schedule | None, window: Window | None, now: datetime) -> Odds | None:
    """How the next slots after `now` fare, at most `SLOTS_LOOKED_AT` within a year; None where nothing is constrained
    or no slot comes, and for a window longer than exact placement takes. Raises what a user's own schedule raises."""
    if schedule is None or window is None or not window.constraints.rules() or window.length > LONGEST_EXACT:
        return None
    until = instant(min(seconds_of(now) + _LOOK_AHEAD, LAST))
    rules = window.constraints.rules()
    clauses = sum(map(len, (*rules.only, *rules.avoid)))
    count = max(min(SLOTS_LOOKED_AT, _MOST_EFFORT // (clauses * (window.length.days + 1))), 1)
    slots = list(islice(schedule.anchored(now).between(now, until), count))
    rooms = [room_of(window.request(name, slot, schedule.timezone)) for slot in slots]
    if not rooms:
        return None
    found = [room for room in rooms if room.allowed]
    narrowest = min(found, key=lambda room: room.allowed, default=rooms[0])
    missed = sum(room.missed for room in found) / max(len(found), 1)
    return Odds(len(rooms), len(rooms) - len(found), missed, narrowest.allowed, narrowest.width)


def narrow_odds(name: str, schedule: Schedule | None, window: Window | None, now: datetime) -> Odds | None:
    """The odds of a job whose constraints leave so little that it must be said, else None. Where a user's own schedule
    raises, nothing is known."""
    try:
        odds = odds_of(name, schedule, window, now)
    except Exception:  # noqa: BLE001 - a user's own schedule may raise anything, which others tell of
        return None
    return odds if odds is not None and odds.is_narrow else None
