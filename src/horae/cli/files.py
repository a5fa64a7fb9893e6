"""Inputs from outside the program: files and standard input, the store's and server's address, the token, the clock."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path

from horae.errors import AlreadyExists, InvalidFile, InvalidInput, NotFound, shown

LARGEST_FILE = 16 * 1024 * 1024
DEFAULT_STORE = "sqlite:///horae.db"
INSECURE = "HORAE_INSECURE"
"""The environment variable that allows a token to go over plain http to another machine."""
_NO = frozenset({"", "0", "false", "no", "off", "f", "n"})


def is_on(variable: str) -> bool:
    """Whether an environment variable is set to anything but an empty text, 0, f, false, n, no or off."""
    return os.environ.get(variable, "").strip().lower() not in _NO


def write_private(name: str, text: str) -> None:
    """Writes a new file that only its owner may read. Raises AlreadyExists if there is one, since a key or a token must
    not be overwritten, and InvalidInput if the file cannot be written."""
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise AlreadyExists(f"{shown(name)} is there already", hint="Choose another name, or remove it.") from None
    except OSError as error:
        raise InvalidInput(f"{shown(name)} cannot be written: {error.strerror}", hint="Choose another name.") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(f"{text}\n")


def store_url(arguments: Namespace) -> str:
    """Returns the catalog's URL: from the command line, else HORAE_STORE, else [server] in horae.toml, so that commands
    beside a server use its catalog, else `DEFAULT_STORE`."""
    url: str = arguments.store or os.environ.get("HORAE_STORE") or _configured_store(arguments) or DEFAULT_STORE
    return url


def _configured_store(arguments: Namespace) -> str | None:
    named = getattr(arguments, "config", None)
    if named is None and not os.environ.get("HORAE_CONFIG") and not Path("horae.toml").exists():
        return None
    # Imported here: commands without a configuration start sooner.
    from horae.config import load_configuration

    return load_configuration(named).server.store


def server_url(arguments: Namespace) -> str | None:
    """Returns the URL of the server to call instead of opening a store, from the command line, else the environment;
    None for a store. An http or https URL in place of a store's also names a server. Raises InvalidInput if
    HORAE_SERVER and HORAE_STORE are both set and the command line names neither."""
    if getattr(arguments, "server", None):
        return str(arguments.server)
    if arguments.store:
        return str(arguments.store) if _is_web(arguments.store) else None
    server, store = os.environ.get("HORAE_SERVER"), os.environ.get("HORAE_STORE")
    if server and store:
        raise InvalidInput(
            "HORAE_SERVER and HORAE_STORE are both set, and only one of them can be meant",
            hint="Unset one of them, or say --server or --store.",
        )
    return server or (store if store and _is_web(store) else None)


def server_token(arguments: Namespace) -> str | None:
    """Returns the token for the server: the first line of the file that the command line names, else HORAE_TOKEN.
    Raises InvalidInput for a file without a token."""
    name = arguments.token_file
    if name is None:
        return os.environ.get("HORAE_TOKEN", "").strip() or None
    if name.startswith("horae_") and not Path(name).exists():
        # The value may be the token itself, so the message does not repeat it.
        raise InvalidInput(
            "--token-file takes the name of a file, and what was given is none",
            hint="Put the token in a file that only you can read, or in HORAE_TOKEN.",
        )
    token = read_text(name).split("\n", 1)[0].strip()
    if not token or not token.isascii() or not token.isprintable():
        raise InvalidInput(f"There is no token in {shown(name)}", hint="horae token create > FILE makes one.")
    return token


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def read_text(name: str) -> str:
    """Returns the text of a UTF-8 file; `-` is standard input. Raises NotFound or InvalidFile."""
    try:
        if name == "-":
            if sys.stdin is None:
                raise InvalidFile("Cannot read standard input: it is closed")
            content = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with Path(name).open("rb") as source:
                content = source.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise NotFound(f"No file {shown(name)}", hint="Check the path.") from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"Cannot read {shown(name)}: {error}") from error
    if len(content) > LARGEST_FILE:
        raise InvalidFile(f"Cannot read {shown(name)}: larger than {LARGEST_FILE // 1024 // 1024} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"Cannot read {shown(name)}: not UTF-8 at byte {error.start}") from error


def read_krontab(name: str, instead: str) -> str:
    """Returns the text of a krontab. Raises InvalidFile for a job file. `instead` is the hint that names the command
    for job files, with `{}` for the file."""
    if name.endswith(".toml"):
        raise InvalidFile(
            f"{shown(name)} is a job file, and this command reads krontabs",
            hint=instead.replace("{}", shlex.quote(name)),
        )
    return read_text(name)


def write_new(name: str, text: str) -> None:
    """Writes a new file. Raises InvalidFile if the file exists or cannot be written."""
    try:
        with Path(name).open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise InvalidFile(f"{shown(name)} exists already", hint="Choose another name.") from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"Cannot write {shown(name)}: {error}") from error


def looks_like_file(name: str) -> bool:
    """Whether a target names a file rather than a schedule: by its ending, or because such a file exists."""
    if name == "-" or name.endswith((".kron", ".krontab", ".toml")):
        return True
    try:
        return "\0" not in name and Path(name).is_file()
    except OSError:
        return False


def now() -> datetime:
    """Returns the current time by the host's clock."""
    return datetime.now(UTC)
