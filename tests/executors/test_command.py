"""A command from start to end: its result, its environment, its secrets, its user, its places and what it prints."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.executors import commands
from tests.executors.commands import NOBODY, Place, needs_python, needs_root, open_descriptors, work

from horae.errors import CommandFailed, CommandRefused, InvalidConfiguration
from horae.external import command
from horae.external.command import CommandSecret, CommandWork, run_command

CANARY = "a-value-of-the-node-alone"
OPENSSL = "/usr/bin/openssl"
needs_openssl = pytest.mark.skipif(not Path(OPENSSL).exists(), reason="openssl is not installed here")


@pytest.fixture
def place() -> Iterator[Place]:
    before = open_descriptors()
    with commands.place() as place:
        yield place
    assert open_descriptors() <= before, "descriptors of a command stay open"


# ---- the result ------------------------------------------------------------------------------------------------------


def test_a_command_that_ends_well_has_succeeded(place: Place) -> None:
    ended = place.sh("echo out; echo err >&2; echo more")
    assert ended.text == "out\nerr\nmore\n"
    result = ended.result
    assert (result.status, result.signal, result.succeeded) == (0, None, True)
    assert (result.cut, result.timed_out, result.stopped, result.leftovers, result.survivors) == (
        False,
        False,
        False,
        0,
        0,
    )
    assert 0 < result.seconds < commands.LIMIT


def test_another_status_is_a_failure_with_that_status(place: Place) -> None:
    result = place.sh("exit 3").result
    assert (result.status, result.succeeded, result.message) == (3, False, "ended with status 3")


def test_a_signal_is_told_by_its_name(place: Place) -> None:
    result = place.sh("kill -9 $$").result
    assert (result.status, result.signal) == (None, 9)
    assert result.message == "was killed by signal 9 (SIGKILL: memory or cpu limit?)"
    assert place.sh("kill -USR1 $$").result.message == "was killed by signal 10 (SIGUSR1)"


def test_cpu_time_is_that_of_all_processes(place: Place) -> None:
    burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"
    result = place.sh(f"({burn}) & ({burn}) & wait").result
    assert 0.05 < result.cpu_seconds < result.seconds * 4


def test_what_no_program_can_be_made_of_fails_with_the_systems_reason(place: Place) -> None:
    place.program("nonsense", "neither a binary nor a script")
    with pytest.raises(CommandFailed, match="could not be started: Exec format error"):
        place.run("nonsense")
    with pytest.raises(CommandFailed, match="Argument list too long"):
        place.run(f"sh -c true {'x' * 200_000}")


def test_a_launcher_that_cannot_be_started_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(CommandFailed, match="could not be started: No such file"):
        place.sh("true")


def test_a_launcher_that_dies_at_once_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(CommandFailed, match=r"launcher of the command died \(status 1\)"):
        place.sh("true")


def test_the_options_of_a_task_become_the_work() -> None:
    options = {"shell": True, "env": {"A": "b"}, "cwd": "x", "umask": 0o22, "secrets": [{"name": "token"}]}
    secrets = (CommandSecret("TOKEN", "s3cret"),)
    made = CommandWork.of("x", options, job_name="nightly", run_id="occ_1", attempt=3, secrets=secrets)
    assert made == work("x", env={"A": "b"}, cwd="x", umask=0o22, secrets=secrets, shell=True)  # noqa: S604 - no more than a value here
    assert "s3cret" not in repr(made)


# ---- the environment -------------------------------------------------------------------------------------------------


def test_nothing_of_the_nodes_environment_is_seen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    seen = dict(line.split("=", 1) for line in place.sh("tr '\\0' '\\n' < /proc/$$/environ").lines)
    mark = seen.pop("HORAE_COMMAND")
    assert len(mark) == 32
    assert seen == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HORAE_JOB_NAME": "nightly",
        "HORAE_RUN_ID": "occ_1",
        "HORAE_ATTEMPT": "3",
    }
    # Nor in the process between the node and the command, whose environment the command might read.
    assert CANARY not in place.sh("cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n'").text


def test_names_in_the_policy_are_handed_on_and_its_own_values_win(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("APP_MODE", "fast")
    place.allow(environment=("KEPT", "MISSING", "LD_DEBUG", "APP_*"), variables={"FIXED": "fixed", "PATH": "/bin"})
    script = "echo $KEPT,$APP_MODE,$FIXED,$JOB_OWN,$PATH,${MISSING-none},${LD_DEBUG-none}"
    given = {"JOB_OWN": "own=ü", "FIXED": "changed", "PATH": "/evil"}
    assert place.sh(script, env=given).text == "kept,fast,fixed,own=ü,/bin,none,none\n"


def test_a_pattern_hands_on_nothing_that_loads_code_and_nothing_of_ours(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENSSL_CONF", "OTHER_A", "HORAE_MASTER_KEY", "HOST_A"):
        monkeypatch.setenv(name, "x")
    place.allow(environment=("O*", "H*"))
    seen = {line.split("=", 1)[0] for line in place.sh("tr '\\0' '\\n' < /proc/$$/environ").lines}
    assert seen & {"OPENSSL_CONF", "OTHER_A", "HORAE_MASTER_KEY", "HOST_A"} == {"OTHER_A", "HOST_A"}


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "IFS", "BASH_ENV", "ENV", "PERL5OPT", "GLIBC_TUNABLES"],
)
def test_a_job_cannot_set_what_decides_which_code_is_loaded(place: Place, name: str) -> None:
    with pytest.raises(CommandRefused, match=f"{name} cannot be set by a job"):
        place.sh("true", env={name: "x"})
    with pytest.raises(CommandRefused, match=f"{name} cannot be set by a job"):
        place.sh("true", secrets=(CommandSecret(name, "x"),))
    place.allow(environment=(name,))
    assert place.run("sh", env={name: "x"} if name != "LD_PRELOAD" else {name: ""}).result.succeeded


@pytest.mark.parametrize("name", ["http_proxy", "TERM", "USER", "TOKEN", "NEVER_HEARD_OF"])
def test_a_job_can_set_no_name_that_nobody_has_allowed(place: Place, name: str) -> None:
    with pytest.raises(CommandRefused, match=f"{name} cannot be set by a job: it is not allowed") as refused:
        place.sh("true", env={name: "x"})
    assert f"list {name} in environment under [external]" in (refused.value.hint or "")
    with pytest.raises(CommandRefused, match=f"{name} cannot be set by a job: it is not allowed"):
        place.sh("true", secrets=(CommandSecret(name, "x", as_file=True),))
    place.allow(environment=(f"{name[:2]}*",))
    assert place.sh(f"echo ${name}", env={name: "x"}).text == "x\n"


@needs_openssl
def test_a_module_that_openssl_conf_names_is_not_loaded_into_a_program(place: Place) -> None:
    """The attack that a list of forbidden names did not see: a program's own library loads what the variable names."""
    settings = place.work / "openssl.cnf"
    settings.write_text(
        "openssl_conf = all\n[all]\nproviders = chosen\n[chosen]\nevil = evil\n"
        f"[evil]\nmodule = {place.work}/evil.so\nactivate = 1\n"
    )
    place.allow(commands=(OPENSSL,))
    command = f"{OPENSSL} list -providers"
    with pytest.raises(CommandRefused, match="OPENSSL_CONF cannot be set by a job"):
        place.run(command, env={"OPENSSL_CONF": str(settings)})
    assert "default" in place.run(command).text
    # Where the configuration itself allows it, the program does as the file says, and has that module instead.
    place.allow(environment=("OPENSSL_CONF",))
    assert "default" not in place.run(command, env={"OPENSSL_CONF": str(settings)}).text


