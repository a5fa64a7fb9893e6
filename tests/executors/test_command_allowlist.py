"""Which program a command line means, and every way to smuggle in another: each is refused, with its reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.executors import commands
from tests.executors.commands import SHELL, Place, needs_root, open_descriptors

from horae.core.program.policy import ExternalPolicy
from horae.errors import CommandRefused
from horae.external import command
from horae.external.allowlist import AllowedProgram, admit

HELLO = '#!/bin/sh\necho "hello from $0, $# arguments:" "$@"\n'


@pytest.fixture
def place() -> Iterator[Place]:
    with commands.place() as place:
        yield place


def refusal(place: Place, line: str, *, shell: bool = False) -> CommandRefused:
    before = open_descriptors()
    with pytest.raises(CommandRefused) as refused:
        admit(line, place.policy, shell=shell)
    assert open_descriptors() <= before, "a refused program stays open"
    return refused.value


def test_nothing_runs_until_somebody_turns_it_on(place: Place) -> None:
    place.allow(enabled=False)
    error = refusal(place, SHELL)
    assert error.message == "External commands are turned off on this node"
    assert "enabled = true under [external]" in (error.hint or "")
    assert ExternalPolicy().enabled is False


def test_an_allowed_command_and_a_program_in_an_allowed_directory_run(place: Place) -> None:
    path = place.program("hello", HELLO)
    assert place.run(f"{path} a 'b c'").text == f"hello from {path}, 2 arguments: a b c\n"
    assert place.sh("echo $0").text == f"{SHELL}\n"


def test_a_program_below_an_allowed_directory_runs(place: Place) -> None:
    path = place.program("deep/hello", HELLO)
    assert place.run(path).text == f"hello from {path}, 0 arguments:\n"


def test_a_bare_name_is_looked_up_in_the_policy_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place.program("hello", HELLO)
    assert place.run("hello").text == f"hello from {path}, 0 arguments:\n"
    assert place.run("sh -c 'echo shell'").text == "shell\n"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert refusal(place, "id").message == 'No allowed program is called "id"'


def test_a_false_program_in_the_path_of_the_node_is_not_taken(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "hello").write_text("#!/bin/sh\necho false\n")
    (elsewhere / "hello").chmod(0o755)
    monkeypatch.setenv("PATH", str(elsewhere))
    place.program("hello", HELLO)
    assert place.run("hello").text.startswith("hello from")


@pytest.mark.parametrize("line", ["id", "/usr/bin/id", "/usr/bin/../bin/id", "//usr/bin/id", "/proc/self/exe"])
def test_what_is_not_listed_is_refused(place: Place, line: str) -> None:
    assert "not allowed" in refusal(place, line).message or "No allowed program" in refusal(place, line).message


@pytest.mark.parametrize("line", ["./hello", "programs/hello", "../../bin/sh", "hello/../../../bin/sh"])
def test_a_relative_path_is_refused(place: Place, line: str) -> None:
    place.program("hello", HELLO)
    assert "relative path" in refusal(place, line).message


def test_a_path_that_goes_up_out_of_an_allowed_directory_is_refused(place: Place) -> None:
    error = refusal(place, f"{place.programs}/../../../usr/bin/id")
    assert error.message.endswith('which leads to "/usr/bin/id", is not allowed on this node')


def test_a_path_that_goes_up_and_comes_back_is_what_it_leads_to(place: Place) -> None:
    path = place.program("hello", HELLO)
    assert place.run(f"/usr/..{place.programs}/../programs/hello").text == f"hello from {path}, 0 arguments:\n"


def test_a_link_out_of_an_allowed_directory_is_refused(place: Place) -> None:
    (place.programs / "innocent").symlink_to("/usr/bin/id")
    (place.programs / "aside").symlink_to("/usr/bin")
    assert 'leads to "/usr/bin/id"' in refusal(place, f"{place.programs}/innocent").message
    assert "not allowed" in refusal(place, f"{place.programs}/aside/id").message
    assert "No allowed program" in refusal(place, "innocent").message


def test_a_directory_whose_name_begins_like_an_allowed_one_is_another(place: Place) -> None:
    other = place.root / "programs-too"
    other.mkdir()
    (other / "hello").write_text(HELLO)
    (other / "hello").chmod(0o755)
    assert "not allowed" in refusal(place, str(other / "hello")).message


def test_a_link_inside_an_allowed_directory_to_a_program_there_runs(place: Place) -> None:
    path = place.program("hello", HELLO)
    (place.programs / "greet").symlink_to("hello")
    assert place.run(f"{place.programs}/greet").text == f"hello from {path}, 0 arguments:\n"


def test_a_program_of_many_names_does_only_what_was_allowed(place: Place) -> None:
    """Such a program looks at the name it is called by: allowing one of its names must not allow the others."""
    many = place.root / "many"
    many.write_bytes(Path("/bin/sh").resolve().read_bytes())
    many.chmod(0o755)
    (place.root / "allowed").symlink_to("many")
    place.allow(commands=(str(place.root / "allowed"),))
    told = [place.run(f"{place.root}/{name} -c 'echo $0'").text for name in ("allowed", "many")]
    assert told == [f"{place.root}/allowed\n"] * 2


def test_loops_of_links_and_missing_files_are_refused(place: Place) -> None:
    (place.programs / "loop").symlink_to("loop")
    assert "became a link" in refusal(place, f"{place.programs}/loop").message
    assert "No such file" in refusal(place, f"{place.programs}/missing").message


def test_a_directory_a_device_and_a_file_without_the_right_to_run_are_refused(place: Place) -> None:
    (place.programs / "data").write_text(HELLO)
    (place.programs / "folder").mkdir()
    os.mkfifo(place.programs / "pipe", 0o755)
    assert "may not be executed" in refusal(place, f"{place.programs}/data").message
    assert "not a regular file" in refusal(place, f"{place.programs}/folder").message
    assert "not a regular file" in refusal(place, f"{place.programs}/pipe").message


def test_what_everybody_may_write_to_is_refused(place: Place) -> None:
    path = Path(place.program("hello", HELLO))
    path.chmod(0o757)
    assert "may be written to by everybody" in refusal(place, str(path)).message
    path.chmod(0o755)
    place.programs.chmod(0o757)
    assert str(place.programs) in refusal(place, str(path)).message
    place.programs.chmod(0o755)
    assert place.run(str(path)).result.succeeded


@needs_root
def test_a_strangers_program_in_a_directory_for_all_is_refused(place: Place) -> None:
    shared = place.root / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    program = shared / "hello"
    program.write_text(HELLO)
    program.chmod(0o755)
    place.allow(commands=(str(program),))
    assert place.run(str(program)).result.succeeded
    os.chown(program, 65534, 65534)
    assert "somebody else's" in refusal(place, str(program)).message


@pytest.fixture
def swapped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is admitted is replaced by another program before it is started."""

    def admit_then_swap(text: str, policy: ExternalPolicy, *, shell: bool) -> AllowedProgram:
        program = admit(text, policy, shell=shell)
        Path(program.path).rename(place.root / "moved")
        place.program(Path(program.path).name, "#!/bin/sh\necho swapped\n")
        return program

    monkeypatch.setattr(command, "admit", admit_then_swap)


