"""A program that ends by an error, without closing its store, on PostgreSQL: it ends, and says which."""

from __future__ import annotations

import subprocess
import sys

from tests.store.databases import Databases

PROGRAM = """
import asyncio, sys
from horae import Horae

async def main():
    app = Horae(sys.argv[1])
    await app.sql("SELECT nothing_of_the_kind")

asyncio.run(main())
"""


def test_a_program_whose_statement_fails_ends_with_that_error_though_it_closes_nothing(databases_18: Databases) -> None:
    url = databases_18.emptied()
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1
        assert "nothing_of_the_kind" in done.stderr
