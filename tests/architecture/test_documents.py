"""Documents stay true: generated pages equal what the code gives, links lead somewhere, examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tools.generate import PAGES

from horae.cli import main
from horae.core.krontab import parse_file

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

IN_ORDER = {
    "README.md",
    "docs/jobs.md",
    "docs/testing.md",
    "docs/exactly-once.md",
    "docs/declarative.md",
    "docs/job-types.md",
}
"""Pages whose blocks go on from one another: tests/examples runs those, and tests/work the last."""
ALONE = [path for path in DOCUMENTS if str(path.relative_to(ROOT)) not in IN_ORDER]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_generated_page_is_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run make golden"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", ALONE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_example_runs(path: Path) -> None:
    for example in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        exec(example, {"print": lambda *values: None})  # noqa: S102 - the example is our own text


def test_the_readme_s_console_example_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```console\n(\$ horae .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    command, _, expected = block.partition("\n")
    assert main(shlex.split(command)[2:]) == 0
    assert capsys.readouterr().out == expected


def test_the_krontab_page_s_sample_has_no_faults() -> None:
    (sample,) = re.findall(r"```\n(# .*?)```", (ROOT / "docs" / "krontab.md").read_text(), re.DOTALL)
    jobs, faults = parse_file(sample)
    assert (len(jobs), faults) == (2, ())


def test_the_readme_s_first_screen_has_the_two_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:25])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_continuous_integration_runs_both_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "make check" in script
    assert "make test" in script


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_names_a_machine_s_own_paths(path: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|root|home)/", path.read_text())
