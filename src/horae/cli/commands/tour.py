"""`horae demo --tour`: shows previews on the terminal, then runs a few jobs on a temporary catalog."""

from __future__ import annotations

import asyncio
import pkgutil
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from horae.cli import files
from horae.cli.commands.explain import show as show_explanation
from horae.cli.commands.lint import show as show_finding
from horae.cli.commands.next import show as show_preview
from horae.cli.program import program
from horae.cli.screen.heatmap import draw
from horae.services.preview.preview import (
    LintFinding,
    Preview,
    explain_slot,
    explanation_dict,
    find_job,
    jobs_of,
    lint_files,
    preview,
    preview_jobs,
    read_schedule,
)
from horae.services.year_calendar import Year, next_clock_change, this_year, year_of

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.cli.screen.screen import Screen

_FILE = "demo.kron"
_MOST_SHOWN = 12
_DOUBTFUL = """30 2 * * * @tz(Europe/Berlin) name=in-the-gap command=/bin/true
*/90 * * * * name=every-ninety command=/bin/true
0 0 31 2 * name=never command=/bin/true
0 9 * * 1-5 @win(after,1h) @only(hours=11) name=no-room command=/bin/true
"""


def sample_schedules() -> str:
    """Returns the krontab that the previews use."""
    return (pkgutil.get_data("horae.cli", _FILE) or b"").decode()


def run_tour(arguments: Namespace, screen: Screen, seconds: float) -> int:
    moment = files.now()
    facts = _Facts.of(sample_schedules(), moment)
    if screen.as_json:
        # JSON output is one document, so the steps of the tour are not shown.
        ran = {} if arguments.no_run else {"ran": _run_jobs(screen, seconds)}
        screen.data(facts.to_dict() | ran)
        return 0
    _show_next_starts(screen, facts)
    _show_clock_changes(screen, moment)
    if arguments.no_run:
        _rest_of_the_tour(screen, facts)
        return 0
    _step(screen, 3, "Run it", f"{program()} demo --tour --seconds {seconds:g}")
    _run_jobs(screen, seconds)
    screen.line()
    screen.line("The catalog was a file in a temporary folder, which is gone. More of what can be said beforehand:")
    more = {
        f"{program()} demo --tour --no-run": "why a run starts when it does, a year at once, mistakes found",
        f"{program()} demo --save {_FILE}": "the sample schedules, to try them yourself",
    }
    for asked, answer in more.items():
        screen.line(f"  {asked.ljust(max(map(len, more)))}   {answer}")
    return 0


# ---- previews --------------------------------------------------------------------------------------------------------


class _Facts(NamedTuple):
    """The results of the previews."""

    coming: Preview
    trace: dict[str, Any]
    year: Year
    findings: tuple[LintFinding, ...]

    @classmethod
    def of(cls, text: str, moment: datetime) -> _Facts:
        digest = find_job(text, "morning-digest", file=_FILE)
        # A fixed Wednesday whose first candidates are rejected, so that the tour always has something to explain.
        explanation, is_occurrence = explain_slot(digest, datetime(2026, 11, 4, 9, tzinfo=UTC))
        weekdays = _weekdays()
        return cls(
            preview_jobs(jobs_of(text, file=_FILE), moment, 10, title=_FILE),
            explanation_dict(explanation, is_occurrence=is_occurrence) | {"description": digest.schedule.describe()},
            year_of(weekdays, this_year(moment, weekdays)),
            tuple(lint_files({"doubtful.kron": _DOUBTFUL}, moment)),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "next": self.coming.to_dict(),
            "explain": self.trace,
            "calendar": self.year.to_dict(),
            "lint": [finding.to_dict() for finding in self.findings],
        }


def _weekdays() -> Any:
    return read_schedule("0 9 * * 1-5", tz="Europe/Berlin")


def _show_next_starts(screen: Screen, facts: _Facts) -> None:
    _step(screen, 1, "Say what will run", f"{program()} next {_FILE}")
    show_preview(screen, facts.coming)


def _show_clock_changes(screen: Screen, moment: datetime) -> None:
    spring = next_clock_change("Europe/Berlin", moment, forward=True) - timedelta(days=2)
    asked = f'{program()} next "30 2 * * *" --tz Europe/Berlin -n 4 --from {spring.isoformat()[:16]}Z'
    _step(screen, 2, "See the clocks change before they do", asked)
    show_preview(screen, preview(read_schedule("30 2 * * *", tz="Europe/Berlin"), spring, 4))
    autumn = next_clock_change("Australia/Lord_Howe", moment, forward=False) - timedelta(minutes=50)
    asked = f'{program()} next "*/30 * * * *" --tz Australia/Lord_Howe -n 5 --from {autumn.isoformat()[:16]}Z'
    screen.line()
    screen.line(screen.style(f"$ {asked}", "dim"))
    screen.line()
    show_preview(screen, preview(read_schedule("*/30 * * * *", tz="Australia/Lord_Howe"), autumn, 5))


def _rest_of_the_tour(screen: Screen, facts: _Facts) -> None:
    asked = f"{program()} explain morning-digest --at 2026-11-04T09:00:00Z --file {_FILE}"
    _step(screen, 3, "Know why it starts when it starts", asked)
    show_explanation(screen, facts.trace)
    _step(screen, 4, "Look at a year at once", f'{program()} next "0 9 * * 1-5" --tz Europe/Berlin --calendar')
    screen.line(f"  {_weekdays().describe()}")
    screen.line()
    draw(screen, facts.year)
    _step(screen, 5, "Hear about mistakes before they run", f"{program()} lint doubtful.kron")
    for number, line in enumerate(_DOUBTFUL.splitlines(), start=1):
        screen.line(f"  {screen.style(f'{number}  {line}', 'dim')}")
    screen.line()
    for finding in facts.findings:
        show_finding(screen, finding)
    screen.line()
    screen.line(f"Nothing was run and nothing was written. To try these yourself: {program()} demo --save {_FILE}")


