"""Shares: stores and checks the limits of owners, and claims runs by turns where several owners have due runs.

Where one owner has all the jobs and no limit is set, runs have no share, and claims go by age alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from horae.core.access import LOCAL_NAME, user_uuid
from horae.core.job import owner_limits
from horae.core.job.owner_limits import Claimant, OwnerLimits, OwnerUsage
from horae.errors import InvalidInput, OwnerLimitReached, shown
from horae.store.catalog.references import kept_name, principal_not_found
from horae.store.catalog.row_codec import optional_json
from horae.store.catalog.runs.capacity import AGAIN, Candidates, FreeCapacity
from horae.store.catalog.unit_of_work import CatalogRunRow, UnitOfWork
from horae.store.protocols.people import ShareRecord

LOCAL = str(user_uuid(LOCAL_NAME))
CONFIGURED = "00000000-0000-0000-0000-000000000000"
"""The key of the row with the limits of the nodes' configuration."""
MEASURED_EVERY = 60_000
"""Milliseconds between two measurements of how many bytes an owner stores."""


class Share(NamedTuple):
    """A row of `sys.shares`."""

    uuid: str
    name: str
    own: OwnerLimits
    is_shared: bool = False
    is_limited: bool = False
    served_at: int = 0
    use: OwnerUsage = OwnerUsage()
    measured_at: int | None = None


class Shares(NamedTuple):
    """Every row by owner, and the system's settings."""

    rows: Mapping[str, Share]
    system: Mapping[str, object]

    @property
    def have_several_owners(self) -> bool:
        """Whether several owners have jobs. An owner that has all jobs shares only where it has limits."""
        return LOCAL in self.rows and self.rows[LOCAL].is_shared

    def limits(self, uuid: str) -> OwnerLimits:
        if uuid == LOCAL:
            return OwnerLimits()
        configured = self.rows[CONFIGURED].own if CONFIGURED in self.rows else OwnerLimits()
        own = self.rows[uuid].own if uuid in self.rows else OwnerLimits()
        return owner_limits.effective(own, self.system, configured)


async def read(work: UnitOfWork) -> Shares:
    rows = {}
    for row in await work.transaction.rows("read_shares"):
        uuid, name, *limits = row[:6]
        is_shared, is_limited, served, window, starts, stored, measured = row[6:]
        use = OwnerUsage(0, window, starts, stored)
        rows[uuid] = Share(uuid, name, OwnerLimits(*limits), bool(is_shared), bool(is_limited), served, use, measured)
    system = {name: optional_json(value) for name, value in await work.transaction.rows("read_settings")}
    return Shares(rows, system)


async def _running(work: UnitOfWork) -> dict[str, int]:
    return {row[0]: row[1] for row in await work.transaction.rows("running_of_owners")}


# ---- claiming ------------------------------------------------------------------------------------------------------


