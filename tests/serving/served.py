"""`horae serve` as a process of its own, and what tests ask of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 60.0
PROGRAM = """
import asyncio
from pathlib import Path
from horae import Every, Horae, Run

# What runs has far longer to finish than any test takes: nothing ends because a grace is over.
app = Horae("sqlite:///horae.db", grace_period="1h")


@app.job("slow", Every("1h"))
async def slow(run: Run) -> None:
    Path("began").touch()
    while not Path("go-on").exists():
        await asyncio.sleep(0.01)
    Path("finished").touch()


@app.job("quick", Every("1h"))
async def quick(run: Run) -> str:
    return "done"
"""


def until(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` answers as soon as that is something."""
    ends = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


class Served:
    """One process, which has said where it is."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        self.said: dict[str, Any] = {}

    @property
    def log(self) -> str:
        return self._log.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(PATIENCE)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.ended()

    def ask(
        self, path: str, body: Any = None, *, method: str | None = None, token: str | None = None
    ) -> tuple[int, Any]:
        """Status and answer, JSON read."""
        connection = self._connection()
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method or ("GET" if body is None else "POST"), path, sent, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, json.loads(text) if "json" in (answer.getheader("content-type") or "") else text

    def _connection(self) -> http.client.HTTPConnection:
        address: str = self.said["address"]
        if not address.startswith("unix:"):
            parts = urlsplit(address)
            return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(address.removeprefix("unix:"))
        return connection

    def wait_until_well(self, path: str = "/healthz") -> None:
        """Waits for a green light. On a slow machine a look at the catalog may take longer than an answer may."""
        until(lambda: self.ask(path)[0] == 200, "a green light")

    def run_of(self, job: str) -> str | None:
        """The state of the job's newest run."""
        runs = self.ask(f"/api/v1/jobs/{job}/runs")[1]["runs"]
        return runs[0]["state"] if runs else None


@contextmanager
def served(
    folder: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    command: str = "serve",
    fails: bool = False,
    through: tuple[str, ...] = (),
    program: str | None = None,
    **options: Any,
) -> Iterator[Served]:
    """The process in `folder`, ended with the block. `fails`: it is not expected to come up; `through`: what starts
    it; `program`: a file to run in place of a command."""
    started = ["-m", "horae", command, "--json"] if program is None else [program]
    log = folder / f"log-{time.monotonic_ns()}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HORAE_")}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*through, sys.executable, *started, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**inherited, **(environment or {})},
            **options,
        )
    found = Served(process, log)
    try:
        if not fails:
            found.said = _first_document(found)
        yield found
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def _first_document(served: Served) -> dict[str, Any]:
    text = ""
    assert served.process.stdout is not None
    for line in served.process.stdout:
        text += line
        try:
            document: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError:
            continue
        return document
    raise AssertionError(f"it ended with {served.ended()}: {served.log}")
