"""The schedule explorer: shows the next starts, the year and the decision trace of a typed schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import PreviewSchedule
from horae.api.responses.catalog_responses import Preview
from horae.core.time.zone import zone
from horae.errors import InvalidInput, UnknownZone
from horae.services.preview.preview import read_schedule
from horae.web.forms import read_form_request
from horae.web.page_renderer import address, render
from horae.web.pictures.caret import fault_of, offered_zones
from horae.web.pictures.letters import visible
from horae.web.pictures.moments import moment
from horae.web.pictures.schedule_text import ways
from horae.web.pictures.trace import Trace, trace_of
from horae.web.pictures.yearmap import YearMap, year_map
from horae.web.site import Visit

LONGEST = 4_000
COUNT = 10
DIALECTS = (("", "extended"), ("posix", "posix"), ("vixie", "vixie"))
GAPS = (("", "skip"), ("shift", "shift"))
FOLDS = (("", "auto"), ("both", "both"), ("once", "once"))
FIRST = "0 9 * * mon-fri"
EXAMPLES = (
    ("Weekdays at nine", {"text": FIRST, "timezone": "Europe/Brussels"}),
    ("Every quarter of an hour", {"text": "*/15 * * * *"}),
    ("In the hour that is skipped", {"text": "30 2 * * *", "timezone": "America/New_York"}),
    ("The 13th, or a Friday", {"text": "0 0 13 * fri"}),
    ("Every 90 seconds", {"text": "every 90s"}),
    ("The last day of each month", {"text": "R/2026-01-31T18:00:00Z/P1M"}),
    (
        "Backups, spread over two hours",
        {"text": "0 1 * * * @tz(Europe/Paris) @win(after,2h) @dist(skewEarly) name=backup command=/usr/bin/backup"},
    ),
    (
        "Only on weekdays, by office hours",
        {
            "text": "0 */6 * * * @tz(Asia/Tokyo) @win(around,4h) @dist(normal) @only(between=08:00-18:00;dow=1-5)"
            " name=sync command=/usr/bin/sync"
        },
    ),
)


@dataclass(frozen=True, slots=True)
class PreviewStart:
    """One of the next starts. `wait` is the seconds since the start before."""

    number: int
    nominal: str
    chosen: str | None
    local: str
    """Such as `Mon 2026-03-30 09:00 +02:00`. The next fields are its parts, and its place on a day of 240 points."""
    nominal_local: str
    weekday: str
    date: str
    clock: str
    offset: str
    nominal_clock: str
    left: float | None
    nominal_left: float | None
    wait: float | None
    reason: str | None
    effects: tuple[str, ...]
    trace_url: str
    is_traced: bool


@dataclass(frozen=True, slots=True)
class Effect:
    at: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PreviewView:
    """A preview as the template shows it."""

    preview: Preview
    starts: tuple[PreviewStart, ...]
    effects: tuple[Effect, ...]
    year: YearMap | None
    years: tuple[tuple[str, str], ...]
    trace: Trace | None
    ways: tuple[tuple[str, str], ...] = ()
    """The schedule's other notations, such as SQL, each with its name; empty for a krontab."""


_EFFECTS = {
    "skipped": "is skipped: the clocks go forward over it",
    "shifted": "fires when the clocks have gone forward",
    "repeated": "fires both times: the clocks go back over it",
    "once": "fires the first time only, though the clocks show it twice",
}


def effect_text(effect: Mapping[str, Any]) -> str:
    count = int(effect.get("count", 1))
    more = f" (and {count - 1:,} more)" if count > 1 else ""
    return f"{effect['wall']}{more} {_EFFECTS.get(str(effect['kind']), str(effect['kind']))}"


def parts_of(local: str) -> tuple[str, str, str, str]:
    """Returns weekday, date, clock and offset of a local time."""
    weekday, date, clock, offset = local.split(" ")
    return weekday, date, clock, offset


def day_place(local: str) -> float:
    """Returns the left edge of a local time's mark on a line of 240 points for the day."""
    clock = parts_of(local)[2].split(":")
    seconds = sum(int(part) * size for part, size in zip(clock, (3_600, 60, 1), strict=False))
    return round(min(max(seconds / 360 - 1.5, 0.0), 237.0), 2)


