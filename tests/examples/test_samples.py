"""Samples of every page that are not Python: commands exist, files can be read, statements can be parsed, JSON is."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shlex
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.examples.pages import ROOT

from horae import Horae
from horae.cli import main
from horae.cli.arguments.commands import build_parser
from horae.cli.arguments.parsers import with_watch_values
from horae.config.loader import parse_configuration
from horae.errors import InvalidJobFile
from horae.formats.krontab.lint import lint
from horae.formats.krontab.parser import parse_file
from horae.formats.sql.parser import parse
from horae.formats.toml.job_file import read_job_file

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FAULTY = ["docs/jobs-toml.md"]
OF_DATABASES = {"docs/catalog.md", "docs/postgresql.md"}
"""Pages whose SQL is for the database itself."""
"""Pages that show, as their last sample, what is wrong: tests/examples/test_job_file_page.py has that."""
SHELL = {"|", ">", ">>", "<", "&&", "||", ";", "#", "2>&1"}
"""Words where a command ends, as far as it is ours."""


def blocks(language: str) -> list[tuple[str, str]]:
    """Every block in one language, with the page it is on."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(str(page.relative_to(ROOT)), found) for page in PAGES for found in fence.findall(page.read_text())]


def commands() -> list[tuple[str, list[str]]]:
    """Every `horae …` that a page has somebody type, as words."""
    found: list[tuple[str, list[str]]] = []
    for page, block in blocks("console"):
        for line in block.splitlines():
            if not line.startswith("$ "):
                continue
            lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|><&;")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in [*lexer, ";"]:
                if word in SHELL:
                    if words[:1] == ["horae"]:
                        found.append((page, words[1:]))
                    words = []
                else:
                    words.append(word)
    return found


def test_every_command_on_a_page_is_one() -> None:
    found = commands()
    assert len(found) > 40
    for page, words in found:
        faults = io.StringIO()
        with contextlib.redirect_stderr(faults):
            try:
                build_parser().parse_args(with_watch_values(words))
            except SystemExit:
                pytest.fail(f"{page}: horae {shlex.join(words)}: {faults.getvalue()}")


def test_a_preview_prints_what_its_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [
        (page, command, expected)
        for page, block in blocks("console")
        for command, _, expected in [block.partition("\n")]
        if command.startswith("$ horae next") and expected and not expected.startswith("$")
    ]
    assert len(shown) >= 2
    for page, command, expected in shown:
        assert main(shlex.split(command)[2:]) == 0
        assert capsys.readouterr().out == expected, page


@pytest.mark.parametrize("page", sorted({page for page, _ in blocks("toml")}))
def test_every_toml_sample_can_be_read(page: str) -> None:
    for where, text in blocks("toml"):
        if where != page:
            continue
        if "jobs" in tomllib.loads(text):
            try:
                assert read_job_file(text, file="jobs.toml").jobs
            except InvalidJobFile:
                assert page in FAULTY
        else:
            parse_configuration(text, source=str(ROOT / "horae.toml"))


def test_every_krontab_sample_has_no_faults_and_nothing_to_warn_of() -> None:
    found = blocks("krontab")
    assert found
    for page, text in found:
        jobs, faults = parse_file(text)
        assert jobs, page
        assert not faults, page
        assert lint(text, file="jobs.kron", now=datetime(2026, 6, 1, tzinfo=UTC)) == (), page


@pytest.mark.parametrize("page", sorted({page for page, _ in blocks("sql")} - OF_DATABASES))
def test_every_statement_on_a_page_can_be_parsed(page: str) -> None:
    for where, text in blocks("sql"):
        if where == page:
            assert parse(text)


def test_the_statements_of_the_how_to_page_are_carried_out(tmp_path: Path) -> None:
    async def carried_out() -> str | None:
        app = Horae(f"sqlite:///{tmp_path}/horae.db")
        for page, text in blocks("sql"):
            if page == "docs/how-to.md":
                await app.sql(text)
        job = await app.get_job("forget-visits")
        await app.close()
        return job.definition.spec.run_as

    assert asyncio.run(carried_out()) == "janitor"


def test_every_json_sample_is_json() -> None:
    found = blocks("json")
    assert found
    for _, text in found:
        json.loads(text)
