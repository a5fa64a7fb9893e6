"""Confines a program: everything between the fork and the exec, in the launcher's child.

It happens here, in a process with one thread, and not in a preexec_fn: the scheduler has threads, and its forks may
only exec. This module imports as little as possible and nothing else of Horae, because every command pays for the
imports.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal; the other half takes 6 ms to import
import fcntl
import os
import resource
import stat

TYPE_CHECKING = False  # typing takes 8 ms to import
if TYPE_CHECKING:
    from typing import Any, NoReturn

REFUSED = b"r"
FAILED = b"f"
FIRST_SECRET = 3
_OUT_OF_THE_WAY = 64
"""The launcher's own descriptors are moved to numbers from here on, because secrets use the numbers from
FIRST_SECRET."""
_CPU_LAST_WORDS = 2
"""Seconds of CPU between SIGXCPU, which can be caught, and SIGKILL, which cannot."""
MOST_OTHERS = 100
"""In a folder with more entries, only the hidden ones are covered, because each entry makes the start slower."""
SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES = 1, 38
_PLACE = getattr(os, "O_PATH", 0) | os.O_DIRECTORY
"""Flags that open a directory for entering, even if it may not be listed."""


class ProgramRefused(Exception):
    """The request is not allowed. The text is the reason."""


def prctl(option: int, value: int) -> None:
    """Calls prctl. Raises OSError if the system does not support the option."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def start_program(given: dict[str, Any], launcher: int, descriptors: dict[str, int]) -> NoReturn:
    """Becomes the program. If that fails, writes the reason to the descriptor `trouble`, which closes by itself
    otherwise."""
    trouble = descriptors["trouble"]
    try:
        os.setsid()
        prctl(SET_DEATH_SIGNAL, _signal.SIGKILL)
        descriptors = {
            name: fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for name, each in descriptors.items()
        }
        trouble = descriptors["trouble"]
        _forget_signals()
        os.umask(given["umask"])
        _switch(given["identity"])
        directory = _enter(given["directory"], given["below"])
        _connect(given, directory, descriptors["output"])
        _hand_over(given["secrets"])
        # Set again, because changing the user clears the death signal.
        prctl(SET_DEATH_SIGNAL, _signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)
        prctl(_SET_NO_NEW_PRIVILEGES, 1)
        _close_the_rest(FIRST_SECRET + len(given["secrets"]))
        _limit(given["limits"])
        _become(given, descriptors["program"], descriptors["status"])
    except ProgramRefused as reason:
        _tell(trouble, REFUSED, str(reason))
    except BaseException as error:  # noqa: BLE001 - this process must report any error itself
        _tell(trouble, FAILED, getattr(error, "strerror", None) or f"{type(error).__name__}: {error}")
    os._exit(127)


def _tell(descriptor: int, kind: bytes, text: str) -> None:
    os.write(descriptor, kind + text.encode("utf-8", "replace")[:2000])


