"""What is around a catalog: its database and disk, clocks, zone data, keys and programs, and whether they are well."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from horae.control.service import Kept
from horae.core.environment import denial
from horae.core.external import ExternalPolicy, Sandbox
from horae.core.lifecycle import JobState
from horae.core.needs import EXTERNAL
from horae.core.protection import Exposed, Protection, in_words
from horae.core.zone import TZDATA_VERSION
from horae.errors import HoraeError
from horae.store.port import JobRecord

MEGABYTE = 1_000_000
LITTLE_SPACE = 500 * MEGABYTE
NO_SPACE = 50 * MEGABYTE
LONG_LOG = 1_000 * MEGABYTE
SKEW = 2.0
"""Seconds that two clocks may differ before anybody wonders."""
WIDE_SKEW = 60.0
UNSEALED = 10_000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the program that opened a catalog can say of its place. None: it cannot tell. Sizes are in bytes."""

    kind: str = ""
    """The database and its version: SQLite 3.50.4."""
    schema: int | None = None
    is_writable: bool | None = None
    size: int | None = None
    log_size: int | None = None
    """Of what is written and not yet in the file itself: SQLite's -wal."""
    free: int | None = None
    place: str = ""
    """The folder that `free` is about."""
    skew: float | None = None
    """Seconds that the store's clock is ahead of this machine's; None: it is this machine's."""
    external: ExternalPolicy | None = None
    """Which programs may be started here, and how."""
    sandbox: str | None = None
    """Why this machine cannot give programs the sandbox that the configuration asks for."""
    protections: tuple[Protection, ...] = ()
    """What keeps the node's own from the programs that it would start here."""
    exposed: tuple[Exposed, ...] = ()
    """The node's own files that everybody on the machine may read or write."""
    keys: frozenset[str] | None = None
    """Ids of the master keys that are here."""
    key_fault: str | None = None
    """Why they cannot be read."""
    defined: frozenset[str] | None = None
    """The jobs that the code and the files which were looked at define."""
    configuration: str | None = None
    """The file, if there is one."""
    unheeded: Mapping[str, str] = field(default_factory=dict)
    """Settings of ALTER SYSTEM that nodes do not go by, with the reason."""


class Fault(NamedTuple):
    """Something wrong, before the examination makes a finding of it."""

    level: str
    check: str
    subject: str
    message: str
    hint: str


class Checked(NamedTuple):
    """One thing that was looked at: what was seen there in a few words, and what is wrong with it."""

    name: str
    said: str
    faults: tuple[Fault, ...] = ()


async def look_around(store: Kept, around: Surroundings, jobs: list[JobRecord]) -> list[Checked]:
    """Everything that can be said of the place; what nobody can tell is left out."""
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
        found.append(Checked("configuration", around.configuration))
    if around.unheeded:
        found.append(_settings(around.unheeded))
    return found


def _settings(unheeded: Mapping[str, str]) -> Checked:
    hint = "Set another value, or take it back: ALTER SYSTEM SET {} = DEFAULT."
    faults = [
        Fault("warning", "settings", name, f"No node goes by it: {why}", hint.format(name))
        for name, why in sorted(unheeded.items())
    ]
    return Checked("settings", f"{len(faults)} that no node goes by", tuple(faults))


def _store(around: Surroundings) -> Checked:
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
            Fault(
                "error",
                "store",
                "store",
                "The catalog cannot be written: nothing runs",
                "Give the file to whoever runs the node, or name the primary server.",
            )
        )
    if (around.log_size or 0) > LONG_LOG:
        faults.append(
            Fault(
                "warning",
                "store",
                "store",
                f"The log beside the catalog has grown to {amount(around.log_size or 0)}",
                "A reader that never ends keeps it from being taken up: look for a process that has the file open.",
            )
        )
    if around.is_writable:
        words.append("writable")
    return Checked("store", ", ".join(words), tuple(faults))


