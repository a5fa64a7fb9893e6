"""Time-zone data from a path: a folder of compiled zones, or a wheel of the tzdata package.

Zones are read on demand, into objects of their own. The zones that this process uses do not change.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from horae.core.time import zone_file
from horae.core.time.zone import LARGEST_OFFSET_GAP, Zone, rule_zone
from horae.errors import InvalidFile, NotFound, UnknownZone, shown

_LARGEST_ZONE = 1 << 20
_BELOW = ("", "zoneinfo", "tzdata/zoneinfo")
"""Places of zones below a folder: of a system, inside the package, beside the package."""
_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_VERSION = re.compile(
    r"""IANA_VERSION\s*=\s*["']([0-9]{4}[a-z]+)["']|^# version ([0-9]{4}[a-z]+)|^([0-9]{4}[a-z]+)$""", re.M
)
_PROOF = "Europe/London"
"""A zone that all data have."""


class ZoneFiles:
    """The zones of other data. `version` is empty where the data do not name it."""

    def __init__(self, name: str, read: Callable[[str], bytes | None]) -> None:
        self.name = name
        self._read = read
        self._found: dict[str, Zone] = {}
        self.version = self._version()

    def find(self, zone: str) -> Zone:
        """Returns a zone; a POSIX rule needs no data. Raises UnknownZone where the data have no such zone, and
        InvalidFile where they have something else in its place."""
        found = self._found.get(zone) or rule_zone(zone)
        if found is None:
            data = self._read(zone) if _NAME.fullmatch(zone) else None
            if data is None:
                raise UnknownZone(
                    f"The time zone {shown(zone)} is not in {shown(self.name)}",
                    hint="Jobs that go by it could not be read with these data.",
                    details={"name": zone},
                )
            found = self._found[zone] = Zone(zone, self._parsed(zone, data))
        return found

    def _parsed(self, zone: str, data: bytes) -> zone_file.ZoneData:
        reason = "is no compiled zone (TZif, version 2 or later)"
        if data[:4] == b"TZif" and data[4:5] >= b"2":
            try:
                parsed = zone_file.parse(data)
            except (struct.error, ValueError, IndexError) as error:
                reason = f"cannot be read as a zone: {error}"
            else:
                if _is_sound(parsed):
                    return parsed
                reason = "has changes that are not in order, or offsets of more than a day"
        raise InvalidFile(f"{shown(zone)} in {shown(self.name)} {reason}")

    def _version(self) -> str:
        for place in ("../__init__.py", "tzdata.zi", "+VERSION"):
            text = (self._read(place) or b"")[:4096].decode("utf-8", "replace")
            found = _VERSION.search(text)
            if found is not None:
                return str(next(filter(None, found.groups())))
        return ""


def _is_sound(data: zone_file.ZoneData) -> bool:
    in_order = all(first < second for first, second in zip(data.starts, data.starts[1:], strict=False))
    return in_order and max(data.offsets) - min(data.offsets) < LARGEST_OFFSET_GAP


def open_zone_files(name: str) -> ZoneFiles:
    """Opens the data at a path. Raises NotFound, InvalidFile."""
    path = Path(name)
    try:
        if path.is_dir():
            return ZoneFiles(name, _folder(path))
        if path.is_file():
            return ZoneFiles(name, _wheel(path))
    except (OSError, ValueError) as error:
        raise InvalidFile(f"Cannot read {shown(name)}: {error}") from error
    raise NotFound(f"There is no folder and no file {shown(name)}", hint="Name a folder of zones, or a tzdata-*.whl.")


def _folder(path: Path) -> Callable[[str], bytes | None]:
    root = next((path / below for below in _BELOW if (path / below / _PROOF).is_file()), None)
    if root is None:
        raise InvalidFile(
            f"There are no compiled zones in {shown(str(path))}: no {_PROOF}",
            hint="Name a folder such as /usr/share/zoneinfo, or where a tzdata package was unpacked.",
        )

    def read(zone: str) -> bytes | None:
        found = root / zone
        if not found.is_file():
            return None
        with found.open("rb") as opened:
            return opened.read(_LARGEST_ZONE)

    return read


def _wheel(path: Path) -> Callable[[str], bytes | None]:
    try:
        with ZipFile(path) as archive:
            names = {info.filename: info.file_size for info in archive.infolist()}
            root = next((below for below in ("tzdata/zoneinfo", "zoneinfo") if f"{below}/{_PROOF}" in names), None)
            if root is None:
                raise InvalidFile(f"{shown(str(path))} is no wheel of tzdata: it has no zone {_PROOF}")
            # All of it at once: it is small, and the archive need not stay open.
            content = {
                name: archive.read(name)
                for name, size in names.items()
                if size <= _LARGEST_ZONE and (name.startswith(f"{root}/") or name.endswith("tzdata/__init__.py"))
            }
    except BadZipFile:
        raise InvalidFile(
            f"{shown(str(path))} is no wheel", hint="Name a tzdata-*.whl, or a folder of compiled zones."
        ) from None

    def read(zone: str) -> bytes | None:
        if zone == "../__init__.py":
            return content.get(f"{root.removesuffix('zoneinfo')}__init__.py")
        return content.get(f"{root}/{zone}")

    return read
