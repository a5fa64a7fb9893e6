"""What lives are drawn from: how fast they go, the expressions and delays of tasks, how long callbacks work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a life goes: `longest` is about as far as one step leads.

    `shapes` are kinds of expressions with their weights, `delays` and `works` are seconds to choose from.
    """

    longest: timedelta
    shapes: tuple[tuple[str, int], ...]
    delays: tuple[float, ...]
    works: tuple[float, ...]


PACES = (
    Pace(
        timedelta(minutes=40),
        (("every minute", 2), ("few minutes", 4), ("range of minutes", 2), ("hourly", 2), ("near hours", 2)),
        (0, 0, 1, 7, 30, 60, 60, 90, 300, 1800),
        (0, 0, 0, 0, 0.5, 3, 20, 60, 60, 61, 150, 600, 2400),
    ),
    Pace(
        timedelta(hours=10),
        (("few minutes", 1), ("hourly", 4), ("few hours", 4), ("near hours", 3), ("daily", 2)),
        (0, 5, 60, 300, 900, 3600, 7200),
        (0, 0, 0, 0, 2, 45, 60, 300, 1800, 3600, 3600, 9000),
    ),
    Pace(
        timedelta(days=6),
        (("few hours", 2), ("daily", 4), ("weekday", 3), ("day of month", 3), ("either day", 3), ("month", 1)),
        (0, 30, 600, 3600, 21_600, 86_400),
        (0, 0, 0, 0, 10, 60, 1200, 7200, 30_000, 100_000),
    ),
)


def drawn_pace(random: Random) -> Pace:
    return random.choices(PACES, (3, 4, 3))[0]


def _some(random: Random, low: int, high: int, most: int) -> str:
    """A list of single values and ranges, in no order."""
    elements = []
    for _ in range(random.randint(1, most)):
        value = random.randint(low, high)
        wide = random.random() < 0.2
        elements.append(f"{value}-{random.randint(value, min(high, value + 3))}" if wide else str(value))
    return ",".join(elements)


def drawn_expression(random: Random, pace: Pace) -> str:
    names, weights = zip(*pace.shapes, strict=True)
    shape = random.choices(names, weights)[0]
    minute, hour = str(random.choice((0, 0, 15, 30, 45, random.randrange(60)))), _some(random, 0, 23, 1)
    if random.random() < 0.5:
        hour = str(random.randrange(5))  # where clocks are changed
    match shape:
        case "every minute":
            return "* * * * *"
        case "few minutes":
            return f"{_some(random, 0, 59, 5)} * * * *"
        case "range of minutes":
            begin = random.randrange(55)
            return f"{begin}-{min(59, begin + random.randrange(15))} * * * *"
        case "hourly":
            return f"{minute} * * * *"
        case "near hours":
            return f"{minute},{random.randrange(60)} 0-4 * * *"
        case "few hours":
            return f"{minute} {_some(random, 0, 23, 5)} * * *"
        case "daily":
            return f"{minute} {hour} * * *"
        case "weekday":
            return f"{minute} {hour} * * {_some(random, 0, 6, 3)}"
        case "day of month":
            return f"{minute} {hour} {_some(random, 1, 31, 5)} * *"
        case "either day":
            return f"{minute} {hour} {_some(random, 1, 31, 3)} * {_some(random, 0, 6, 2)}"
        case _:
            return f"{minute} {hour} * {_some(random, 1, 12, 6)} *"


def drawn_delay(random: Random, pace: Pace) -> timedelta:
    return timedelta(seconds=random.choice(pace.delays))


def drawn_work(random: Random, pace: Pace) -> float:
    """How long a callback works, in seconds: often not at all, often whole minutes, so that it ends as one begins."""
    return random.choice(pace.works)