def _clock(around: Surroundings) -> Checked:
    if around.skew is None:
        return Checked("clock", "this machine's own")
    apart = abs(around.skew)
    words = "ahead of" if around.skew > 0 else "behind"
    said = f"the database's, {apart:.1f} s {words} this machine's" if apart >= 0.1 else "as this machine's"
    if apart < SKEW:
        return Checked("clock", said)
    fault = Fault(
        "error" if apart >= WIDE_SKEW else "warning",
        "clock",
        "clock",
        f"The database's clock, which decides what is due, is {apart:.1f} s {words} this machine's",
        "Let both follow the same time servers (NTP).",
    )
    return Checked("clock", said, (fault,))


def _files(around: Surroundings) -> Checked:
    """Modes of the catalog's files, of keys, and of a configuration with addresses in it."""
    faults = tuple(
        Fault(
            "warning",
            "files",
            each.path,
            f"Everybody on this machine may {'write' if each.mode & 0o002 else 'read'} {each.what}: {each.path} "
            f"(mode {each.mode:04o})",
            f"Run: chmod o-rwx {shlex.quote(each.path)}",
        )
        for each in around.exposed
    )
    return Checked("files", "open to everybody on this machine" if faults else "closed to others", faults)


def _disk(around: Surroundings) -> Checked:
    free = around.free or 0
    said = f"{amount(free)} free in {around.place}"
    if free >= LITTLE_SPACE:
        return Checked("disk", said)
    level = "error" if free < NO_SPACE else "warning"
    hint = "Make room, or keep less history: ALTER SYSTEM SET scheduler.job_history_retention_days = …"
    return Checked("disk", said, (Fault(level, "disk", around.place, f"Only {amount(free)} are free", hint),))


async def _zone_data(store: Kept) -> Checked:
    """The latest decision in a window tells with which zone data its node works."""
    latest = await store.select(
        "SELECT tzdata_version, core_version FROM sys.run_windows ORDER BY run_no DESC LIMIT 1", most=1, own=True
    )
    said = f"tzdata {TZDATA_VERSION}"
    if not latest or latest[0][0] == TZDATA_VERSION:
        return Checked("zone data", said)
    hint = "Install the same tzdata on every node: previews made here may differ from what runs there."
    message = f"The latest decision was made with tzdata {latest[0][0]}, here is {TZDATA_VERSION}"
    return Checked("zone data", said, (Fault("warning", "zone data", "tzdata", message, hint),))


async def _secrets(store: Kept, around: Surroundings) -> Iterator[Checked]:
    if around.keys is None and around.key_fault is None:
        return iter(())
    secrets = await store.secrets()
    said = f"{len(secrets)} secrets, {len(around.keys or ())} master keys"
    if not secrets:
        return iter((Checked("secrets", said),))
    closed = [each.name for each in secrets if each.key_id not in (around.keys or ())]
    if not closed:
        return iter((Checked("secrets", said),))
    why = around.key_fault or f"{len(closed)} of {len(secrets)} secrets are under a master key that is not here"
    hint = "Name the key under [secrets] in the configuration of every node: key_file, and older_key_files."
    return iter((Checked("secrets", said, (Fault("error", "secrets", closed[0], why, hint),)),))


def _programs(jobs: list[JobRecord], around: Surroundings) -> Iterator[Checked]:
    policy = around.external
    if policy is None:
        return
    users = [job.name for job in jobs if EXTERNAL in job.definition.handlers and job.state is not JobState.DISABLED]
    if not policy.enabled:
        if not users:
            yield Checked("programs", "not allowed here, and no job needs them")
            return
        message = f"{len(users)} jobs start programs, and the configuration here allows none"
        hint = "Set enabled = true under [external] where the node runs, and list the commands."
        yield Checked("programs", "not allowed here", (Fault("warning", "programs", users[0], message, hint),))
        return
    faults = list(_denied(jobs, policy))
    said = f"allowed here: {in_words(policy, around.protections)}"
    faults += _open_files(policy, around.protections)
    if around.sandbox is not None:
        said = "allowed here, but without their sandbox"
        hint = "A node here would start no programs, and their runs would wait for `sandbox`."
        faults.insert(0, Fault("warning", "programs", users[0] if users else "programs", around.sandbox, hint))
    yield Checked("programs", said, tuple(faults))


