"""What a shell's Tab offers: the scripts, in a real bash, and the names that they ask for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.cli.terminal import Terminal
from tests.web.serving import Served, serving

from horae.cli.commands.completion import places

JOBS = """CREATE JOB nightly SCHEDULE = NONE AS 'SELECT 1'; CREATE JOB "night shift" SCHEDULE = NONE AS 'SELECT 1';
CREATE JOB "a:b" SCHEDULE = NONE AS 'SELECT 1'; CREATE JOB "a:c" SCHEDULE = NONE AS 'SELECT 1'; CREATE USER ann;
CREATE ROLE analysts"""
BASH = shutil.which("bash") or "/bin/bash"
_ASK = r"""
source "$1"; shift
COMP_LINE="$1" COMP_POINT=${#1}; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_horae
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('completion') / 'horae.db'}"
    assert inside("sql", JOBS, "--store", url).code == 0
    return url


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program called horae, as an installation has it, and beside it the script for bash."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "horae"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m horae "$@"\n')
    program.chmod(0o755)
    (folder / "horae.bash").write_text(inside("completion", "bash").out)
    return program


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with serving(f"sqlite:///{folder / 'served.db'}", define=lambda app: None, is_running=False) as served:
        assert inside("sql", JOBS, "--server", served.url).code == 0
        yield served


def offered(command: Path, *words: str, store: str = "", apart: tuple[str, ...] = ()) -> list[str]:
    """What bash offers for the last of the words; `apart` are the words as bash takes them apart, where it does."""
    line = " ".join((str(command), *words))
    found = subprocess.run(
        [BASH, "--norc", "-c", _ASK, "bash", f"{command}.bash", line, str(command), *(apart or words)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "HORAE_STORE": store},
    )
    assert found.stderr == ""
    return found.stdout.split("\n")[:-1] if found.stdout != "\n" else []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("comp",), ["completion"]),
        (("job", "pa"), ["pause"]),
        (("job", "--json", "resu"), ["resume"]),
        (("job", "list", "--ta"), ["--tag"]),
        (("job", "list", "--state", ""), ["enabled", "paused", "disabled"]),
        (("job", "list", "--state", "enabled", "--sort", "n"), ["name", "next_run_time"]),
        (("job", "list", "--tag", "show", "--sea"), ["--search"]),
        (("job", "show", "--sq"), ["--sql"]),
        (("next", "0 9 * * *", "--gap", ""), ["skip", "shift"]),
        (("completion", "z"), ["zsh"]),
        (("job", "reschedule", "nightly", ""), []),
        (("job", "list", "--tag", ""), []),
        (("nonsense", ""), []),
    ],
)
def test_bash_completes_commands_options_and_choices(
    command: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    assert offered(command, *words) == expected


def test_bash_completes_names_from_the_catalog(command: Path, store: str) -> None:
    assert offered(command, "job", "pause", "ni", store=store) == ["night\\ shift", "nightly"]
    assert offered(command, "job", "pause", '"night', store=store) == ["night shift", "nightly"]
    assert offered(command, "job", "pause", "night\\ ", store=store) == ["night\\ shift"]
    assert offered(command, "job", "show", "--watch", "5", "nightl", store=store) == ["nightly"]
    assert offered(command, "user", "drop", "ann", "lo", store=store) == ["local"]
    assert offered(command, "grant", "CREATE JOB", "--to", "an", store=store) == ["ann", "analysts"]
    # Bash takes a word apart at its colons: only what follows the last one is put in.
    apart = ("job", "show", "a", ":", "")
    assert offered(command, "job", "show", "a:", store=store, apart=apart) == ["b", "c"]


def test_bash_asks_the_store_that_is_named_on_the_line(command: Path, store: str) -> None:
    scheme, rest = store.split(":", 1)
    apart: tuple[str, ...] = ("job", "pause", "--store", scheme, ":", rest, "nightl")
    assert offered(command, "job", "pause", "--store", store, "nightl", apart=apart) == ["nightly"]
    apart = ("job", "pause", "--store", "=", scheme, ":", rest, "nightl")
    assert offered(command, "job", "pause", f"--store={store}", "nightl", apart=apart) == ["nightly"]


def test_bash_completes_files_where_a_file_is_wanted(command: Path, tmp_path: Path) -> None:
    (tmp_path / "my token").write_text("")
    assert offered(command, "job", "list", "--token-file", f"{tmp_path}/my") == [f"{tmp_path}/my token"]


def test_tab_in_a_bash_that_somebody_sits_at(command: Path, store: str) -> None:
    environment = {"PATH": f"{command.parent}:{os.environ['PATH']}", "HORAE_STORE": store, "PS1": "> "}
    with Terminal("--norc", "--noprofile", "-i", program=(BASH,), environment=environment) as terminal:
        terminal.until("> ")
        terminal.send(f"source {command}.bash\n")
        terminal.until("> ")
        terminal.send("horae job dis\t")
        terminal.until("horae job disable ")
        terminal.send("nightl\t")
        terminal.until("nightly ")
        terminal.send("\n")
        terminal.until("disabled nightly")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_has_every_command_and_option(shell: str) -> None:
    script = inside("completion", shell).out
    for place in places():
        for name, _ in place.commands:
            assert name in script
        for option in place.options:
            for name in option.names:
                said = name if shell != "fish" else f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                assert said in script, f"{place.path} {name}"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(inside("completion", shell).out)
    assert subprocess.run([program, "-n", str(script)], check=False, capture_output=True).stderr == b""


def test_names_are_offered_by_kind_and_beginning(store: str) -> None:
    run = inside("job", "trigger", "nightly", "--store", store, "--json").out.split('"run_id": "')[1].split('"')[0]
    assert inside("__complete", "jobs", "night", "--store", store).out == "night shift\nnightly\n"
    assert run in inside("__complete", "runs", "occ_", f"--store={store}").out.splitlines()
    assert inside("__complete", "users", "", "--store", store).out == "ann\nlocal\n"
    assert inside("__complete", "roles", "", "--store", store).out == "analysts\n"
    assert inside("__complete", "secrets", "", "--store", store).out == ""
    token = inside("token", "create", "--store", store, "--json").out.split('"token_id": "')[1].split('"')[0]
    assert inside("__complete", "tokens", "", "--store", store).out == f"{token}\n"


def test_names_are_offered_from_a_server(server: Served) -> None:
    assert inside("__complete", "jobs", "night", "--server", server.url).out == "night shift\nnightly\n"
    assert inside("__complete", "people", "an", "--server", server.url).out == "ann\nanalysts\n"
    assert inside("__complete", "runs", "", "--server", server.url).out == ""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("jobs",),
        ("nonsense", ""),
        ("jobs", "", "--store", "sqlite:////no/such/folder/horae.db"),
        ("jobs", "", "--store", "nonsense"),
        ("jobs", "", "--server", "http://127.0.0.1:1"),
        ("jobs", "", "--server", "http://127.0.0.1:1", "--token-file", "/no/such/file"),
        ("jobs", "", "--nonsense"),
    ],
)
def test_whatever_is_wrong_nothing_is_said_in_the_middle_of_a_line(words: tuple[str, ...]) -> None:
    done = inside("__complete", *words)
    assert (done.out, done.errors) == ("", "")
    assert done.code == 1


