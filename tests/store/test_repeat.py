"""Repeating a verb: while the store says so, for as long as the caller has patience."""

from __future__ import annotations

import asyncio

import pytest

from horae.errors import JobNotFound, StoreConflict, StoreUnavailable
from horae.store.repeat import repeat_verb


def test_a_conflict_and_a_lost_connection_are_tried_again() -> None:
    errors = [StoreConflict("deadlock"), StoreUnavailable("gone", outcome_unknown=True)]

    async def verb() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert asyncio.run(repeat_verb(verb)) == "done"


def test_what_repeating_cannot_mend_is_raised_at_once() -> None:
    calls = []

    async def verb() -> None:
        calls.append(1)
        raise JobNotFound("no such job")

    with pytest.raises(JobNotFound):
        asyncio.run(repeat_verb(verb))
    assert len(calls) == 1


def test_patience_ends() -> None:
    async def verb() -> None:
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        asyncio.run(repeat_verb(verb, patience=0.05))