@pytest.mark.parametrize("name", ["HORAE_RUN_ID", "HORAE_COMMAND", "HORAE_ANYTHING"])
def test_a_job_cannot_set_our_own_names(place: Place, name: str) -> None:
    place.allow(environment=("H*",))
    with pytest.raises(CommandRefused, match="names with HORAE_ are ours"):
        place.sh("true", env={name: "x"})
    with pytest.raises(InvalidConfiguration, match="names with HORAE_ are Horae's own"):
        place.allow(environment=(name,))


@pytest.mark.parametrize("name", ["A=B", "", "BASH_FUNC_ls%%", "1A", "A\0", "Ä"])
def test_a_name_that_is_none_is_refused(place: Place, name: str) -> None:
    with pytest.raises(CommandRefused, match="Invalid environment variable"):
        place.sh("true", env={name: "x"})


def test_a_value_with_a_nul_is_refused_and_not_told(place: Place) -> None:
    with pytest.raises(CommandRefused, match="TOKEN has a NUL") as refused:
        place.sh("true", secrets=(CommandSecret("TOKEN", "s3cret\0"),))
    assert "s3cret" not in str(refused.value)


# ---- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_is_in_its_variable_or_can_be_read_once_where_that_says(place: Place) -> None:
    secrets = (
        CommandSecret("JOB_TOKEN", "s3cret"),
        CommandSecret("JOB_KEY_FILE", "line 1\nline 2", as_file=True),
        CommandSecret("JOB_OTHER_FILE", "other", as_file=True),
    )
    script = "echo $JOB_TOKEN; echo $JOB_KEY_FILE; cat $JOB_OTHER_FILE; echo; "
    script += "cat $JOB_KEY_FILE; echo; cat $JOB_KEY_FILE; echo end"
    assert place.sh(script, secrets=secrets).lines == [
        "s3cret",
        "/dev/fd/3",
        "other",
        "line 1",
        "line 2",
        "end",
    ]


