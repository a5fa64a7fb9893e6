"""The host's clock and the name of the host's time zone."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from horae.core.time.zone import zone
from horae.core.time.zone_file import checked_rule
from horae.errors import UnknownZone

_LINK = Path("/etc/localtime")
_NAME = Path("/etc/timezone")


def host_clock() -> datetime:
    return datetime.now(UTC)


def host_zone(environment: dict[str, str] | None = None, link: Path = _LINK, name: Path = _NAME) -> str:
    """The name of the host's zone: from TZ, else from /etc/localtime's target, else from /etc/timezone, else UTC.

    A POSIX rule in TZ (`CET-1CEST,M3.5.0,M10.5.0/3`) is the name of its own zone. Raises UnknownZone if the host's zone
    has no name.
    """
    variables = os.environ if environment is None else environment
    told = variables.get("TZ")
    if told is not None:
        return _checked(told.removeprefix(":"), f"The host's TZ is {told!r}") if told.strip(": ") else "UTC"
    if link.exists():
        found = _in_folder(os.path.realpath(link))
        if found is not None:
            return _checked(found, f"{link} leads to {found}")
    if name.is_file():
        written = name.read_text(encoding="utf-8", errors="replace").strip()
        if written:
            return _checked(written, f"{name} says {written!r}")
    if link.exists() and not link.is_symlink() and _is_utc(link):
        return "UTC"
    if link.exists():
        raise UnknownZone("The host's time zone has no name", hint='Name it: Scheduler(…, tz="Europe/Brussels").')
    return "UTC"


def _in_folder(path: str) -> str | None:
    _, found, inside = path.partition("/zoneinfo/")
    return inside.removeprefix("posix/") if found else None


def _is_utc(file: Path) -> bool:
    """Whether a copied zone file is that of UTC: its footer has the rule of UTC."""
    data = file.read_bytes()
    return data.endswith((b"\nUTC0\n", b"\nGMT0\n", b"\n<UTC>0\n"))


def _checked(text: str, why: str) -> str:
    given = _in_folder(text) or text
    try:
        zone(given)
    except UnknownZone as error:
        rule = checked_rule(given)
        if rule is not None and rule.begin is None:
            return _fixed(-rule.standard)
        raise UnknownZone(
            f"{why}, which is no name of a time zone, and no rule that says when its clocks change",
            hint='Name it: Scheduler(…, tz="Europe/Brussels").',
        ) from error
    return given


def _fixed(west: int) -> str:
    """The name of a zone whose clocks never change, `west` seconds behind UTC, that means the same everywhere.

    What TZ calls it (`EST5`, `UTC+2`) looks like the name of a zone but is none.
    """
    hours, rest = divmod(abs(west), 3600)
    sign, letter = ("-", "+") if west > 0 else ("+", "-")
    clock = f"{hours:02d}{rest // 60:02d}" + (f"{rest % 60:02d}" if rest % 60 else "")
    written = f"{hours}:{rest // 60:02d}" + (f":{rest % 60:02d}" if rest % 60 else "")
    return f"<{sign}{clock}>{letter if letter == '-' else ''}{written}" if west else "UTC"
