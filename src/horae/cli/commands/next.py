"""`horae next`: shows the next scheduled times of a schedule or a krontab, or a year of them as a heat map."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli import files
from horae.errors import InvalidInput, shown
from horae.services.preview.preview import (
    Preview,
    Schedule,
    find_job,
    jobs_of,
    preview,
    preview_jobs,
    read_schedule,
    read_time,
    shared_timezone,
)

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

_INSTEAD = "horae simulate {} shows when its jobs run, horae plan {} what it would change."
_OF_AN_EXPRESSION = ("tz", "dialect", "gap", "fold")


def run(arguments: Namespace, screen: Screen) -> int:
    moment = files.now()
    if arguments.calendar or arguments.year is not None:
        return _calendar(arguments, screen)
    count = arguments.count if arguments.count is not None else 10
    begin = arguments.start if arguments.start is not None else "now"
    if files.looks_like_file(arguments.target):
        jobs = jobs_of(_file_text(arguments), file=arguments.target, job=arguments.job)
        start = read_time(begin, shared_timezone(jobs), moment, "--from")
        show(screen, preview_jobs(jobs, start, count, title=arguments.job or arguments.target))
        return 0
    schedule = _schedule(arguments)
    zone = arguments.tz or schedule.timezone
    show(screen, preview(schedule, read_time(begin, zone, moment, "--from"), count, timezone=zone))
    return 0


def _file_text(arguments: Namespace) -> str:
    for name in _OF_AN_EXPRESSION:
        if getattr(arguments, name) is not None:
            raise InvalidInput(f"--{name} belongs to an expression; the lines of a krontab say it themselves")
    return files.read_krontab(arguments.target, _INSTEAD)


def _schedule(arguments: Namespace) -> Schedule:
    if arguments.job is not None:
        raise InvalidInput(
            f"{shown(arguments.target)} is not a file, so {shown(arguments.job)} cannot name a job in it",
            hint='Put a cron expression in quotes: horae next "0 9 * * 1-5".',
        )
    given = {name: value for name in _OF_AN_EXPRESSION if (value := getattr(arguments, name)) is not None}
    return read_schedule(arguments.target, **given)


def show(screen: Screen, found: Preview) -> None:
    """Prints the scheduled times in order, and marks each clock change that affects them where it falls."""
    screen.data(found.to_dict())
    screen.line(screen.style(found.title, "bold"))
    screen.line(f"  {found.description}")
    if found.note:
        screen.line(f"  {screen.style(found.note, 'yellow')}")
    screen.line()
    if not found.occurrences:
        screen.line("  never again")
        return
    several = len({each.job for each in found.occurrences}) > 1
    # Columns that would add nothing are left out.
    columns = [
        ("", "dim", True),
        ("local time", "cyan", True),
        ("job", "green", several),
        ("nominal", "dim", found.windowed),
        ("UTC", "", found.zoned),
        ("", "yellow", True),
    ]
    rows = []
    pending = list(found.effects)
    for number, each in enumerate(found.occurrences, start=1):
        marks = []
        while not several and pending and pending[0][1].at <= each.nominal:
            marks.append(f"<- {pending.pop(0)[1]}")
        if each.reason:
            marks.append(f"unschedulable: {each.reason}")
        cells = [
            str(number),
            each.local,
            each.job,
            each.nominal_local[4:20].rstrip(),
            each.chosen.isoformat(sep=" ")[:19] + "Z" if each.chosen is not None else "-",
            "; ".join(marks),
        ]
        rows.append([cell for cell, (_, _, wanted) in zip(cells, columns, strict=True) if wanted])
    header = [title for title, _, wanted in columns if wanted]
    screen.table(header, rows, [style for _, style, wanted in columns if wanted])
    if several and pending:
        screen.line()
        screen.table(["clock changes", ""], [[job, str(effect)] for job, effect in pending], ["green", "yellow"])


def _calendar(arguments: Namespace, screen: Screen) -> int:
    from horae.cli.screen.heatmap import draw
    from horae.services.year_calendar import this_year, year_of

    for name, given in (("--count", arguments.count), ("--from", arguments.start)):
        if given is not None:
            raise InvalidInput(f"{name} does not go with a calendar, which shows a whole year")
    job = None
    if files.looks_like_file(arguments.target):
        if arguments.job is None:
            raise InvalidInput("A calendar shows one job: name it after the file")
        job = find_job(_file_text(arguments), arguments.job, file=arguments.target)
    schedule = job.schedule if job is not None else _schedule(arguments)
    wanted = arguments.year if arguments.year is not None else this_year(files.now(), schedule)
    year = year_of(schedule, wanted, job)
    screen.data(year.to_dict() | {"schedule": str(schedule), "description": schedule.describe()})
    screen.line(screen.style(str(schedule), "bold"))
    screen.line(f"  {schedule.describe()}")
    screen.line()
    draw(screen, year)
    return 0
