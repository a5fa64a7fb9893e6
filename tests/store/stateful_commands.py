"""What random commands are made of: small pools of names, times and policies, so that commands meet and shrink well."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as some

from horae.core.change.update_policy import Update
from horae.core.declarative import HANDLER, declared_spec, task_name
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import NO_RETRY, Bounded, Queue, Retry
from horae.core.run.lifecycle import AttemptState, JobState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once
from horae.core.window.window import Window
from horae_store_tests.contract.builders import BEGINNING, MINUTELY

NAMES = ("a", "b", "c")
TASKS = ("one", "two", "three")
KEYS = ("k1", "k2", "k3")
STEPS = ("1s", "10s", "30s", "1m", "90s", "2m", "5m", "7m", "1h", "6h", "2d")

DECLARED = ("declarative:x", "declarative:y")
"""Declarative tasks, which everything but definitions may be about too."""

own_names = some.sampled_from(NAMES)
names = some.sampled_from((*NAMES, *NAMES, *DECLARED))
choices = some.integers(0, 5)
"""Picks one of what there is, by its remainder."""
offsets = some.sampled_from((-3600, -90, -30, 0, 30, 61, 400, 3700)).map(lambda seconds: timedelta(seconds=seconds))
handlers = some.sampled_from(
    (None, None, frozenset({*TASKS, HANDLER}), frozenset({"one", HANDLER}), frozenset({"one", "two"}))
)
schedules = some.one_of(
    some.sampled_from((MINUTELY, MINUTELY, Every("30s"), Cron("*/5 * * * *"), Every("7m"), None)),
    offsets.map(lambda offset: Once(BEGINNING + timedelta(hours=1) + offset)),
    some.builds(Once, some.just(BEGINNING + timedelta(minutes=2)), some.booleans()),
)
policies: dict[str, some.SearchStrategy[Any]] = {
    "overlap": some.sampled_from(("skip", "allow", Queue(), Queue(1), "coalesce", "replace")),
    "recovery": some.sampled_from(("last", "all", "none", "compressed", Bounded(2), Bounded(max_age="10m"))),
    "retry": some.sampled_from((NO_RETRY, Retry(1, "10s"), Retry(3, "1m", 2.0), Retry(None, "1m"), Retry(1, 0))),
    "deadline": some.sampled_from(("20s", "5m")),
    "misfire_grace": some.sampled_from(("1s", "10m")),
    "window": some.sampled_from(
        (Window.after("50s"), Window.before("4m"), Window.around("2m"), Window.after("1m", only={"hours": "3"}))
    ),
    "pool": some.just("p"),
    "max_concurrent": some.sampled_from((1, 2)),
    "mode": some.just("parallel"),
    "failure": some.sampled_from(("continue", "retry_on_failure")),
    "delivery": some.just("at_most_once"),
    "max_lost": some.sampled_from((1, 2)),
    "execution_timeout": some.sampled_from(("30s", None)),
    "cancel_grace": some.sampled_from(("5s",)),
    "on_completion": some.just("drop"),
    "update_policy": some.just("graceful"),
}
updates = some.one_of(
    some.sampled_from((None, None, Update("graceful"), Update("windowed", horizon="3m"))),
    offsets.map(lambda offset: Update("graceful", until=BEGINNING + timedelta(minutes=30) + offset)),
)
_STATES = (JobState.ENABLED,) * 5 + (JobState.PAUSED, JobState.DISABLED)


@some.composite
def specs(draw: some.DrawFn, called: str | None = None) -> JobSpec:
    """A job. It depends on earlier names only, most of the time: a cycle now and then is refused by both."""
    name = draw(own_names) if called is None else called
    chosen = {"overlap", "retry", *draw(some.lists(some.sampled_from(sorted(policies)), max_size=4))}
    own = {"failure": "continue"} if draw(choices) == 5 else {}
    steps = tuple(
        TaskSpec(task, task, settings=own if number == 0 else {})
        for number, task in enumerate(TASKS[: draw(some.sampled_from((1, 1, 2, 3)))])
    )
    earlier = NAMES[: NAMES.index(name)] if draw(choices) or called is not None else NAMES
    return JobSpec(
        name,
        draw(schedules if called is None else some.just(MINUTELY) | schedules),
        steps,
        {setting: draw(policies[setting]) for setting in sorted(chosen)},
        payload=draw(some.sampled_from((None, {"x": 1}))),
        description=draw(some.sampled_from(("", "other"))),
        state=JobState.ENABLED if called else draw(some.sampled_from(_STATES)),
        depends_on=tuple(draw(some.lists(some.sampled_from(earlier), max_size=1))) if earlier else (),
    )


registrations = some.lists(
    some.builds(
        lambda name, cron, delay: declared_spec(task_name(name), cron, delay),
        some.sampled_from(DECLARED),
        some.sampled_from(("* * * * *", "* * * * *", "0,5,10,30 * * * *")).map(
            lambda expr: Cron(expr, dialect="posix", fold="both")
        ),
        some.sampled_from((timedelta(0), timedelta(minutes=1))),
    ),
    max_size=3,
)
"""Of two tasks or three, and then one is there twice, which is refused."""


class Word(NamedTuple):
    """One settlement to be: which claim, how its attempts end, and what is wrong with it."""

    claim: int
    outcomes: tuple[AttemptState, ...]
    fence: int = 0
    stale: bool = False
    stop: str | None = None
    release: bool = False
    started: bool = True


def finished(outcomes: list[AttemptState]) -> Word:
    """Every attempt under way ends, with these outcomes in turn."""
    return Word(0, (*outcomes, *outcomes, *outcomes))


_ENDS = (AttemptState.SUCCESS, AttemptState.SUCCESS, AttemptState.FAILED, AttemptState.TIMEOUT, AttemptState.CANCELLED)
_outcomes = some.lists(some.sampled_from(_ENDS), min_size=1, max_size=3)
words = some.tuples(
    choices,
    _outcomes.map(tuple),
    some.sampled_from((0, 0, 0, 0, 0, 1, -1)),
    some.sampled_from((False, False, False, True)),
    some.sampled_from((None, None, None, "cancelled", "timeout")),
    some.sampled_from((False, False, False, True)),
    some.booleans(),
).map(Word._make)
"""Also as a zombie, a stopping node or a confused one might say it."""
right_words = _outcomes.map(finished)
"""All attempts under way end, one way or another."""
