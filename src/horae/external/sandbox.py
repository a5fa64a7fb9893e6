"""The surroundings of a command: its environment, user, directories, limits and namespaces.

Nothing is inherited: the environment is built from allowed names (`core.program.environment`). The user that a task
asks for can only have fewer rights than the node, or be the one that the policy names.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from horae.core.program.environment import denial, inherited_names
from horae.core.program.policy import SAFE_PATH, ExternalPolicy, Sandbox, replaceable_file
from horae.errors import CommandRefused, shown
from horae.external.confinement import FIRST_SECRET, covers

BUBBLEWRAP_PLACES = "/usr/bin:/bin:/usr/local/bin"
PROBE_LIMIT = 10.0
"""Seconds that the test of bubblewrap may take."""
MARK = "HORAE_COMMAND"
"""The variable that marks a command's processes. Its value is new for each command."""
_LONGEST_SECRET = 65_536
"""Bytes that fit into a pipe."""


@dataclass(frozen=True, slots=True)
class CommandSecret:
    """A secret for a command. The variable contains its value or, with `as_file`, a path from which it can be read
    once."""

    variable: str
    value: str = field(repr=False)
    as_file: bool = False


@dataclass(frozen=True, slots=True)
class CommandWork:
    """One attempt of an EXTERNAL task: the command line and the task's options."""

    command: str
    job_name: str
    run_id: str
    attempt: int
    shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    group: str | None = None
    umask: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    secrets: tuple[CommandSecret, ...] = ()

    @classmethod
    def of(
        cls,
        command: str,
        options: Mapping[str, Any],
        *,
        job_name: str,
        run_id: str,
        attempt: int,
        secrets: tuple[CommandSecret, ...] = (),
    ) -> CommandWork:
        """Builds the work from a task's handler and options. `secrets` are those that the options name, with their
        values."""
        known = {name: value for name, value in options.items() if name != "secrets"}
        return cls(command, job_name, run_id, attempt, secrets=secrets, **known)


Identity = tuple[int, int, list[int]]
"""The user, the group and all groups of a command, as numbers."""


def environment(work: CommandWork, policy: ExternalPolicy, here: Mapping[str, str], mark: str) -> dict[str, str]:
    """Returns all variables of the command. `here` is the node's own environment. Raises CommandRefused."""
    found = {name: here[name] for name in inherited_names(here, policy.environment)}
    for name, value in (*work.env.items(), *((each.variable, each.value) for each in work.secrets)):
        denied = denial(name, value, policy.environment, policy.variables)
        if denied is not None:
            raise CommandRefused(denied.message, hint=denied.hint)
    found.update(work.env)
    found.update(policy.variables)
    found.setdefault("PATH", SAFE_PATH)
    numbers = count(FIRST_SECRET)
    for secret in work.secrets:
        if secret.variable in policy.variables:
            raise CommandRefused(f"The policy gives {secret.variable} a value: a secret cannot be in it")
        found[secret.variable] = f"/dev/fd/{next(numbers)}" if secret.as_file else secret.value
    own = {"JOB_NAME": work.job_name, "RUN_ID": work.run_id, "ATTEMPT": str(work.attempt)}
    return found | {f"HORAE_{name}": value for name, value in own.items()} | {MARK: mark}


def identity(work: CommandWork, policy: ExternalPolicy) -> Identity | None:
    """Returns the user and groups that the command runs as; None for those of the node.

    A task may only ask for fewer rights than it would get anyway. Raises CommandRefused.
    """
    if policy.user is not None and work.user not in (None, policy.user):
        raise CommandRefused(f"Commands run as {shown(policy.user)} on this node, not as {shown(work.user)}")
    if policy.group is not None and work.group not in (None, policy.group):
        raise CommandRefused(f"Commands run in group {shown(policy.group)} on this node, not in {shown(work.group)}")
    user_name, group_name = work.user or policy.user, work.group or policy.group
    if user_name is None and group_name is None:
        return None
    user = _user(user_name) if user_name is not None else None
    group = _group(group_name) if group_name is not None else None
    if os.geteuid() != 0:
        if (user is None or user.pw_uid == os.geteuid()) and group in (None, os.getegid()):
            return None
        raise CommandRefused(
            f"Commands cannot run as {shown(user_name or group_name)}: only a node that root started can switch",
            hint="Start the node as root, or leave user and group out.",
        )
    if user is None:
        assert group is not None
        return os.getuid(), group, [group]
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    if policy.user is not None and policy.group is None and group is not None and group not in groups:
        # The policy's user must not gain a group because a task asks for it.
        raise CommandRefused(f"User {shown(user.pw_name)} is not in group {shown(work.group)}")
    chosen = user.pw_gid if group is None else group
    return user.pw_uid, chosen, sorted({chosen, *groups})


def may_read(path: str, who: Identity | None) -> bool:
    """Returns whether file modes let a user read a path; `who` None is this process.

    A path that does not exist yet counts as readable if its directories can be entered. Root may read everything.
    """
    if who is None:
        return not os.path.exists(path) or os.access(path, os.R_OK)  # noqa: PTH110 - the path is text throughout
    return _may(path, who, 4)


