"""The examples that are plain programs do what they say."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from tests.examples.scripts import played
from tests.store.databases import Databases

PRIMES = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59}


def test_the_basic_example_runs_its_jobs_and_lists_the_runs(tmp_path: Path) -> None:
    said = played("basic.py", "--seconds", "2.5", folder=tmp_path)
    beats = re.findall(r"^heartbeat for (\S+)$", said, re.MULTILINE)
    assert len(beats) in (2, 3)
    for beat in beats:
        # The last one may have been heard of before its end is in the catalog.
        ended = "COMPLETED" if beat != beats[-1] else "(COMPLETED|RUNNING)"
        assert re.search(rf"^{beat}  heartbeat +SCHEDULE +{ended}$", said, re.MULTILINE)
    assert re.search(r"nightly-report +TRIGGER +COMPLETED$", said, re.MULTILINE)
    # Two in the morning in Brussels.
    assert re.search(r"comes next at \d{4}-\d\d-\d\d 0[01]:00:00\+00:00", said)


def test_the_parallel_example_retries_cancels_and_still_cleans_up(tmp_path: Path) -> None:
    said = played("parallel.py", folder=tmp_path)
    assert "cleaned up" in said
    assert re.search(r"^etl \S+: FAILED", said, re.MULTILINE)
    assert "extract: SUCCESS after 2 attempts" in said
    assert "validate: FAILED" in said
    assert "load: CANCELLED" in said
    assert "cleanup: SUCCESS" in said


def test_the_recovery_example_makes_up_for_what_was_missed_in_order_and_replays(tmp_path: Path) -> None:
    said = played("recovery_and_replay.py", folder=tmp_path)
    before, after = said.split("nothing runs for")
    slots = re.findall(r"collect (\S+)(  \(made up for\))?$", after, re.MULTILINE)
    made_up = [slot for slot, flag in slots if flag]
    assert len(made_up) >= 2
    assert made_up == sorted(made_up)
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
    said = played("declarative.py", "--seconds", "2.5", folder=tmp_path)
    names = [line.split()[0] for line in said.splitlines()]
    assert names[:3] == ["SchedulerInitializationStarted", "PollingStarted", "SchedulerInitializationCompleted"]
    assert names[-4:] == ["SchedulerStopRequested", "PollingStopRequested", "PollingStopped", "SchedulerStopped"]
    assert re.search(r"^TaskRunFailed +sync mails$", said, re.MULTILINE)
    # A new minute may have begun meanwhile, and taken the retry's place.
    assert re.search(r"^Task(RetryStarted|RetryPreempted) +sync mails$", said, re.MULTILINE)
    assert "mails fetched" in said
    assert "report: AwaitingRun, last success yes" in said
    assert "yearly: AwaitingRun, last success never" in said