def _forget_signals() -> None:
    """Resets every signal to its default, because the interpreter's own settings are not for the program."""
    for number in range(1, _signal.NSIG):
        if number not in (_signal.SIGKILL, _signal.SIGSTOP):
            try:
                _signal.signal(number, _signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # signals that the C library reserves
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _switch(identity: tuple[int, int, list[int]] | None) -> None:
    if identity is None:
        return
    user, group, groups = identity
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def _enter(directory: bytes, below: list[bytes]) -> int:
    """Opens the working directory, then each step below it. A link on the way is refused, whatever it points to."""
    descriptor = os.open(directory, _PLACE)
    start = os.dup(descriptor)
    for part in below:
        try:
            inner = os.open(part, _PLACE | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            raise ProgramRefused(f"its cwd cannot be entered at {_text(part)}: {error.strerror}") from error
        os.close(descriptor)
        descriptor = inner
    os.fchdir(descriptor)
    os.close(descriptor)
    return start


def _connect(given: dict[str, Any], directory: int, output: int) -> None:
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for number, name in ((1, "stdout"), (2, "stderr")):
        parts = given[name]
        target = output if parts is None else _file(directory, name, parts)
        os.dup2(target, number)
        if target != output:
            os.close(target)
    os.close(directory)


def _file(directory: int, name: str, parts: list[bytes]) -> int:
    """Opens a file below the working directory for appending, as the program's user. Links are not followed."""
    descriptor = os.dup(directory)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _PLACE | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        found = os.open(parts[-1], flags, 0o666, dir_fd=descriptor)
    except OSError as error:
        raise ProgramRefused(f"its {name} file {_text(b'/'.join(parts))} cannot be opened: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        raise ProgramRefused(f"its {name} file {_text(b'/'.join(parts))} is not a regular file")
    os.set_blocking(found, True)
    return found


def _hand_over(secrets: list[bytes]) -> None:
    """Passes each secret as a pipe that contains it and nothing else, so it can be read once. The pipes are made here,
    so that they belong to the program's user."""
    for number, value in enumerate(secrets, FIRST_SECRET):
        theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        if os.write(ours, value) != len(value):
            raise ProgramRefused("a secret is too long to be handed over in a pipe")
        if theirs != number:
            os.dup2(theirs, number)
            os.close(theirs)
        os.set_inheritable(number, True)  # noqa: FBT003 - the flag is all it takes
        # If `ours` has the number of the next secret, dup2 closes it.
        if ours != number:
            os.close(ours)


def _close_the_rest(first: int) -> None:
    """Makes every descriptor from `first` on close at the exec, including those that this process did not open."""
    names = [int(each) for each in os.listdir("/proc/self/fd")]  # noqa: PTH208 - pathlib takes 10 ms to import
    for number in names:
        if number >= first:
            try:
                os.set_inheritable(number, False)  # noqa: FBT003 - the flag is all it takes
            except OSError:
                continue


def _limit(limits: dict[str, int | None]) -> None:
    # The address space comes last, because this interpreter is limited too.
    for name in ("cpu_seconds", "open_files", "processes", "file_size", "memory"):
        value = limits[name]
        if value is not None:
            _set_limit(_LIMITS[name], value, value + _CPU_LAST_WORDS if name == "cpu_seconds" else value)
    _set_limit(resource.RLIMIT_CORE, 0, 0)


def _set_limit(which: int, soft: int, hard: int) -> None:
    _, most = resource.getrlimit(which)
    if most != resource.RLIM_INFINITY:
        hard = min(hard, most)
    resource.setrlimit(which, (min(soft, hard), hard))


_LIMITS = {
    "cpu_seconds": resource.RLIMIT_CPU,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "file_size": resource.RLIMIT_FSIZE,
    "memory": resource.RLIMIT_AS,
}


def _become(given: dict[str, Any], program: int, status: int) -> None:
    arguments, environment = given["arguments"], given["environment"]
    if given["by_descriptor"]:
        os.execve(program, arguments, environment)  # noqa: S606 - the allowlist has admitted it
    # A script's interpreter and bubblewrap need a path, so check that it still leads to the admitted file.
    checked, found = os.fstat(program), os.stat(given["path"])  # noqa: PTH116 - pathlib takes 10 ms to import
    if (checked.st_dev, checked.st_ino) != (found.st_dev, found.st_ino):
        raise ProgramRefused("the program was replaced by another after it had been checked")
    if not given["wrapper"]:
        os.execve(given["path"], arguments, environment)  # noqa: S606 - the allowlist has admitted it
    # Bubblewrap does not pass it on to the program.
    os.set_inheritable(status, True)  # noqa: FBT003 - the flag is all it takes
    wrapper = [*given["wrapper"], b"--json-status-fd", str(status).encode(), *_covers_of(given), b"--"]
    os.execve(wrapper[0], wrapper + arguments, environment)  # noqa: S606 - the allowlist has admitted it


def _covers_of(given: dict[str, Any]) -> list[bytes]:
    return covers(given["hidden"], given["folders"], given["directory"])


def covers(paths: list[bytes], folders: list[bytes], directory: bytes | None) -> list[bytes]:
    """Returns the bubblewrap arguments that hide these paths.

    A folder is covered by an empty one, a file by a device that cannot be opened there. Paths that this user cannot
    reach are left out, because bubblewrap could not reach them either.

    A cover hides one file. A file that takes its name, or is created later, would not be covered. So each of `folders`
    is covered as a whole, and its other entries are mounted again; `directory`, where programs write, comes last.
    """
    found = []
    whole = set()
    for folder in sorted(folders):  # parents come before their children
        is_hidden = any((folder + b"/").startswith(each + b"/") for each in paths)
        others = None if is_hidden else _others(folder, paths)
        if others is not None:
            whole.add(folder)
            found += [b"--tmpfs", folder, *others]
    if directory is not None and any(directory.startswith(each + b"/") for each in whole):
        found += [b"--bind", directory, directory]
    for path in paths:
        if path.rpartition(b"/")[0] in whole or any(path.startswith(each + b"/") for each in paths):
            continue  # it is hidden already
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        found += [b"--tmpfs", path] if stat.S_ISDIR(mode) else [b"--ro-bind", b"/dev/null", path]
    for folder in sorted(whole):
        found += [b"--remount-ro", folder]
    return found


def _others(folder: bytes, paths: list[bytes]) -> list[bytes] | None:
    """Returns the arguments that mount the folder's other entries again; None if it cannot be listed or has too many
    entries."""
    found = []
    try:
        names = os.listdir(folder)  # noqa: PTH208 - pathlib takes 10 ms to import
        if len(names) > MOST_OTHERS:
            return None
        for path in [folder + b"/" + each for each in sorted(names)]:
            if path in paths:
                continue
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            found += [b"--symlink", os.readlink(path), path] if is_link else [b"--ro-bind-try", path, path]  # noqa: PTH115 - as above
    except OSError:
        return None
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
