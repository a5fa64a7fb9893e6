"""Derived identities: each formula computed a second time, the kinds kept apart, the names that are allowed."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.job.ids import (
    ATTEMPT,
    RUN,
    TASK_RUN,
    attempt_id,
    backfill_key,
    checked_id,
    checked_name,
    job_uuid,
    keyed_run_id,
    run_id,
    schedule_key,
    task_run_id,
    task_uuid,
    trigger_key,
    uuid7,
)
from horae.errors import InvalidIdentifier, InvalidName, InvalidTime

DNS = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
URL = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
OID = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
NOON = datetime(2024, 5, 15, 12, tzinfo=UTC)
SHARD = uuid.UUID("0f0e0d0c-0b0a-4908-8706-050403020100")
JOB = uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "urn:horae:job"), "nightly")
TASK = uuid.uuid5(JOB, "dump")
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40)


def test_the_namespaces_are_the_well_known_ones() -> None:
    assert (DNS, URL, OID) == (uuid.NAMESPACE_DNS, uuid.NAMESPACE_URL, uuid.NAMESPACE_OID)


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(NAMES, NAMES, st.integers(-62_135_596_800, 253_402_300_799), st.integers(1, 1000))
def test_every_id_follows_from_the_one_before(job: str, task: str, second: int, number: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    expected_job = uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "urn:horae:job"), job)
    expected_task = uuid.uuid5(expected_job, task)
    expected_run = f"occ_{uuid.uuid5(DNS, f'{expected_job}:{second}')}"
    expected_task_run = f"run_{uuid.uuid5(URL, f'{expected_run}:{expected_task}')}"
    assert job_uuid(job) == expected_job
    assert task_uuid(expected_job, task) == expected_task
    assert run_id(expected_job, at) == expected_run
    assert task_run_id(expected_run, expected_task) == expected_task_run
    assert attempt_id(expected_task_run, number) == f"attempt_{uuid.uuid5(OID, f'{expected_task_run}:{number}')}"


def test_the_ids_of_one_run_are_frozen() -> None:
    run = run_id(job_uuid("nightly"), NOON)
    task_run = task_run_id(run, task_uuid(job_uuid("nightly"), "dump"))
    assert str(job_uuid("nightly")) == "86c2beea-1e6d-559b-88d0-2479ab727d7d"
    assert run == "occ_1098b932-73ee-5308-aa9c-261bc25db511"
    assert task_run == "run_cb1082da-2d5b-5241-88ce-730984514482"
    assert attempt_id(task_run, 1) == "attempt_28553186-ce22-519b-bb69-6025d53e388d"


def test_a_shard_is_appended_to_the_slot() -> None:
    second = int(NOON.timestamp())
    assert run_id(JOB, NOON, SHARD) == f"occ_{uuid.uuid5(DNS, f'{JOB}:{second}:{SHARD}')}"
    assert run_id(JOB, NOON, SHARD) != run_id(JOB, NOON)
    assert schedule_key(NOON, SHARD) == f"schedule:{second}:{SHARD}"


def test_a_slot_is_an_instant_in_whole_seconds_however_it_was_written() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))
    late = NOON + timedelta(microseconds=999_999)
    assert run_id(JOB, NOON) == run_id(JOB, east) == run_id(JOB, late)
    assert schedule_key(NOON) == schedule_key(east) == schedule_key(late) == "schedule:1715774400"
    assert backfill_key(NOON) == "backfill:1715774400"


def test_the_slots_before_1970_are_floored_too() -> None:
    assert schedule_key(datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)) == "schedule:-1"


def test_triggered_and_backfilled_runs_are_derived_from_their_key() -> None:
    assert trigger_key("order-17") == "trigger:order-17"
    assert keyed_run_id(JOB, trigger_key("order-17")) == f"occ_{uuid.uuid5(DNS, f'{JOB}:trigger:order-17')}"
    assert keyed_run_id(JOB, backfill_key(NOON)) == f"occ_{uuid.uuid5(DNS, f'{JOB}:backfill:1715774400')}"
    keys = {run_id(JOB, NOON), keyed_run_id(JOB, trigger_key("1715774400")), keyed_run_id(JOB, backfill_key(NOON))}
    assert len(keys) == 3


@pytest.mark.parametrize("request_id", ["", "x" * 256, None, 5, b"key"], ids=["empty", "long", "none", "int", "bytes"])
def test_an_idempotency_key_is_text_of_1_to_255_characters(request_id: Any) -> None:
    with pytest.raises(InvalidIdentifier, match="idempotency key"):
        trigger_key(request_id)


def test_an_idempotency_key_that_is_not_valid_text_is_refused() -> None:
    with pytest.raises(InvalidIdentifier):
        keyed_run_id(JOB, trigger_key("\ud800"))


@pytest.mark.parametrize("when", [datetime(2024, 5, 15, 12), "2024-05-15", None, 1715774400])
def test_a_slot_needs_an_aware_time(when: Any) -> None:
    with pytest.raises(InvalidTime, match="scheduled_time"):
        run_id(JOB, when)
    with pytest.raises(InvalidTime, match="scheduled_time"):
        schedule_key(when)
    with pytest.raises(InvalidTime, match="scheduled_time"):
        backfill_key(when)


IDS = {
    RUN: run_id(JOB, NOON),
    TASK_RUN: task_run_id(run_id(JOB, NOON), TASK),
    ATTEMPT: attempt_id(task_run_id(run_id(JOB, NOON), TASK), 1),
}
SPOKEN = {RUN: "run id", TASK_RUN: "task run id", ATTEMPT: "attempt id"}


@pytest.mark.parametrize("kind", IDS)
def test_an_id_of_its_own_kind_is_taken(kind: str) -> None:
    assert checked_id(IDS[kind], kind) == IDS[kind]


@pytest.mark.parametrize(("kind", "other"), [(kind, other) for kind in IDS for other in IDS if kind != other])
def test_an_id_of_another_kind_is_refused_by_name(kind: str, other: str) -> None:
    with pytest.raises(InvalidIdentifier) as caught:
        checked_id(IDS[other], kind)
    assert f"Invalid {SPOKEN[kind]}" in str(caught.value)
    assert f"is a {SPOKEN[other]}" in str(caught.value)
    assert kind in str(caught.value.hint)


def test_no_id_is_derived_from_one_of_another_kind() -> None:
    for wrong in (IDS[TASK_RUN], IDS[ATTEMPT]):
        with pytest.raises(InvalidIdentifier):
            task_run_id(wrong, TASK)
    for wrong in (IDS[RUN], IDS[ATTEMPT]):
        with pytest.raises(InvalidIdentifier):
            attempt_id(wrong, 1)


MALFORMED: list[Any] = [
    "",
    "occ_",
    "occ_x",
    str(JOB),
    f"OCC_{JOB}",
    f"occ_{JOB}".upper(),
    f"occ_{str(JOB).upper()}",
    f"occ_{{{JOB}}}",
    f"occ_{JOB.hex}",
    f"occ_urn:uuid:{JOB}",
    f"occ_{JOB} ",
    f" occ_{JOB}",
    f"occ_{JOB}\n",
    f"occ_occ_{JOB}",
    f"occ-{JOB}",
    "occ_" + "\u0660" * 32,
    "occ_\ud800",
    "occ_" + "0" * 100_000,
    None,
    5,
    JOB,
    IDS[RUN].encode(),
]


@pytest.mark.parametrize("text", MALFORMED, ids=[f"{text!a}"[:50] for text in MALFORMED])
def test_a_malformed_id_is_refused(text: Any) -> None:
    for kind in IDS:
        with pytest.raises(InvalidIdentifier) as caught:
            checked_id(text, kind)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("number", [0, -1])
def test_attempts_count_from_1(number: int) -> None:
    with pytest.raises(InvalidIdentifier, match="count from 1"):
        attempt_id(IDS[TASK_RUN], number)


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_uuid7_holds_its_milliseconds_and_its_entropy(milliseconds: int, entropy: bytes) -> None:
    found = uuid7(milliseconds, entropy)
    assert found.int >> 80 == milliseconds
    assert (found.version, found.variant) == (7, uuid.RFC_4122)
    chance = int.from_bytes(entropy, "big") & (1 << 74) - 1
    assert (found.int >> 64 & 0xFFF) << 62 | found.int & (1 << 62) - 1 == chance


def test_uuid7s_sort_by_their_time() -> None:
    found = [uuid7(at, bytes([at % 251] * 10)) for at in range(0, 2**48, 2**42 + 12_345)]
    assert found == sorted(found)
    assert [str(each) for each in found] == sorted(str(each) for each in found)


@pytest.mark.parametrize(("at", "entropy"), [(-1, bytes(10)), (2**48, bytes(10)), (0, bytes(9)), (0, bytes(11))])
def test_a_uuid7_needs_48_bits_of_time_and_10_bytes(at: int, entropy: bytes) -> None:
    with pytest.raises(InvalidIdentifier, match="uuid7"):
        uuid7(at, entropy)


@pytest.mark.parametrize(
    "name", ["a", "x" * 255, "nightly backup", "böse/ümläute", "日次", "declarative:x", "a=b#c", "👍"]
)
def test_a_name_is_printable_text(name: str) -> None:
    assert checked_name(name) == name


BAD_NAMES: list[Any] = [
    "",
    "x" * 256,
    " a",
    "a ",
    "a\tb",
    "a\nb",
    "a\0b",
    "\u200b",
    "a\u00a0b",
    "\ud800",
    "\x7f",
    None,
    5,
    b"a",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=[f"{name!a}"[:30] for name in BAD_NAMES])
def test_a_name_that_cannot_be_shown_or_typed_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName, match="Invalid job name"):
        checked_name(name)
    with pytest.raises(InvalidName, match="Invalid job name"):
        job_uuid(name)
    with pytest.raises(InvalidName, match="Invalid task name"):
        task_uuid(JOB, name)
