"""`horae demo`: a tour of what can be said before anything runs, on sample jobs."""

from __future__ import annotations

import pkgutil
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from horae.cli import files
from horae.cli.explain import show as show_explanation
from horae.cli.heatmap import draw
from horae.cli.lint import show as show_finding
from horae.cli.next import show as show_preview
from horae.control.calendar import next_clock_change, this_year, year_of
from horae.control.preview import (
    explain_slot,
    explanation_dict,
    find_job,
    jobs_of,
    lint_files,
    preview,
    preview_jobs,
    read_schedule,
)

if TYPE_CHECKING:
    from horae.cli.screen import Screen

_FILE = "demo.kron"
_DOUBTFUL = """30 2 * * * @tz(Europe/Berlin) name=in-the-gap command=/bin/true
*/90 * * * * name=every-ninety command=/bin/true
0 0 31 2 * name=never command=/bin/true
0 9 * * 1-5 @win(after,1h) @only(hours=11) name=no-room command=/bin/true
"""


def run(arguments: Namespace, screen: Screen) -> int:
    moment = files.now()
    text = (pkgutil.get_data("horae.cli", _FILE) or b"").decode()
    if arguments.save is not None:
        files.write_new(arguments.save, text)
        screen.data({"saved": arguments.save})
        screen.line(f"Saved the sample jobs. Now try: horae next {arguments.save}")
        return 0
    weekdays = read_schedule("0 9 * * 1-5", tz="Europe/Berlin")
    coming = preview_jobs(jobs_of(text, file=_FILE), moment, 10, title=_FILE)
    digest = find_job(text, "morning-digest", file=_FILE)
    # A fixed Wednesday whose first candidates are rejected, so that the tour always has something to explain.
    explanation, is_occurrence = explain_slot(digest, datetime(2026, 11, 4, 9, tzinfo=UTC))
    trace = explanation_dict(explanation, is_occurrence=is_occurrence) | {"description": digest.schedule.describe()}
    year = year_of(weekdays, this_year(moment, weekdays))
    findings = lint_files({"doubtful.kron": _DOUBTFUL}, moment)
    screen.data(
        {
            "next": coming.to_dict(),
            "explain": trace,
            "calendar": year.to_dict(),
            "lint": [finding.to_dict() for finding in findings],
        }
    )
    if screen.as_json:
        return 0

    _step(screen, 1, "Say what will run", f"horae next {_FILE}")
    show_preview(screen, coming)
    spring = next_clock_change("Europe/Berlin", moment, forward=True) - timedelta(days=2)
    asked = f'horae next "30 2 * * *" --tz Europe/Berlin -n 4 --from {spring.isoformat()[:16]}Z'
    _step(screen, 2, "See the clocks change before they do", asked)
    show_preview(screen, preview(read_schedule("30 2 * * *", tz="Europe/Berlin"), spring, 4))
    autumn = next_clock_change("Australia/Lord_Howe", moment, forward=False) - timedelta(minutes=50)
    asked = f'horae next "*/30 * * * *" --tz Australia/Lord_Howe -n 5 --from {autumn.isoformat()[:16]}Z'
    screen.line()
    screen.line(screen.style(f"$ {asked}", "dim"))
    screen.line()
    show_preview(screen, preview(read_schedule("*/30 * * * *", tz="Australia/Lord_Howe"), autumn, 5))
    asked = f"horae explain morning-digest --at 2026-11-04T09:00:00Z --file {_FILE}"
    _step(screen, 3, "Know why it starts when it starts", asked)
    show_explanation(screen, trace)
    _step(screen, 4, "Look at a year at once", 'horae next "0 9 * * 1-5" --tz Europe/Berlin --calendar')
    screen.line(f"  {weekdays.describe()}")
    screen.line()
    draw(screen, year)
    _step(screen, 5, "Hear about mistakes before they run", "horae lint doubtful.kron")
    for number, line in enumerate(_DOUBTFUL.splitlines(), start=1):
        screen.line(f"  {screen.style(f'{number}  {line}', 'dim')}")
    screen.line()
    for finding in findings:
        show_finding(screen, finding)
    screen.line()
    screen.line("Nothing was run and nothing was written. To try these yourself: horae demo --save demo.kron")
    return 0


def _step(screen: Screen, number: int, title: str, command: str) -> None:
    screen.line()
    screen.line(screen.style(f"{number}. {title}", "bold", "blue") + "   " + screen.style(f"$ {command}", "dim"))
    screen.line()
