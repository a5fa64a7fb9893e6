"""The place of a fault in a typed schedule, to be underlined."""

from __future__ import annotations

import re
from dataclasses import dataclass

from horae.core.schedule.cron import FIELDS
from horae.core.time.zone import zone_names
from horae.errors import HoraeError, InvalidCron, InvalidKrontab, InvalidTime, UnknownZone
from horae.web.pictures.letters import visible

_WORDS = re.compile(r"[^ \t]+")
_NAMES = tuple(shape.name for shape in FIELDS)
_QUOTED = re.compile(r'"([^"]+)"|(?:value|step) (\S+)')
_WIDEST = 160


@dataclass(frozen=True, slots=True)
class ScheduleFault:
    """A fault in the form's `field`. `wrong` is the faulty text, between `before` and `after`; all three are empty if
    its place is not known."""

    field: str
    message: str
    hint: str | None = None
    before: str = ""
    wrong: str = ""
    after: str = ""
    code: str = ""

    @property
    def has_place(self) -> bool:
        return bool(self.wrong)

    @property
    def column(self) -> int:
        """From 1."""
        return len(self.before) + 1


def fault_of(error: HoraeError, text: str) -> ScheduleFault:
    """Returns an error as a fault in the field of the explorer's form that it is about."""
    named = str(error.details.get("name", ""))
    if isinstance(error, UnknownZone):
        # A krontab line names its own zone.
        return _placed(error, "timezone" if "@tz" not in text else "text", text, None)
    if isinstance(error, InvalidTime):
        return _placed(error, "at" if named in ("at", "--at") else "text", text, None)
    for field in ("dialect", "gap", "fold"):
        if str(error.details.get("field", "")) == field or f"--{field}" in error.message:
            return _placed(error, field, text, None)
    if isinstance(error, InvalidKrontab):
        return _placed(error, "text", text, _krontab_place(error, text), error.reason)
    if isinstance(error, InvalidCron):
        reason = error.reason if error.field == "expression" else f"{error.field} field {error.reason}"
        return _placed(error, "text", text, _cron_place(error, text), reason)
    return _placed(error, "text", text, _quoted_place(error, text))


def _placed(error: HoraeError, field: str, text: str, place: tuple[int, int] | None, reason: str = "") -> ScheduleFault:
    message = (
        visible(reason or error.message).replace("--", "") if field != "text" else visible(reason or error.message)
    )
    message = message[:1].upper() + message[1:]
    if place is None or place[0] >= place[1]:
        return ScheduleFault(field, message, error.hint, code=error.code)
    begin, end = place
    line = text.rfind("\n", 0, begin) + 1
    stop = text.find("\n", begin)
    stop = len(text) if stop < 0 else stop
    first = max(line, begin - _WIDEST // 2)
    last = min(stop, max(end, begin + 1) + _WIDEST // 2)
    shown = (text[first:begin].replace("\t", " "), text[begin : min(end, stop)], text[min(end, stop) : last])
    before, wrong, after = (visible(each) for each in shown)
    before = f"…{before}" if first > line else before
    after = f"{after}…" if last < stop else after
    return ScheduleFault(field, message, error.hint, before, wrong, after, error.code)


def _cron_place(error: InvalidCron, text: str) -> tuple[int, int] | None:
    """Returns the span of the faulty field, or of the surplus words, or of a macro; None if there is none."""
    words = list(_WORDS.finditer(text))
    if error.field in _NAMES:
        index = _NAMES.index(error.field)
        return words[index].span() if index < len(words) else None
    if len(words) > len(_NAMES):
        return words[len(_NAMES)].start(), words[-1].end()
    return words[0].span() if len(words) == 1 and words[0][0].startswith("@") else None


def _krontab_place(error: InvalidKrontab, text: str) -> tuple[int, int] | None:
    """Returns the span from the column that the error names to the end of the word there."""
    lines = text.split("\n")
    if not 1 <= error.line <= len(lines):
        return None
    begin = sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1
    found = _WORDS.match(text, begin)
    if found is not None:
        return found.span()
    # Something is missing at the end, so the last word is underlined.
    words = list(_WORDS.finditer(text[:begin]))
    return words[-1].span() if words else None


def _quoted_place(error: HoraeError, text: str) -> tuple[int, int] | None:
    """Returns the span of what the message quotes, if the text has it. The last quotation is tried first, since it is
    the most specific."""
    for found in reversed(_QUOTED.findall(error.message)):
        quoted = next(part for part in found if part)
        begin = text.find(quoted)
        if begin >= 0:
            return begin, begin + len(quoted)
    return None


def offered_zones() -> tuple[str, ...]:
    """Returns the time zones to choose from: UTC and those named after places, without legacy names."""
    return ("UTC", *(name for name in zone_names() if "/" in name and not name.startswith(("Etc/", "US/", "posix/"))))
