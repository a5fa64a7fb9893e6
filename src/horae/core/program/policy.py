"""The policy for the programs of EXTERNAL jobs: which may be started, and with which limits.

Nothing is allowed by default. `enabled` is off, and once it is on, a program may be started only if it is one of
`commands` or lies in one of `directories`. Every limit has a default; None removes a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

from horae.core.job.options import checked_variable
from horae.core.program.environment import checked_pattern
from horae.errors import InvalidConfiguration, InvalidDefinition, shown

SAFE_PATH = "/usr/local/bin:/usr/bin:/bin"
"""The PATH a program gets where neither `variables` nor `environment` gives it one."""
_KIB = 1024
_GIB = 1024**3


class Sandbox(StrEnum):
    """How programs are isolated from the machine. A node that cannot provide the isolation starts no program."""

    NAMESPACES = "namespaces"
    """Namespaces of their own, by bubblewrap: a read-only system, a private /tmp, no other process visible."""
    USER = "user"
    """Another user than the node's own, and nothing else."""
    NONE = "none"
    """Limits, directory and environment alone. Only jobs of `local` may then start programs."""


FORMER_NAMESPACES = ("auto", "always", "never")
"""The values of `namespaces`, the setting that `sandbox` replaced."""


def sandbox_from_namespaces(namespaces: str, user: str | None) -> Sandbox:
    """The sandbox for the former setting `namespaces`. Raises InvalidConfiguration.

    `auto` used to depend on what the machine had installed. It now means namespaces on every machine.
    """
    if namespaces not in FORMER_NAMESPACES:
        raise _wrong("namespaces", namespaces, f"must be one of {', '.join(FORMER_NAMESPACES)}")
    if namespaces != "never":
        return Sandbox.NAMESPACES
    return Sandbox.NONE if user is None else Sandbox.USER


