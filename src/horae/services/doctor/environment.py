"""Checks of a catalog's environment: database, disk, clocks, files, zone data, keys, programs, audit trail."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from horae.core.job.requirements import EXTERNAL
from horae.core.program.environment import denial
from horae.core.program.policy import ExternalPolicy, Sandbox
from horae.core.program.protection import ExposedFile, Protection, protections_text
from horae.core.run.lifecycle import JobState
from horae.core.time.zone import TZDATA_VERSION
from horae.errors import HoraeError
from horae.services.service import ServiceCatalog
from horae.store.protocols.store import JobRecord

MEGABYTE = 1_000_000
LITTLE_SPACE = 500 * MEGABYTE
NO_SPACE = 50 * MEGABYTE
LONG_LOG = 1_000 * MEGABYTE
SKEW = 2.0
"""Seconds that two clocks may differ without a finding."""
WIDE_SKEW = 60.0
UNSEALED = 10_000


@dataclass(frozen=True, slots=True)
class CatalogEnvironment:
    """Facts about the environment, from the program that opened the catalog. None: unknown. Sizes are in bytes."""

    kind: str = ""
    """The database and its version: SQLite 3.50.4."""
    schema: int | None = None
    is_writable: bool | None = None
    size: int | None = None
    log_size: int | None = None
    """Size of the log of writes that are not yet in the file: SQLite's -wal."""
    free: int | None = None
    place: str = ""
    """The folder whose free space is `free`."""
    skew: float | None = None
    """Seconds that the store's clock is ahead of this machine's. None: the store uses this machine's clock."""
    external: ExternalPolicy | None = None
    """Which programs may be started here, and how."""
    sandbox: str | None = None
    """Why this machine cannot give programs the configured sandbox."""
    protections: tuple[Protection, ...] = ()
    """The node's own files and data, and what protects each of them from the programs that it would start here."""
    exposed: tuple[ExposedFile, ...] = ()
    """Files of the node's own that every user of the machine may read or write."""
    keys: frozenset[str] | None = None
    """Ids of the master keys on this machine."""
    key_fault: str | None = None
    """Why the master keys cannot be read."""
    defined: frozenset[str] | None = None
    """The jobs that the code and the files given as targets define."""
    configuration: str | None = None
    """The configuration file, if there is one."""
    unheeded: Mapping[str, str] = field(default_factory=dict)
    """Settings of ALTER SYSTEM that nodes ignore, with the reason."""


class CheckProblem(NamedTuple):
    """A problem that a check found. The examination makes a finding of it."""

    level: str
    check: str
    subject: str
    message: str
    hint: str


class CheckResult(NamedTuple):
    """One check: its result in a few words (`said`), and the problems that it found."""

    name: str
    said: str
    faults: tuple[CheckProblem, ...] = ()


async def check_environment(
    store: ServiceCatalog, around: CatalogEnvironment, jobs: list[JobRecord]
) -> list[CheckResult]:
    """Makes every check of the environment, but for those whose facts are unknown."""
    found = [_store(around)] if around.kind else []
    if around.kind:
        found.append(_clock(around))
        found.append(_files(around))
    if around.free is not None:
        found.append(_disk(around))
    found += [await _zone_data(store), *await _secrets(store, around), *_programs(jobs, around), await _trail(store)]
    if around.defined is not None:
        found.append(await _definitions(store, around.defined))
    if around.configuration is not None:
        found.append(CheckResult("configuration", around.configuration))
    if around.unheeded:
        found.append(_settings(around.unheeded))
    return found


def _settings(unheeded: Mapping[str, str]) -> CheckResult:
    hint = "Set another value, or take it back: ALTER SYSTEM SET {} = DEFAULT."
    faults = [
        CheckProblem("warning", "settings", name, f"No node goes by it: {why}", hint.format(name))
        for name, why in sorted(unheeded.items())
    ]
    return CheckResult("settings", f"{len(faults)} that no node goes by", tuple(faults))


