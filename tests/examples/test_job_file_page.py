"""The page on job files: its samples are read, its first one runs, its fault is told as it says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types
from tests.core.test_jobtable_laws import plain
from tests.engine.world import simulate, states
from tests.examples.pages import ROOT

from horae import Horae
from horae.errors import InvalidJobFile
from horae.formats.toml.job_file import JOB_FILE_SCHEMA, job_file_toml, read_job_file
from horae.formats.toml.keys import FILE, FILE_JOB, SETTINGS, TASK
from horae.testing.simulation import Simulation

PAGE = (ROOT / "docs" / "jobs-toml.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_has_its_samples() -> None:
    assert [bool(told) for _, told in BLOCKS] == [False, False, False, True]


@pytest.mark.parametrize("text", [text for text, told in BLOCKS if not told])
def test_a_sample_is_read_and_fits_the_schema(text: str) -> None:
    file = read_job_file(text, file="jobs.toml")
    assert file.jobs
    assert read_job_file(job_file_toml(file), file="again") == file
    Draft202012Validator(dict(JOB_FILE_SCHEMA)).validate(plain(tomllib.loads(text)))


def test_the_fault_is_told_as_the_page_says() -> None:
    ((text, told),) = [each for each in BLOCKS if each[1]]
    with pytest.raises(InvalidJobFile) as refused:
        read_job_file(text, file="jobs.toml")
    assert f"{refused.value}\n{refused.value.hint}\n" == told


def test_the_first_sample_runs(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(BLOCKS[0][0])
    app = Horae("sqlite://", settings={"tee": False})
    done: list[str] = []
    for name in ("reports.nightly", "etl.extract"):
        app.task(name)(lambda name=name: done.append(name))
    assert app.job_file(tmp_path / "jobs.toml") == ("nightly-report", "tidy", "etl")

    async def body(sim: Simulation) -> list[str]:
        await sim.advance("1d")
        return await states(app, "nightly-report")

    assert simulate(app, body) == ["COMPLETED"]
    assert "reports.nightly" in done


def test_the_page_and_its_reference_name_every_key() -> None:
    reference = (ROOT / "docs" / "jobs-toml-keys.md").read_text()
    for table in (FILE, FILE_JOB, TASK):
        for key in table.keys:
            assert f"`{key}`" in reference
    for key in SETTINGS:
        assert f"`{key}`" in PAGE