@dataclass(frozen=True, slots=True)
class ExternalPolicy:
    """How programs are started. Sizes are in bytes and times in seconds; paths are absolute."""

    enabled: bool = False
    """Whether programs are started at all."""
    commands: tuple[str, ...] = ()
    """Programs that may be started, each by its resolved path."""
    directories: tuple[str, ...] = ()
    """Programs in one of these directories or below it may be started, too. Links are resolved first."""
    working_directory: str | None = None
    """Where programs start, and where a job's own `cwd` must lie; None: an empty directory for each attempt."""
    environment: tuple[str, ...] = ("LANG", "LC_ALL", "TZ")
    """Names of environment variables, or patterns such as APP_*. Programs get the node's own values, and jobs may set
    others. No pattern matches a name that decides which code a program loads (`core.program.environment`)."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that every program gets, with their values. They take precedence over `environment` and over a job's
    own."""
    output_limit: int = 64 * _KIB
    """Bytes that are kept of the output of one attempt, standard output and error together."""
    cpu_seconds: int | None = 3600
    """Processor time of each process, in seconds."""
    memory: int | None = 2 * _GIB
    """Bytes of address space for each process."""
    open_files: int | None = 256
    """Files that each process may have open at once."""
    processes: int | None = 256
    """Processes and threads beyond those its user has when it starts, because the kernel counts them by user."""
    file_size: int | None = _GIB
    """Bytes that any one file may grow to."""
    time_limit: float | None = 3600.0
    """Seconds that one attempt may last, whatever the job's own timeout says."""
    grace: float = 10.0
    """Seconds between SIGTERM and SIGKILL."""
    user: str | None = None
    """The user that programs run as; None: the node's own."""
    group: str | None = None
    """The group that programs run in; None: that of `user`, or the node's own."""
    allow_shell: bool = False
    """Whether a job may use a shell. A shell can start any program, so that `commands` is then no boundary."""
    sandbox: Sandbox = Sandbox.NAMESPACES
    """How programs are isolated from the machine: namespaces, a `user` of their own, or none."""

    hidden: tuple[str, ...] = ()
    """Files and folders hidden from programs in namespaces, besides the node's own configuration, keys and store."""

    own: tuple[str, ...] = ()
    """The paths of the node's own files, and of every link that leads to one. Not a setting: the node finds them
    (`app.process.protection`)."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("enabled", "allow_shell"):
            if type(getattr(self, name)) is not bool:
                raise _wrong(name, getattr(self, name), "must be true or false")
        for name in ("commands", "directories", "hidden"):
            put(self, name, tuple(_path(name, each) for each in _listed(name, getattr(self, name))))
        put(
            self,
            "environment",
            tuple(_pattern("environment", each) for each in _listed("environment", self.environment)),
        )
        if self.working_directory is not None:
            _path("working_directory", self.working_directory)
        put(self, "variables", _variables(self.variables))
        for name in ("user", "group"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value or "\0" in value):
                raise _wrong(name, value, "must be a name")
        for name in ("output_limit", "cpu_seconds", "memory", "open_files", "processes", "file_size"):
            value = getattr(self, name)
            if value is None and name != "output_limit":
                continue
            if type(value) is not int or value < 1:
                raise _wrong(name, value, "must be a whole number from 1")
        for name in ("time_limit", "grace"):
            value = getattr(self, name)
            if value is None and name == "time_limit":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
                raise _wrong(name, value, "must be a number of seconds from 0")
            put(self, name, float(value))
        self._check_sandbox()

    def _check_sandbox(self) -> None:
        if self.sandbox not in list(Sandbox):
            raise _wrong("sandbox", self.sandbox, f"must be one of {', '.join(Sandbox)}")
        object.__setattr__(self, "sandbox", Sandbox(self.sandbox))
        if self.sandbox is Sandbox.USER and self.user is None:
            raise _wrong("sandbox", self.sandbox, "needs the user that programs run as: set user, too")
        needed = (*self.commands, *self.directories, self.working_directory or "/")
        for path in self.hidden:
            inside = next((each for each in needed if _below(each, path)), None)
            if inside is not None:
                raise _wrong("hidden", path, f"programs need {shown(inside)}, which it would hide")


def replaceable_file(own: Iterable[str], directory: str | None) -> str | None:
    """The first of the node's files `own` that programs could replace, or None.

    `directory` is the working directory of programs, with links resolved. Programs may write to it. They could move a
    folder below it, with the hidden files in it, and put another in its place. They could also create a file that does
    not exist yet, such as a journal.
    """
    return None if directory is None else next((each for each in own if _below(each, directory)), None)


def _below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it. Compares the texts; links are not resolved."""
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _wrong(name: str, value: object, reason: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"Invalid {name} {shown(value)}: {reason}", details={"key": name})


def _listed(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(name, value, "must be a list")
    return tuple(value)


def _path(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise _wrong(name, value, "must be an absolute path")
    if ".." in value.split("/"):
        raise _wrong(name, value, "must not go up by ..")
    return value


def _variable(name: str, value: object) -> str:
    try:
        return checked_variable(value if isinstance(value, str) else "")
    except InvalidDefinition as error:
        raise _wrong(name, value, "must be the name of an environment variable") from error


def _pattern(name: str, value: object) -> str:
    try:
        return checked_pattern(value)
    except InvalidDefinition as error:
        if isinstance(value, str) and value.startswith("HORAE_"):
            raise _wrong(name, value, error.message) from error
        raise _wrong(name, value, "must be the name of an environment variable, or a pattern such as APP_*") from error


def _variables(given: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise _wrong("variables", given, "must map variables to text")
    for name, value in given.items():
        _variable("variables", name)
        if not isinstance(value, str) or "\0" in value:
            # The value may be confidential, so the message has only the name.
            raise InvalidConfiguration(f"Invalid variables: {name} must be text", details={"key": "variables"})
    return dict(given)
