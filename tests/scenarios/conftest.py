"""`pytest tests/scenarios --rewrite` writes what the stories really say; read the difference before you keep it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the output of scenarios into their files")