def preview_view(preview: Preview, fields: Mapping[str, str]) -> PreviewView:
    """Prepares a preview for the template: the next starts with the effects of clock changes, the year, the trace."""
    effects = [Effect(each["at"], each["kind"], effect_text(each)) for each in preview.daylight_effects]
    pending = sorted(effects, key=lambda each: each.at)
    starts: list[PreviewStart] = []
    before: datetime | None = moment(preview.start)
    traced = preview.trace.get("nominal_time") if preview.trace else None
    for number, each in enumerate(preview.occurrences, start=1):
        at = moment(each["chosen"] or each["nominal"])
        assert at is not None
        touching = []
        while pending and pending[0].at <= each["nominal"]:
            touching.append(pending.pop(0).text)
        starts.append(
            PreviewStart(
                number,
                each["nominal"],
                each["chosen"],
                each["local"],
                each["nominal_local"],
                *parts_of(each["local"]),
                parts_of(each["nominal_local"])[2],
                None if each["chosen"] is None else day_place(each["local"]),
                day_place(each["nominal_local"]),
                None if before is None else (at - before).total_seconds(),
                each.get("reason"),
                tuple(touching),
                address("/explore", **_others(fields, at=each["nominal"])) + "#trace",
                is_traced=each["nominal"] == traced,
            )
        )
        before = at
    calendar = preview.calendar
    years: tuple[tuple[str, str], ...] = ()
    if calendar is not None:
        years = tuple(
            (str(year), address("/explore", **_others(fields, year=str(year))) + "#year")
            for year in range(max(2, calendar.year - 1), min(9998, calendar.year + 1) + 1)
        )
    return PreviewView(
        preview,
        tuple(starts),
        tuple(effects),
        None if calendar is None else year_map(calendar),
        years,
        None if preview.trace is None else trace_of(preview.trace),
        _ways(fields) if preview.kind == "schedule" else (),
    )


def _ways(fields: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    given = {name: fields[name] for name in ("dialect", "gap", "fold") if fields.get(name)}
    text = fields["text"].strip()
    return ways(read_schedule(text, tz=fields.get("timezone", "").strip() or "UTC", **given), text)


async def page(visit: Visit, request: Request) -> Response:
    given = request.query_params
    names = ("text", "timezone", "dialect", "gap", "fold", "year", "at")
    fields = {name: given.get(name, "").replace("\r\n", "\n")[:LONGEST] for name in names}
    is_first = "text" not in given
    if is_first:
        fields |= {"text": FIRST, "timezone": fields["timezone"] or "Europe/Brussels"}
    shown, fault = None, None
    if fields["text"].strip():
        try:
            shown = preview_view(await _previewed(visit, fields), fields)
        except InvalidInput as error:
            fault = fault_of(error, fields["text"])
    return render(
        "explore.html",
        visit,
        request,
        fields={name: visible(value) if name != "text" else value for name, value in fields.items()},
        shown=shown,
        fault=fault,
        zones=offered_zones(),
        dialects=DIALECTS,
        gaps=GAPS,
        folds=FOLDS,
        examples=[(title, address("/explore", **values), values) for title, values in EXAMPLES],
        share=address("/explore", **fields),
    )


async def _previewed(visit: Visit, fields: Mapping[str, str]) -> Preview:
    """Requests the preview, with this year's calendar if no year was chosen, and the trace of the chosen slot, or, for
    a schedule with a window, of the next slot."""
    given = dict(fields)
    timezone = given["timezone"].strip() or "UTC"
    if lines_of(given["text"]) > 1:
        # Several lines are a krontab. Its starts are shown together, but a calendar and a trace are of one job.
        given |= {"year": "", "at": ""}
    elif not given["year"].strip():
        given["year"] = str(_year_at(await visit.desk.service.now(), timezone))
    found = await visit.desk.preview(read_form_request(PreviewSchedule, given, count=COUNT, timezone=timezone))
    if found.trace is not None or found.calendar is None or not found.windowed or not found.occurrences:
        return found
    given |= {"year": "", "at": found.occurrences[0]["nominal"]}
    traced = await visit.desk.preview(read_form_request(PreviewSchedule, given, count=1, timezone=timezone))
    return msgspec.structs.replace(found, trace=traced.trace)


def lines_of(text: str) -> int:
    """Returns the number of lines that are neither empty nor comments."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def _year_at(now: datetime, timezone: str) -> int:
    try:
        return zone(timezone).wall(now).year
    except UnknownZone:
        return now.year


def _others(fields: Mapping[str, str], **changed: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in ("at",)} | changed


PAGES = (("/explore", "explore", page),)
