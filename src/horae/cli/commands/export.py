"""`horae export`: writes the catalog's jobs and pools as a job file, which reads back to the same definitions."""

from __future__ import annotations

import os
import tempfile
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from horae.cli.catalog_access import json_values, open_catalog
from horae.cli.screen.rows import counted, harmless
from horae.errors import InvalidFile, shown

if TYPE_CHECKING:
    from horae.api.responses.version_responses import Exported
    from horae.cli.screen.screen import Screen


def run(arguments: Namespace, screen: Screen) -> int:
    target = None if arguments.output in (None, "-") else Path(arguments.output)
    if target is not None:
        # Checked first, so that a user does not wait for a large catalog only to learn that the file cannot be written.
        _check(target, force=arguments.force)
    with open_catalog(arguments) as catalog:
        found: Exported = catalog.call(
            "export",
            format=arguments.format,
            names="\n".join(arguments.names) or None,
            namespace=arguments.namespace,
            all_namespaces=arguments.all_namespaces,
            tag=arguments.tag,
        )
    if target is not None:
        write_whole(target, found.text, force=arguments.force)
    told = json_values(found)
    if target is not None:
        told = {"file": str(target), **{name: value for name, value in told.items() if name != "text"}}
    screen.data(told)
    if target is None:
        text = found.text if screen.width is None else harmless(found.text)
        if text:
            screen.line(text.removesuffix("\n"))
    for each in found.left_out:
        screen.note(f"horae: left out {harmless(each.name)}: {harmless(each.reason)}")
    if target is not None:
        screen.line(f"{counted(len(found.jobs), 'job')} in {target}")
    return 0


def write_whole(target: Path, text: str, *, force: bool) -> None:
    """Writes the file atomically: no reader ever sees half of it. Raises InvalidFile if the file exists, unless
    `force`, or if it cannot be written."""
    _check(target, force=force)
    try:
        number, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from error
    written = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as opened_file:
            opened_file.write(text)
            opened_file.flush()
            os.fsync(opened_file.fileno())
        # Temporary files are private to their owner. This gives the file the permissions of an ordinary new file.
        mask = os.umask(0)
        os.umask(mask)
        written.chmod(0o666 & ~mask)
        if force:
            written.replace(target)
        else:
            # Unlike a rename, a link never replaces a file that was created in the meantime.
            os.link(written, target)
            written.unlink()
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        with suppress(OSError):
            written.unlink()


def _check(target: Path, *, force: bool) -> None:
    try:
        if target.is_dir():
            raise InvalidFile(f"{shown(str(target))} is a folder", hint="Name a file in it.")
        if not force and target.exists():
            raise _exists(target)
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from error


def _exists(target: Path) -> InvalidFile:
    return InvalidFile(f"{shown(str(target))} exists already", hint="Choose another name, or say --force.")


def _unwritable(target: Path, error: Exception) -> InvalidFile:
    return InvalidFile(f"Cannot write {shown(str(target))}: {getattr(error, 'strerror', None) or error}")