@pytest.mark.parametrize(
    ("host", "is_sent"),
    [
        ("127.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("example.com", False),
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("[::1]", True),
        ("LOCALHOST", True),
    ],
)
def test_a_token_is_offered_to_no_host_that_only_looks_like_this_machine(
    monkeypatch: pytest.MonkeyPatch, host: str, is_sent: bool
) -> None:
    asked: list[str] = []

    class Connection:
        def __init__(self, host: str, port: int | None, timeout: float) -> None:
            asked.append(host)
            raise OSError

    monkeypatch.setattr("http.client.HTTPConnection", Connection)
    monkeypatch.setenv("HORAE_TOKEN", "a-token")
    inside("__complete", "jobs", "", "--server", f"http://{host}:8421")
    assert bool(asked) == is_sent


def test_looking_for_names_makes_no_catalog(tmp_path: Path) -> None:
    assert inside("__complete", "jobs", "", "--store", f"sqlite:///{tmp_path / 'none.db'}").out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_tab_waits_for_no_engine(store: str) -> None:
    """Whoever presses Tab waits: what takes long to import stays out."""
    program = (
        "import sys; from horae.cli import main; main(sys.argv[1:]);"
        "print({'asyncio', 'msgspec', 'horae.app', 'horae.formats.sql', 'horae.api'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "__complete", "jobs", "nightl", "--store", store],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "nightly\nset()\n"


def test_completion_takes_json_and_known_shells_only() -> None:
    assert horae("completion", "csh").code == 2
    assert '"shell": "fish"' in inside("completion", "fish", "--json").out
