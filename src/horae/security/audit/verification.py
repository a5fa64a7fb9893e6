"""Verification of the whole audit trail: every seal, every row, and every run that a row says was executed.

Rows are read in pages, in the sealed order, and dropped after the seal that covers them. So a trail of any length is
verified in little memory, while nodes go on writing.

Two attacks are found only with a digest that is kept elsewhere (`head`): the whole trail was restored to an earlier
state, with the record of how far it was sealed; or, where there is no audit key, it was rewritten. Changes of rows that
are not sealed yet are not found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from horae.core.audit import BEGINNING, SealedExtent, is_keyed, sealed_extent_fault
from horae.errors import InvalidInput, shown
from horae.security.audit.displaced_rows import DisplacementMatcher, gaps, own_digest
from horae.security.audit.findings import (
    AuditFinding,
    FindingCollector,
    FindingKind,
    NumberRanges,
    list_text,
    places_text,
    row_text,
)
from horae.security.audit.rights import RightsVerifier
from horae.security.audit.runs import RunVerifier
from horae.security.audit.seals import MOST_UNDER_ONE, ChainPosition, judge
from horae.security.audit.truncation import TruncationVerifier
from horae.security.audit.versions import VersionVerifier
from horae.store.protocols.people import PeopleStore, SealRow, TrailEnds, TrailRow

PAGE = 1000

_ROWS_LOST = {FindingKind.ROWS_CHANGED, FindingKind.ROWS_GONE}
_FAR = 1 << 62
"""Beyond every place."""

__all__ = ["AuditFinding", "FindingKind", "TrailVerification", "verify"]


@dataclass(frozen=True, slots=True)
class TrailVerification:
    """What was verified and what was found. `head` is the last seal's digest: keep it elsewhere, and pass it to the
    next verification. `count` is the number of findings; `findings` holds the first of them, up to a limit."""

    rows: int
    seals: int
    unsealed: int
    head: str
    keyed: int = 0
    """The number of seals that have a code under the audit key."""
    is_checked: bool = False
    """Whether those codes were checked, which needs the master key."""
    findings: tuple[AuditFinding, ...] = ()
    count: int = 0

    @property
    def ok(self) -> bool:
        return self.count == 0


async def verify(
    vault: PeopleStore,
    *,
    head: str | None = None,
    heads: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
    key: bytes | None = None,
    ends: TrailEnds | None = None,
) -> TrailVerification:
    """Verifies the whole trail.

    `head` is a digest from an earlier verification, which some seal must still have; `heads` are more of them, the
    newest last. `progress` is called with the number of rows read so far. `key` is the audit key; without it codes are
    not checked. `ends` is `PeopleStore.trail_ends` from before the caller wrote to the trail. Raises InvalidInput for a
    head that is no digest.
    """
    wanted = [_checked_head(each) for each in (*heads, *([] if head is None else [head]))]
    record = await vault.audit_key()
    made = None if record is None else record.updated_at
    return await _Verifier(vault, wanted, progress, key, ends or await vault.trail_ends(), made).run()


def _checked_head(head: str) -> str:
    found = head.strip().lower()
    if len(found) != len(BEGINNING) or found.strip("0123456789abcdef"):
        raise InvalidInput(
            f"Invalid head {shown(found)}: must be a digest of {len(BEGINNING)} hex digits",
            hint="Give the one that `horae audit verify` told.",
        )
    return found


class _Rows:
    """Reads the sealed rows in order, page by page."""

    def __init__(self, vault: PeopleStore) -> None:
        self._vault = vault
        self._held: list[TrailRow] = []
        self._read_to = -_FAR
        self._seen: set[int] = set()

    async def upto(self, place: int, most: int = MOST_UNDER_ONE) -> list[TrailRow]:
        """Takes the next rows, up to that place and at most `most` of them."""
        more = True
        while more and len(self._held) < most and (not self._held or _place(self._held[-1]) <= place):
            more = await self._read()
        end = 0
        while end < min(len(self._held), most) and _place(self._held[end]) <= place:
            end += 1
        taken, self._held = self._held[:end], self._held[end:]
        return taken

    def give_back(self, rows: Sequence[TrailRow]) -> None:
        self._held = [*rows, *self._held]

    async def any_left(self) -> bool:
        if not self._held:
            await self._read()
        return bool(self._held)

    async def _read(self) -> bool:
        """Reads a page; returns whether there may be more. It begins at the last place read, not after it, to find a
        second row in that place on the next page."""
        page = await self._vault.audit(after=self._read_to - 1, limit=PAGE)
        fresh = [row for row in page if row.number not in self._seen]
        if fresh:
            self._read_to = _place(fresh[-1])
            self._seen = {row.number for row in page if row.position == self._read_to}
            self._held += fresh
        elif len(page) == PAGE:
            # One place has more rows than a page. They are reported already; go on with the next place.
            self._read_to += 1
        return len(page) == PAGE


class _Seals:
    """Reads the seals by number. A seal that continues the chain is found even where its number was changed."""

    def __init__(self, vault: PeopleStore) -> None:
        self._vault = vault
        self._held: list[SealRow] = []
        self._read_to = -_FAR

    async def following(self, before: ChainPosition) -> SealRow | None:
        """Takes the next seal."""
        if len(self._held) < 2:
            await self._read()
        if not self._held:
            return None
        place = 0
        if not _goes_on(self._held[0], before):
            place = next((index for index, seal in enumerate(self._held) if _goes_on(seal, before)), 0)
        return self._held.pop(place)

    def peek(self, before: ChainPosition) -> SealRow | None:
        """The next seal without taking it: the one that continues the chain, or else the next by number. None where
        no seal is held."""
        return next((seal for seal in self._held if _goes_on(seal, before)), self._held[0] if self._held else None)

    async def _read(self) -> None:
        page = await self._vault.seals(after=self._read_to, limit=PAGE)
        if page:
            self._read_to = page[-1].number
            self._held += page


def _place(row: TrailRow) -> int:
    return row.position or 0


def _reach(seal: SealRow, before: ChainPosition, following: SealRow | None) -> int:
    """The last place that this seal might cover."""
    farthest = before.first + MOST_UNDER_ONE
    if following is None:
        return farthest
    return max((end for end in (seal.last, following.first - 1) if end <= farthest), default=farthest)


def _goes_on(seal: SealRow, before: ChainPosition) -> bool:
    return seal.previous == before.digest and seal.first == before.first


class _Verifier:
    def __init__(
        self,
        vault: PeopleStore,
        heads: Sequence[str],
        progress: Callable[[int], None] | None,
        key: bytes | None,
        ends: TrailEnds,
        key_made: datetime | None,
    ) -> None:
        self._vault = vault
        self._key = key
        self._keyed = 0
        self._keyed_last = 0
        """The number of the newest seal that has a code."""
        self._is_reached = False
        self._missing = set(heads) - {BEGINNING}
        """Heads that no seal so far has."""
        self._newest = heads[-1] if heads else None
        self._progress = progress
        self._findings = FindingCollector()
        self._displaced = DisplacementMatcher(self._findings)
        self._executed = RunVerifier(vault, self._findings, ends.at)
        self._key_made = key_made
        self._reach: SealedExtent | None
        self._cut = TruncationVerifier(ends, key_made)
        self._held: RightsVerifier
        self._defined = VersionVerifier(vault, self._findings)
        self._rows = _Rows(vault)
        self._seals = _Seals(vault)
        self._before = ChainPosition(1, 1, BEGINNING)
        self._moved: dict[int, int] = {}
        self._waiting: list[TrailRow] = []
        self._count = self._seal_count = 0

    async def run(self) -> TrailVerification:
        # Read before the seals: their number may only grow.
        self._reach = await self._vault.reach()
        # Read before any row: every later change of rights has a row that is still to be read.
        self._held = RightsVerifier(self._findings, (await self._vault.trail_ends()).number)
        rights = await self._vault.rights()
        while True:
            seal = await self._seals.following(self._before)
            if seal is not None:
                await self._seal(seal)
            elif not await self._rows.any_left():
                break
            else:
                # These rows have no seal, unless a node sealed them after the last read of the seals.
                seal = await self._seals.following(self._before)
                if seal is None:
                    await self._under_none(None, self._before.first, _FAR)
                    break
                await self._seal(seal)
        unsealed = await self._unsealed()
        await self._look()
        self._displaced.tell()
        await self._executed.finish(self._again)
        self._held.finish(rights)
        # Rows that were changed or deleted, and are reported already, may be the ones that named a job or a run.
        is_lost = bool(self._findings.kinds & _ROWS_LOST)
        await self._defined.finish(self._again, is_lost=is_lost)
        self._tell_moved()
        untold = NumberRanges() if is_lost else await self._executed.untold(self._again)
        self._findings.extend(self._cut.finish(untold))
        self._tell_reach(await self._vault.reach())
        if self._missing:
            newest = self._newest if self._newest in self._missing else min(self._missing)
            more = f", nor {len(self._missing) - 1} others that were kept" if len(self._missing) > 1 else ""
            self._findings.add(
                AuditFinding(
                    FindingKind.HEAD_GONE,
                    f"no seal has the digest {newest}{more}: seals at the end were taken away, or the trail was "
                    "written anew from some place on",
                )
            )
        return TrailVerification(
            self._count,
            self._seal_count,
            unsealed,
            self._before.digest,
            self._keyed,
            self._key is not None and self._keyed > 0,
            tuple(self._findings.kept),
            self._findings.count,
        )

    async def _seal(self, seal: SealRow) -> None:
        self._seal_count += 1
        before = self._before
        goes_on = _goes_on(seal, before)
        following = self._seals.peek(ChainPosition(seal.number + 1, seal.last + 1, seal.digest))
        far = seal.first - before.first > MOST_UNDER_ONE // 2 and seal.first <= seal.last
        if far and (following is None or following.first > seal.last):
            # There are too many rows in between to hold them together with the seal's own rows.
            await self._under_none(seal, before.first, seal.first - 1)
            before = ChainPosition(seal.number, seal.first, seal.previous)
        rows = await self._rows.upto(_reach(seal, before, following))
        judged = judge(seal, before, following, self._newest if self._newest in self._missing else None, rows)
        right = judged.seal
        self._rows.give_back([row for row in rows if _place(row) > right.last])
        rows = [row for row in rows if _place(row) <= right.last]
        self._strangers(seal, [row for row in rows if _place(row) < min(right.first, before.first)])
        follows = right.previous == before.digest
        if right.first > before.first:
            between = [row for row in rows if before.first <= _place(row) < right.first]
            follows = self._uncovered(seal, before, right.first - 1, between, follows=follows)
        elif seal.number > before.number and not goes_on:
            self._gone(seal, before)
        if right.first < before.first:
            twice = places_text(right.first, before.first - 1)
            self._add(FindingKind.SEALS_CHANGED, f"seal {seal.number} covers {twice}, as does the seal before it", seal)
        if not follows:
            earlier = f"seal {before.number - 1}" if before.number > 1 else "the beginning"
            self._add(FindingKind.CHAIN_BROKEN, f"seal {seal.number} does not follow {earlier}", seal)
        self._findings.extend(judged.findings)
        for row, otherwise in judged.edited:
            self._displaced.edited(row, otherwise)
        self._displaced.vacant(judged.vacant, seal.number)
        await self._take(rows)
        self._check_code(seal)
        self._missing.discard(right.digest)
        self._is_reached |= self._reach is not None and right.digest == self._reach.digest
        if goes_on and seal.number != before.number:
            self._moved[before.number] = seal.number
        number = before.number if goes_on else max(before.number, seal.number)
        self._before = ChainPosition(number + 1, max(right.last + 1, before.first), right.digest)

    def _check_code(self, seal: SealRow) -> None:
        """Checks the seal's code. Every seal after the first keyed one must have a code: from then on only nodes with
        the key seal."""
        if seal.mac is None and (self._keyed or self._cut.is_key_told):
            why = "others before it are keyed" if self._keyed else "the audit key was there when it was made"
            self._add(FindingKind.SEALS_FORGED, f"seal {seal.number} is unkeyed, and {why}", seal)
        elif seal.mac is not None:
            self._keyed += 1
            self._keyed_last = max(self._keyed_last, seal.number)
            if self._key is not None and not is_keyed(self._key, seal.digest, seal.mac):
                self._add(FindingKind.SEALS_FORGED, f"seal {seal.number} was not made with the audit key", seal)

    def _strangers(self, seal: SealRow | None, rows: Sequence[TrailRow]) -> None:
        for row in rows:
            message = f"{row_text(row)} was put in later: its place was another's, or none"
            under = None if seal is None else seal.number
            added = AuditFinding(FindingKind.ROWS_ADDED, message, row.position, row.position, row.number, under)
            self._displaced.edited(row, added)

    def _alone(self, rows: Sequence[TrailRow]) -> None:
        """Checks rows that no seal covers, by their own digests."""
        for row in rows:
            if row.seal is not None and own_digest(row) != row.seal:
                message = f"{row_text(row)} was changed after it was sealed"
                changed = AuditFinding(FindingKind.ROWS_CHANGED, message, row.position, row.position, row.number)
                self._displaced.edited(row, changed)

    def _gone(self, seal: SealRow, before: ChainPosition, more: str = "") -> None:
        told = places_text(before.number, seal.number - 1, "seal")
        verb = "is" if seal.number - 1 == before.number else "are"
        self._add(FindingKind.SEALS_GONE, f"{told} {verb} gone{more}", seal, before.first, seal.first - 1)

    def _uncovered(
        self, seal: SealRow, before: ChainPosition, last: int, rows: Sequence[TrailRow], *, follows: bool
    ) -> bool:
        """Checks the places between two seals that neither covers. Returns whether the seal continues the chain."""
        first = before.first
        if follows:
            # The chain is whole, so rows sealed there were under this seal until its range was made smaller.
            sealed = [row for row in rows if own_digest(row) == row.seal]
            self._strangers(seal, [row for row in rows if own_digest(row) != row.seal])
            if sealed:
                self._without_seal(_place(sealed[0]), _place(sealed[-1]))
            return True
        self._alone(rows)
        missing = list(gaps(first, last, rows))
        if not missing and seal.number - before.number <= 1:
            more = f", which was over {places_text(first, last)}; by their own digests they are as they were sealed"
            self._gone(SealRow(before.number + 1, last + 1, *seal[2:]), before, more)
            return True
        if seal.number > before.number:
            self._gone(seal, before)
        self._displaced.vacant(missing)
        if rows:
            self._without_seal(first, last)
        return False

    def _without_seal(self, first: int, last: int) -> None:
        verb = "is" if first == last else "are"
        message = f"{places_text(first, last)} {verb} under no seal: it was taken away, or they were put in"
        self._findings.add(AuditFinding(FindingKind.ROWS_WITHOUT_SEAL, message, first, last))

    async def _under_none(self, seal: SealRow | None, first: int, last: int) -> None:
        """Checks a large number of rows that no seal covers; without a `seal`, all rows that are left."""
        start, place = first, first - 1
        never = seal is not None and seal.previous == self._before.digest
        while found := await self._rows.upto(last):
            await self._take(found)
            strays = {row.number for row in found if never or _place(row) < first or self._displaced.stray(row)}
            self._strangers(seal, [row for row in found if row.number in strays])
            found = [row for row in found if row.number not in strays]
            self._alone(found)
            if found:
                place = _place(found[-1])
                self._displaced.vacant(gaps(start, place, found))
                start = max(start, place + 1)
        if seal is not None and not never:
            if seal.number > self._before.number:
                self._gone(seal, self._before)
            self._displaced.vacant(gaps(start, last, ()))
            place = last
        if place >= first:
            self._without_seal(first, place)

    async def _take(self, rows: Sequence[TrailRow]) -> None:
        self._count += len(rows)
        self._cut.look(rows)
        self._waiting += rows
        if len(self._waiting) >= PAGE:
            await self._look()

    async def _look(self) -> None:
        """Compares rows with runs, rights and versions, a page at a time, because a seal may cover only a few rows."""
        waiting, self._waiting = self._waiting, []
        # The content of an edited row proves nothing.
        intact = [row for row in waiting if row.seal is None or own_digest(row) == row.seal]
        self._held.look(intact)
        await self._defined.look(intact)
        await self._executed.look(waiting)
        if self._progress is not None:
            self._progress(self._count)

    async def _unsealed(self) -> int:
        count, after = 0, 0
        while page := await self._vault.audit(after=after, limit=PAGE, sealed=False):
            count += len(page)
            after = page[-1].number
            for row in page:
                if row.seal is not None:
                    message = f"{row_text(row)}, has the digest of a row that is: it was taken from its place"
                    self._displaced.edited(row, AuditFinding(FindingKind.ROWS_CHANGED, message, number=row.number))
            await self._take(page)
        return count

    async def _again(self) -> AsyncIterator[Sequence[TrailRow]]:
        for sealed in (True, False):
            after = 0
            while page := await self._vault.audit(after=after, limit=PAGE, sealed=sealed):
                after = (page[-1].position if sealed else page[-1].number) or 0
                yield page

    def _tell_reach(self, after: SealedExtent | None) -> None:
        """Checks the record of how far the trail was sealed. `after` is that record, read after the last seal."""
        reach = self._reach
        fault = sealed_extent_fault(reach, self._key, is_keyed=self._key_made is not None)
        if fault is not None:
            self._findings.add(AuditFinding(FindingKind.SEALS_FORGED, fault))
        if reach is not None and reach.seal and not self._is_reached:
            message = (
                f"the trail was sealed up to seal {reach.seal} over row {reach.place}, and no seal is what that one "
                "was: seals at the end were taken away, or the trail was written anew from some place on"
            )
            self._findings.add(AuditFinding(FindingKind.HEAD_GONE, message, reach.place, reach.place, seal=reach.seal))
        if after is not None and self._keyed_last > after.seal:
            message = f"seal {self._keyed_last} has a code, and the trail was sealed up to seal {after.seal} only"
            self._findings.add(AuditFinding(FindingKind.SEALS_FORGED, message, seal=self._keyed_last))

    def _tell_moved(self) -> None:
        if not self._moved:
            return
        seals = sorted(self._moved)
        if len(seals) == 1:
            message = f"seal {seals[0]} has the number {self._moved[seals[0]]} now"
            self._findings.add(AuditFinding(FindingKind.SEALS_MOVED, message, seal=seals[0]))
            return
        how = "changed places" if len(seals) == 2 else "are in another order than they were made in"
        self._findings.add(
            AuditFinding(FindingKind.SEALS_MOVED, f"seals {list_text(seals)} {how}", seal=seals[0]),
        )

    def _add(
        self, kind: FindingKind, message: str, seal: SealRow, first: int | None = None, last: int | None = None
    ) -> None:
        self._findings.add(AuditFinding(kind, message, first, last, seal=seal.number))
