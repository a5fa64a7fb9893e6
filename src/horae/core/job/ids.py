"""Derived ids: the same name, slot and number give the same id on every node, without coordination.

    job       uuid5(NS_JOB, name)
    task      uuid5(job, name)
    run       uuid5(NS_RUN, "{job}:{unix seconds}")            shown occ_<uuid>
    task run  uuid5(NS_TASK_RUN, "{occ_…}:{task}")             shown run_<uuid>
    attempt   uuid5(NS_ATTEMPT, "{run_…}:{n}"), n from 1       shown attempt_<uuid>

Ids of task runs and attempts are derived from the prefixed text of the id before them. The prefix also keeps an id of
one kind from being taken for an id of another.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from hashlib import sha1
from uuid import NAMESPACE_URL, UUID, uuid5

from horae.core.time.instant import seconds_of
from horae.errors import InvalidIdentifier, InvalidInput, InvalidName, as_text, shown

NS_JOB = uuid5(NAMESPACE_URL, "urn:horae:job")
_NS_JOB_BYTES = NS_JOB.bytes
NS_RUN = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
_NS_RUN_BYTES = NS_RUN.bytes
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The digit of a uuid that has its variant, by the digit of the digest in the same place."""
NS_TASK_RUN = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
NS_ATTEMPT = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")

RUN = "occ_"
TASK_RUN = "run_"
ATTEMPT = "attempt_"
_KINDS = {RUN: "run id", TASK_RUN: "task run id", ATTEMPT: "attempt id"}
_LONGEST_NAME = 255


def checked_name(name: str, what: str = "job name") -> str:
    """Returns `name` if it is valid for a job or a task: 1 to 255 printable characters, no space at either end.

    Raises InvalidName, with `what` in the message.
    """
    reason = None
    if not isinstance(name, str):
        reason = f"is a {type(name).__name__}, not text"
    elif not 1 <= len(name) <= _LONGEST_NAME:
        reason = f"must have 1 to {_LONGEST_NAME} characters, has {len(name)}"
    elif not name.isprintable() or name != name.strip():
        reason = "must be printable and must not begin or end with a space"
    if reason:
        raise InvalidName(f"Invalid {what} {shown(name)}: {reason}", details={"name": as_text(name)[:_LONGEST_NAME]})
    return name


def checked_text(text: str | None, what: str) -> str | None:
    """Returns `text` if every store can keep it: no NUL and no lone surrogates. Raises InvalidInput."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(f"Invalid {what} {shown(text)}: is a {type(text).__name__}, not text")
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise InvalidInput(f"Invalid {what} {shown(text)}: has characters that are no text", hint="Leave them out.")
    return text


def job_uuid(name: str) -> UUID:
    return _job_uuid(checked_name(name))


@lru_cache(maxsize=4096)
def _job_uuid(name: str) -> UUID:
    """Cached, because defining a batch of jobs needs each uuid several times."""
    return uuid5(NS_JOB, name)


def job_key(name: str) -> str:
    """A job's uuid as the text that rows have. `name` must have been checked."""
    return _derived(_NS_JOB_BYTES, name)


def task_uuid(job: UUID, name: str) -> UUID:
    return uuid5(job, checked_name(name, "task name"))


def task_key(job: str, name: str) -> str:
    """A task's uuid as the text that rows have, from that of its job. `name` must have been checked."""
    return _derived(bytes.fromhex(job.replace("-", "")), name)


