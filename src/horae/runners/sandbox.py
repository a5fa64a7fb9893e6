"""What a command has around it: its environment, its user, its directories, its limits and its namespaces.

Nothing is inherited: the environment is put together anew, of names that are allowed (`core.environment`). Whoever a
task asks to be can only be less than the node is, or what the policy says.
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

from horae.core.environment import denial, handed_on
from horae.core.external import SAFE_PATH, ExternalPolicy, Sandbox, exchangeable
from horae.errors import CommandRefused, shown
from horae.runners.confine import FIRST_SECRET, covers

BUBBLEWRAP_PLACES = "/usr/bin:/bin:/usr/local/bin"
PROBE_LIMIT = 10.0
"""Seconds that bubblewrap has to show that it works."""
MARK = "HORAE_COMMAND"
"""The variable that tells a command's processes from all others: a new value each time one is started."""
_LONGEST_SECRET = 65_536
"""What a pipe holds."""


@dataclass(frozen=True, slots=True)
class HandedSecret:
    """A secret for a command: in `variable` itself, or, `as_file`, where that says it can be read, once."""

    variable: str
    value: str = field(repr=False)
    as_file: bool = False


@dataclass(frozen=True, slots=True)
class CommandWork:
    """One attempt of an EXTERNAL task: the command line and what its task's options say."""

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
    secrets: tuple[HandedSecret, ...] = ()

    @classmethod
    def of(
        cls,
        command: str,
        options: Mapping[str, Any],
        *,
        job_name: str,
        run_id: str,
        attempt: int,
        secrets: tuple[HandedSecret, ...] = (),
    ) -> CommandWork:
        """From a task's handler and options; `secrets` are those that the options name, with their values."""
        known = {name: value for name, value in options.items() if name != "secrets"}
        return cls(command, job_name, run_id, attempt, secrets=secrets, **known)


Identity = tuple[int, int, list[int]]
"""User, group, and all groups of a command, as numbers."""


def environment(work: CommandWork, policy: ExternalPolicy, here: Mapping[str, str], mark: str) -> dict[str, str]:
    """All variables of the command. `here` is the node's own environment."""
    found = {name: here[name] for name in handed_on(here, policy.environment)}
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
    """Whom the command runs as; None: as the node itself. A task may ask only for less than it would get anyway."""
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
        # Whom the policy names must not become more by what a task asks for.
        raise CommandRefused(f"User {shown(user.pw_name)} is not in group {shown(work.group)}")
    chosen = user.pw_gid if group is None else group
    return user.pw_uid, chosen, sorted({chosen, *groups})


def may_read(path: str, who: Identity | None) -> bool:
    """Whether modes let somebody (None: this process) read what is at a path, also if it is not there yet but could be
    read where it would be. Root reads everything."""
    if who is None:
        return not os.path.exists(path) or os.access(path, os.R_OK)  # noqa: PTH110 - the path is text throughout
    return _may(path, who, 4)


def _may(path: str, who: Identity | None, wanted: int) -> bool:
    """Whether modes let somebody (None: this process, which finds out by itself) go to a path, and have there what is
    wanted: 4 to read, 0 nothing."""
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
    """The values that are handed over as files, in the order of their descriptors."""
    values = [each.value.encode() for each in work.secrets if each.as_file]
    if any(len(each) > _LONGEST_SECRET for each in values):
        raise CommandRefused(f"A secret has more than {_LONGEST_SECRET} bytes: it cannot be handed over as a file")
    return values


@dataclass(frozen=True, slots=True)
class Places:
    """Where a command works, and where it prints to. Paths below are lists of names: no `..`, no link is followed."""

    directory: str
    below: tuple[str, ...]
    stdout: tuple[str, ...] | None
    stderr: tuple[str, ...] | None


def places(work: CommandWork, policy: ExternalPolicy, scratch: str) -> Places:
    """`scratch` is the directory of the attempt's own that is used where the policy has none."""
    if policy.working_directory is None:
        for name in ("cwd", "stdout", "stderr"):
            if getattr(work, name) is not None:
                raise CommandRefused(
                    f"The command has a {name}, but this node gives each command an empty directory that does not last",
                    hint="Set working_directory under [external] in the configuration.",
                )
        return Places(scratch, (), None, None)
    directory = os.path.realpath(policy.working_directory)
    if not os.path.isdir(directory):  # noqa: PTH112 - the path is text throughout
        raise CommandRefused(f"The working directory {shown(policy.working_directory)} does not exist")
    written = (directory, policy.working_directory)
    below = () if work.cwd is None else _inside("cwd", work.cwd, written)
    # Files are named from the working directory, as cwd is.
    stdout = None if work.stdout is None else _inside("stdout", work.stdout, written, is_file=True)
    stderr = None if work.stderr is None else _inside("stderr", work.stderr, written, is_file=True)
    return Places(directory, below, stdout, stderr)


