"""In a task's process: from work to a function, from what it returned or raised to what can be told."""

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

from horae.core.attempt import after_stop
from horae.core.lifecycle import AttemptState
from horae.errors import told
from horae.runners.messages import CANCELLED, Failure, ProcessWork
from horae.runners.run import Cancelled, Stop

LONGEST_MESSAGE = 8_000
LONGEST_TRACEBACK = 8_000
STOPPED = "it stopped when it was asked to"
MAIN_ALIAS = "__mp_main__"
"""What multiprocessing calls the program's own file when it is loaded a second time, elsewhere: `__name__` in it."""

_OURS = (str(Path(__file__).parent), str(Path(asyncio.__file__).parent))


def load(work: ProcessWork) -> Callable[..., Any]:
    """The function, by its import path. Raises LookupError where the path leads to none, and what importing raises."""
    found: Any = importlib.import_module(work.module) if work.main_path is None else _main_module(work.main_path)
    for name in work.qualname.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        found = getattr(found, "__wrapped__", None)
    if not callable(found):
        raise LookupError(f"there is no function {work.qualname} in {work.main_path or work.module}")
    return found  # type: ignore[no-any-return]  # found by name: there is no more to know of it


def _main_module(path: str) -> ModuleType:
    """The program's own file as a module, run once, without its `if __name__ == "__main__"` part."""
    known = sys.modules.get(MAIN_ALIAS)
    if known is not None and known.__file__ == path:
        return known
    module = ModuleType(MAIN_ALIAS)
    module.__file__ = path
    # Under both names: what is pickled there says __main__, and so does whoever looks for the program.
    sys.modules[MAIN_ALIAS] = sys.modules["__main__"] = module
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - the user's own program
    return module


def as_json(value: Any, limit: int) -> tuple[str | None, str]:
    """The value as JSON text, or None and a line that says why it was not kept."""
    if value is None:
        return None, ""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except Exception as error:  # noqa: BLE001 - the objects are the user's, and so is what their methods raise
        return None, f"horae: the return value was not kept: it is not JSON: {told_error(error)}\n"
    if len(text) > limit:
        return None, f"horae: the return value was not kept: it takes {len(text)} characters, more than {limit}\n"
    return text, ""


def interruption(stop: Stop) -> Failure | None:
    """Why a task that returned has no result: it knew that it was to stop, and did not say that it was done."""
    state = after_stop(AttemptState.SUCCESS, timed_out=False, saw=stop.seen, is_done=stop.is_done)
    return None if state is AttemptState.SUCCESS else Failure(CANCELLED, STOPPED)


def failure_of(error: BaseException, *, asked: bool, memory: int, secrets: Sequence[str] = ()) -> Failure:
    """What became of the task, told by what it raised. `asked`: it had been asked to stop. `secrets` are taken out
    before anything is cut: half of one would no longer be found."""
    if asked and isinstance(error, Cancelled | asyncio.CancelledError):
        return Failure(CANCELLED, STOPPED)
    kind = type(error).__name__
    if isinstance(error, MemoryError):
        # The frames hold what filled the memory; telling of it takes some.
        traceback.clear_frames(error.__traceback__)
        message = f"its process may use {memory // 1024**2} MB of memory, and wanted more"
    elif isinstance(error, SystemExit):
        message = f"it called for its process to exit, with code {error.code!r}"
    else:
        message = told_error(error)
    try:
        return Failure(kind, cut(without(secrets, message), LONGEST_MESSAGE), _traced(error, secrets))
    except Exception:  # noqa: BLE001 - no memory for it, or an exception that cannot be shown: the kind must do
        return Failure(kind, without(secrets, message)[:LONGEST_MESSAGE])


def told_error(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is still is one
        return told(error)


def without(secrets: Sequence[str], text: str) -> str:
    """The text without these secrets."""
    if not secrets:
        return text
    # Imported here: tasks without secrets start sooner.
    from horae.security.redaction import Redactor

    return Redactor(secrets).text(text)


def _traced(error: BaseException, secrets: Sequence[str]) -> str:
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames or error.__traceback__)
    return cut(without(secrets, "".join(lines)), LONGEST_TRACEBACK)


def cut(text: str, limit: int) -> str:
    """The ends of a long text: where it began, and what it came to."""
    return text if len(text) <= limit else f"{text[: limit // 4]}\n…\n{text[-limit * 3 // 4 :]}"


def answer(value: Any, error: BaseException | None) -> tuple[bytes | None, bytes | None, str]:
    """What is sent to a question: the value, or the error as itself and, for where that cannot be read, as text."""
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
    """Returns or raises what the engine answered."""
    if value is not None:
        return pickle.loads(value)  # noqa: S301 - both ends are the same program
    raised: object = None
    if error is not None:
        try:
            raised = pickle.loads(error)  # noqa: S301 - as above
        except Exception:  # noqa: BLE001 - an exception that cannot be made from its arguments; its text can be told
            raised = None
    raise raised if isinstance(raised, Exception) else RuntimeError(text)
