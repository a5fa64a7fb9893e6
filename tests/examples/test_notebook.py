"""The notebook, run by a real kernel; its cells may be run again, as people do."""

from __future__ import annotations

import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.examples.scripts import EXAMPLES

NOTEBOOK = EXAMPLES / "notebook.ipynb"
PATIENCE = 120
ENDED = """while not {"COMPLETED", "FAILED"} <= {str(run.state) for run in await app.runs("measure")}:
    await asyncio.sleep(0.05)"""
"""What a reader does who takes a moment from one cell to the next."""


def executed(notebook: Any, folder: Path) -> Any:
    # It is reached by files, whose names must be short, and not by ports: one that was free may be somebody else's by
    # the time the kernel listens.
    with TemporaryDirectory() as sockets:
        reached = {"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}
        client = importlib.import_module("nbclient").NotebookClient(
            notebook,
            timeout=PATIENCE,
            startup_timeout=PATIENCE,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            config=importlib.import_module("traitlets.config").Config(reached),
        )
        return client.execute()


def read() -> Any:
    return importlib.import_module("nbformat").read(NOTEBOOK, as_version=4)


def text_of(notebook: Any, kind: str) -> str:
    found = [
        output.get("text", "") if kind == "stream" else output.get("data", {}).get(kind, "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.get("name") != "stderr"
    ]
    return "\n".join(text for text in found if text)


def test_every_cell_runs_and_the_runs_are_a_table(tmp_path: Path) -> None:
    notebook = read()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    (looking,) = [place for place, cell in enumerate(notebook.cells) if "Markdown(" in cell.source]
    notebook.cells.insert(looking, importlib.import_module("nbformat.v4").new_code_cell(ENDED))
    done = executed(notebook, tmp_path)
    table = text_of(done, "text/markdown")
    assert table.splitlines()[:2] == ["| slot | job | state | reason |", "|---|---|---|---|"]
    assert len(table.splitlines()) >= 5
    assert "| measure | COMPLETED |" in table
    assert "OSError: the sensor did not answer" in text_of(done, "stream")


def test_running_the_job_s_cell_again_changes_the_job(tmp_path: Path) -> None:
    notebook = read()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    start, job = code[0], code[1]
    look = code[2].copy()
    changed = job.copy()
    changed.source = job.source.replace('Every("1s")', 'Every("1s"), description="changed"')
    assert changed.source != job.source
    look.source = (
        'while "changed" not in [job.definition.spec.description for job in await app.jobs()]:\n'
        '    await asyncio.sleep(0.05)\nprint("changed")'
    )
    notebook.cells = [start, job, changed, look, code[-1]]
    assert "changed" in text_of(executed(notebook, tmp_path), "stream")
