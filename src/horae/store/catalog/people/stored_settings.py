"""The settings, procedures and secrets of a catalog. Secrets are passed in and out encrypted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horae.core.job import ids
from horae.errors import AlreadyExists, InvalidInput, InvalidName, SecretNotFound, shown
from horae.store.catalog.jobs.operations import locked_job
from horae.store.catalog.row_codec import optional_json, optional_moment, procedure_uuid, to_json
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.protocols.people import SecretRecord

LONGEST_SECRET_NAME = 128


async def settings(work: UnitOfWork) -> dict[str, Any]:
    return {name: optional_json(value) for name, value in await work.transaction.rows("read_settings")}


async def set_setting(
    work: UnitOfWork, name: str, value: Any, by: str, judge: Callable[[Mapping[str, Any]], Any] | None
) -> None:
    ids.checked_name(name, "setting name")
    await work.transaction.rows("lock_settings")
    known = await settings(work)
    if judge is not None:
        judge(known)
    before = known.get(name)
    if value is None:
        await work.transaction.rows("delete_setting", name=name)
    else:
        try:
            text = to_json(value)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"Setting {shown(name)} cannot be {shown(value)}: {error}") from error
        await work.transaction.rows("upsert_setting", name=name, value=text, by=by)
    work.audit("SETTING_CHANGED", None, None, by, "OK", name=name, value=value, value_before=before)
    work.transaction.wake()


async def procedures(work: UnitOfWork) -> dict[str, str]:
    return dict(await work.transaction.rows("read_procedures"))


async def register_procedures(work: UnitOfWork, given: Mapping[str, str], by: str) -> None:
    """Adds or changes the procedures given. Every node calls this at every start, mostly with nothing to write, so the
    lock is taken only where something differs."""
    known = await procedures(work)
    if all(known.get(name) == handler for name, handler in given.items()):
        return
    await work.transaction.rows("lock_procedures")
    known = await procedures(work)
    changed = {name: handler for name, handler in given.items() if known.get(name) != handler}
    await work.transaction.many(
        "upsert_procedures",
        [
            (str(procedure_uuid(ids.checked_name(name, "procedure name"))), name, handler, work.now, by)
            for name, handler in sorted(changed.items())
        ],
    )
    for name, handler in sorted(changed.items()):
        work.audit("PROCEDURE_REGISTERED", None, None, by, "OK", name=name, handler=handler)


async def secret(work: UnitOfWork, name: str, job: str | None) -> SecretRecord | None:
    if job is not None:
        rows = await work.transaction.rows("read_job_secret", job=ids.job_key(job), name=name)
        if rows:
            return _record(name, job, *rows[0])
    rows = await work.transaction.rows("read_secret", name=name)
    return _record(name, None, *rows[0]) if rows else None


async def secrets(work: UnitOfWork) -> tuple[SecretRecord, ...]:
    rows = await work.transaction.rows("list_secrets")
    return tuple(_record(*row) for row in sorted(rows, key=lambda row: (row[1] or "", row[0])))


def _record(name: str, job: str | None, value: bytes | None, key_id: str | None, updated: int | None) -> SecretRecord:
    return SecretRecord(name, job, bytes(value or b""), key_id or "", optional_moment(updated))


async def put_secret(
    work: UnitOfWork, name: str, value: bytes, key_id: str, job: str | None, by: str, *, replace: bool
) -> None:
    ids.checked_name(name, "secret name")
    if len(name) > LONGEST_SECRET_NAME:
        raise InvalidName(
            f"Invalid secret name {shown(name)}: must have at most {LONGEST_SECRET_NAME} characters, has {len(name)}"
        )
    uuid = None if job is None else (await locked_job(work, job)).uuid
    parts: dict[str, Any] = {"name": name, "value": value, "key": key_id}
    if uuid is None:
        fresh = await work.transaction.rows("insert_secret", **parts)
    else:
        fresh = await work.transaction.rows("insert_job_secret", job=uuid, **parts)
    if not fresh:
        if not replace:
            whose = "" if job is None else f" of job {shown(job)}"
            raise AlreadyExists(f"There is a secret {shown(name)}{whose} already", hint="Replace it, or drop it first.")
        await _update(work, uuid, name, value, key_id, None)
    event = "SECRET_CREATED" if fresh else "SECRET_CHANGED"
    work.audit(event, uuid, None, by, "OK", name=name, job=job, key_id=key_id)


async def replace_secrets(work: UnitOfWork, changed: Sequence[tuple[SecretRecord, bytes, str]], by: str) -> int:
    done = []
    for record, value, key_id in changed:
        uuid = None if record.job is None else ids.job_key(record.job)
        if await _update(work, uuid, record.name, value, key_id, record.value):
            done.append(record)
    if done:
        names = [each.name if each.job is None else f"{each.job}: {each.name}" for each in done]
        keys = sorted({key_id for _, _, key_id in changed})
        work.audit("SECRETS_ROTATED", None, None, by, "OK", count=len(done), names=names, key_ids=keys)
    return len(done)


async def _update(work: UnitOfWork, uuid: str | None, name: str, value: bytes, key_id: str, was: bytes | None) -> bool:
    """Updates a secret and returns whether it did. With `was`, only where the secret still has that value."""
    parts: dict[str, Any] = {"name": name, "value": value, "key": key_id, "was": was}
    if uuid is None:
        return bool(await work.transaction.rows("update_secret", **parts))
    return bool(await work.transaction.rows("update_job_secret", job=uuid, **parts))


async def drop_secret(work: UnitOfWork, name: str, job: str | None, by: str) -> None:
    uuid = None if job is None else ids.job_key(job)
    if uuid is None:
        gone = await work.transaction.rows("delete_secret", name=name)
    else:
        gone = await work.transaction.rows("delete_job_secret", job=uuid, name=name)
    if not gone:
        whose = "" if job is None else f" of job {shown(job)}"
        raise SecretNotFound(f"No secret {shown(name)}{whose}", hint="List the secrets for their names.")
    work.audit("SECRET_DROPPED", uuid, None, by, "OK", name=name, job=job)
