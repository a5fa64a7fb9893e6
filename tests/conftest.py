"""Real PostgreSQL servers for any test that asks: one of each version per worker, started by the first that does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

pytest.register_assert_rewrite("horae_store_tests")
pytest_plugins = ["tests.conduct", "tests.leftovers", "tests.blank"]
# A property is never judged by the time an example takes: the machine may be busy.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
# Hypothesis also draws constants that it reads in the modules imported so far, so that a property would be tried with
# other examples as other tests ran before it in its process: `derandomize` must mean the same examples in any order.
setattr(providers, "_get_local_constants", lambda: providers._local_constants)  # noqa: B010 - it has no setting

from tests.store.databases import Databases  # noqa: E402 - asserts must be registered before the kit is imported
from tools.postgres import PostgresServer, running_postgres  # noqa: E402 - as above


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
