"""Reading what the user named: a file or standard input, as UTF-8, of a sane size; which store; the clock."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path

from horae.errors import InvalidFile, NotFound, shown

LARGEST_FILE = 16 * 1024 * 1024
DEFAULT_STORE = "sqlite:///horae.db"


def store_url(arguments: Namespace) -> str:
    """The catalog's address: as the command line says, else as the environment does, else a file right here."""
    url: str = arguments.store or os.environ.get("HORAE_STORE") or DEFAULT_STORE
    return url


def read_text(name: str) -> str:
    """The text of the file called `name`; `-` is standard input."""
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


def write_new(name: str, text: str) -> None:
    """Writes a file that is not there yet; an existing one is never touched."""
    try:
        with Path(name).open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise InvalidFile(f"{shown(name)} exists already", hint="Choose another name.") from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"Cannot write {shown(name)}: {error}") from error


def looks_like_file(name: str) -> bool:
    """Whether a target names a file rather than a schedule: no cron expression ends so or exists on disk."""
    if name == "-" or name.endswith((".kron", ".krontab")):
        return True
    try:
        return "\0" not in name and Path(name).is_file()
    except OSError:
        return False


def now() -> datetime:
    """The host's clock: previews are the one place of the command line that reads it."""
    return datetime.now(UTC)
