"""Documents stay true: generated pages equal what the code gives, links lead somewhere, examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tools.generate import PAGES, picture_name

from horae.cli import main
from horae.config.loader import EXTERNAL, KeySources
from horae.config.server import server_keys
from horae.core.run.lifecycle import MACHINES, StateMachine
from horae.formats.krontab.parser import parse_file

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

IN_ORDER = {
    "README.md",
    "docs/jobs.md",
    "docs/how-to.md",
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


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_picture_of_states_shows_exactly_the_table(machine: StateMachine) -> None:
    picture = (ROOT / "docs" / "pictures" / picture_name(machine)).read_text()
    assert re.findall(r">(\w+)</text>", picture) == [
        "born",
        *sorted(machine.states, key=lambda state: (not machine.moves[state], machine.states.index(state))),
    ]
    for state in machine.states:
        assert picture.count(f'marker-end="url(#from-{state})"') == len(machine.moves[state])
    assert picture.count('marker-end="url(#from-birth)"') == len(machine.births)


def test_pictures_of_pages_are_small() -> None:
    """They are kept in the repository, and made anew now and then."""
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    assert len(pictures) >= 12
    assert [each.name for each in pictures if each.stat().st_size > 150_000] == []


def test_the_page_on_configuration_names_every_key() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    for key in (*EXTERNAL, *KeySources.__dataclass_fields__, *server_keys(ROOT)):
        assert f"`{key}`" in page, key


def test_every_link_to_a_file_leads_to_one() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in DOCUMENTS
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert broken == []


EXAMPLES = {path: found for path in ALONE if (found := re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES[path]:
        exec(example, {"print": lambda *values: None})  # noqa: S102 - the example is our own text


def test_the_readme_s_console_example_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```console\n(\$ horae next .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
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


def test_no_document_names_a_machine_s_own_paths() -> None:
    assert [path.name for path in DOCUMENTS if re.search(r"(?<![\w.])/(work|root|home)/", path.read_text())] == []
