"""Definitions that somebody wrote into the tables by hand, on real stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.security.test_on_stores import lived, on, verified
from tests.store.catalogs import Place, minutely

from horae.security.audit.findings import FindingKind
from horae.store.catalog.catalog import Catalog
from horae.store.catalog.unit_of_work import UnitOfWork

BY_HAND = {
    "what it does": "UPDATE sys.job_versions SET definition = replace(definition, 'description', 'reason') "
    "WHERE version = 2",
    "its defaults": "UPDATE sys.job_versions SET defaults = '{}' WHERE version = 2",
    "whose it is": "UPDATE sys.job_versions SET author = 'mallory' WHERE version = 2",
}
ANOTHER = (
    (
        "INSERT INTO sys.job_versions (job_uuid, version, definition, defaults, source, author, reason, created_at) "
        "SELECT job_uuid, 3, definition, defaults, source, author, reason, created_at FROM sys.job_versions "
        "WHERE version = 2"
    ),
    "UPDATE sys.jobs SET version = 3 WHERE version = 2",
)


async def changed(store: Catalog) -> None:
    await store.define([minutely(name) for name in "ab"])
    await store.define([replace(minutely("a"), description="another")])
    await store.seal()


@pytest.mark.parametrize("what", BY_HAND)
def test_a_version_that_was_changed_by_hand_is_found(place: Place, what: str) -> None:
    on(place, changed)
    assert verified(place).ok
    place.sql(BY_HAND[what])
    (found,) = verified(place).findings
    assert found.kind is FindingKind.DEFINITIONS_CHANGED
    assert found.message.startswith("version 2 of job a is not what was written")


def test_a_version_that_was_put_in_by_hand_is_found(place: Place) -> None:
    on(place, changed)
    for statement in ANOTHER:
        place.sql(statement)
    (found,) = verified(place).findings
    assert found.kind is FindingKind.DEFINITIONS_CHANGED
    assert found.message.startswith("no row tells of version 3")


def test_a_version_that_the_release_before_wrote_beside_this_one_is_no_finding(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_digest(
        work: UnitOfWork, event: str, job: str, actor: str, details: dict[str, Any], digest: str
    ) -> None:
        work.audit(event, job, None, actor, "OK", **details)

    async def by_the_release_before(store: Catalog) -> None:
        await store.define([replace(minutely("b"), description="another")])
        await store.seal()

    on(place, changed)
    with monkeypatch.context() as before:
        before.setattr(UnitOfWork, "audit_version", without_digest)
        on(place, by_the_release_before)
    assert verified(place).ok
    # A version after it that no row tells of is found as ever: a third of both jobs.
    for statement in ANOTHER:
        place.sql(statement)
    found = verified(place).findings
    assert {each.kind for each in found} == {FindingKind.DEFINITIONS_CHANGED}
    assert len(found) == 2


def test_jobs_that_change_go_and_come_back_as_people_have_it_are_no_finding(place: Place) -> None:
    lived(place)

    async def body(store: Catalog) -> None:
        await changed(store)
        await store.set_owner("a", "local", by="eve")
        await store.drop(["a"], keep_history=False, by="eve")
        await store.define([minutely("a")])
        await store.drop(["b"], keep_history=True, by="eve")
        await store.define([minutely("b")])

    on(place, body)
    assert verified(place).ok
