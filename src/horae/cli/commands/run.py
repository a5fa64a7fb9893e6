"""`horae run`: lists, shows, cancels and replays runs, and prints their output."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from horae.cli.catalog_access import CatalogAccess, json_values, open_catalog
from horae.cli.program import program
from horae.cli.run_reference import resolve_run_id
from horae.cli.screen.rows import counted, harmless, show_rows
from horae.cli.screen.time_text import length_text
from horae.cli.screen.watch import draw_repeatedly
from horae.cli.suggestion import suggest_jobs
from horae.cli.times import read_typed_time
from horae.errors import InvalidInput
from horae.services.queries import wait_expired

if TYPE_CHECKING:
    from horae.api.responses.job_responses import Output, Report, Run, WholeRun
    from horae.cli.screen.screen import Screen
    from horae.cli.screen.time_text import Clock

_COLUMNS = ("run", "job", "state", "when", "scheduled", "started", "took", "origin", "why")
_ATTEMPT = "attempt_"
_PAGE = 500
_OFTEN = 0.5
"""Seconds between two looks at a run that is followed or waited for."""


def run(arguments: Namespace, screen: Screen) -> int:
    with open_catalog(arguments) as catalog, suggest_jobs(catalog):
        if "id" in arguments and not arguments.id.startswith(_ATTEMPT):
            arguments.id = resolve_run_id(catalog, arguments.id)
        drawing = _DRAWN.get(arguments.action)
        if drawing is not None:
            return draw_repeatedly(arguments, screen, catalog, lambda drawn: drawing(arguments, drawn, catalog))
        _ACTIONS[arguments.action](arguments, screen, catalog)
    return 0


def list_runs(catalog: CatalogAccess, arguments: Namespace, clock: Clock, job: str | None) -> list[Run]:
    """Returns the newest runs that match the arguments, at most `arguments.limit`, read page by page."""
    since, until = (
        None if text is None else read_typed_time(catalog, clock, text, name, job, gone=True)
        for name, text in (("--since", arguments.since), ("--until", arguments.until))
    )
    found: list[Run] = []
    before: str | None = None
    while True:
        page = catalog.call(
            "list_runs",
            job=job,
            state=arguments.state,
            origin=arguments.origin,
            since=since,
            until=until,
            before=before,
            limit=min(_PAGE, arguments.limit - len(found)),
        )
        found += page.runs
        before = page.next_before
        if before is None or len(found) >= arguments.limit:
            return found


def show_runs(screen: Screen, runs: Sequence[Run]) -> None:
    """Prints runs as a table, or as one JSON document."""
    screen.data({"runs": json_values(runs)})
    if screen.as_json:
        return
    if runs:
        show_rows(screen, _COLUMNS, [_cells(screen, each) for each in runs])
    screen.line(screen.style(f"({counted(len(runs), 'run')})", "dim"))


def _cells(screen: Screen, each: Run) -> list[Any]:
    """Returns a row of `_COLUMNS`. `when` is the distance to the start, or to the scheduled time before the start."""
    took = each.duration_seconds
    return [
        each.run_id,
        each.job,
        each.state,
        screen.clock.distance(each.started_at or each.scheduled_time),
        each.scheduled_time,
        each.started_at,
        None if took is None else length_text(took),
        each.origin,
        screen.clock.within(_why(each)),
    ]


def _why(each: Run) -> str:
    """Returns the reasons for a run's state: an error, a replay's reason, what it waits for, the slots it covers."""
    replay = f"replay: {each.replay_reason}" if each.replay_reason else ""
    return "; ".join(
        part for part in (each.reason or each.error or "", replay, waits_text(each), span_text(each)) if part
    )


def span_text(run: Run) -> str:
    """Returns how many slots a run covers, empty if only its own."""
    return f"{run.count:,} slots, the last at {run.covers_to or run.scheduled_time}" if run.count > 1 else ""


def waits_text(run: Run) -> str:
    """Returns what a run waits for, with its detail, empty if it waits for nothing."""
    if not run.waiting_for:
        return ""
    return f"waits for {run.waiting_for}" + (f": {run.waiting_detail}" if run.waiting_detail else "")


def wait_for(screen: Screen, catalog: CatalogAccess, run_id: str, limit: float | None) -> int:
    """Waits until a run has ended, shows it, and returns the exit code: 0 if it completed, else 1. Raises WaitExpired
    after `limit` seconds; None waits without a limit."""
    began = monotonic()
    try:
        while (whole := catalog.call("get_run", run_id=run_id)).is_active:
            left = _OFTEN if limit is None else began + limit - monotonic()
            if left <= 0:
                raise wait_expired(run_id, whole.run.job, whole.run.state, length_text(limit or 0))
            screen.progress(f"{harmless(whole.run.job)}: {whole.run.state} {harmless(waits_text(whole.run))}")
            catalog.wait(min(_OFTEN, left))
    except KeyboardInterrupt:
        screen.note(f"the run goes on: {program()} run show {run_id}")
        raise
    finally:
        screen.progress("")
    _show_whole(screen, whole)
    return 0 if whole.report.outcome == "COMPLETED" else 1


def _list(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    show_runs(screen, list_runs(catalog, arguments, screen.clock, arguments.job))


def _show(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    _show_whole(screen, catalog.call("get_run", run_id=arguments.id))


def _show_whole(screen: Screen, whole: WholeRun) -> None:
    report = json_values(whole.report)
    waits = {"waiting_for": whole.run.waiting_for, "waiting_detail": whole.run.waiting_detail}
    more = {name: value for name, value in json_values(whole).items() if name not in ("run", "report")}
    screen.data(report | more | waits)
    if screen.as_json:
        return
    clock = screen.clock
    for line in harmless(whole.report.text).splitlines():
        screen.line(clock.within(line))
    if whole.run.waiting_for:
        screen.line(f"  {clock.within(harmless(waits_text(whole.run)))}")
    if whole.run.count > 1:
        screen.line(f"  stands for {clock.within(span_text(whole.run))}")
    times = {
        "started": whole.report.started_at,
        "ended": whole.report.completed_at,
    }
    told = ", ".join(f"{what} {clock.both(at)}" for what, at in times.items() if at is not None)
    screen.line(screen.style(f"  {whole.run.run_id}{f', {told}' if told else ''}", "dim"))
    screen.line(screen.style(f"  by version {whole.run.version} of {harmless(whole.run.job)}", "dim"))
    screen.line(f"  {harmless(whole.report.summary)}")
    from horae.cli.screen.gantt import draw

    draw(screen, whole.report)
    _tracebacks(screen, whole.report)


def _tracebacks(screen: Screen, report: Report) -> None:
    """Prints the attempts' tracebacks. Attempts of a task with the same traceback share one entry."""
    for task in report.tasks:
        found: dict[str, list[str]] = {}
        for each in task.attempts:
            if each.traceback:
                found.setdefault(each.traceback, []).append(str(each.number))
        for text, numbers in found.items():
            which = f"attempt{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}"
            screen.line()
            screen.line(screen.style(f"== {harmless(task.name)}, {which} ==", "dim"))
            screen.line(_printed(screen, text).rstrip("\n"))


