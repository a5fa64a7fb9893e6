"""What the command line says to somebody who does not know it yet, or mistypes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.terminal import Terminal

from horae.cli.arguments.commands import build_parser
from horae.cli.arguments.help_text import GROUPS
from horae.cli.arguments.parsers import _inner


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("migrate", "--store", url).code == 0
    statement = "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' AS 'SELECT 1'"
    assert inside("sql", statement, "--store", url).code == 0
    return url


def test_horae_alone_shows_help_with_every_command_in_one_group() -> None:
    alone, asked = inside(), inside("--help")
    assert (alone.code, alone.out, alone.errors) == (0, asked.out, "")
    known = list(_inner(build_parser()))
    assert sorted(name for _, names in GROUPS for name in names) == sorted(known)
    for title, names in GROUPS:
        section = alone.out.split(f"\n{title}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(names)


def test_a_group_of_commands_alone_shows_its_help() -> None:
    for group in ("job", "run", "node", "user", "role", "token", "secret", "audit"):
        alone = inside(group)
        assert (alone.code, alone.out) == (0, inside(group, "--help").out)
        assert "usage: horae" in alone.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jbo", "list"), "Did you mean job?"),
        (("trigger", "x"), "Did you mean horae job trigger?"),
        (("list",), "horae job list, or horae run list"),
        (("job", "lsit"), "Did you mean list?"),
        (("job", "list", "--serach", "x"), "Did you mean --search?"),
        (("worker", "--concurency", "3"), "Did you mean --concurrency?"),
        (("qqqqqqq",), "horae --help lists them"),
    ],
)
def test_a_word_that_is_none_is_answered_with_the_nearest(words: tuple[str, ...], said: str) -> None:
    done = inside(*words)
    assert (done.code, said in done.errors) == (2, True), done.errors


def test_a_job_that_is_not_there_is_answered_with_the_nearest_that_one_may_see(store: str) -> None:
    for words in (("job", "show", "nigthly"), ("job", "trigger", "Nightly"), ("job", "runs", "nightyl")):
        done = inside(*words, "--store", store)
        assert (done.code, done.errors.splitlines()[-1].strip()) == (1, "Did you mean nightly?")
    assert inside("user", "create", "ann", "--store", store).code == 0
    assert "nightly" not in inside("job", "show", "nigthly", "--store", store, "--user", "ann").errors
    assert "job list" in inside("job", "show", "zzz", "--store", store).errors


def test_keys_that_are_not_known_are_answered_with_the_nearest(tmp_path: Path, store: str) -> None:
    configuration, krontab, jobs = tmp_path / "horae.toml", tmp_path / "jobs.kron", tmp_path / "jobs.toml"
    configuration.write_text("[server]\nstroe = 'sqlite://'\n")
    assert "Did you mean store?" in inside("worker", "--config", str(configuration)).errors
    krontab.write_text("0 * * * * @wnd(after,1h) name=a command=/bin/true\n")
    assert "Did you mean @win?" in inside("lint", str(krontab)).out
    krontab.write_text("0 * * * * name=a comand=/bin/true\n")
    assert "Did you mean command?" in inside("lint", str(krontab)).out
    jobs.write_text("[jobs.a]\ncorn = '0 * * * *'\nsql = 'SELECT 1'\n")
    assert "Did you mean cron?" in inside("plan", str(jobs), "--store", store).errors
    wrong = inside("sql", "ALTER SYSTEM SET scheduler.plan_bacth = 3", "--store", store)
    assert "Did you mean scheduler.plan_batch?" in wrong.errors


def test_a_job_file_given_to_a_command_for_krontabs_is_told_who_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "my jobs.toml"
    file.write_text("[jobs.a]\ncron = '0 * * * *'\nsql = 'SELECT 1'\n")
    for words, said in (
        (("lint", str(file)), f"horae plan '{file}'"),
        (("next", str(file)), f"horae simulate '{file}'"),
        (("explain", "a", "--file", str(file)), "horae job explain"),
    ):
        done = inside(*words)
        assert (done.code, said in done.errors) == (2, True), done.errors


def test_dropping_asks_on_a_terminal_and_needs_yes_elsewhere(store: str) -> None:
    refused = inside("job", "drop", "nightly", "--store", store)
    assert (refused.code, "--yes" in refused.errors) == (1, True)
    with Terminal("job", "drop", "nightly", "--store", store) as terminal:
        terminal.until('Drop job "nightly"? Its history goes with it. [y/N] ')
        terminal.send("\n")
        assert terminal.ended() == 1
    assert inside("job", "show", "nightly", "--store", store).code == 0
    with Terminal("job", "drop", "nigthly", "--store", store) as terminal:
        assert terminal.ended() == 1
    assert "[y/N]" not in terminal.transcript, "there is no such job"
    with Terminal("job", "drop", "nightly", "--keep-history", "--store", store) as terminal:
        terminal.until("Its history stays. [y/N] ")
        terminal.send("y\n")
        assert terminal.ended() == 0
    assert inside("job", "show", "nightly", "--store", store).code == 1


def test_a_list_of_jobs_explains_the_signs_that_it_shows(store: str) -> None:
    assert "latest:" not in inside("job", "list", "--store", store).out, "there are none"
    run = inside("job", "trigger", "nightly", "--store", store).out.split()[1]
    assert inside("run", "cancel", run, "--store", store).code == 0
    assert "  latest: ◆ cancelled\n" in inside("job", "list", "--store", store).out


def test_the_former_name_of_concurrency_works_and_is_not_shown() -> None:
    for name in ("serve", "worker", "simulate"):
        parser = build_parser([name])
        assert (
            parser.parse_args([name, "--slots", "3"]).slots
            == parser.parse_args([name, "--concurrency", "3"]).slots
            == 3
        )
        assert "--slots" not in inside(name, "--help").out