def _open_files(policy: ExternalPolicy, protections: Sequence[Protection]) -> Iterator[Fault]:
    """What another user can read although it is there to be kept from him. Without any sandbox, somebody has said that
    programs may do what the node may."""
    for each in protections:
        if policy.sandbox is Sandbox.USER and each.by is None and each.path:
            message = f"Programs run as {policy.user}, who can read {each.what}: {each.path}"
            hint = f"Run: chmod o-r {shlex.quote(each.path)}, and chmod g-r where {policy.user} is in its group."
            yield Fault("warning", "programs", each.path, message, hint)


def _denied(jobs: list[JobRecord], policy: ExternalPolicy) -> Iterator[Fault]:
    """The first variable of each job that it may not set: its runs would be refused here."""
    for job in jobs:
        if job.state is JobState.DISABLED:
            continue
        tasks = [each.options for each in job.definition.spec.tasks if each.kind == "EXTERNAL"]
        given = [pair for options in tasks for pair in options.get("env", {}).items()]
        given += [(each["variable"], "") for options in tasks for each in options.get("secrets", ())]
        denials = (denial(name, value, policy.environment, policy.variables) for name, value in given)
        found = next((each for each in denials if each is not None), None)
        if found is not None:
            yield Fault("warning", "programs", job.name, found.message, found.hint)


async def _trail(store: Kept) -> Checked:
    unsealed = await store.audit(limit=UNSEALED, sealed=False)
    keyed = "" if await store.audit_key() is not None else "; seals are unkeyed: no node has had a master key"
    if not unsealed:
        return Checked("audit", f"all sealed{keyed}")
    said = f"{len(unsealed)}{' and more' if len(unsealed) == UNSEALED else ''} rows not sealed yet"
    oldest = (await store.now()).timestamp() - unsealed[0].at / 1000
    if oldest < timedelta(minutes=10).total_seconds():
        return Checked("audit", said)
    message = f"Rows of the audit trail have not been sealed for {oldest / 60:.0f} minutes"
    hint = (
        "A running node seals them: start one, or read in its log why it does not. Until then an edit of those rows "
        "would not show."
    )
    return Checked("audit", said, (Fault("warning", "audit", "audit trail", message, hint),))


async def _definitions(store: Kept, defined: frozenset[str]) -> Checked:
    """Jobs that came from code, and that the code which was looked at does not have any more."""
    rows = await store.select("SELECT job_name FROM sys.jobs WHERE registered IS NOT NULL ORDER BY job_name", own=True)
    gone = [name for (name,) in rows if name not in defined]
    faults = tuple(
        Fault(
            "warning",
            "definitions",
            name,
            "This job came from code, and none of the targets defines it any more",
            "Drop it: horae job drop, or horae apply --prune; or look at other targets too.",
        )
        for name in gone
    )
    return Checked("definitions", f"{len(defined)} jobs in the targets, {len(gone)} left over", faults)


def unreadable(error: HoraeError) -> Checked:
    """A configuration that cannot be used: everything else is looked at as if there were none."""
    hint = error.hint or "Nothing starts with it: correct it first."
    return Checked("configuration", "invalid", (Fault("error", "configuration", "configuration", error.message, hint),))


def amount(size: int) -> str:
    """Bytes as people say them: 1.5 MB."""
    if size < MEGABYTE:
        return f"{size / 1000:.0f} kB"
    return f"{size / MEGABYTE:.1f} MB" if size < 1000 * MEGABYTE else f"{size / MEGABYTE / 1000:.1f} GB"
