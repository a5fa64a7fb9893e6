"""Real PostgreSQL servers for any test that asks: one of each version per worker, started by the first that does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("horae.testing")

from tests.store.databases import Databases  # noqa: E402 - asserts must be registered before the kit is imported
from tools.postgres import PostgresServer, running_postgres  # noqa: E402 - as above


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: nobody waits for one of them at the end."""
    items.sort(key=lambda item: "tests/torture/" not in item.nodeid)


@pytest.fixture(scope="session")
def postgres_18() -> Iterator[PostgresServer]:
    with running_postgres(18) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_16() -> Iterator[PostgresServer]:
    with running_postgres(16) as server:
        yield server


@pytest.fixture(scope="session")
def databases_18(postgres_18: PostgresServer) -> Databases:
    return Databases(postgres_18)


@pytest.fixture(scope="session")
def databases_16(postgres_16: PostgresServer) -> Databases:
    return Databases(postgres_16)
