"""Sizes as people write them: bytes, `"64KiB"`, `"1.5 GB"`."""

from __future__ import annotations

import re

from horae.errors import InvalidConfiguration, shown

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    _UNITS[f"{_letter}b"] = 1000**_power
    _UNITS[f"{_letter}ib"] = _UNITS[_letter] = 1024**_power
_WRITTEN = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?\s*([a-z]{0,3})", re.IGNORECASE)
_MOST = 1 << 60


def parse_size(value: object, *, name: str = "size") -> int:
    """Parses a size in bytes, at least 1. A single letter means a power of 1024: 64K is 64KiB.

    Raises InvalidConfiguration.
    """
    if type(value) is int:
        size = value
    else:
        found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
        unit = None if found is None else _UNITS.get(found[3].lower())
        if found is None or unit is None:
            raise InvalidConfiguration(
                f"Invalid {name} {shown(value)}: is no size",
                hint='Write a size as a number of bytes, or as "64KiB", "10MB", "2GiB".',
            )
        size = int(found[1]) * unit + unit * int(found[2] or 0) // 10 ** len(found[2] or "")
    if not 1 <= size <= _MOST:
        raise InvalidConfiguration(f"Invalid {name} {shown(value)}: must be from 1 byte to {_MOST}")
    return size