def _output(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    if arguments.follow:
        _follow(arguments, screen, catalog)
        return
    if arguments.id.startswith(_ATTEMPT):
        found = [catalog.call("attempt_output", attempt_id=arguments.id)]
    else:
        found = catalog.call("run_output", run_id=arguments.id, task=arguments.task).output
    screen.data({"id": arguments.id, "output": json_values(found)})
    if screen.as_json:
        return
    for each in found:
        if len(found) > 1:
            screen.line(_title(screen, each))
        if each.text:
            screen.line(_printed(screen, each.text).removesuffix("\n"))
    if not any(each.text for each in found):
        screen.note("nothing was printed" if found else "nothing was tried yet")


def _follow(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    """Prints a run's output as it comes, until the run has ended. With JSON, each part is a document on one line."""
    if arguments.id.startswith(_ATTEMPT):
        raise InvalidInput("--follow is for a run, and this is the id of an attempt", hint="Give the run's id.")
    screen.one_line = True
    places: dict[str, int] = {}
    last = ""
    while True:
        # Read before the output, so that the last output before the run's end is not missed.
        is_active = catalog.call("get_run", run_id=arguments.id).is_active
        for each in _parts(arguments, catalog, places):
            places[each.attempt_id] = each.next
            if not each.text:
                continue
            screen.data(json_values(each))
            if last not in ("", each.attempt_id) or (not last and len(places) > 1):
                screen.line(_title(screen, each))
            last = each.attempt_id
            if not screen.as_json:
                screen.out.write(_printed(screen, each.text))
        screen.flush()
        if not is_active:
            return
        catalog.wait(_OFTEN)


def _parts(arguments: Namespace, catalog: CatalogAccess, places: dict[str, int]) -> list[Output]:
    from msgspec.structs import replace

    report = catalog.call("report", run_id=arguments.id)
    found = []
    for task in report.tasks:
        if arguments.task not in (None, task.name):
            continue
        for attempt in task.attempts:
            part = catalog.call(
                "attempt_output", attempt_id=attempt.attempt_id, after=places.get(attempt.attempt_id, 0)
            )
            found.append(replace(part, task=task.name, attempt=attempt.number))
    return found


def _title(screen: Screen, each: Output) -> str:
    return screen.style(f"== {harmless(each.task or '')}, attempt {each.attempt} ==", "dim")


def _printed(screen: Screen, text: str) -> str:
    return text if screen.width is None else harmless(text)


def _cancel(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    _done(screen, catalog.call("cancel", run_id=arguments.id, reason=arguments.reason))


def _replay(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    asked = {"reason": arguments.reason, "task": arguments.task, "onwards": arguments.onwards}
    _done(screen, catalog.call("replay", run_id=arguments.id, **asked))


def _done(screen: Screen, answer: Any) -> None:
    screen.data(json_values(answer))
    screen.line(harmless(answer.message))


_DRAWN: dict[str, Callable[[Namespace, Screen, CatalogAccess], None]] = {"list": _list, "show": _show}
_ACTIONS: dict[str, Callable[[Namespace, Screen, CatalogAccess], None]] = {
    "output": _output,
    "cancel": _cancel,
    "replay": _replay,
}
