"""The probability that the draws of a window find none of the times that its constraints allow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from horae.core.schedule.schedules import Schedule
from horae.core.time.duration import format_duration
from horae.core.time.instant import LAST, instant, seconds_of
from horae.core.time.zone import zone
from horae.core.window.allowed_time import allowed_stretches, seconds_in
from horae.core.window.decision import LONGEST_EXACT, MAX_ATTEMPTS, DecisionRequest, bounds_of
from horae.core.window.distribution import likelihood
from horae.core.window.window import Window

SAMPLED_SLOTS = 28
"""Four weeks of a daily job, so that every day of the week counts the same."""
_LOOK_AHEAD = 366 * 86_400
_MOST_EFFORT = 200_000
"""Limit on the number of clauses times days of the window, over all slots. Beyond it fewer slots are looked at."""
REPORT_THRESHOLD = 0.001
HINT = (
    "Make the placement exact, which picks one of the allowed times where draws find none: exact=True in Python, "
    "exact = true in jobs.toml, EXACT in SQL, @win(mode,duration,exact) in a krontab. Or begin the window where only "
    "allows a start, and make it shorter."
)


@dataclass(frozen=True, slots=True)
class AllowedShare:
    """What the constraints leave of one window. `missed` is the probability that no draw finds an allowed second."""

    allowed: int
    """Seconds."""
    width: int
    missed: float


@dataclass(frozen=True, slots=True)
class Odds:
    """How likely the next `slots` slots of a job are to be UNSCHEDULABLE.

    `closed` of them have no allowed second. `missed` is the mean probability that one of the others is UNSCHEDULABLE.
    `allowed` and `width` are those of the slot with the fewest allowed seconds, in seconds.
    """

    slots: int
    closed: int
    missed: float
    allowed: int
    width: int

    @property
    def is_narrow(self) -> bool:
        return self.missed >= REPORT_THRESHOLD

    @property
    def rate(self) -> str:
        """`missed` as readable text: `64 %`, `0.3 %`."""
        percent = self.missed * 100
        return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1f} %"

    def __str__(self) -> str:
        left, whole = (format_duration(timedelta(seconds=each)) for each in (self.allowed, self.width))
        return (
            f"about {self.rate} of its slots will be UNSCHEDULABLE by chance: only and avoid leave {left} of a window "
            f"of {whole}, and {MAX_ATTEMPTS} draws can miss that"
        )


def room_of(request: DecisionRequest) -> AllowedShare:
    """What the constraints leave of the window of one slot."""
    first, last, nominal = bounds_of(request)
    width = last - first
    rules = request.constraints.rules()
    if not rules:
        return AllowedShare(width + 1, width, 0.0)
    stretches = allowed_stretches(rules, zone(request.timezone), first, last)
    if not stretches or not width:
        return AllowedShare(seconds_in(stretches), width, 0.0 if stretches else 1.0)
    if request.exact:
        return AllowedShare(seconds_in(stretches), width, 0.0)
    chance = likelihood(request.distribution, width, nominal - first, request.window_mode)
    hit = min(sum(chance(begin - first, end - first) for begin, end in stretches), 1.0)
    return AllowedShare(seconds_in(stretches), width, (1.0 - hit) ** MAX_ATTEMPTS)


def odds_of(name: str, schedule: Schedule | None, window: Window | None, now: datetime) -> Odds | None:
    """The odds of the next slots after `now`, at most `SAMPLED_SLOTS` of them and within a year.

    None without constraints or slots, and for a window longer than LONGEST_EXACT. Raises what a custom schedule raises.
    """
    if schedule is None or window is None or not window.constraints.rules() or window.length > LONGEST_EXACT:
        return None
    until = instant(min(seconds_of(now) + _LOOK_AHEAD, LAST))
    rules = window.constraints.rules()
    clauses = sum(map(len, (*rules.only, *rules.avoid)))
    count = max(min(SAMPLED_SLOTS, _MOST_EFFORT // (clauses * (window.length.days + 1))), 1)
    slots = list(islice(schedule.anchored(now).between(now, until), count))
    rooms = [room_of(window.request(name, slot, schedule.timezone)) for slot in slots]
    if not rooms:
        return None
    found = [room for room in rooms if room.allowed]
    narrowest = min(found, key=lambda room: room.allowed, default=rooms[0])
    missed = sum(room.missed for room in found) / max(len(found), 1)
    return Odds(len(rooms), len(rooms) - len(found), missed, narrowest.allowed, narrowest.width)


def narrow_odds(name: str, schedule: Schedule | None, window: Window | None, now: datetime) -> Odds | None:
    """The odds of a job where they are worth a warning (WORTH_SAYING), else None. Also None where a custom schedule
    raises."""
    try:
        odds = odds_of(name, schedule, window, now)
    except Exception:  # noqa: BLE001 - a custom schedule may raise anything; other checks report it
        return None
    return odds if odds is not None and odds.is_narrow else None
