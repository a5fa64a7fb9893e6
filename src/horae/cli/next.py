"""`horae next`: the coming occurrences, or the year as a heat map."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli import files
from horae.control.preview import (
    Preview,
    Schedule,
    describe,
    find_job,
    preview,
    preview_file,
    read_schedule,
    read_time,
    timezone_of,
)
from horae.errors import InvalidInput, shown

if TYPE_CHECKING:
    from horae.cli.screen import Screen


def run(arguments: Namespace, screen: Screen) -> int:
    moment = files.now()
    if files.looks_like_file(arguments.target):
        text = files.read_text(arguments.target)
        if arguments.calendar:
            if arguments.job is None:
                raise InvalidInput("A calendar shows one job: name it after the file")
            return _calendar(arguments, screen, find_job(text, arguments.job, file=arguments.target).schedule)
        zone = find_job(text, arguments.job, file=arguments.target).schedule.tz if arguments.job else "UTC"
        start = read_time(arguments.start, zone, moment, "--from")
        show(screen, preview_file(text, start, arguments.count, file=arguments.target, job=arguments.job))
        return 0
    if arguments.job is not None:
        raise InvalidInput(
            f"{shown(arguments.target)} is not a file, so {shown(arguments.job)} cannot name a job in it",
            hint='Put a cron expression in quotes: horae next "0 9 * * 1-5".',
        )
    schedule = read_schedule(
        arguments.target, tz=arguments.tz, dialect=arguments.dialect, gap=arguments.gap, fold=arguments.fold
    )
    if arguments.calendar:
        return _calendar(arguments, screen, schedule)
    start = read_time(arguments.start, timezone_of(schedule), moment, "--from")
    show(screen, preview(schedule, start, arguments.count))
    return 0


def show(screen: Screen, found: Preview) -> None:
    """Occurrences in order, with each clock change that touches them marked where it falls."""
    screen.data(found.to_dict())
    screen.line(screen.style(found.title, "bold"))
    screen.line(f"  {found.description}")
    screen.line()
    if not found.occurrences:
        screen.line("  never again")
        return
    several = len({each.job for each in found.occurrences}) > 1
    # Columns that would say nothing new are left out.
    columns = [
        ("", "dim", True),
        ("local time", "cyan", True),
        ("job", "green", several),
        ("nominal", "", found.windowed),
        ("UTC", "", found.zoned),
        ("", "yellow", True),
    ]
    rows = []
    pending = list(found.effects)
    for number, each in enumerate(found.occurrences, start=1):
        marks = []
        while pending and pending[0].at <= each.nominal:
            marks.append(f"<- {pending.pop(0)}")
        if each.reason:
            marks.append(f"unschedulable: {each.reason}")
        cells = [
            str(number),
            each.local,
            each.job,
            each.nominal.strftime("%H:%M:%S"),
            each.chosen.strftime("%Y-%m-%d %H:%M:%SZ") if each.chosen is not None else "-",
            "; ".join(marks),
        ]
        rows.append([cell for cell, (_, _, wanted) in zip(cells, columns, strict=True) if wanted])
    header = [title for title, _, wanted in columns if wanted]
    screen.table(header, rows, [style for _, style, wanted in columns if wanted])


def _calendar(arguments: Namespace, screen: Screen, schedule: Schedule) -> int:
    from horae.cli.heatmap import draw
    from horae.control.calendar import this_year, year_of

    year = year_of(schedule, arguments.year if arguments.year is not None else this_year(files.now(), schedule))
    screen.data(year.to_dict() | {"schedule": str(schedule), "description": describe(schedule)})
    screen.line(screen.style(str(schedule), "bold"))
    screen.line(f"  {describe(schedule)}")
    screen.line()
    draw(screen, year)
    return 0
