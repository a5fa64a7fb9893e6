"""`horae plan --tzdata NEW`: shows the future runs that other time-zone data would move."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from horae.cli import files
from horae.cli.catalog_access import open_catalog
from horae.cli.screen.rows import counted, harmless, show_rows
from horae.cli.screen.time_text import Clock
from horae.cli.times import read_typed_time
from horae.services.preview.preview import read_time
from horae.services.preview.zone_files import ZoneFiles, open_zone_files
from horae.services.preview.zone_moves import (
    ExaminedJob,
    MovedJob,
    MovedTime,
    ZoneMove,
    ZoneReport,
    job_from_record,
    jobs_from_server,
    zone_report,
)

if TYPE_CHECKING:
    from datetime import datetime

    from horae.cli.screen.screen import Screen
    from horae.services.service import Service

_FEW = 10
"""How many moves of one job are shown; JSON has more."""
_WORDS = {"moved": "move", "appears": "appear", "vanishes": "vanish", "redrawn": "start otherwise"}
_SIGNS = {"moved": ("~", "yellow"), "appears": ("+", "green"), "vanishes": ("-", "red"), "redrawn": ("≈", "cyan")}


def run(arguments: Namespace, screen: Screen) -> int:
    report = _report(arguments, screen)
    _show(screen, report)
    return 2 if arguments.exit_code and report.has_changes else 0


def _report(arguments: Namespace, screen: Screen) -> ZoneReport:
    data = open_zone_files(arguments.tzdata)

    def told(done: int, of: int) -> None:
        screen.bar(done, of, "jobs")

    try:
        subjects, begin = _target_jobs(arguments, data) if arguments.targets else _catalog_jobs(arguments, screen)
        return zone_report(subjects, data, begin, arguments.horizon, progress=told)
    finally:
        screen.progress("")


_Asked = tuple[Sequence[ExaminedJob], "datetime"]
"""The jobs, and the start of the period."""


def _target_jobs(arguments: Namespace, data: ZoneFiles) -> _Asked:
    from horae.app.process.reread_files import subjects_at

    now = files.now()
    begin = now if arguments.start is None else read_time(arguments.start, "UTC", now, "--from")
    return subjects_at(arguments.targets, data.find), begin


def _catalog_jobs(arguments: Namespace, screen: Screen) -> _Asked:
    with open_catalog(arguments) as catalog:
        begin = read_typed_time(catalog, Clock("UTC"), arguments.start or "now", "--from")
        if catalog.is_local:
            return catalog.ask(_records), begin
        return list(jobs_from_server(catalog.call, lambda done, of: screen.bar(done, of, "jobs asked for"))), begin


async def _records(service: Service) -> list[ExaminedJob]:
    return [job_from_record(record) for record in await service.queries.jobs()]


# ---- text ------------------------------------------------------------------------------------------------------------


def _show(screen: Screen, report: ZoneReport) -> None:
    screen.data(report.to_dict())
    if screen.as_json:
        return
    after = report.version_after or "no version"
    screen.line(
        f"time zones {report.version_before} {'->' if screen.plain else '→'} {after} ({harmless(report.name)}), "
        f"{_time(report.begin)} to {_time(report.until)}"
    )
    screen.line()
    if report.zones:
        rows = [(each.zone, _time(each.since), each.jobs) for each in report.zones]
        show_rows(screen, ["zone", "differs from", "jobs"], rows)
        screen.line()
    for job in report.jobs:
        _show_job(screen, job)
    for name, reason in report.unknown:
        screen.line(f"{screen.style('?', 'yellow')} {screen.style(harmless(name), 'bold')}  {harmless(reason)}")
    cut = any(job.is_cut for job in report.jobs)
    if not report.has_changes:
        screen.line("no run moves" + (", of those that were looked at" if report.unknown or cut else ""))
    touched = sum(bool(job.moves or job.times) for job in report.jobs)
    screen.line(
        screen.style(f"({counted(touched, 'job')} touched, {report.unaffected} not, {_unknown(report)})", "dim")
    )


def _unknown(report: ZoneReport) -> str:
    count = len(report.unknown)
    return f"{count} unknown" + (f", which {'counts' if count == 1 else 'count'} as no change" if count else "")


def _show_job(screen: Screen, job: MovedJob) -> None:
    told = ", ".join(f"{count} {_WORDS[change]}" for change, count in job.counts.items())
    told = told or ("nothing so far" if job.is_cut else "no run moves")
    state = "" if str(job.state) == "ENABLED" else f" ({screen.state(str(job.state))})"
    screen.line(f"{screen.style(harmless(job.job), 'bold')}{state}  {told}")
    for time in job.times:
        screen.line(f"  {_time_line(screen, time)}")
    for move in job.moves[:_FEW]:
        screen.line(f"  {_move_line(screen, move)}")
    more = sum(job.counts.values()) - min(len(job.moves), _FEW)
    if more > 0:
        screen.line(screen.style(f"  and {more} more; --json has them", "dim"))
    if job.is_cut:
        screen.line(screen.style(f"  there are too many slots: looked at up to {_time(job.until)}", "yellow"))
    screen.line()


def _time_line(screen: Screen, time: MovedTime) -> str:
    arrow = "->" if screen.plain else "→"
    read = f"{_time(time.before)} {arrow} {_time(time.after)}"
    return f"{time.key} = {time.wall.isoformat()} {time.zone}, written without an offset, is read as {read}"


def _move_line(screen: Screen, move: ZoneMove) -> str:
    sign, style = _SIGNS[move.change]
    arrow = "->" if screen.plain else "→"
    if screen.plain and not sign.isascii():
        sign = "="
    wall = f"{move.wall:%a %Y-%m-%d %H:%M}" + (f":{move.wall:%S}" if move.wall.second else "")
    text = f"{screen.style(sign, style)} {wall} {move.zone}  "
    if move.change == "redrawn":
        text += f"{_time(move.before)} stays, starts {_time(move.starts_before)} {arrow} {_time(move.starts_after)}"
    elif move.before is None or move.after is None:
        text += f"{_time(move.before or move.after)} {'appears' if move.before is None else 'vanishes'}"
    else:
        text += f"{_time(move.before)} {arrow} {_time(move.after)} ({_length(move)})"
        if move.starts_before is not None or move.starts_after is not None:
            text += f", starts {_time(move.starts_before)} {arrow} {_time(move.starts_after)}"
    return text + (f": {move.remark}" if move.remark else "")


def _length(move: ZoneMove) -> str:
    assert move.before is not None
    assert move.after is not None
    minutes, seconds = divmod(int(abs((move.after - move.before).total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{count}{unit}" for count, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if count]
    return f"{' '.join(parts)} {'later' if move.after > move.before else 'earlier'}"


def _time(at: datetime | None) -> str:
    return "never" if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")
