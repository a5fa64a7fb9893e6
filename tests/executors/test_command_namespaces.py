"""Commands in namespaces of their own, by the real bubblewrap; and what becomes of them where there is none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.executors import commands
from tests.executors.commands import NOBODY, Place, needs_bubblewrap, needs_root

from horae.errors import CommandRefused
from horae.external import sandbox
from horae.external.command import CommandHandle, CommandSecret
from horae.external.confinement import MOST_OTHERS


@pytest.fixture
def place() -> Iterator[Place]:
    with commands.place() as place:
        yield place


def test_without_bubblewrap_a_policy_that_insists_on_it_starts_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(place.work))
    place.allow(sandbox="namespaces")
    with pytest.raises(CommandRefused, match=r"bubblewrap \(bwrap\) is not installed"):
        place.sh("true")
    place.allow(sandbox="none")
    assert place.sh(f"[ -e /proc/{os.getpid()} ] && echo visible").lines == ["visible"]


def test_with_a_bubblewrap_that_does_not_work_a_policy_that_insists_on_it_starts_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    false = place.root / "false"
    false.mkdir()
    (false / "bwrap").write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    (false / "bwrap").chmod(0o755)
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(false))
    place.allow(sandbox="namespaces")
    with pytest.raises(CommandRefused, match="bubblewrap does not work here: no namespaces here"):
        place.sh("true")
    place.allow(sandbox="none")
    assert place.sh("echo without").lines == ["without"]


def test_a_bubblewrap_that_gave_no_answer_in_time_is_asked_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, idle = place.root / "busy", place.root / "idle"
    busy.mkdir()
    (busy / "bwrap").write_text(
        f'#!/bin/sh\n[ -e {idle} ] || exec sleep 1000\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    (busy / "bwrap").chmod(0o755)
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(busy))
    monkeypatch.setattr(sandbox, "PROBE_LIMIT", 0.2)
    place.allow(sandbox="namespaces")
    with pytest.raises(CommandRefused, match=r"bubblewrap did not start within 0\.2 s"):
        place.sh("true")
    idle.touch()
    monkeypatch.setattr(sandbox, "PROBE_LIMIT", commands.LIMIT)
    assert place.sh("echo done").lines == ["done"]


@needs_root
def test_a_sandbox_by_user_is_another_user_than_the_node_s_or_nothing_starts(place: Place) -> None:
    place.as_nobody()
    place.allow(sandbox="user")
    assert place.sh("id -un").lines == [NOBODY]
    place.allow(user="root")
    with pytest.raises(CommandRefused, match='"root" is the user of this node itself'):
        place.sh("true")


@needs_bubblewrap
def test_it_is_known_whether_a_program_that_failed_had_begun(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.allow(sandbox="namespaces")
    failed = place.sh("ls /proc/self/fd | wc -l; exit 3")
    assert (failed.result.status, failed.result.has_begun) == (3, True)
    assert place.sh("kill -9 $$").result.has_begun
    # The descriptor that tells it is not the program's: beside its own three, only that of the list is open.
    assert failed.lines == ["4"]
    broken = place.root / "broken"
    broken.mkdir()
    (broken / "bwrap").write_text('#!/bin/sh\ncase "$*" in *status-fd*) exit 1;; esac\n')
    (broken / "bwrap").chmod(0o755)
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(broken))
    ended = place.sh("true")
    assert (ended.result.status, ended.result.has_begun) == (1, False)


@needs_bubblewrap
def test_what_is_hidden_stays_so_where_it_is_exchanged_or_made_while_a_program_runs(place: Place) -> None:
    with tempfile.TemporaryDirectory(prefix="horae-hidden-", dir="/var/tmp") as outside:
        folder = Path(outside)
        key, journal, work = folder / "master.key", folder / "horae.db-journal", folder / "work"
        for name, text in (("master.key", "key"), ("jobs.toml", "jobs"), ("deep", None), ("work", None)):
            (folder / name).mkdir() if text is None else (folder / name).write_text(text)
        (folder / "deep" / "file").write_text("deep")
        (folder / "link").symlink_to("jobs.toml")
        place.allow(sandbox="namespaces", own=(str(key), str(journal)), working_directory=str(work))

        def exchange(_: CommandHandle) -> None:
            (folder / "new").write_text("new key")
            (folder / "new").rename(key)
            journal.write_text("journal")
            (work / "go").touch()

        ended = place.during(
            f"echo ready; while [ ! -e go ]; do sleep 0.05; done; cd {folder}; cat master.key horae.db-journal "
            "2>/dev/null; cat jobs.toml link deep/file; echo; touch x 2>/dev/null && echo wrote; "
            "touch work/x && ls work",
            exchange,
        )
        assert ended.lines == ["ready", "jobsjobsdeep", "go", "x"]
        assert (work / "x").exists()


@needs_bubblewrap
def test_of_a_full_folder_the_files_are_hidden_one_by_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="horae-hidden-", dir="/var/tmp") as outside:
        folder = Path(outside)
        for number in range(MOST_OTHERS + 1):
            (folder / f"other{number}").write_text("other")
        (folder / "master.key").write_text("key")
        place.allow(sandbox="namespaces", own=(str(folder / "master.key"),))
        assert place.sh(f"cat {folder}/master.key 2>/dev/null; cat {folder}/other7").text == "other"


@needs_bubblewrap
def test_a_hidden_folder_stays_hidden_with_the_node_s_own_below_it(place: Place) -> None:
    with tempfile.TemporaryDirectory(prefix="horae-hidden-", dir="/var/tmp") as outside:
        keys = Path(outside) / "keys"
        keys.mkdir()
        (keys / "master.key").write_text("key")
        (keys / "other").write_text("other")
        place.allow(sandbox="namespaces", own=(str(keys / "master.key"),), hidden=(outside,))
        assert place.sh(f"ls {outside}; echo ended").lines == ["ended"]


@needs_bubblewrap
def test_no_other_process_is_to_be_seen(place: Place) -> None:
    place.allow(sandbox="namespaces")
    ended = place.sh(f"[ -e /proc/{os.getpid()}/environ ] && echo visible; ls -d /proc/[0-9]* | wc -l")
    assert len(ended.lines) == 1
    assert int(ended.lines[0]) <= 5


@needs_bubblewrap
def test_nothing_can_be_written_to_but_the_working_directory_and_a_tmp_of_its_own(place: Place) -> None:
    place.allow(sandbox="namespaces")
    mine = place.root / "mine"
    mine.write_text("as it was")
    script = f"""
        for each in /etc/horae-x /usr/horae-x /var/tmp/horae-x {place.programs}/x; do
            (echo x > $each) 2>/dev/null && echo "wrote $each"
        done
        echo x > {mine}  # which is in /tmp, and so in one of its own
        echo x > /tmp/horae-x && cat /tmp/horae-x
        echo x > here && cat here
    """
    assert place.sh(script).lines == ["x", "x"]
    assert not Path("/tmp/horae-x").exists()  # noqa: S108 - the node's own
    assert mine.read_text() == "as it was"
    assert (place.work / "here").read_text() == "x\n"


@needs_bubblewrap
def test_what_is_mounted_read_only_cannot_be_mounted_again(place: Place) -> None:
    place.allow(sandbox="namespaces")
    ended = place.sh("mount -o remount,rw / 2>/dev/null && echo mounted; grep CapEff /proc/self/status")
    assert ended.lines == ["CapEff:\t0000000000000000"]


@needs_bubblewrap
def test_status_signal_places_output_and_secrets_are_as_without(place: Place) -> None:
    place.allow(sandbox="namespaces")
    (place.work / "a").mkdir()
    script = place.program("script", "#!/bin/sh\npwd\necho $0\necho $JOB_OWN\ncat $JOB_KEY\nexit 3\n")
    secrets = (CommandSecret("JOB_KEY", "s3cret", as_file=True),)
    ended = place.run(script, cwd="a", env={"JOB_OWN": "own"}, secrets=secrets)
    assert ended.lines == [f"{place.work}/a", script, "own", "s3cret"]
    assert ended.result.status == 3
    assert place.sh("kill -9 $$").result.signal == 9
    assert place.sh("echo x", stdout="a/out").text == ""
    assert (place.work / "a" / "out").read_text() == "x\n"
    place.allow(working_directory=None)
    assert place.sh("touch x; ls").lines == ["x"]
    assert not list(place.scratch.iterdir())


@needs_bubblewrap
@needs_root
def test_a_command_in_namespaces_is_the_user_it_is_meant_to_be(place: Place) -> None:
    place.as_nobody()
    place.allow(sandbox="namespaces")
    assert place.sh("id -un; touch x; cat /etc/shadow 2>/dev/null && echo read; true").lines == [NOBODY]
    assert (place.work / "x").owner() == NOBODY
