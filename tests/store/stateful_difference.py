"""Comparing what two stores say: the same values under the same names, whatever each store calls its own."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from horae.core.job import ids
from horae.errors import Conflict, InvalidInput, NotFound
from horae.store.protocols.store import Definition, HeartbeatResult, RunHistory

EXPECTED = (NotFound, InvalidInput, Conflict)
"""What a command may be refused with. Anything else that is raised is a fault of the store that raised it."""
OWN = frozenset({"run_no", "lock_free", "task_run_id", "attempt_id"})
"""Each store's own affair, or derived from a run id that is random; the derived ones are checked apart."""


class Refused(NamedTuple):
    """How a store said no."""

    kind: type[Exception]


async def answered(asked: Awaitable[Any]) -> Any:
    """What a store answers, or that it refused."""
    try:
        return await asked
    except EXPECTED as error:
        return Refused(type(error))


def differences(model: Any, real: Any, path: str, names: Mapping[str, str]) -> list[str]:
    """Where the two differ, a line each; `names` gives the model's name for what the real store calls otherwise."""
    if type(model) is type(real) and model == real:
        return []
    for answer in (model, real):
        if isinstance(answer, RunHistory):
            check_derived(answer)
    return list(_apart(plain(model, {}), plain(real, names), path))


def check_derived(history: RunHistory) -> None:
    """Ids of task runs and attempts are derived from the run's, on every store."""
    job = ids.job_uuid(history.record.job_name)
    for task in history.tasks:
        assert task.task_run_id == ids.task_run_id(history.record.run_id, ids.task_uuid(job, task.name))
        for attempt in task.attempts:
            assert attempt.attempt_id == ids.attempt_id(task.task_run_id, attempt.number)


def plain(value: Any, names: Mapping[str, str]) -> Any:
    """Records as dicts, sequences as lists, names translated; what one store alone can know is left out."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Definition):
        return value
    if isinstance(value, HeartbeatResult):
        told = {"now": value.now, "expelled": value.expelled, "cancels": plain(value.cancels, names)}
        return told | {name: sorted(plain(getattr(value, name), names)) for name in ("released", "lost")}
    if isinstance(value, Mapping):
        return {plain(key, names): plain(each, names) for key, each in value.items()}
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name), names) for each in fields(value) if each.name not in OWN}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(getattr(value, name), names) for name in value._fields if name not in OWN}
    if isinstance(value, list | tuple):
        return [plain(each, names) for each in value]
    return value


def _apart(model: Any, real: Any, path: str) -> Iterator[str]:
    if isinstance(model, dict) and isinstance(real, dict) and model.keys() == real.keys():
        for key in model:
            yield from _apart(model[key], real[key], f"{path}.{key}")
    elif isinstance(model, list) and isinstance(real, list):
        if len(model) != len(real):
            yield f"{path}: {len(model)} against {len(real)}"
        for index, (left, right) in enumerate(zip(model, real, strict=False)):
            yield from _apart(left, right, f"{path}[{index}]")
    elif model != real:
        yield f"{path}: {model!r} against {real!r}"