def _derived(namespace: bytes, name: str) -> str:
    """uuid5 as text, at a third of the library's cost: batches need very many."""
    text = sha1(namespace + name.encode(), usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


def run_id(job: UUID, scheduled_time: datetime, shard: UUID | None = None) -> str:
    """The id of the run of `job` at `scheduled_time`, for one shard where runs are bound to shards."""
    return RUN + run_uuid(str(_checked_uuid(job)), _slot(scheduled_time, shard))


def run_uuid(job: str, slot: int | str) -> str:
    """The uuid in a run's id. `slot` is the scheduled time in seconds, followed by `:shard` where there is one."""
    return _derived(_NS_RUN_BYTES, f"{job}:{slot}")


def keyed_run_id(job: UUID, key: str) -> str:
    """The id of the run for an idempotency key, `trigger:…` or `backfill:…`: such runs have no slot of their own."""
    if not isinstance(key, str) or not key.startswith(("trigger:", "backfill:")):
        raise InvalidIdentifier(f"Invalid run key {shown(key)}: must begin with trigger: or backfill:")
    return RUN + str(uuid5(NS_RUN, f"{_checked_uuid(job)}:{key}"))


def task_run_id(run: str, task: UUID) -> str:
    return TASK_RUN + str(uuid5(NS_TASK_RUN, f"{checked_id(run, RUN)}:{_checked_uuid(task)}"))


def attempt_id(task_run: str, number: int) -> str:
    if type(number) is not int or number < 1:
        raise InvalidIdentifier(f"Invalid attempt number {shown(number)}: attempts count from 1")
    return ATTEMPT + str(uuid5(NS_ATTEMPT, f"{checked_id(task_run, TASK_RUN)}:{number}"))


def schedule_key(scheduled_time: datetime, shard: UUID | None = None) -> str:
    return f"schedule:{_slot(scheduled_time, shard)}"


def trigger_key(request: str) -> str:
    if not isinstance(request, str) or not 1 <= len(request) <= _LONGEST_NAME or not request.isprintable():
        reason = f"must be 1 to {_LONGEST_NAME} printable characters"
        raise InvalidIdentifier(f"Invalid idempotency key {shown(request)}: {reason}")
    return f"trigger:{request}"


def backfill_key(scheduled_time: datetime) -> str:
    return f"backfill:{_slot(scheduled_time, None)}"


def checked_id(text: str, kind: str) -> str:
    """Returns `text` if it is an id of `kind` (RUN, TASK_RUN or ATTEMPT).

    Raises InvalidIdentifier, which names the other kind where `text` begins like an id of one.
    """
    if isinstance(text, str) and text.startswith(kind):
        try:
            if str(UUID(text[len(kind) :])) == text[len(kind) :]:
                return text
        except ValueError:
            pass
    other = next((name for prefix, name in _KINDS.items() if isinstance(text, str) and text.startswith(prefix)), None)
    given = f"is a {other}" if other and other != _KINDS[kind] else f"does not read {kind}<uuid>"
    raise InvalidIdentifier(f"Invalid {_KINDS[kind]} {shown(text)}: {given}", hint=f"A {_KINDS[kind]} reads {kind}….")


def run_range(beginning: str) -> tuple[str, str]:
    """The lowest and the highest uuid of runs whose ids begin with `beginning`.

    `beginning` has at least one hex digit; the prefix `occ_` is optional. Raises InvalidIdentifier.
    """
    digits = beginning.removeprefix(RUN).replace("-", "").lower() if isinstance(beginning, str) else ""
    if not 1 <= len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        other = next(
            (name for prefix, name in _KINDS.items() if prefix != RUN and as_text(beginning).startswith(prefix)), ""
        )
        given = f"is a {other}" if other else f"is not the beginning of {RUN}<uuid>"
        hint = f"Give {RUN} and as many digits of its uuid as tell it from others: horae run list shows them."
        raise InvalidIdentifier(f"Invalid run id {shown(beginning)}: {given}", hint=hint)
    return str(UUID(digits.ljust(32, "0"))), str(UUID(digits.ljust(32, "f")))


def uuid7(milliseconds: int, entropy: bytes) -> UUID:
    """The version 7 uuid for a Unix time in milliseconds and 10 random bytes, both given by the caller."""
    if not 0 <= milliseconds < 1 << 48 or len(entropy) != 10:
        raise InvalidIdentifier("Invalid uuid7: needs milliseconds since 1970 and 10 bytes of entropy")
    chance = int.from_bytes(entropy, "big")
    value = milliseconds << 80 | 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    return UUID(int=value)


def _checked_uuid(value: UUID) -> UUID:
    if not isinstance(value, UUID):
        raise InvalidIdentifier(f"Invalid uuid {shown(value)}: must be a UUID")
    return value


def _slot(scheduled_time: datetime, shard: UUID | None) -> str:
    second = seconds_of(scheduled_time, "scheduled_time")
    return str(second) if shard is None else f"{second}:{shard}"
