"""The allowlist: which program a command line names, and whether the policy allows it.

A bare name is looked up only among the allowed commands and directories, never in a PATH. Links and `..` are resolved
first. Then the path is opened step by step from the root without following links, and the opened file is checked: it
must be a regular, executable file that not every user may change or replace.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType

from horae.core.program.policy import ExternalPolicy
from horae.errors import CommandRefused, shown

SHELL = "/bin/sh"
_PLACE = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class AllowedProgram:
    """A program that may be started. It is held open, so that it cannot be replaced unnoticed. The caller must close
    it."""

    path: str
    """Its path, with links resolved."""
    arguments: tuple[str, ...]
    """Its arguments, beginning with its own name."""
    descriptor: int
    is_script: bool
    """Whether it begins with `#!`. The interpreter named there opens it by its path."""

    def __enter__(self) -> AllowedProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)


def admit(command: str, policy: ExternalPolicy, *, shell: bool = False) -> AllowedProgram:
    """Opens the program that `command` names. Raises CommandRefused with the reason if the policy does not allow it."""
    if not policy.enabled:
        raise CommandRefused(
            "External commands are turned off on this node",
            hint="To turn them on, set enabled = true under [external] in the configuration, and list what may run.",
        )
    if not hasattr(os, "pidfd_open"):
        raise CommandRefused("External commands run on Linux only: no other system lets us leave nothing behind")
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise CommandRefused(f"Command {shown(command)} has characters that are no text") from error
    if "\0" in command:
        raise CommandRefused(f"Command {shown(command)} has a NUL character")
    if shell:
        return _shell(command, policy)
    words = _words(command)
    found, name = _find(words[0], policy)
    return _opened(found, (name, *words[1:]))


def _shell(command: str, policy: ExternalPolicy) -> AllowedProgram:
    if not policy.allow_shell:
        raise CommandRefused(
            f"Command {shown(command)} asks for a shell, which this node does not allow",
            hint="Leave the shell out, or set shell = true under [external] in the configuration.",
        )
    if not command.strip():
        raise CommandRefused("The command is empty")
    return _opened(os.path.realpath(SHELL), (SHELL, "-c", command))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command, posix=True)
    except ValueError as error:
        raise CommandRefused(f"Command {shown(command)} cannot be taken apart: {str(error).lower()}") from error
    if not words or not words[0]:
        raise CommandRefused("The command is empty")
    return words


def _find(word: str, policy: ExternalPolicy) -> tuple[str, str]:
    """Returns the resolved path of an allowed program, and the name that it receives as its first argument.

    For an allowed command that is the name in the policy. A program that behaves differently under different names does
    what was allowed, by whatever path it was requested.
    """
    if "/" not in word:
        return _by_name(word, policy)
    if not word.startswith("/"):
        raise CommandRefused(
            f"Program {shown(word)} is a relative path", hint="Write an absolute path, or the bare name of a command."
        )
    resolved = os.path.realpath(word)
    same = [each for each in policy.commands if os.path.realpath(each) == resolved]
    if same:
        return resolved, word if word in same else same[0]
    for directory in policy.directories:
        if _is_below(resolved, os.path.realpath(directory)):
            return resolved, word if _is_below(os.path.normpath(word), directory) else resolved
    leads = "" if resolved == word else f", which leads to {shown(resolved)},"
    raise CommandRefused(f"Program {shown(word)}{leads} is not allowed on this node", hint=_HINT)


def _by_name(name: str, policy: ExternalPolicy) -> tuple[str, str]:
    for command in policy.commands:
        if PurePosixPath(command).name == name:
            return os.path.realpath(command), command
    if name not in (".", ".."):
        for directory in policy.directories:
            path = str(PurePosixPath(directory, name))
            resolved = os.path.realpath(path)
            if Path(resolved).is_file() and _is_below(resolved, os.path.realpath(directory)):
                return resolved, path
    raise CommandRefused(f"No allowed program is called {shown(name)}", hint=_HINT)


_HINT = "What may run is listed by commands and directories under [external] in the configuration."


def _is_below(path: str, directory: str) -> bool:
    return PurePosixPath(directory) in PurePosixPath(path).parents


def _opened(path: str, arguments: tuple[str, ...]) -> AllowedProgram:
    descriptor = _walk(path)
    try:
        _check_program(path, os.fstat(descriptor))
        return AllowedProgram(path, arguments, descriptor, _is_script(descriptor))
    except BaseException:
        os.close(descriptor)
        raise


def _walk(path: str) -> int:
    """Opens the file at a resolved path, one step at a time."""
    at = os.open("/", _PLACE | os.O_DIRECTORY)
    reached = PurePosixPath("/")
    try:
        open_to_all = _check_step(reached, os.fstat(at), within_shared=False)
        for part in PurePosixPath(path).parts[1:]:
            reached /= part
            try:
                inner = os.open(part, _PLACE, dir_fd=at)
            except OSError as error:
                raise CommandRefused(f"Program {shown(path)} cannot be opened: {error.strerror}") from error
            os.close(at)
            at = inner
            open_to_all = _check_step(reached, os.fstat(at), within_shared=open_to_all)
    except BaseException:
        os.close(at)
        raise
    return at


def _check_step(path: PurePosixPath, found: os.stat_result, *, within_shared: bool) -> bool:
    """Checks one step of the path; returns whether every user may create files in it.

    Only a directory with the sticky bit, such as /tmp, may be open to every user. What lies in it must belong to root
    or to this process's user.
    """
    if stat.S_ISLNK(found.st_mode):
        raise CommandRefused(f"{shown(str(path))} became a link while it was being looked at")
    if within_shared and found.st_uid not in (0, os.geteuid()):
        raise CommandRefused(f"{shown(str(path))} is somebody else's, in a directory that everybody may write to")
    for_all = bool(found.st_mode & stat.S_IWOTH)
    if for_all and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
        raise CommandRefused(
            f"{shown(str(path))} may be written to by everybody, so nobody knows what would run",
            hint=f"Take that right away: chmod o-w {path}",
        )
    return for_all


def _check_program(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise CommandRefused(f"Program {shown(path)} is not a regular file")
    if not found.st_mode & _EXECUTABLE:
        raise CommandRefused(f"Program {shown(path)} may not be executed", hint=f"chmod +x {path}")


def _is_script(descriptor: int) -> bool:
    """Returns whether a file begins with `#!`. One that cannot be read is no script, because its interpreter could not
    read it either."""
    try:
        with Path(f"/proc/self/fd/{descriptor}").open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