class ShareClaimer:
    """Claims runs owner by owner, by the rule of `core.job.owner_limits.portions`; of one owner the oldest first."""

    def __init__(self, work: UnitOfWork, room: FreeCapacity, handlers: str | None, kept: int) -> None:
        self._work = work
        self._room = room
        self._handlers = handlers
        self._kept = kept
        self._claimants: dict[str, Claimant] = {}
        self._candidates: dict[str, Candidates] = {}
        self._uses: dict[str, OwnerUsage] = {}

    async def open(self) -> ShareClaimer:
        """Locks the owners with limits that may hold starts back, except those that another node serves just now."""
        work = self._work
        known = await read(work)
        if not known.have_several_owners:
            self._kept = 0
        due = [row[0] for row in await work.transaction.rows("shares_due")]
        running = await _running(work)
        counted = sorted(uuid for uuid in due if known.limits(uuid).hold_starts_back)
        locked = {row[0]: row[1:] for row in await work.transaction.rows("lock_shares", owners=counted)}
        if counted:
            # Read again: a node that served them before has committed by now.
            running = await _running(work)
        self._add(LOCAL, Candidates(work, self._room, self._handlers, "claimable_candidates_unshared"), known, running)
        for uuid in due:
            place = None
            if uuid in counted:
                if uuid not in locked:
                    self._room.wake(work.now + AGAIN)
                    continue
                window_at, starts = locked[uuid]
                use = known.rows[uuid].use._replace(
                    running=running.get(uuid, 0), window_ms=window_at, window_starts=starts
                )
                self._uses[uuid] = use
                place = owner_limits.room(known.limits(uuid), use, work.now)
                if place == 0 and not use.is_over(work.now):
                    self._room.wake(use.window_ms + owner_limits.MINUTE_MS)
            candidates = Candidates(work, self._room, self._handlers, "claimable_candidates_of", share=uuid)
            self._add(uuid, candidates, known, running, place)
        return self

    def _add(
        self, uuid: str, candidates: Candidates, known: Shares, running: Mapping[str, int], place: int | None = None
    ) -> None:
        served = known.rows[uuid].served_at if uuid in known.rows else 0
        self._claimants[uuid] = Claimant(uuid, running.get(uuid, 0), served, place)
        self._candidates[uuid] = candidates

    async def take(self, most: int) -> list[CatalogRunRow]:
        """Returns up to `most` runs that fit, in the order in which owners are served. Records who was served."""
        taken: list[CatalogRunRow] = []
        served: Counter[str] = Counter()
        while given := owner_limits.share_capacity(self._claimants.values(), most - len(taken), self._kept):
            uuid, wanted = next(iter(given.items()))
            runs = await self._candidates[uuid].take(wanted)
            for _ in runs:
                self._claimants[uuid].take()
            if len(runs) < wanted:
                del self._claimants[uuid]
            served[uuid] += len(runs)
            taken += runs
        self._work.held_back = len(taken) < most and any(each.room != 0 for each in self._claimants.values())
        self._serve(+served)
        return taken

    def _serve(self, served: Mapping[str, int]) -> None:
        now = self._work.now
        for uuid, count in sorted(served.items()):
            use = self._uses.get(uuid, OwnerUsage())
            starts = use.starts_at(now) + count
            self._work.write("serve_shares", (uuid, now, now if use.is_over(now) else use.window_ms, starts))


# ---- limits --------------------------------------------------------------------------------------------------------


async def set_limits(work: UnitOfWork, name: str, changes: Mapping[str, int | None], by: str) -> None:
    """Sets limits of a user's own. None removes one; UNLIMITED lifts the system's. Raises InvalidInput for `local`, and
    PrincipalNotFound."""
    if name == LOCAL_NAME:
        raise InvalidInput(f"The user {LOCAL_NAME} has no limits", hint="Whoever opens the store is the administrator.")
    name = await kept_name(work, name)
    uuid = str(user_uuid(name))
    if not await work.transaction.rows("lock_user", user=uuid):
        raise principal_not_found(name, "user")
    known = await read(work)
    own = known.rows[uuid].own if uuid in known.rows else OwnerLimits()
    await work.transaction.many("limit_shares", [(uuid, *own._replace(**changes))])
    work.audit("USER_MODIFIED", None, None, by, "OK", name=name, limits=dict(changes))
    await refresh(work)


async def check_jobs(work: UnitOfWork, wanted: Mapping[str, int]) -> None:
    """Raises OwnerLimitReached where an owner would have more jobs than it may, or stores too many bytes already.
    `wanted` says how many jobs are to be added, by owner."""
    owners = {name: str(user_uuid(name)) for name, count in wanted.items() if name != LOCAL_NAME and count}
    if not owners:
        return
    known = await read(work)
    counted = sorted(uuid for uuid in owners.values() if known.limits(uuid).max_jobs is not None)
    if counted:
        # Another transaction that adds jobs for them waits until these are committed and counted, or rolled back.
        await work.transaction.rows("lock_owners", owners=counted)
    for name, uuid in sorted(owners.items()):
        limits = known.limits(uuid)
        stored = known.rows[uuid].use.stored if uuid in known.rows else None
        if limits.max_jobs is not None:
            ((present,),) = await work.transaction.rows("count_jobs_of", user=uuid)
            if present + wanted[name] > limits.max_jobs:
                raise OwnerLimitReached(
                    f"User {shown(name)} may have {limits.max_jobs} jobs (max_jobs), has {present}, and"
                    f" {wanted[name]} more {'is' if wanted[name] == 1 else 'are'} asked for",
                    hint=f"Drop jobs, or have an administrator say ALTER USER {name} SET MAX_JOBS = ….",
                )
        if limits.max_storage is not None and stored is not None and stored >= limits.max_storage:
            raise OwnerLimitReached(
                f"User {shown(name)} may keep {limits.max_storage} bytes of output and results (max_storage), and"
                f" keeps {stored}",
                hint=f"Drop jobs with their history, or have an administrator ALTER USER {name} SET MAX_STORAGE = ….",
            )