@needs_root
def test_a_secret_can_be_read_by_the_user_that_the_command_runs_as(place: Place) -> None:
    place.as_nobody()
    script = "cat $JOB_KEY_FILE; echo; id -un"
    assert place.sh(script, secrets=(CommandSecret("JOB_KEY_FILE", "s3cret", as_file=True),)).lines == [
        "s3cret",
        NOBODY,
    ]


def test_a_long_secret_fits_and_one_that_does_not_is_refused(place: Place) -> None:
    count = "wc -c < $JOB_KEY_FILE"
    assert place.sh(count, secrets=(CommandSecret("JOB_KEY_FILE", "x" * 65_536, as_file=True),)).text.strip() == "65536"
    with pytest.raises(CommandRefused, match="more than 65536 bytes"):
        place.sh(count, secrets=(CommandSecret("JOB_KEY_FILE", "x" * 65_537, as_file=True),))


def test_a_secret_is_on_no_command_line_and_in_no_file(place: Place) -> None:
    secrets = (CommandSecret("JOB_TOKEN", f"s3cret-hunted-{os.getpid()}", as_file=True),)
    hunt = f"grep -c s3cret-[h]unted-{os.getpid()}"
    script = f"cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' ' | {hunt}; ls -A; cat $JOB_TOKEN >/dev/null"
    assert place.sh(script, secrets=secrets).lines == ["0"]


def test_a_secret_cannot_take_the_place_of_what_the_policy_says(place: Place) -> None:
    place.allow(variables={"JOB_TOKEN": "fixed"})
    with pytest.raises(CommandRefused, match="policy gives JOB_TOKEN a value"):
        place.sh("true", secrets=(CommandSecret("JOB_TOKEN", "x"),))


# ---- what it inherits ------------------------------------------------------------------------------------------------