def real_working_directory(policy: ExternalPolicy) -> str | None:
    """Where links lead to from the working directory; None: each attempt has one of its own."""
    return None if policy.working_directory is None else os.path.realpath(policy.working_directory)


def _inside(what: str, path: str, directories: tuple[str, str], *, is_file: bool = False) -> tuple[str, ...]:
    """The names that lead from the working directory to `path`; as it is written, since links are not followed."""
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


def wrapper(policy: ExternalPolicy, who: Identity | None, place: Places, program: str) -> list[str]:
    """The command line that gives a command its own namespaces; none where the policy has none.

    Everything else can be read as before, nothing can be written to but the working directory and a /tmp of its own;
    other processes are not to be seen. The network stays as it is. What the policy hides is added by the launcher, as
    whoever the command runs as: only what that user can reach can be covered, and need be.
    """
    trouble = _lacking(policy, who)
    if trouble is not None:
        raise CommandRefused(trouble.message, hint=trouble.hint)
    if policy.sandbox is not Sandbox.NAMESPACES:
        return []
    inside = [shutil.which("bwrap", path=BUBBLEWRAP_PLACES) or "bwrap", *_NAMESPACES]
    # What lies in /tmp is hidden by the new one, unless it is put there.
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
    """What a command in namespaces does not see, by the paths that it is reached by once links are resolved."""
    return sorted({os.path.realpath(each) for each in (*policy.hidden, *policy.own)})


def hidden_folders(policy: ExternalPolicy) -> list[str]:
    """The folders with the node's own files in them. Of /tmp a command in namespaces has its own, without any."""
    folders = {os.path.dirname(os.path.realpath(each)) for each in policy.own}  # noqa: PTH120 - the path is text
    return sorted(each for each in folders if each != "/" and not f"{each}/".startswith("/tmp/"))  # noqa: S108


_NAMESPACES = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),  # noqa: S108 - the sandbox's own
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--new-session", "--die-with-parent"),
)


class Trouble(NamedTuple):
    """Why a node cannot give programs their sandbox, and what to do about it."""

    message: str
    hint: str


def lacking_sandbox(policy: ExternalPolicy) -> Trouble | None:
    """Why this machine cannot give programs the sandbox that the policy asks for; None where it can."""
    try:
        who = identity(CommandWork("", "", "", 1), policy)
    except CommandRefused as error:
        return Trouble(error.message, error.hint or "Correct user and group under [external] in the configuration.")
    return _lacking(policy, who)


def _lacking(policy: ExternalPolicy, who: Identity | None) -> Trouble | None:
    if policy.sandbox is Sandbox.USER and (who is None or who[0] == os.geteuid()):
        name = shown(policy.user)
        return Trouble(
            f'Programs need a user of their own (sandbox = "user"), but {name} is the user of this node itself',
            "Start the node as root, and name another user under [external] in the configuration.",
        )
    if policy.sandbox is Sandbox.NONE:
        return None
    directory = real_working_directory(policy)
    open_file = exchangeable(policy.own, directory)
    if open_file is not None:
        return Trouble(
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
    return Trouble(
        f'Programs need namespaces of their own (sandbox = "namespaces"), but {trouble}',
        'Install bubblewrap, or choose sandbox = "user" or "none" under [external] in the configuration.',
    )


def _frozen(who: Identity | None) -> tuple[int, int, tuple[int, ...]] | None:
    return None if who is None else (who[0], who[1], tuple(who[2]))


def _reached(paths: list[str], who: Identity | None) -> tuple[str, ...]:
    """What is to be hidden from that user and can be covered: the rest is out of reach for bubblewrap, too."""
    return tuple(each for each in paths if os.path.lexists(each) and _may(each, who, 0))


def try_again() -> None:
    """Bubblewrap worked once, and does not any more: it is asked anew."""
    _tried.cache_clear()


def _trouble(bubblewrap: str, who: tuple[int, int, tuple[int, ...]] | None, *reached: tuple[str, ...]) -> str | None:
    """Why bubblewrap does not work here for that user; None: it does. Where it does not, it is asked again at the next
    command: the machine may only have been busy, or somebody has mended it."""
    try:
        _tried(bubblewrap, who, *reached)
    except subprocess.TimeoutExpired:
        return f"bubblewrap did not start within {PROBE_LIMIT:g} s"
    except _DoesNotWork as error:
        return str(error)
    return None


class _DoesNotWork(Exception):
    """Bubblewrap's own words. An exception is not remembered by the cache: the machine may be mended meanwhile."""


def _covers(files: tuple[str, ...], folders: tuple[str, ...]) -> list[bytes]:
    return covers([os.fsencode(each) for each in files], [os.fsencode(each) for each in folders], None)


@lru_cache(maxsize=64)
def _tried(bubblewrap: str, who: tuple[int, int, tuple[int, ...]] | None, *reached: tuple[str, ...]) -> None:
    """Returns where bubblewrap works for that user, with what it covers: files, and whole folders. Raises what kept it
    from working."""
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
