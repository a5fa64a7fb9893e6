"""The rooms of ARCHITECTURE.md: who may import whom, how long a file may be, what a room must say of itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import horae
from horae.store import port
from horae.store.protocols import store
from horae.testing import model_store as former_model
from horae.testing import store_contract as former_contract
from horae_store_tests.contract.store_contract import StoreContract
from horae_store_tests.model.store import ModelStore

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "horae"
LONGEST_FILE = 600

EVERYWHERE = {"errors", "version"}
MAY_IMPORT = {
    "errors": set(),
    "version": set(),
    "core": set(),
    "events": {"core"},
    "metrics": {"core", "events"},
    "logs": {"core", "events"},
    "config": {"core"},
    "formats": {"core"},
    "store": {"core"},
    "cluster": {"core"},
    "security": {"core", "store"},
    "external": {"core"},
    "executors": {"core", "store", "security"},
    "engine": {"core", "events", "store", "cluster", "security", "executors", "external"},
    "services": {"core", "formats", "store", "security"},
    "api": {"core", "formats", "store", "services"},
    "web": {"core", "events", "formats", "services", "api"},
    "app": {
        "core",
        "formats",
        "store",
        "cluster",
        "security",
        "executors",
        "external",
        "engine",
        "services",
        "events",
        "metrics",
        "logs",
        "config",
    },
    "declarative": {"core", "store", "engine", "events", "app"},
    "testing": {"core", "store", "executors", "engine", "services", "events", "app", "declarative"},
    "simulate": {"core", "formats", "store", "executors", "services", "events", "app", "config", "testing"},
    "demo": {"core", "store", "security", "executors", "app", "config", "testing"},
    "cli": {"formats", "services", "api", "app", "web", "config", "demo", "logs", "simulate"},
    "__init__": {"core", "app", "executors"},
    "__main__": {"cli"},
}
DOORS = {"protocols", "repeat"}
"""What of a store or a coordinator every room may import: its protocols, and the way to call a verb again."""
NAMES_CONCRETE = {"app", "demo", "testing", "store", "cluster"}
THIRD_PARTY = {
    "tzdata": {"core"},
    "apsw": {"store"},
    "psycopg": {"store"},
    "psycopg_pool": {"store"},
    "argon2": {"security"},
    "cryptography": {"security"},
    "h11": {"web"},
    "horae_store_tests": {"testing"},
    "jinja2": {"web"},
    "markupsafe": {"web"},
    "msgspec": {"api", "cli", "store", "web"},
    "starlette": {"web"},
    "uvicorn": {"web"},
}
"""Which rooms may import what is not ours and not the standard library's."""
MOST_FILES = 16
"""Modules of one folder, its docstring aside: a folder shows its plan as long as it can be read at a glance."""
LISTS = {"src/horae/cli/commands", "src/horae/web/pages"}
"""Folders with one file for each command or page."""

MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "bench").rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imported_modules(path: Path) -> list[tuple[str, int]]:
    """Absolute names of everything a file imports, late imports included, with the line of each."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide which room is entered"
            found.append((node.module or "", node.lineno))
    return found


def forbidden_import(room: str, module: str) -> str | None:
    """Why `room` may not import `module`, or None where it may."""
    top, _, rest = module.partition(".")
    if top == "horae":
        target, _, inside = rest.partition(".")
        allowed = MAY_IMPORT[room] | EVERYWHERE | {room}
        if (target or "__init__") not in allowed:
            return f"{room} may not import {target or '__init__'}"
        # Only the composition root and the testing kit may name a concrete store or coordinator.
        concrete = target in ("store", "cluster") and inside.partition(".")[0] not in DOORS
        return f"{room} may import the protocols of {target} only" if concrete and room not in NAMES_CONCRETE else None
    if top in sys.stdlib_module_names:
        return None
    return None if room in THIRD_PARTY.get(top, set()) else f"{room} may not import {top}"


def test_a_room_imports_only_what_it_may() -> None:
    strangers = {room for path in MODULES if (room := room_of(path)) not in MAY_IMPORT}
    assert not strangers, f"{strangers} are no rooms of ARCHITECTURE.md"
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {reason} ({module})"
        for path in MODULES
        for module, line in imported_modules(path)
        if (reason := forbidden_import(room_of(path), module)) is not None
    ]
    assert not faults, "\n".join(faults)


def test_the_import_rule_itself_refuses_what_it_should() -> None:
    assert forbidden_import("core", "horae.services.preview.preview") == "core may not import services"
    assert forbidden_import("cli", "horae.core.schedule.cron") == "cli may not import core"
    assert forbidden_import("engine", "horae.services") == "engine may not import services"
    assert forbidden_import("services", "horae.engine.planner") == "services may not import engine"
    assert forbidden_import("cli", "tzdata") == "cli may not import tzdata"
    assert (
        forbidden_import("engine", "horae.store.sqlite.connection") == "engine may import the protocols of store only"
    )
    assert forbidden_import("services", "horae.store.protocols.store") is None
    assert forbidden_import("app", "horae.store.postgres") is None
    assert forbidden_import("services", "horae.core.schedule.cron") is None


def test_no_file_is_longer_than_600_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (*MODULES, *TESTS)}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_module_says_its_role_in_a_sentence() -> None:
    roles = {str(path.relative_to(ROOT)): ast.get_docstring(ast.parse(path.read_text())) or "" for path in MODULES}
    silent = [name for name, role in roles.items() if not role.partition("\n")[0].endswith((".", ":"))]
    assert silent == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = {"utils", "util", "common", "helper", "helpers", "manager", "base", "misc"}
    assert not [path for path in MODULES if path.stem in empty or empty & set(path.relative_to(SOURCE).parts)]


def test_the_public_names_are_these_and_no_others() -> None:
    assert horae.__all__ == [
        "CORE_VERSION",
        "Bounded",
        "Cancelled",
        "Constraints",
        "Cron",
        "Decision",
        "DecisionRequest",
        "Distribution",
        "Every",
        "Horae",
        "HoraeError",
        "Iso8601",
        "Once",
        "Queue",
        "Retry",
        "Run",
        "Schedule",
        "Window",
        "__version__",
        "decide",
    ]
    assert len(horae.__all__) <= 25
    assert all(hasattr(horae, name) for name in horae.__all__)


def test_the_architecture_page_names_every_room() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {room_of(path) for path in MODULES} - {"__init__", "__main__"}
    assert not [room for room in sorted(rooms) if f"`{room}" not in page]


def test_no_module_is_named_by_a_gerund() -> None:
    assert not [str(path.relative_to(ROOT)) for path in MODULES if path.stem.endswith("ing")]


def test_no_folder_is_crowded() -> None:
    folders = {path.parent for path in MODULES}
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder in folders
        if (count := len([each for each in folder.glob("*.py") if each.stem != "__init__"])) > MOST_FILES
    }
    assert {name: count for name, count in crowded.items() if name not in LISTS} == {}


def test_authors_of_stores_find_the_kit_in_its_former_place() -> None:
    assert former_contract.StoreContract is StoreContract
    assert former_model.ModelStore is ModelStore


@pytest.mark.parametrize("name", ["store_contract", "model_store"])
def test_without_the_kit_its_former_place_says_what_to_install(name: str) -> None:
    program = f"import sys; sys.modules['horae_store_tests'] = None; import horae.testing.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install horae-store-tests" in done.stderr.splitlines()[-1]


def test_authors_of_stores_find_the_protocol_under_its_former_name() -> None:
    assert port.Store is store.Store
    assert all(hasattr(port, name) for name in port.__all__)
    assert port.Dispatched is store.ClaimResult