async def refresh_for_new_jobs(work: UnitOfWork) -> None:
    """As `refresh`, after jobs were added. While `local` owns all jobs, no owner shares and nothing else is read."""
    await work.flush()
    if await work.transaction.rows("owners_of_jobs"):
        await refresh(work)


async def refresh(work: UnitOfWork) -> None:
    """Works out which owners share: every owner where there are several, and any owner whose limits may hold starts
    back."""
    await work.flush()
    known = await read(work)
    owners = {row[0] for row in await work.transaction.rows("owners_of_jobs")}
    several = len(owners) > 1
    if len(owners) == 1:
        several = bool(await work.transaction.rows("local_has_jobs"))
    changed, began = [], []
    for uuid in sorted(({LOCAL} if several else set()) | owners | known.rows.keys() - {CONFIGURED}):
        before = known.rows.get(uuid, Share(uuid, "", OwnerLimits()))
        is_limited = uuid in owners and known.limits(uuid).hold_starts_back
        is_shared = is_limited or (several and (uuid in owners or uuid == LOCAL))
        if (is_shared, is_limited) != (before.is_shared, before.is_limited):
            changed.append((uuid, is_shared, is_limited))
            if is_shared and not before.is_shared and uuid != LOCAL:
                began.append(uuid)
    await work.transaction.many("upsert_shares", changed)
    if began:
        await work.transaction.rows("share_runs_of", jobs=[], owners=began)
    if changed:
        work.transaction.wake()


async def refresh_configured(work: UnitOfWork, configured: OwnerLimits) -> tuple[str, ...]:
    """Stores the limits that this node is configured with, and works out which owners share. Nodes call it regularly.

    Returns the owners whose stored bytes are to be measured, outside of this transaction because that may take long.
    """
    known = await read(work)
    before = known.rows[CONFIGURED].own if CONFIGURED in known.rows else OwnerLimits()
    if before != configured:
        await work.transaction.many("limit_shares", [(CONFIGURED, *configured)])
        known = await read(work)
    await refresh(work)
    return tuple(
        uuid
        for uuid, share in known.rows.items()
        if uuid not in (CONFIGURED, LOCAL)
        and known.limits(uuid).max_storage is not None
        and (share.measured_at is None or not 0 <= work.now - share.measured_at < MEASURED_EVERY)
    )


async def measure(work: UnitOfWork, owners: Iterable[str]) -> dict[str, int]:
    """Returns how many bytes are stored of the runs of each owner."""
    return {uuid: int((await work.transaction.rows("stored_by", user=uuid))[0][0]) for uuid in owners}


async def store_measurements(work: UnitOfWork, stored: Mapping[str, int]) -> None:
    await work.transaction.many("measure_shares", [(uuid, size, work.now) for uuid, size in stored.items()])


async def share_records(work: UnitOfWork) -> tuple[ShareRecord, ...]:
    """Returns the limits and the present use of every owner that shares or has limits."""
    known = await read(work)
    if not known.rows:
        return ()
    running = await _running(work)
    return tuple(
        ShareRecord(
            share.name,
            known.limits(uuid),
            share.use._replace(running=running.get(uuid, 0)),
            known.have_several_owners,
        )
        for uuid, share in known.rows.items()
        if uuid != CONFIGURED and share.name
    )


__all__ = [
    "Share",
    "ShareClaimer",
    "check_jobs",
    "measure",
    "read",
    "refresh",
    "refresh_configured",
    "refresh_for_new_jobs",
    "set_limits",
    "share_records",
    "store_measurements",
]
