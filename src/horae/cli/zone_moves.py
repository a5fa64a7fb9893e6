"""`horae plan --tzdata NEW`: the runs to come that other time-zone data would move."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from horae.cli import files
from horae.cli.opening import opened
from horae.cli.rows import counted, harmless, show_rows
from horae.cli.times import typed_time
from horae.control.preview import read_time
from horae.control.zonefiles import open_zone_files
from horae.control.zonemoves import MovedJob, Subject, ZoneMove, ZoneReport, exported_subjects, zone_report
from horae.errors import HoraeError

if TYPE_CHECKING:
    from datetime import datetime

    from horae.cli.screen import Screen

_FEW = 10
"""Moves of one job that are shown; JSON has more."""
_WORDS = {"moved": "move", "appears": "appear", "vanishes": "vanish", "redrawn": "start otherwise"}
_SIGNS = {"moved": ("~", "yellow"), "appears": ("+", "green"), "vanishes": ("-", "red"), "redrawn": ("≈", "cyan")}


def run(arguments: Namespace, screen: Screen) -> int:
    if not arguments.exit_code:
        _show(screen, _report(arguments, screen))
        return 0
    try:
        report = _report(arguments, screen)
    except HoraeError as error:
        # Whoever asks for the code must be able to tell a fault from changes.
        screen.error(error)
        return 1
    _show(screen, report)
    return 2 if report.has_changes else 0


def _report(arguments: Namespace, screen: Screen) -> ZoneReport:
    data = open_zone_files(arguments.tzdata)
    subjects, begin, left_out = _wanted(arguments) if arguments.targets else _kept(arguments)

    def told(done: int, of: int) -> None:
        screen.bar(done, of, "jobs")

    try:
        return zone_report(subjects, data, begin, arguments.horizon, left_out=left_out, progress=told)
    finally:
        screen.progress("")


_Asked = tuple[Sequence[Subject], "datetime", Sequence[tuple[str, str]]]
"""The jobs, from when on, and those that nobody could say."""


def _wanted(arguments: Namespace) -> _Asked:
    from horae.app.wanting import wanted_at

    wanted = wanted_at(arguments.targets)
    now = files.now()
    begin = now if arguments.start is None else read_time(arguments.start, "UTC", now, "--from")
    return [Subject(spec, wanted.defaults) for spec in wanted.specs], begin, ()


def _kept(arguments: Namespace) -> _Asked:
    with opened(arguments) as catalog:
        begin = typed_time(catalog, arguments.start or "now", "--from")
        exported = catalog.call("export", format="json", all_namespaces=True)
    left_out = [(each.name, each.reason) for each in exported.left_out]
    return exported_subjects(exported.text), begin, left_out


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
    if not report.has_changes:
        screen.line("no run moves")
    screen.line(
        screen.style(
            f"({counted(len(report.jobs), 'job')} touched, {report.unaffected} not, {len(report.unknown)} unknown)",
            "dim",
        )
    )


def _show_job(screen: Screen, job: MovedJob) -> None:
    told = ", ".join(f"{count} {_WORDS[change]}" for change, count in job.counts.items()) or "nothing so far"
    state = "" if str(job.state) == "ENABLED" else f" ({screen.state(str(job.state))})"
    screen.line(f"{screen.style(harmless(job.job), 'bold')}{state}  {told}")
    for move in job.moves[:_FEW]:
        screen.line(f"  {_told(screen, move)}")
    more = sum(job.counts.values()) - min(len(job.moves), _FEW)
    if more > 0:
        screen.line(screen.style(f"  and {more} more; --json has them", "dim"))
    if job.is_cut:
        screen.line(screen.style(f"  there are too many slots: looked at up to {_time(job.until)}", "yellow"))
    screen.line()


def _told(screen: Screen, move: ZoneMove) -> str:
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
