"""Files that define jobs: reads and checks jobs.toml, krontabs and SQL files."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState
from horae.core.run.pause import Pause
from horae.errors import InvalidDefinition, InvalidFile, InvalidJobFile, InvalidStatement, shown
from horae.formats.krontab.job import job_from_krontab
from horae.formats.krontab.parser import read_jobs
from horae.formats.toml.job_file import check_job_file, read_job_file

MOST_READ = 16 << 20
DUPLICATE_HINT = "Give one of them another name."


@dataclass(frozen=True, slots=True)
class FileJobs:
    """The jobs and pools that one file defines."""

    file: Path
    specs: tuple[JobSpec, ...]
    pools: Mapping[str, int] = field(default_factory=dict)
    stated: frozenset[str] = frozenset()
    """The jobs whose state the file states."""
    namespaces: frozenset[str] = frozenset({"default"})
    """The namespaces that the file defines jobs for."""
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    """The end and the note of each pause that the file states, by job."""
    is_target: bool = False
    """Whether an operator named the file, or its folder, on the command line. Then the code beside it is trusted."""

    @property
    def handlers(self) -> frozenset[str]:
        """The Python handlers that the file names."""
        tasks = (task for spec in self.specs for task in spec.tasks)
        return frozenset(task.handler or task.name for task in tasks if task.kind == "PYTHON")


def read_file(path: Path) -> str:
    """Reads a text file of at most MOST_READ bytes. Raises InvalidFile, also for a pipe or device, which might never
    end."""
    try:
        with open(path, "rb", opener=_without_waiting) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise InvalidFile(f"{path}: is no regular file", hint="Name a file; a pipe or a device is not read.")
            data = opened.read(MOST_READ + 1)
        if len(data) > MOST_READ:
            raise InvalidFile(f"{path}: is larger than {MOST_READ >> 20} MiB", hint="Cut it into several files.")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path}: is not UTF-8 text, at byte {error.start}") from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def check_writers(path: Path) -> None:
    """Raises InvalidFile for a file that every user of the machine may write, because its jobs run with the node's
    rights.

    A missing file is left to its reader to report.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if mode & stat.S_IWOTH:
        raise InvalidFile(
            f"{path}: everybody on this machine may write the job file (mode {stat.S_IMODE(mode):04o})",
            hint=f"Run: chmod o-w {shlex.quote(str(path))}",
        )


def read_toml(path: Path, namespace: str, timezone: str | None = None) -> FileJobs:
    """Reads the jobs of a job file. `namespace` and `timezone` apply to a file that names none.

    Raises InvalidFile or InvalidJobFile.
    """
    found = read_job_file(read_file(path), file=str(path), namespace=namespace, timezone=timezone)
    return FileJobs(path, found.specs(), found.pools, found.stated, frozenset({found.namespace}), found.pauses)


def faults_of(error: InvalidJobFile) -> tuple[InvalidJobFile, ...]:
    """Every fault in the file that an error is about; at least that error."""
    try:
        _, found = check_job_file(read_file(Path(error.file)), file=error.file)
    except InvalidFile:
        return (error,)
    return found or (error,)


def read_krontab(path: Path, namespace: str) -> FileJobs:
    """Reads the jobs of a krontab. Raises InvalidFile or InvalidKrontab."""
    found = read_jobs(read_file(path), file=str(path))
    specs = tuple(job_from_krontab(each.job, namespace=namespace) for each in found)
    # A line can state only that its job is suspended.
    stated = frozenset(spec.name for spec in specs if spec.state is not JobState.ENABLED)
    return FileJobs(path, specs, {}, stated, frozenset({namespace}))


def read_sql(path: Path, namespace: str) -> FileJobs:
    """Reads the jobs that CREATE JOB statements define, without executing them.

    Raises InvalidFile, also for any other kind of statement.
    """
    # Imported here: SQL job files are rare, and the grammar is slow to load.
    from horae.formats.sql.binder import create_definition
    from horae.formats.sql.parser import parse
    from horae.formats.sql.statements import CreateJob

    text = read_file(path)
    specs, stated = [], set()
    try:
        for statement in parse(text):
            if not isinstance(statement, CreateJob):
                hint = "Here jobs are defined and nothing is carried out: horae sql --file does that."
                raise statement.at.fault("is not CREATE JOB", hint=hint)
            said = {clause.kind for clause in statement.clauses}
            # A time in the past is no fault: it lay in the future when the file was written.
            spec = create_definition(statement, now=datetime.min.replace(tzinfo=UTC))
            specs.append(spec if "NAMESPACE" in said else replace(spec, namespace=namespace))
            if "STATE" in said:
                stated.add(spec.name)
    except InvalidStatement as error:
        raise InvalidFile(f"{path}: {error.message}", hint=error.hint) from error
    own = frozenset(spec.namespace for spec in specs)
    return FileJobs(path, tuple(specs), {}, frozenset(stated), own or frozenset({namespace}))


_READERS = {".kron": read_krontab, ".sql": read_sql}


def read_jobs_of(path: Path, namespace: str, timezone: str | None = None) -> FileJobs:
    """Reads the jobs of a file by its suffix. `timezone` applies to a job file that names none; krontabs and SQL files
    always default to UTC."""
    read = _READERS.get(path.suffix)
    return read_toml(path, namespace, timezone) if read is None else read(path, namespace)


def check_unique_names(files: Iterable[FileJobs], in_code: Iterable[str]) -> None:
    """Raises InvalidDefinition if two sources define the same job, or give a pool two limits."""
    places: dict[str, str] = dict.fromkeys(in_code, "the code")
    pools: dict[str, tuple[int, Path]] = {}
    for each in files:
        for spec in each.specs:
            other = places.get(spec.name)
            if other is not None:
                where = "twice in one file" if other == str(each.file) else f"also by {other}"
                raise InvalidDefinition(
                    f"Job {shown(spec.name)} of {each.file} is defined {where}", hint=DUPLICATE_HINT
                )
            places[spec.name] = str(each.file)
        for name, limit in each.pools.items():
            known, where_known = pools.setdefault(name, (limit, each.file))
            if known != limit:
                raise InvalidDefinition(
                    f"The pool {shown(name)} has the limit {limit} in {each.file}, and {known} in {where_known}",
                    hint="A pool has one limit: say it in one of the files.",
                )
