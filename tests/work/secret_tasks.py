"""Python tasks that are handed secrets and do with them what nobody should: importable, for processes of their own."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
from urllib.parse import quote

from horae import Horae, Run

NAME = "token"
_LOG = logging.getLogger("careless")


def forms(value: str) -> list[str]:
    """A value as careless programs write it."""
    raw = value.encode()
    return [
        value,
        base64.b64encode(raw).decode(),
        base64.b64encode(b"user:" + raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        raw.hex(),
        raw.hex().upper(),
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        repr(value)[1:-1],
    ]


def spilt(run: Run, value: str) -> dict[str, object]:
    """Says it in every way there is, and returns it too; the second attempt raises it."""
    for form in forms(value):
        print("printed", form)
        print(form, file=sys.stderr)
        _LOG.warning("logged %s", form)
        run.log.info("told %s", form, extra={"token": form})
    half = len(value) // 2
    print(value[:half], end="")
    print(value[half:])
    try:
        raise KeyError(value)
    except KeyError:
        _LOG.exception("caught")
    if run.payload == "raise":
        raise ValueError(f"no good: {forms(value)}")
    return {"value": value, "forms": forms(value), value: 1}


async def in_loop(run: Run) -> dict[str, object]:
    value = await run.secret(NAME)
    await asyncio.sleep(0)
    return spilt(run, value)


def in_thread(run: Run) -> dict[str, object]:
    return spilt(run, run.secret(NAME))


def in_process(run: Run) -> dict[str, object]:
    return spilt(run, run.secret(NAME))


async def in_async_process(run: Run) -> dict[str, object]:
    return spilt(run, await run.secret(NAME))


TASKS = (in_loop, in_thread, in_process, in_async_process)


def define(app: Horae) -> None:
    app.task("spill")(in_loop)
    for task in TASKS:
        isolation = "process" if "process" in task.__name__ else "auto"
        app.job(task.__name__, None, isolation=isolation)(task)
