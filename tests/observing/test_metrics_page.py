"""The page as a whole: how many series, any label, as plain values, read while events are counted."""

from __future__ import annotations

import threading

import pytest
from tests.observing.counting import counted
from tests.observing.exposition import parse
from tests.observing.samples import SAMPLES, attempt, ended

from horae.events import AttemptEnded, Event, Stream
from horae.metrics import FAMILIES, Metrics


def test_jobs_beyond_the_most_share_one_series_and_those_before_keep_theirs() -> None:
    events: list[Event] = []
    for number in range(1_200):
        events += [attempt(job=f"job-{number}", state="SUCCESS"), ended(job=f"job-{number}")]
    page = counted(*events, *events)
    occurrences = page.series("scheduler_job_occurrences_total")
    assert len(occurrences) == 1_001
    assert page.value("scheduler_job_occurrences_total", job="job-999", status="completed") == 2
    assert page.value("scheduler_job_occurrences_total", job="other", status="completed") == 400
    assert page.value("scheduler_task_attempts_total", job="other", task="other", status="success") == 400
    assert len(page.series("scheduler_task_attempts_total")) == 1_001


def test_tasks_beyond_the_most_share_one_series() -> None:
    page = counted(*(attempt(task=f"task-{number}") for number in range(5)), metrics=Metrics(most_tasks=3))
    tasks = {dict(labels)["task"]: count for labels, count in page.series("scheduler_task_attempts_total").items()}
    assert tasks == {"task-0": 1, "task-1": 1, "task-2": 1, "other": 2}


@pytest.mark.parametrize("name", ['say "hello"', "back\\slash", "two\nlines", "\\n", "täglich ⏰", "a,b={}", ""])
def test_any_label_comes_back_as_it_was(name: str) -> None:
    page = counted(ended(job=name), attempt(job=name, task=name))
    assert page.value("scheduler_job_occurrences_total", job=name, status="completed") == 1
    assert page.value("scheduler_task_attempts_total", job=name, task=name, status="failure") == 1
    assert page.value("scheduler_job_execution_duration_seconds_count", job=name) == 1


def test_a_snapshot_holds_what_the_page_says_as_plain_values() -> None:
    metrics = Metrics()
    page = counted(*SAMPLES, metrics=metrics)
    snapshot = metrics.snapshot()
    assert list(snapshot) == [family.name for family in FAMILIES]
    (completed,) = [
        each for each in snapshot["scheduler_job_occurrences_total"] if each["labels"]["status"] == "completed"
    ]
    assert completed == {"labels": {"job": "nightly", "status": "completed"}, "value": 1}
    (duration,) = snapshot["scheduler_job_execution_duration_seconds"]
    assert (duration["labels"], duration["count"], duration["sum"]) == ({"job": "nightly"}, 1, 1.2)
    bounds = {float(bound): count for bound, count in duration["buckets"].items()}
    assert bounds == dict(page.buckets("scheduler_job_execution_duration_seconds", job="nightly"))


def test_metrics_that_were_detached_count_no_further() -> None:
    metrics, stream = Metrics(), Stream()
    detach = metrics.attach(stream)
    stream.emit(ended())
    detach()
    stream.emit(ended())
    assert parse(metrics.render()).value("scheduler_job_execution_duration_seconds_count", job="nightly") == 1
    assert not stream.wanted(AttemptEnded)


def test_a_page_can_be_read_on_another_thread_while_events_are_counted() -> None:
    metrics, stream = Metrics(), Stream()
    metrics.attach(stream)
    failures: list[Exception] = []
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            try:
                parse(metrics.render())
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                failures.append(error)
                return

    reader = threading.Thread(target=scrape)
    reader.start()
    for number in range(3_000):
        stream.emit(attempt(job=f"job-{number % 300}", task=f"task-{number % 7}"))
        stream.emit(ended(job=f"job-{number % 300}", state=("COMPLETED", "FAILED", "CANCELLED")[number % 3]))
    done.set()
    reader.join()
    assert not failures
    assert parse(metrics.render()).value("jobs_failed_total") == 1_000