def test_no_descriptor_but_the_standard_three_is_open(place: Place) -> None:
    with (place.root / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        lines = place.run("sh -c 'ls -l /proc/$$/fd'").lines
    found = [line.split(" -> ") for line in lines if " -> " in line]
    assert [each[0].split()[-1] for each in found] == ["0", "1", "2"]
    assert [each[1].partition(":")[0] for each in found] == ["/dev/null", "pipe", "pipe"]


@needs_python
def test_signals_are_as_the_system_has_them_and_the_group_is_its_own(place: Place) -> None:
    script = (
        "import os, signal, resource\n"
        "ignored = int(open('/proc/self/status').read().split('SigIgn:')[1].split()[0], 16)\n"
        "print(f'{ignored & ~(3 << 31):016x}')\n"
        "print(os.getpid() == os.getpgrp() == os.getsid(0), os.getpgid(os.getppid()) != os.getpgrp())\n"
        "print(oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    # Python itself ignores SIGPIPE and SIGXFSZ as soon as it runs; 32 and 33 are the C library's, which nobody can set.
    assert place.python(script).lines == ["0000000001001000", "True True", "0o77 (0, 0)"]


def test_a_task_can_have_another_umask(place: Place) -> None:
    assert place.sh("umask; touch file; stat -c %a file", umask=0o027).lines == ["0027", "640"]


# ---- places ----------------------------------------------------------------------------------------------------------


def test_a_command_works_in_the_policys_directory_or_below_it(place: Place) -> None:
    (place.work / "a" / "b").mkdir(parents=True)
    assert place.sh("pwd").text == f"{place.work}\n"
    assert place.sh("pwd", cwd="a/b").text == f"{place.work}/a/b\n"
    assert place.sh("pwd", cwd=f"{place.work}/a").text == f"{place.work}/a\n"


@pytest.mark.parametrize("cwd", ["..", "a/../..", "/", "/tmp", "/etc", "a/../../work", "x\0y"])  # noqa: S108 - refused
def test_a_cwd_elsewhere_is_refused(place: Place, cwd: str) -> None:
    with pytest.raises(CommandRefused, match="working directory"):
        place.sh("pwd", cwd=cwd)


def test_a_cwd_through_a_link_is_refused(place: Place) -> None:
    (place.work / "out").symlink_to("/etc")
    (place.work / "file").write_text("")
    for cwd in ("out", "out/ssl", "missing", "file"):
        with pytest.raises(CommandRefused, match="cwd cannot be entered at"):
            place.sh("pwd", cwd=cwd)


def test_a_working_directory_that_is_none_is_refused(place: Place) -> None:
    place.allow(working_directory=str(place.root / "missing"))
    with pytest.raises(CommandRefused, match="does not exist"):
        place.sh("pwd")


def test_without_one_each_attempt_has_an_empty_directory_which_is_then_gone(place: Place) -> None:
    place.allow(working_directory=None)
    deep = "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done"
    ended = place.sh(f"pwd; ls -A | wc -l; touch a; ln -s /etc b; mkdir c; touch c/d; chmod 0 c; {deep}")
    directory = Path(ended.lines[0])
    assert directory.name.startswith("horae-command-")
    assert ended.lines[1].strip() == "0"
    assert not directory.exists()
    for name in ("cwd", "stdout", "stderr"):
        with pytest.raises(CommandRefused, match=f"has a {name}, but"):
            place.sh("pwd", **{name: "x"})


# ---- what it prints --------------------------------------------------------------------------------------------------


def test_output_beyond_the_limit_is_counted_and_left_out(place: Place) -> None:
    place.allow(output_limit=10)
    ended = place.sh("printf 0123456789abc")
    assert (ended.text, ended.result.left_out, ended.result.cut) == ("0123456789\n… 3 bytes left out\n", 3, True)
    ended = place.sh("printf '012345678\\nx'")
    assert ended.text == "012345678\n… 1 byte left out\n"
    assert place.sh("printf 0123456789").result.cut is False


def test_bytes_that_are_no_text_are_replaced(place: Place) -> None:
    assert place.sh("printf 'a\\377b\\303'; printf '\\251'").text == "a\ufffdbé"
    place.allow(output_limit=2)
    assert place.sh("printf 'a\\303\\251'").text == "a\ufffd\n… 1 byte left out\n"


@pytest.mark.parametrize(
    "flood", ["yes | head -c 20000000", "head -c 20000000 /dev/zero", "yes | head -c 20000000 >&2"]
)
def test_a_flood_fills_no_memory_and_holds_nothing_up(place: Place, flood: str) -> None:
    async def life() -> tuple[command.CommandResult, int, float]:
        pieces: list[str] = []
        # What the loop's own thread computes: a machine that is busy, or stands still, holds up everybody.
        longest, last = 0.0, time.thread_time()

        async def beat() -> None:
            nonlocal longest, last
            while True:
                await asyncio.sleep(0.01)
                longest, last = max(longest, time.thread_time() - last), time.thread_time()

        beating = asyncio.ensure_future(beat())
        result = await run_command(work(f"sh -c '{flood}'"), place.policy, output=pieces.append)
        beating.cancel()
        return result, sum(map(len, pieces)), longest

    result, kept, longest = asyncio.run(life())
    assert result.succeeded, "the flood was held up"
    assert result.left_out == 20_000_000 - 65_536
    assert kept < 70_000
    assert longest < 0.3, "the event loop was held up"


@pytest.mark.parametrize("flood", ["yes", "cat /dev/zero", "yes >&2"])
def test_a_flood_without_end_is_ended_by_its_time_limit(place: Place, flood: str) -> None:
    place.allow(time_limit=0.5, grace=0.1)
    ended = place.sh(f"exec {flood}")
    assert ended.result.timed_out
    assert len(ended.text) < 70_000


def test_the_end_of_a_command_does_not_wait_for_whoever_holds_its_output(place: Place) -> None:
    ended = place.sh("sleep 1000 & echo done")
    assert (ended.text, ended.result.leftovers, ended.result.succeeded) == ("done\n", 1, True)


def test_output_goes_to_files_in_the_working_directory_where_the_task_says_so(place: Place) -> None:
    (place.work / "logs").mkdir()
    (place.work / "logs" / "out").write_text("before\n")
    for _ in range(2):
        ended = place.sh("echo out; echo err >&2", stdout="logs/out", stderr=f"{place.work}/logs/err")
        assert (ended.text, ended.result.succeeded) == ("", True)
    assert (place.work / "logs" / "out").read_text() == "before\nout\nout\n"
    assert (place.work / "logs" / "err").read_text() == "err\nerr\n"
    assert place.sh("echo out; echo err >&2", stderr="logs/err").text == "out\n"


@pytest.mark.parametrize("path", ["../x", "/etc/horae-x", "a/../../x", ".", "x\0"])
def test_a_file_elsewhere_is_refused(place: Place, path: str) -> None:
    for name in ("stdout", "stderr"):
        with pytest.raises(CommandRefused, match="working directory"):
            place.sh("echo x", **{name: path})


def test_a_file_behind_a_link_or_that_is_none_is_refused(place: Place) -> None:
    target = place.root / "target"
    (place.work / "link").symlink_to(target)
    (place.work / "aside").symlink_to(place.root)
    os.mkfifo(place.work / "pipe")
    (place.work / "folder").mkdir()
    for path in ("link", "aside/target", "pipe", "folder", "missing/x"):
        with pytest.raises(CommandRefused, match="stdout file"):
            place.sh("echo x", stdout=path)
    assert not target.exists()


def test_the_policy_is_asked_before_anything_is_started(place: Place) -> None:
    policy = replace(place.policy, enabled=False)
    with pytest.raises(CommandRefused, match="turned off"):
        asyncio.run(run_command(work("sh -c true"), policy, output=print))