def _may(path: str, who: Identity | None, wanted: int) -> bool:
    """Returns whether file modes let a user reach a path and have the `wanted` right there: 4 to read, 0 none.

    With `who` None, this process, it returns True: the access itself will show.
    """
    if who is None or who[0] == 0:
        return True
    user, _, groups = who
    real = PurePosixPath(os.path.realpath(path))
    for step, bit in (*((each, 1) for each in reversed(real.parents)), (real, wanted)):
        try:
            found = os.stat(step)  # noqa: PTH116 - the path is text throughout
        except OSError:
            continue
        shift = 6 if found.st_uid == user else 3 if found.st_gid in groups else 0
        if bit and not found.st_mode & (bit << shift):
            return False
    return True


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise CommandRefused(f"This machine has no user {shown(name)}") from error


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise CommandRefused(f"This machine has no group {shown(name)}") from error


def secret_files(work: CommandWork) -> list[bytes]:
    """Returns the values that are passed as files, in the order of their descriptors."""
    values = [each.value.encode() for each in work.secrets if each.as_file]
    if any(len(each) > _LONGEST_SECRET for each in values):
        raise CommandRefused(f"A secret has more than {_LONGEST_SECRET} bytes: it cannot be handed over as a file")
    return values


@dataclass(frozen=True, slots=True)
class CommandPaths:
    """Where a command works and where its output goes. Each path is a list of names without `..`; links are not
    followed."""

    directory: str
    below: tuple[str, ...]
    stdout: tuple[str, ...] | None
    stderr: tuple[str, ...] | None


def places(work: CommandWork, policy: ExternalPolicy, scratch: str) -> CommandPaths:
    """Returns the command's directories and output files. Raises CommandRefused.

    `scratch` is the attempt's own directory, which is used if the policy sets no working directory.
    """
    if policy.working_directory is None:
        for name in ("cwd", "stdout", "stderr"):
            if getattr(work, name) is not None:
                raise CommandRefused(
                    f"The command has a {name}, but this node gives each command an empty directory that does not last",
                    hint="Set working_directory under [external] in the configuration.",
                )
        return CommandPaths(scratch, (), None, None)
    directory = os.path.realpath(policy.working_directory)
    if not os.path.isdir(directory):  # noqa: PTH112 - the path is text throughout
        raise CommandRefused(f"The working directory {shown(policy.working_directory)} does not exist")
    written = (directory, policy.working_directory)
    below = () if work.cwd is None else _inside("cwd", work.cwd, written)
    # Paths of files are relative to the working directory, like cwd.
    stdout = None if work.stdout is None else _inside("stdout", work.stdout, written, is_file=True)
    stderr = None if work.stderr is None else _inside("stderr", work.stderr, written, is_file=True)
    return CommandPaths(directory, below, stdout, stderr)


def real_working_directory(policy: ExternalPolicy) -> str | None:
    """Returns the working directory with links resolved; None if each attempt has its own."""
    return None if policy.working_directory is None else os.path.realpath(policy.working_directory)


def _inside(what: str, path: str, directories: tuple[str, str], *, is_file: bool = False) -> tuple[str, ...]:
    """Returns the names that lead from the working directory to `path`, as written, because links are not followed."""
    given = PurePosixPath(path)
    if given.is_absolute():
        for directory in directories:
            if given.is_relative_to(directory):
                given = given.relative_to(directory)
                break
        else:
            raise CommandRefused(f"The command's {what} {shown(path)} is not in the working directory of this node")
    if ".." in given.parts or "\0" in path or (is_file and not given.parts):
        raise CommandRefused(f"The command's {what} {shown(path)} does not name a place in the working directory")
    return given.parts


def wrapper(policy: ExternalPolicy, who: Identity | None, place: CommandPaths, program: str) -> list[str]:
    """Returns the command line that gives a command its own namespaces; empty if the policy asks for none.

    Everything else stays readable. Only the working directory and a private /tmp are writable, and other processes are
    invisible. The network stays as it is. The launcher adds what the policy hides, as the command's user, because only
    paths that this user can reach can be covered.
    """
    trouble = _lacking(policy, who)
    if trouble is not None:
        raise CommandRefused(trouble.message, hint=trouble.hint)
    if policy.sandbox is not Sandbox.NAMESPACES:
        return []
    inside = [shutil.which("bwrap", path=BUBBLEWRAP_PLACES) or "bwrap", *_NAMESPACES]
    # The private /tmp hides everything in /tmp unless it is mounted again.
    for path in (program, *policy.directories, *policy.commands):
        if PurePosixPath("/tmp") in PurePosixPath(path).parents:  # noqa: S108 - the sandbox's own
            inside += ["--ro-bind-try", path, path]
    return [
        *inside,
        "--bind",
        place.directory,
        place.directory,
        "--chdir",
        str(PurePosixPath(place.directory, *place.below)),
    ]


def hidden(policy: ExternalPolicy) -> list[str]:
    """Returns the paths that a command in namespaces must not see, with links resolved."""
    return sorted({os.path.realpath(each) for each in (*policy.hidden, *policy.own)})


