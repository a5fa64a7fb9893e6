"""What the tests of statements share: an app on a real catalog, and everything in it read behind its back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from tests.store.catalogs import PATIENCE, Place

from horae import Horae
from horae.config import Configuration, KeySources
from horae.errors import AccessDenied, HoraeError
from horae.services.sql.session import Result

_UNCOMPARED = ("audit", "audit_seals")
_TABLES = {
    "sqlite": "SELECT name FROM sys.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
    "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'sys' ORDER BY tablename",
}
_ROLES = "SELECT rolname, memberof.roleid FROM pg_roles LEFT JOIN pg_auth_members AS memberof ON member = pg_roles.oid"


class Behind:
    """Another client's view of a catalog, over one connection that stays."""

    def __init__(self, place: Place) -> None:
        self.kind = place.kind
        self._session: psycopg.Connection[Any] | None = None
        self._file: apsw.Connection | None = None
        if place.kind == "sqlite":
            self._file = apsw.Connection(":memory:")
            self._file.set_busy_timeout(int(PATIENCE * 1000))
            self._file.execute("ATTACH ? AS sys", (place.target,))
        else:
            self._session = psycopg.connect(place.target, autocommit=True)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        if self._file is not None:
            return self._file.execute(text).fetchall()
        assert self._session is not None
        return self._session.execute(text.encode()).fetchall()

    def everything(self) -> dict[str, list[str]]:
        """Every row of every table but the trail, and on PostgreSQL the server's roles, in one question: as text, with
        binary values in hexadecimal."""
        names = [name for (name,) in self.rows(_TABLES[self.kind]) if name not in _UNCOMPARED]
        if self.kind == "sqlite":
            return {name: list(map(repr, self.rows(f"SELECT * FROM sys.{name}"))) for name in names}
        found: dict[str, list[str]] = {}
        parts = [f"SELECT '{name}', each::text FROM sys.{name} AS each" for name in names]
        for name, row in self.rows(
            " UNION ALL ".join([*parts, f"SELECT 'pg_roles', each::text FROM ({_ROLES}) AS each"])
        ):
            found.setdefault(name, []).append(row)
        return {name: sorted(rows) for name, rows in found.items()}

    def audit(self, after: int = 0) -> list[dict[str, Any]]:
        """Rows of the trail after a number, in order: event, actor, outcome, and what `details` say."""
        rows = self.rows(
            f"SELECT audit_no, event, actor, outcome, details FROM sys.audit WHERE audit_no > {after} ORDER BY audit_no"
        )
        return [
            {**_details(details), "number": number, "event": event, "actor": actor, "outcome": outcome}
            for number, event, actor, outcome, details in rows
        ]

    def last_audit(self) -> int:
        return int(self.rows("SELECT coalesce(max(audit_no), 0) FROM sys.audit")[0][0])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._session is not None:
            self._session.close()


def _details(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    found: dict[str, Any] = json.loads(value) if isinstance(value, str | bytes) else dict(value)
    return found


class Stage:
    """An app that is not started: statements are carried out, and nothing runs."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        key = folder / "master.key"
        key.write_text("bWFzdGVyIGtleSBvZiB0aGUgdGVzdHMgMDEyMzQ1Njc=\n")
        key.chmod(0o600)
        self.app = Horae(place.url, settings={"configuration": Configuration(secrets=KeySources(key_file=str(key)))})
        # The first SELECT on PostgreSQL makes the role that it runs as: whoever compares roles must not see that.
        self.sql("SELECT 1")
        self.behind = Behind(place)

    def sql(self, text: str, user: str | None = None) -> Result:
        result: Result = self.app.sync.sql(text, user)
        return result

    def noted(self, text: str, user: str | None = None) -> list[dict[str, Any]]:
        """What a statement leaves in the trail."""
        before = self.behind.last_audit()
        self.sql(text, user)
        return self.behind.audit(before)

    def refused(self, text: str, user: str, kind: type[HoraeError] = AccessDenied) -> HoraeError:
        """Whoever says this is refused, which the trail tells, and which changes nothing else."""
        before, last = self.behind.everything(), self.behind.last_audit()
        with pytest.raises(kind) as told:
            self.sql(text, user)
        assert type(told.value) is kind
        assert self.behind.everything() == before
        if issubclass(kind, AccessDenied):
            (row,) = self.behind.audit(last)
            assert (row["event"], row["actor"], row["outcome"]) == ("ACCESS_DENIED", user, "REFUSED")
            assert row["action"]
        else:
            assert self.behind.audit(last) == []
        return told.value

    def fails(self, text: str, kind: type[HoraeError], user: str | None = None) -> HoraeError:
        """A statement that cannot be carried out changes nothing, and leaves nothing in the trail either."""
        before, last = self.behind.everything(), self.behind.last_audit()
        with pytest.raises(kind) as told:
            self.sql(text, user)
        assert type(told.value) is kind
        assert self.behind.everything() == before
        assert self.behind.audit(last) == []
        return told.value

    def close(self) -> None:
        self.behind.close()
        self.app.sync.close()


@contextmanager
def staged(place: Place, folder: Path) -> Iterator[Stage]:
    stage = Stage(place, folder)
    try:
        yield stage
    finally:
        stage.close()