def _store(around: CatalogEnvironment) -> CheckResult:
    words = [around.kind]
    if around.schema is not None:
        words.append(f"schema {around.schema:04d}")
    if around.size is not None:
        words.append(amount(around.size))
    if around.log_size:
        words.append(f"{amount(around.log_size)} of log")
    faults = []
    if around.is_writable is False:
        faults.append(
            CheckProblem(
                "error",
                "store",
                "store",
                "The catalog cannot be written: nothing runs",
                "Give the file to whoever runs the node, or name the primary server.",
            )
        )
    if (around.log_size or 0) > LONG_LOG:
        faults.append(
            CheckProblem(
                "warning",
                "store",
                "store",
                f"The log beside the catalog has grown to {amount(around.log_size or 0)}",
                "A reader that never ends keeps it from being taken up: look for a process that has the file open.",
            )
        )
    if around.is_writable:
        words.append("writable")
    return CheckResult("store", ", ".join(words), tuple(faults))


def _clock(around: CatalogEnvironment) -> CheckResult:
    if around.skew is None:
        return CheckResult("clock", "this machine's own")
    apart = abs(around.skew)
    words = "ahead of" if around.skew > 0 else "behind"
    said = f"the database's, {apart:.1f} s {words} this machine's" if apart >= 0.1 else "as this machine's"
    if apart < SKEW:
        return CheckResult("clock", said)
    fault = CheckProblem(
        "error" if apart >= WIDE_SKEW else "warning",
        "clock",
        "clock",
        f"The database's clock, which decides what is due, is {apart:.1f} s {words} this machine's",
        "Let both follow the same time servers (NTP).",
    )
    return CheckResult("clock", said, (fault,))


def _files(around: CatalogEnvironment) -> CheckResult:
    """Checks the modes of the catalog's files, of keys, and of a configuration with addresses in it."""
    faults = tuple(
        CheckProblem(
            "warning",
            "files",
            each.path,
            f"Everybody on this machine may {'write' if each.mode & 0o002 else 'read'} {each.what}: {each.path} "
            f"(mode {each.mode:04o})",
            f"Run: chmod o-rwx {shlex.quote(each.path)}",
        )
        for each in around.exposed
    )
    return CheckResult("files", "open to everybody on this machine" if faults else "closed to others", faults)


def _disk(around: CatalogEnvironment) -> CheckResult:
    free = around.free or 0
    said = f"{amount(free)} free in {around.place}"
    if free >= LITTLE_SPACE:
        return CheckResult("disk", said)
    level = "error" if free < NO_SPACE else "warning"
    hint = "Make room, or keep less history: ALTER SYSTEM SET scheduler.job_history_retention_days = …"
    return CheckResult(
        "disk", said, (CheckProblem(level, "disk", around.place, f"Only {amount(free)} are free", hint),)
    )


async def _zone_data(store: ServiceCatalog) -> CheckResult:
    """Compares the zone data of this machine with those of the latest decision in a window."""
    latest = await store.select(
        "SELECT tzdata_version, core_version FROM sys.run_windows ORDER BY run_no DESC LIMIT 1", most=1, own=True
    )
    said = f"tzdata {TZDATA_VERSION}"
    if not latest or latest[0][0] == TZDATA_VERSION:
        return CheckResult("zone data", said)
    hint = "Install the same tzdata on every node: previews made here may differ from what runs there."
    message = f"The latest decision was made with tzdata {latest[0][0]}, here is {TZDATA_VERSION}"
    return CheckResult("zone data", said, (CheckProblem("warning", "zone data", "tzdata", message, hint),))


async def _secrets(store: ServiceCatalog, around: CatalogEnvironment) -> Iterator[CheckResult]:
    if around.keys is None and around.key_fault is None:
        return iter(())
    secrets = await store.secrets()
    said = f"{len(secrets)} secrets, {len(around.keys or ())} master keys"
    if not secrets:
        return iter((CheckResult("secrets", said),))
    closed = [each.name for each in secrets if each.key_id not in (around.keys or ())]
    if not closed:
        return iter((CheckResult("secrets", said),))
    why = around.key_fault or f"{len(closed)} of {len(secrets)} secrets are under a master key that is not here"
    hint = "Name the key under [secrets] in the configuration of every node: key_file, and older_key_files."
    return iter((CheckResult("secrets", said, (CheckProblem("error", "secrets", closed[0], why, hint),)),))


