"""In a task's process: finds the function, and converts its result or its error into a message."""

from __future__ import annotations

import asyncio
import importlib
import json
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from horae.core.run.attempt import after_stop
from horae.core.run.lifecycle import AttemptState
from horae.errors import as_text
from horae.executors.messages import CANCELLED, Failure, ProcessWork
from horae.executors.run import Cancelled, StopFlag

LONGEST_MESSAGE = 8_000
LONGEST_TRACEBACK = 8_000
STOPPED = "it stopped when it was asked to"
MAIN_ALIAS = "__mp_main__"
"""The `__name__` under which multiprocessing loads the program's main file again in a child process."""

_OURS = (str(Path(__file__).parent), str(Path(asyncio.__file__).parent))


def load(work: ProcessWork) -> Callable[..., Any]:
    """Imports the function. Raises LookupError if the path names no function, and whatever the import raises."""
    found: Any = importlib.import_module(work.module) if work.main_path is None else _main_module(work.main_path)
    for name in work.qualname.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        found = getattr(found, "__wrapped__", None)
    if not callable(found):
        raise LookupError(f"there is no function {work.qualname} in {work.main_path or work.module}")
    return found  # type: ignore[no-any-return]  # its type is unknown until it is imported


def _main_module(path: str) -> ModuleType:
    """Loads the program's main file as a module, once, without its `if __name__ == "__main__"` part."""
    known = sys.modules.get(MAIN_ALIAS)
    if known is not None and known.__file__ == path:
        return known
    module = ModuleType(MAIN_ALIAS)
    module.__file__ = path
    # Registered under both names: objects pickled in the program name `__main__`, and code that looks for the program
    # does so too.
    sys.modules[MAIN_ALIAS] = sys.modules["__main__"] = module
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - the user's own program
    return module


def as_json(value: Any, limit: int) -> tuple[str | None, str]:
    """Returns the value as JSON text and "", or None and an output line that says why it was not kept."""
    if value is None:
        return None, ""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except Exception as error:  # noqa: BLE001 - methods of users' objects may raise anything
        return None, f"horae: the return value was not kept: it is not JSON: {told_error(error)}\n"
    if len(text) > limit:
        return None, f"horae: the return value was not kept: it takes {len(text)} characters, more than {limit}\n"
    return text, ""


def interruption(stop: StopFlag) -> Failure | None:
    """Returns a failure if a task that returned was interrupted: it knew that it was to stop, and did not call
    `done()`."""
    state = after_stop(AttemptState.SUCCESS, timed_out=False, saw=stop.seen, is_done=stop.is_done)
    return None if state is AttemptState.SUCCESS else Failure(CANCELLED, STOPPED)


def failure_of(error: BaseException, *, asked: bool, memory: int, secrets: Sequence[str] = ()) -> Failure:
    """Converts an error into a failure. `asked`: the task had been asked to stop.

    `secrets` are removed before the text is shortened, because half of a secret would no longer be recognised.
    """
    if asked and isinstance(error, Cancelled | asyncio.CancelledError):
        return Failure(CANCELLED, STOPPED)
    kind = type(error).__name__
    if isinstance(error, MemoryError):
        # The frames hold the objects that filled the memory, and the report needs some.
        traceback.clear_frames(error.__traceback__)
        message = f"its process may use {memory // 1024**2} MB of memory, and wanted more"
    elif isinstance(error, SystemExit):
        message = f"it called for its process to exit, with code {error.code!r}"
    else:
        message = told_error(error)
    try:
        return Failure(kind, cut(redact(secrets, message), LONGEST_MESSAGE), _traced(error, secrets))
    except Exception:  # noqa: BLE001 - no memory left, or str() raised: the kind must do
        return Failure(kind, redact(secrets, message)[:LONGEST_MESSAGE])


def told_error(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - str() of a user's exception may itself raise
        return as_text(error)


def redact(secrets: Sequence[str], text: str) -> str:
    """Removes the secrets from the text."""
    if not secrets:
        return text
    # Imported here, so that tasks without secrets start faster.
    from horae.security.redaction import Redactor

    return Redactor(secrets).text(text)


def _traced(error: BaseException, secrets: Sequence[str]) -> str:
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames or error.__traceback__)
    return cut(redact(secrets, "".join(lines)), LONGEST_TRACEBACK)


def cut(text: str, limit: int) -> str:
    """Shortens a long text from the middle: keeps the first quarter and the last three quarters of `limit`."""
    return text if len(text) <= limit else f"{text[: limit // 4]}\n…\n{text[-limit * 3 // 4 :]}"


def answer(value: Any, error: BaseException | None) -> tuple[bytes | None, bytes | None, str]:
    """Builds the answer to a request: the value, or the error, both pickled; and the error's text in case it cannot be
    read."""
    if error is None:
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL), None, ""
        except Exception as raised:  # noqa: BLE001 - a driver's objects may refuse in any way
            return None, None, f"the answer cannot be sent to another process: {told_error(raised)}"
    text = f"{type(error).__name__}: {told_error(error)}"
    try:
        return None, pickle.dumps(error, pickle.HIGHEST_PROTOCOL), text
    except Exception:  # noqa: BLE001 - as above
        return None, None, text


def read_answer(value: bytes | None, error: bytes | None, text: str) -> Any:
    """Returns the value or raises the error that the engine answered."""
    if value is not None:
        return pickle.loads(value)  # noqa: S301 - both ends are the same program
    raised: object = None
    if error is not None:
        try:
            raised = pickle.loads(error)  # noqa: S301 - as above
        except Exception:  # noqa: BLE001 - an exception that cannot be unpickled; its text is raised
            raised = None
    raise raised if isinstance(raised, Exception) else RuntimeError(text)
