"""The examples that are plain programs do what they say."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise
from operator import mul
from pathlib import Path

from tests.examples.scripts import played, played_in_time, played_long_enough
from tests.store.databases import Databases

STOPPING = ["SchedulerStopRequested", "PollingStopRequested", "PollingStopped", "SchedulerStopped"]
DAY = 86_400
PRIMES = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59}


def test_the_basic_example_runs_its_jobs_and_lists_the_runs(tmp_path: Path) -> None:
    def ended(said: str) -> list[str]:
        return re.findall(r"^(\S+)  heartbeat +SCHEDULE +COMPLETED$", said, re.MULTILINE)

    def shows(said: str) -> bool:
        return len(ended(said)) >= 2 and bool(re.search(r"nightly-report +TRIGGER +COMPLETED$", said, re.MULTILINE))

    said = played_long_enough("basic.py", shows, folder=tmp_path)
    beats = re.findall(r"^heartbeat for (\S+)$", said, re.MULTILINE)
    # The last ones may have been heard of before their end was in the catalog, or after the list was made.
    assert beats[: len(ended(said))] == ended(said)
    # Two in the morning in Brussels.
    assert re.search(r"comes next at \d{4}-\d\d-\d\d 0[01]:00:00\+00:00", said)


def test_the_parallel_example_retries_cancels_and_still_cleans_up(tmp_path: Path) -> None:
    # A second try that is held up for half a second is cancelled with the rest.
    said = played_in_time("parallel.py", lambda said: "extract: CANCELLED" in said, folder=tmp_path)
    assert "cleaned up" in said
    assert re.search(r"^etl \S+: FAILED", said, re.MULTILINE)
    assert "extract: SUCCESS after 2 attempts" in said
    assert "validate: FAILED" in said
    assert "load: CANCELLED" in said
    assert "cleanup: SUCCESS" in said


def test_the_recovery_example_makes_up_for_what_was_missed_in_order_and_replays(tmp_path: Path) -> None:
    pause = "nothing runs for"
    # A program that is held up for more than a second has something to make up for in its first life too.
    said = played_in_time("recovery_and_replay.py", lambda said: "made up for" in said.split(pause)[0], folder=tmp_path)
    before, after = said.split(pause)
    slots = re.findall(r"collect (\S+)(  \(made up for\))?$", after, re.MULTILINE)
    made_up = [slot for slot, flag in slots if flag]
    assert len(made_up) >= 2
    seconds = [sum(map(mul, map(int, slot.split(":")), (3600, 60, 1))) for slot in made_up]
    # Midnight may come between two of them.
    assert all(0 < (later - earlier) % DAY < DAY / 2 for earlier, later in pairwise(seconds))
    assert "made up for" not in before
    assert re.search(r"^invoice \S+: FAILED.*the printer is off", after, re.MULTILINE | re.DOTALL)
    failed = re.search(r"origin REPLAY, replay of (occ_\S+)$", after, re.MULTILINE)
    assert failed is not None
    assert re.search(r"^invoice \S+: COMPLETED", after, re.MULTILINE)


def test_a_payment_is_made_once_on_sqlite_though_its_worker_was_killed(tmp_path: Path) -> None:
    check_paid_once(played("exactly_once.py", folder=tmp_path))


def test_a_payment_is_made_once_on_postgresql_though_its_worker_was_killed(
    tmp_path: Path, databases_18: Databases
) -> None:
    check_paid_once(played("exactly_once.py", databases_18.fresh(), folder=tmp_path))


def check_paid_once(said: str) -> None:
    assert "it ended with code 1" in said
    assert "attempt 1: LOST" in said
    assert "attempt 2: SUCCESS" in said
    assert "the run that was there already" in said
    assert "letters written: 2, payments in the database: 1" in said


def test_reminders_by_the_thousand_are_each_sent_once(tmp_path: Path) -> None:
    said = played("web_reminders.py", "--count", "1000", folder=tmp_path)
    assert "1000 reminders scheduled" in said
    assert "1000 reminded, 1000 different" in said
    assert "jobs left: 0, runs kept: 1000" in said


def test_a_schedule_of_one_s_own_fires_when_it_says_and_is_kept_by_its_path(tmp_path: Path) -> None:
    said = played("own_schedule.py", "--runs", "1", folder=tmp_path)
    assert "custom own_schedule:PrimeSeconds" in said
    seconds = [datetime.strptime(at, "%H:%M:%S").second for at in re.findall(r"(\S+) is a prime second", said)]  # noqa: DTZ007 - a time of day
    assert seconds
    assert set(seconds) <= PRIMES


def test_the_declarative_example_tells_what_happens_and_tries_again(tmp_path: Path) -> None:
    def shows(said: str) -> bool:
        """All has been done, and nothing was under way at the end: a new minute may have begun just then."""
        names = [line.split()[0] for line in said.splitlines()]
        assert names[:3] == ["SchedulerInitializationStarted", "PollingStarted", "SchedulerInitializationCompleted"]
        waits = ("report: AwaitingRun, last success yes", "yearly: AwaitingRun, last success never", "mails fetched")
        return names[-4:] == STOPPING and all(each in said for each in waits)

    said = played_long_enough("declarative.py", shows, folder=tmp_path)
    assert re.search(r"^TaskRunFailed +sync mails$", said, re.MULTILINE)
    # A new minute may have begun meanwhile, and taken the retry's place.
    assert re.search(r"^Task(RetryStarted|RetryPreempted) +sync mails$", said, re.MULTILINE)
