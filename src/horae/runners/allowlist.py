"""Which program a command line means, and whether it may be started: a path is judged by what it leads to.

A name is looked up among the allowed commands and directories only, never by anybody's PATH. Links and `..` are
resolved first. Then the path is walked from the root, each step opened without following links, and what was opened is
what is judged: a regular file that may be executed, and that not everybody may change or put another in the place of.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType

from horae.core.external import ExternalPolicy
from horae.errors import CommandRefused, shown

SHELL = "/bin/sh"
_PLACE = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class Program:
    """A program that may be started, open, so that nothing can take its place. Whoever has it closes it."""

    path: str
    """Where it is, links resolved."""
    arguments: tuple[str, ...]
    """What it is told, its own name first."""
    descriptor: int
    is_script: bool
    """It begins with `#!`. The interpreter named there opens it by its path."""

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)


def admit(command: str, policy: ExternalPolicy, *, shell: bool = False) -> Program:
    """The program that `command` names, if the policy allows it. Raises CommandRefused with the reason."""
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


def _shell(command: str, policy: ExternalPolicy) -> Program:
    if not policy.allow_shell:
        raise CommandRefused(
            f"Command {shown(command)} asks for a shell, which this node does not allow",
            hint="Leave the shell out, or set allow_shell = true under [external] in the configuration.",
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
    """The resolved path of an allowed program, and the name that it is to be told as its own.

    That name is the one in the policy, where it is an allowed command: programs that are many things by name do what
    was allowed, by whatever path they were asked for.
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


def _opened(path: str, arguments: tuple[str, ...]) -> Program:
    descriptor = _walk(path)
    try:
        _check_program(path, os.fstat(descriptor))
        return Program(path, arguments, descriptor, _is_script(descriptor))
    except BaseException:
        os.close(descriptor)
        raise


def _walk(path: str) -> int:
    """Opens what is at a resolved path, one step at a time."""
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
    """Whether everybody may put things there. Only a directory as /tmp is may be so, where each may move only what is
    theirs: then what is in it has to be root's or our own."""
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
    """A program that may be executed but not read is none: its interpreter could not read it either."""
    try:
        with Path(f"/proc/self/fd/{descriptor}").open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
