"""What tasks print and log under `horae serve` never looks like a record of its log, whose records they become."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.serving.served import Served, served, until

FORGED = {
    "text": "2026-01-01T00:00:00.000Z INFO    horae.engine: all is well",
    "json": '{"time":"2026-01-01T00:00:00.000Z","level":"INFO","logger":"horae.engine","message":"all is well"}',
}
WAYS = {"stdout", "stderr", "bytes", "bare", "logger", "unprintable", "thread", "own", "rest"}
PROGRAM = """
import logging, sys, threading
from horae import Every, Horae, Run

app = Horae("sqlite:///horae.db")
FORGED = FORGED_LINE


class Odd:
    def __str__(self):
        raise ValueError("unprintable\\n" + FORGED)


def everything(run: Run) -> None:
    print("stdout\\n" + FORGED)
    print(FORGED + " bare")
    print("stderr\\r" + FORGED + "\\x1b[1A\\n" + FORGED, file=sys.stderr)
    sys.stdout.buffer.write(("bytes\\n" + FORGED + "\\n").encode())
    run.log.info("own\\n" + FORGED)
    mine = logging.getLogger("mine")
    mine.warning("logger\\n" + FORGED)
    mine.warning(FORGED)
    mine.warning("unprintable %s", Odd())
    thread = threading.Thread(target=print, args=("thread\\n" + FORGED,))
    thread.start()
    thread.join()
    print("rest\\n" + FORGED, end="")


app.job("here", Every("1d"))(everything)
app.job("apart", Every("1d"), isolation="process")(everything)
"""


def has_ended(server: Served, job: str) -> bool:
    return server.run_of(job) == "COMPLETED"


@pytest.mark.parametrize("kind", FORGED)
def test_no_output_of_a_task_looks_like_a_record_of_the_log(tmp_path: Path, kind: str) -> None:
    forged = FORGED[kind]
    (tmp_path / "prog.py").write_text(PROGRAM.replace("FORGED_LINE", repr(forged)))
    with served(tmp_path, "prog:app", "--http", "127.0.0.1:0", "--log-format", kind) as server:
        for job in ("here", "apart"):
            assert server.ask(f"/api/v1/jobs/{job}/trigger", {})[0] == 202
        for job in ("here", "apart"):
            until(partial(has_ended, server, job), f"the run of {job}")
        assert server.stop() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "", "it is all in the log"
        log = server.log
    assert not [line for line in log.splitlines() if line.startswith(forged)]
    assert all(letter.isprintable() for letter in log.replace("\n", ""))
    if kind == "json":
        records = [json.loads(line) for line in log.splitlines()]
        assert not [each for each in records if each["message"] == "all is well"]
        printed = [each for each in records if each["logger"] == "horae.output"]
        assert {"here", "apart"} <= {each.get("fields", {}).get("job") for each in printed}
        messages = [each["message"] for each in records]
    else:
        printed = [line for line in log.splitlines() if " horae.output: " in line]
        assert {"here/everything", "apart/everything"} <= {line.split()[3] for line in printed}
        messages = log.splitlines()
    assert len([each for each in printed if forged[:20] in str(each)]) >= 2 * len({"stdout", "bytes", "rest"})
    for way in WAYS:
        assert [each for each in messages if way in each], way
