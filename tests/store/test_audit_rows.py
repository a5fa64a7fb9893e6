"""What verbs write into the audit: in their own transaction, one digest for a whole settled batch."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from uuid import UUID

from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import AttemptState, JobState
from horae.store.protocols.store import AttemptEnd, Capacity, Settlement, Store
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")


def test_every_change_of_a_job_and_every_end_of_a_run_leaves_its_row(place: Place) -> None:
    async def body(store: Store) -> None:
        await store.join(NODE)
        await store.define([replace(minutely(name), owner="local") for name in "ab"], by="ann")
        await store.set_state("a", JobState.PAUSED, by="bob")
        await store.set_state("a", JobState.ENABLED, by="bob")
        clock.advance("1m")
        claims = (await store.create_due_runs(start=Capacity(str(NODE), 10))).claims
        ends = {"a": AttemptState.SUCCESS, "b": AttemptState.FAILED}
        await store.settle(
            NODE,
            [
                Settlement(each.run_id, each.run_no, each.fence, (AttemptEnd(0, 1, ends[each.job_name], error="no"),))
                for each in claims
            ],
        )
        await store.drop(["b"], by="ann")

    clock = ManualClock()
    asyncio.run(opened(place, clock, body))
    rows = place.sql("SELECT event, actor, outcome FROM sys.audit ORDER BY audit_no")
    assert [row[:2] for row in rows if row[0] not in ("JOB_FAILED", "JOB_EXECUTED")] == [
        ("JOB_CREATED", "ann"),
        ("JOB_CREATED", "ann"),
        ("JOB_MODIFIED", "bob"),
        ("JOB_MODIFIED", "bob"),
        ("RUNS_FORGOTTEN", "ann"),
        ("JOB_DELETED", "ann"),
    ]
    assert {row[0]: row[2] for row in rows if row[1] == str(NODE)} == {"JOB_FAILED": "FAILED", "JOB_EXECUTED": "OK"}


def test_the_digest_of_a_batch_is_over_what_its_rows_say(place: Place) -> None:
    async def body(store: Store) -> None:
        await store.join(NODE)
        await store.define([minutely(name) for name in "abc"])
        clock.advance("1m")
        claims = (await store.create_due_runs(start=Capacity(str(NODE), 10))).claims
        end = (AttemptEnd(0, 1, AttemptState.SUCCESS),)
        await store.settle(NODE, [Settlement(each.run_id, each.run_no, each.fence, end) for each in claims])

    clock = ManualClock()
    asyncio.run(opened(place, clock, body))
    ((details, digest),) = place.sql("SELECT details, digest FROM sys.audit WHERE event = 'JOB_EXECUTED'")
    rows = {
        row[0]: row
        for row in place.sql(
            "SELECT run_no, job_run_uuid, state, fence, completed_at FROM sys.job_runs ORDER BY run_no"
        )
    }
    lines = [" ".join(str(part) for part in rows[number]) for number in json.loads(details)]
    assert len(lines) == 3
    assert sha256("\n".join(lines).encode()).hexdigest() == digest