# ---- runs ------------------------------------------------------------------------------------------------------------


def _run_jobs(screen: Screen, seconds: float) -> dict[str, Any]:
    # Imported here: without the engine, previews start sooner.
    from horae.demo.tour import sample_app
    from horae.logs import silenced

    # Logs are silenced: the lines that `_print_events` prints show the same.
    with tempfile.TemporaryDirectory(prefix="horae-demo-") as folder, silenced():
        return asyncio.run(_live(screen, sample_app(f"sqlite:///{folder}/horae.db"), seconds))


async def _live(screen: Screen, app: Horae, seconds: float) -> dict[str, Any]:
    _print_events(screen, app)
    specs = app.specs()
    screen.table(
        ("job", "schedule", "tasks", "what it does"),
        [(each.name, str(each.schedule), str(len(each.tasks)), each.description) for each in specs],
        ("bold",),
    )
    screen.line()
    async with app:
        await asyncio.sleep(seconds)
    # The engine has stopped. The results are read from the catalog.
    try:
        runs = await app.runs(limit=10_000)
        report = await app.report(max(runs, key=_report_rank).run_id) if runs else None
        output = {} if report is None else await _output(app, report)
    finally:
        await app.close()
    _show_runs(screen, runs)
    if report is not None:
        _show_report(screen, report, output)
    return {
        "seconds": seconds,
        "runs": [
            {
                "run_id": each.run_id,
                "job": each.job_name,
                "state": each.state,
                "reason": each.reason,
                "scheduled_time": each.scheduled_time.isoformat(),
            }
            for each in runs
        ],
        "report": None if report is None else report.to_dict(),
    }


def _print_events(screen: Screen, app: Horae) -> None:
    """Prints a line for each start, failed attempt and end as it happens."""

    def line(job: str, what: str, style: str) -> None:
        clock = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
        screen.line(f"  {screen.style(clock, 'dim')}  {job:13} {screen.style(what, style)}")
        screen.flush()

    @app.on_start
    async def started(report: Any) -> None:
        line(report.run.job_name, f"started, {_span(report.lag)} after its time", "dim")

    @app.on_error
    def failed(event: Any) -> None:
        if hasattr(event, "attempt"):
            line(event.job, f"{event.task}, attempt {event.attempt}: {event.error}", "yellow")

    @app.on_complete
    async def ended(report: Any) -> None:
        style = "green" if report.outcome == "COMPLETED" else "red"
        line(report.run.job_name, f"{report.outcome} in {_span(report.duration)}", style)


def _report_rank(run: Any) -> tuple[bool, bool, bool, datetime]:
    """Returns a sort key, highest for the run to show in full: one that started, of the job with several tasks, that
    failed, the latest."""
    return run.started_at is not None, run.job_name == "etl", run.state == "FAILED", run.scheduled_time


async def _output(app: Horae, report: Any) -> dict[str, str]:
    """Returns the output of each task's last attempt, by task name."""
    found = {task.name: await app.output(task.attempts[-1].attempt_id) for task in report.tasks if task.attempts}
    return {name: text for name, text in found.items() if text}


def _show_runs(screen: Screen, runs: Sequence[Any]) -> None:
    states: dict[str, int] = {}
    for each in runs:
        states[each.state] = states.get(each.state, 0) + each.count
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    screen.line()
    screen.line(screen.style("What the catalog says afterwards", "bold", "blue"))
    screen.line()
    screen.line(f"  {sum(states.values())} runs{f': {told}' if told else ' yet'}")
    rows = [
        (
            f"{each.scheduled_time.astimezone():%H:%M:%S}",
            each.job_name,
            str(each.state),
            _span(each.started_at - each.chosen_time) if each.started_at else "",
            _span(each.completed_at - each.started_at) if each.started_at and each.completed_at else "",
            str(each.retry_count or ""),
            each.reason or "",
        )
        for each in runs[:_MOST_SHOWN]
    ]
    screen.line()
    screen.table(("slot", "job", "state", "lag", "took", "retries", "reason"), rows, ("dim", "bold"))
    if len(runs) > len(rows):
        screen.line(screen.style(f"  … and {len(runs) - len(rows)} older ones", "dim"))


def _show_report(screen: Screen, report: Any, output: dict[str, str]) -> None:
    screen.line()
    screen.line(screen.style("One run in full", "bold", "blue") + "   " + screen.style(report.run.run_id, "dim"))
    screen.line()
    for line in str(report).splitlines():
        screen.line(f"  {line}")
    for task, text in output.items():
        screen.line()
        screen.line(f"  what {task} printed")
        for line in text.splitlines():
            screen.line(screen.style(f"    {line}", "dim"))


def _span(length: timedelta | None) -> str:
    seconds = 0.0 if length is None else max(length.total_seconds(), 0.0)
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _step(screen: Screen, number: int, title: str, command: str) -> None:
    screen.line()
    screen.line(screen.style(f"{number}. {title}", "bold", "blue") + "   " + screen.style(f"$ {command}", "dim"))
    screen.line()
