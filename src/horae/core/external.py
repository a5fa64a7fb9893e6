"""What programs may be started for EXTERNAL jobs, and under which limits: the policy, as a value.

Nothing is allowed until somebody says so: `enabled` is off, and even then a program runs only if it is one of
`commands` or lies in one of `directories`. Every limit has a value where nobody gives one; None takes a limit away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

from horae.core.environment import checked_pattern
from horae.core.options import checked_variable
from horae.errors import InvalidConfiguration, InvalidDefinition, shown

SAFE_PATH = "/usr/local/bin:/usr/bin:/bin"
"""The PATH a program gets where neither `variables` nor `environment` gives it one."""
_KIB = 1024
_GIB = 1024**3


class Sandbox(StrEnum):
    """What keeps programs apart from the machine. A node that cannot give it starts no program."""

    NAMESPACES = "namespaces"
    """Namespaces of their own, by bubblewrap: a read-only system, a private /tmp, no other process in sight."""
    USER = "user"
    """Another user than the node's own, and nothing else."""
    NONE = "none"
    """Nothing: limits, directory and environment alone. Only `local` may then have programs started."""


FORMER_NAMESPACES = ("auto", "always", "never")
"""What `namespaces`, the setting before `sandbox`, could say."""


def formerly(namespaces: str, user: str | None) -> Sandbox:
    """The sandbox that a configuration from before `sandbox` asks for. `auto` depended on what the machine had
    installed; it asks for namespaces now, everywhere."""
    if namespaces not in FORMER_NAMESPACES:
        raise _wrong("namespaces", namespaces, f"must be one of {', '.join(FORMER_NAMESPACES)}")
    if namespaces != "never":
        return Sandbox.NAMESPACES
    return Sandbox.NONE if user is None else Sandbox.USER


@dataclass(frozen=True, slots=True)
class ExternalPolicy:
    """How programs are started. Bytes, seconds and counts; paths are absolute."""

    enabled: bool = False
    """Whether programs are started at all."""
    commands: tuple[str, ...] = ()
    """Programs that may be started, each by its resolved path."""
    directories: tuple[str, ...] = ()
    """Every program that lies in one of these, or below it, once links are resolved, may be started too."""
    working_directory: str | None = None
    """Where programs start, and what a job's own `cwd` must lie in; None: an empty directory for each attempt."""
    environment: tuple[str, ...] = ("LANG", "LC_ALL", "TZ")
    """Names of environment variables, or patterns such as APP_*: programs see the node's own, and jobs may set them.
    What decides which code a program loads is meant by its very name alone (`core.environment`)."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that every program gets, with their values; these win over `environment`, and a job's own do not win
    over these."""
    output_limit: int = 64 * _KIB
    """Bytes kept of what one attempt prints, standard output and error together."""
    cpu_seconds: int | None = 3600
    """Processor time of each process."""
    memory: int | None = 2 * _GIB
    """Bytes of address space for each process."""
    open_files: int | None = 256
    """Files that each process may have open at once."""
    processes: int | None = 256
    """Processes and threads beyond those its user has when it starts: the kernel counts by user, not by program."""
    file_size: int | None = _GIB
    """Bytes that any one file may grow to."""
    time_limit: float | None = 3600.0
    """Seconds that one attempt may last, whatever the job's own timeout says."""
    grace: float = 10.0
    """Seconds between SIGTERM and SIGKILL."""
    user: str | None = None
    """Whom programs run as; None: as the node itself does."""
    group: str | None = None
    """The same for its group."""
    allow_shell: bool = False
    """Whether a job may ask for a shell. A shell starts whatever it likes: the list of commands is then no boundary."""
    sandbox: Sandbox = Sandbox.NAMESPACES
    """What keeps programs apart from the machine: namespaces, a `user` of their own, or none. Where the machine cannot
    give it, programs do not start."""

    hidden: tuple[str, ...] = ()
    """Files and folders that programs in namespaces do not see, besides the node's own: configuration, keys, store."""

    own: tuple[str, ...] = ()
    """Where the node's own files are, and every link that leads to one. No setting: whoever starts programs finds them
    (`app.guarding`)."""

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


def exchangeable(own: Iterable[str], directory: str | None) -> str | None:
    """The first of the node's own files that programs with this working directory, its links resolved, could exchange
    for one of theirs. In a folder that they may write to they may move each folder, with what lies hidden in it, and
    put another there; and make what is not there yet, such as a journal."""
    return None if directory is None else next((each for each in own if _below(each, directory)), None)


def _below(path: str, folder: str) -> bool:
    """Whether a path is the folder or lies in it, as both are written."""
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
            # The value may be one that nobody should read: only its name is told.
            raise InvalidConfiguration(f"Invalid variables: {name} must be text", details={"key": "variables"})
    return dict(given)