def _programs(jobs: list[JobRecord], around: CatalogEnvironment) -> Iterator[CheckResult]:
    policy = around.external
    if policy is None:
        return
    users = [job.name for job in jobs if EXTERNAL in job.definition.handlers and job.state is not JobState.DISABLED]
    if not policy.enabled:
        if not users:
            yield CheckResult("programs", "not allowed here, and no job needs them")
            return
        message = f"{len(users)} jobs start programs, and the configuration here allows none"
        hint = "Set enabled = true under [external] where the node runs, and list the commands."
        yield CheckResult(
            "programs", "not allowed here", (CheckProblem("warning", "programs", users[0], message, hint),)
        )
        return
    faults = list(_denied(jobs, policy))
    said = f"allowed here: {protections_text(policy, around.protections)}"
    faults += _open_files(policy, around.protections)
    if around.sandbox is not None:
        said = "allowed here, but without their sandbox"
        hint = "A node here would start no programs, and their runs would wait for `sandbox`."
        faults.insert(0, CheckProblem("warning", "programs", users[0] if users else "programs", around.sandbox, hint))
    yield CheckResult("programs", said, tuple(faults))


def _open_files(policy: ExternalPolicy, protections: Sequence[Protection]) -> Iterator[CheckProblem]:
    """Yields the files that the user of the programs can read although they should be kept from it. Only the sandbox
    `user` is checked: without a sandbox, the operator has allowed programs everything that the node may do."""
    for each in protections:
        if policy.sandbox is Sandbox.USER and each.by is None and each.path:
            message = f"Programs run as {policy.user}, who can read {each.what}: {each.path}"
            hint = f"Run: chmod o-r {shlex.quote(each.path)}, and chmod g-r where {policy.user} is in its group."
            yield CheckProblem("warning", "programs", each.path, message, hint)


def _denied(jobs: list[JobRecord], policy: ExternalPolicy) -> Iterator[CheckProblem]:
    """Yields the first variable of each job that the policy denies: the job's runs would be refused here."""
    for job in jobs:
        if job.state is JobState.DISABLED:
            continue
        tasks = [each.options for each in job.definition.spec.tasks if each.kind == "EXTERNAL"]
        given = [pair for options in tasks for pair in options.get("env", {}).items()]
        given += [(each["variable"], "") for options in tasks for each in options.get("secrets", ())]
        denials = (denial(name, value, policy.environment, policy.variables) for name, value in given)
        found = next((each for each in denials if each is not None), None)
        if found is not None:
            yield CheckProblem("warning", "programs", job.name, found.message, found.hint)


async def _trail(store: ServiceCatalog) -> CheckResult:
    unsealed = await store.audit(limit=UNSEALED, sealed=False)
    keyed = "" if await store.audit_key() is not None else "; seals are unkeyed: no node has had a master key"
    if not unsealed:
        return CheckResult("audit", f"all sealed{keyed}")
    said = f"{len(unsealed)}{' and more' if len(unsealed) == UNSEALED else ''} rows not sealed yet"
    oldest = (await store.now()).timestamp() - unsealed[0].at / 1000
    if oldest < timedelta(minutes=10).total_seconds():
        return CheckResult("audit", said)
    message = f"Rows of the audit trail have not been sealed for {oldest / 60:.0f} minutes"
    hint = (
        "A running node seals them: start one, or read in its log why it does not. Until then an edit of those rows "
        "would not show."
    )
    return CheckResult("audit", said, (CheckProblem("warning", "audit", "audit trail", message, hint),))


async def _definitions(store: ServiceCatalog, defined: frozenset[str]) -> CheckResult:
    """Reports jobs that came from code and that no target defines any more."""
    rows = await store.select("SELECT job_name FROM sys.jobs WHERE registered IS NOT NULL ORDER BY job_name", own=True)
    gone = [name for (name,) in rows if name not in defined]
    faults = tuple(
        CheckProblem(
            "warning",
            "definitions",
            name,
            "This job came from code, and none of the targets defines it any more",
            "Drop it: horae job drop, or horae apply --prune; or look at other targets too.",
        )
        for name in gone
    )
    return CheckResult("definitions", f"{len(defined)} jobs in the targets, {len(gone)} left over", faults)


def unreadable(error: HoraeError) -> CheckResult:
    """Returns the check of a configuration that cannot be used. All other checks are made as if there were none."""
    hint = error.hint or "Nothing starts with it: correct it first."
    return CheckResult(
        "configuration", "invalid", (CheckProblem("error", "configuration", "configuration", error.message, hint),)
    )


def amount(size: int) -> str:
    """Returns a size in bytes as text: 1.5 MB."""
    if size < MEGABYTE:
        return f"{size / 1000:.0f} kB"
    return f"{size / MEGABYTE:.1f} MB" if size < 1000 * MEGABYTE else f"{size / MEGABYTE / 1000:.1f} GB"