@pytest.mark.usefixtures("swapped")
def test_a_binary_that_is_replaced_after_the_check_runs_as_it_was_checked(place: Place) -> None:
    binary = place.programs / "binary"
    binary.write_bytes(Path("/bin/echo").resolve().read_bytes())
    binary.chmod(0o755)
    assert place.run(f"{binary} checked").text == "checked\n"


@pytest.mark.usefixtures("swapped")
def test_a_script_that_is_replaced_after_the_check_is_refused(place: Place) -> None:
    path = place.program("hello", HELLO)
    with pytest.raises(CommandRefused, match="was replaced by another after it had been checked"):
        place.run(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "The command is empty"),
        ("   ", "The command is empty"),
        ("''", "The command is empty"),
        ("sh -c 'unclosed", "no closing quotation"),
        ("sh trailing\\", "no escaped character"),
        ("sh a\0b", "has a NUL character"),
        ("sh \udc80", "characters that are no text"),
    ],
)
def test_text_that_is_no_command_line_is_refused(place: Place, line: str, reason: str) -> None:
    assert reason in refusal(place, line).message


def test_no_argument_means_anything_to_a_shell(place: Place) -> None:
    place.program("hello", HELLO)
    injected = "; id | cat && $(id) `id` > out < in & * ? ~ $HOME ${PATH} #"
    assert place.run(f"hello {injected}").text.endswith(f"{len(injected.split())} arguments: {injected}\n")
    assert not list(place.work.iterdir())


def test_arguments_keep_their_quotes_blanks_and_line_ends(place: Place) -> None:
    script = place.program("count", '#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\n')
    assert place.run(f"{script} 'a  b' \"c'd\" e\\ f '' 'g\nh' é").lines == [
        "<a  b>",
        "<c'd>",
        "<e f>",
        "<>",
        "<g",
        "h>",
        "<é>",
    ]


def test_a_shell_is_refused_unless_the_policy_allows_it(place: Place) -> None:
    error = refusal(place, "echo $((1 + 1)) | cat", shell=True)  # noqa: S604 - what is tested
    assert "asks for a shell" in error.message
    assert "set shell = true under [external]" in (error.hint or "")
    place.allow(allow_shell=True, commands=(), directories=())
    assert place.run("echo $((1 + 1)) | cat", shell=True).text == "2\n"  # noqa: S604 - what is tested
    assert refusal(place, "  ", shell=True).message == "The command is empty"  # noqa: S604 - what is tested


def test_a_policy_that_allows_a_shell_still_starts_none_by_itself(place: Place) -> None:
    place.program("hello", HELLO)
    policy = replace(place.policy, allow_shell=True)
    with admit("hello $HOME", policy) as program:
        assert program.arguments[1:] == ("$HOME",)