def hidden_folders(policy: ExternalPolicy) -> list[str]:
    """Returns the folders that contain the node's own files. Those in /tmp are left out: a command has its own /tmp."""
    folders = {os.path.dirname(os.path.realpath(each)) for each in policy.own}  # noqa: PTH120 - the path is text
    return sorted(each for each in folders if each != "/" and not f"{each}/".startswith("/tmp/"))  # noqa: S108


_NAMESPACES = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),  # noqa: S108 - the sandbox's own
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--new-session", "--die-with-parent"),
)


class SandboxProblem(NamedTuple):
    """Why a node cannot give programs their sandbox, and what to do about it."""

    message: str
    hint: str


def lacking_sandbox(policy: ExternalPolicy) -> SandboxProblem | None:
    """Returns why this machine cannot give programs the sandbox of the policy; None if it can."""
    try:
        who = identity(CommandWork("", "", "", 1), policy)
    except CommandRefused as error:
        return SandboxProblem(
            error.message, error.hint or "Correct user and group under [external] in the configuration."
        )
    return _lacking(policy, who)


def _lacking(policy: ExternalPolicy, who: Identity | None) -> SandboxProblem | None:
    if policy.sandbox is Sandbox.USER and (who is None or who[0] == os.geteuid()):
        name = shown(policy.user)
        return SandboxProblem(
            f'Programs need a user of their own (sandbox = "user"), but {name} is the user of this node itself',
            "Start the node as root, and name another user under [external] in the configuration.",
        )
    if policy.sandbox is Sandbox.NONE:
        return None
    directory = real_working_directory(policy)
    open_file = replaceable_file(policy.own, directory)
    if open_file is not None:
        return SandboxProblem(
            f"Programs could exchange {shown(open_file)}, one of this node's own files: it lies in the directory where "
            f"they work, {shown(directory)}",
            "Give programs a working_directory under [external] that holds nothing of the node's own, at any depth.",
        )
    if policy.sandbox is Sandbox.USER:
        return None
    found = shutil.which("bwrap", path=BUBBLEWRAP_PLACES)
    reached, folders = (_reached(each, who) for each in (hidden(policy), hidden_folders(policy)))
    trouble = (
        "bubblewrap (bwrap) is not installed" if found is None else _trouble(found, _frozen(who), reached, folders)
    )
    if trouble is None:
        return None
    return SandboxProblem(
        f'Programs need namespaces of their own (sandbox = "namespaces"), but {trouble}',
        'Install bubblewrap, or choose sandbox = "user" or "none" under [external] in the configuration.',
    )


def _frozen(who: Identity | None) -> tuple[int, int, tuple[int, ...]] | None:
    return None if who is None else (who[0], who[1], tuple(who[2]))


def _reached(paths: list[str], who: Identity | None) -> tuple[str, ...]:
    """Returns those paths that the user can reach. Bubblewrap can cover only these."""
    return tuple(each for each in paths if os.path.lexists(each) and _may(each, who, 0))


def try_again() -> None:
    """Forgets successful tests of bubblewrap, so that it is tested again."""
    _tried.cache_clear()


def _trouble(bubblewrap: str, who: tuple[int, int, tuple[int, ...]] | None, *reached: tuple[str, ...]) -> str | None:
    """Returns why bubblewrap does not work here for that user; None if it does.

    A failure is not cached, because the machine may only have been busy: the next command tests again.
    """
    try:
        _tried(bubblewrap, who, *reached)
    except subprocess.TimeoutExpired:
        return f"bubblewrap did not start within {PROBE_LIMIT:g} s"
    except _DoesNotWork as error:
        return str(error)
    return None


class _DoesNotWork(Exception):
    """Bubblewrap's own message. `lru_cache` does not store exceptions, so the next call tests again."""


def _covers(files: tuple[str, ...], folders: tuple[str, ...]) -> list[bytes]:
    return covers([os.fsencode(each) for each in files], [os.fsencode(each) for each in folders], None)


@lru_cache(maxsize=64)
def _tried(bubblewrap: str, who: tuple[int, int, tuple[int, ...]] | None, *reached: tuple[str, ...]) -> None:
    """Returns if bubblewrap works for that user with these covers: files and whole folders. Raises the error
    otherwise."""
    switch: dict[str, Any] = {} if who is None else {"user": who[0], "group": who[1], "extra_groups": who[2]}
    try:
        tried = subprocess.run(  # noqa: S603 - bubblewrap itself, with nothing of a job's
            [
                bubblewrap,
                *_NAMESPACES,
                *_covers(*reached),
                "--",
                "/bin/true",
            ],
            **switch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROBE_LIMIT,
            env={},
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise
    except (OSError, subprocess.SubprocessError) as error:
        raise _DoesNotWork(f"bubblewrap cannot be started: {error}") from error
    if tried.returncode != 0:
        said = tried.stderr.decode("utf-8", "replace").strip()
        raise _DoesNotWork(f"bubblewrap does not work here: {said or f'status {tried.returncode}'}")
