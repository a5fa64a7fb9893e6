"""Copies of a catalog's file: made while nodes work, verified, and put in the place of another file in one step.

A copy is made page by page from one snapshot. Its read transaction stays open, so commits of other processes neither
get into the copy nor restart it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_IMODE

import apsw

from horae.errors import AlreadyExists, InUse, NotACatalog, NotFound, StoreError, StoreUnavailable, shown
from horae.store.sqlite import file_at_rest
from horae.store.sqlite.failures import translated
from horae.store.sqlite.liveness import FileLocks

Progress = Callable[[int, int], None]
"""Called with the number of pages copied and the number of all pages."""
PAGES = 2_000
"""Pages that are copied between two reports of progress."""
_PATIENCE = 5_000
"""Milliseconds to wait for another process that holds a lock on the file."""
_BESIDE = ("-wal", "-shm", "-journal")


def copy(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Writes a new file `target` with the present content of `source`, as a single file, synced and verified.

    Raises the errors of a store, and NotACatalog where SQLite's integrity check of the copy fails. Then `target` is
    removed.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        rest = file_at_rest.resting(str(source))
        with (
            translated(str(source)),
            closing(_opened(source, rest)) as held,
            closing(apsw.Connection(str(target))) as made,
        ):
            held.execute("BEGIN")
            held.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with made.backup("main", held, "main") as work:
                while not work.done:
                    work.step(PAGES)
                    if progress is not None:
                        progress(work.page_count - work.remaining, work.page_count)
            held.execute("ROLLBACK")
            file_at_rest.check(str(source), rest)
            made.execute("PRAGMA journal_mode = DELETE").fetchall()
            _verify(made, source)
        _sync(target)
    except BaseException:
        remove(target)
        raise


def refuse_existing(target: Path) -> None:
    if target.exists():
        raise AlreadyExists(
            f"{shown(str(target))} is there already", hint="Choose another name, or overwrite it: --force."
        )


def place(made: Path, target: Path, *, force: bool) -> None:
    """Renames a finished copy to `target`. Raises AlreadyExists where that file exists, unless `force` is set."""
    if not force:
        refuse_existing(target)
    made.replace(target)
    _sync(target.parent)


def replace(made: Path, target: Path, *, keep: bool) -> Path | None:
    """Puts a finished copy in the place of a catalog. With `keep`, keeps the old file under another name in the same
    folder and returns that path. Raises InUse where a node or another program has the catalog open, because its writes
    would be lost."""
    refuse_nodes(target)
    old: Path | None = None
    if target.exists():
        close_log(target)
        _copy_owner_and_mode(made, target.stat())
        if keep:
            old = _free_name(target)
            os.link(target, old)
            for ending in _BESIDE:
                # These files are left only where SQLite could not read the catalog: keep them as they are.
                with suppress(FileNotFoundError):
                    Path(f"{target}{ending}").rename(f"{old}{ending}")
    for ending in _BESIDE:
        with suppress(FileNotFoundError):
            Path(f"{target}{ending}").unlink()
    nodes = _alive_in(made)
    made.replace(target)
    _sync(target.parent)
    FileLocks(str(target)).prove_gone(nodes)
    return old


def _alive_in(made: Path) -> list[str]:
    """The uuids of the nodes that were alive on a catalog when it was copied."""
    connection = _opened(made)
    try:
        return [str(row[0]) for row in connection.execute("SELECT node_uuid FROM nodes WHERE state = 'ALIVE'")]
    except apsw.Error:
        # No catalog, or one so old that it has no nodes. Opening the store will report that.
        return []
    finally:
        connection.close()


def remove(made: Path) -> None:
    for ending in ("", *_BESIDE):
        with suppress(OSError):
            Path(f"{made}{ending}").unlink()


def refuse_nodes(target: Path) -> None:
    """Raises InUse where a live node uses the catalog. Such a node holds a lock in the folder beside the file."""
    locks = FileLocks(str(target))
    folder = Path(f"{target}-nodes")
    alive = [each.name for each in folder.iterdir() if locks.is_held(each.name)] if folder.is_dir() else []
    if alive:
        raise InUse(
            f"{shown(str(target))} is at work: {len(alive)} node{'s are' if len(alive) > 1 else ' is'} alive on it",
            hint="Stop every horae serve and worker on it first.",
        )


def _opened(source: Path, rest: file_at_rest.RestingFile | None = None) -> apsw.Connection:
    if not source.is_file():
        raise NotFound(f"There is no file {shown(str(source))}", hint="Check the path.")
    if rest is not None:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(file_at_rest.reading(str(source), rest), flags=flags)
    try:
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.execute("PRAGMA schema_version").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError):
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(_PATIENCE)
    return connection


def _verify(made: apsw.Connection, source: Path) -> None:
    found = [row[0] for row in made.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise NotACatalog(
            f"{shown(str(source))} is damaged: {'; '.join(found)}",
            hint="Restore the latest backup that is sound: horae restore FILE.",
        )


def close_log(target: Path) -> None:
    """Moves the content of the write-ahead log into the file, which SQLite allows only to the only user of the file.
    Raises InUse where another program has it open. Does nothing with a file that cannot be read."""
    try:
        with closing(apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)) as alone:
            alone.set_busy_timeout(_PATIENCE)
            with translated(str(target)):
                alone.execute("PRAGMA journal_mode = DELETE").fetchall()
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, apsw.BusyError | apsw.LockedError):
            raise
        raise InUse(
            f"Another program has {shown(str(target))} open",
            hint="Stop every horae process on it first: servers, workers, shells, --watch.",
        ) from error
    except (StoreError, apsw.Error):
        # The file cannot be read, which may be the reason why it is being replaced.
        return


def _copy_owner_and_mode(made: Path, before: os.stat_result) -> None:
    """Gives the new file the owner and the mode of the old one, so that the same service can use it."""
    made.chmod(S_IMODE(before.st_mode))
    with suppress(PermissionError):
        os.chown(made, before.st_uid, before.st_gid)


def _free_name(target: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (
        target.with_name(f"{target.name}.before-{stamp}{f'-{number}' if number else ''}") for number in range(1000)
    )
    return next(name for name in names if not name.exists())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
