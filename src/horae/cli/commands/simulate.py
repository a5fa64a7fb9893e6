"""`horae simulate`: runs a future time span with the real engine on simulated time, and shows load and faults."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from horae.cli import files
from horae.cli.catalog_access import open_catalog
from horae.cli.screen.heatmap import legend_of, level_of, shade
from horae.cli.screen.rows import counted, harmless, show_rows
from horae.config import Configuration, load_configuration
from horae.errors import InvalidFile, InvalidInput, NotFound, shown
from horae.simulate.lengths import ASSUMED_DURATION_TEXT, length_text, moment_text

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen
    from horae.simulate.draws import DrawOptions
    from horae.simulate.jobs import SimulatedJobs
    from horae.simulate.result import JobResult, SimulationResult

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_MOST_ROWS = 20
_NAMES = 4
_COLUMNS = ("job", "runs", "done", "failed", "skipped", "missed", "without a start", "longest", "waited")
_UNPLACED = _COLUMNS.index("without a start")
_MANY = 20_000
"""The number of runs above which the simulation takes so long that the command prints progress without a terminal."""
_FAILED = ("FAILED", "FAILED_STALE", "CANCELLED", "COMPLETED_WITH_ERRORS")


def run(arguments: Namespace, screen: Screen) -> int:
    # Imported here: importing the engine is slow, and errors in the arguments are reported without it.
    from horae.logs import silenced
    from horae.simulate.page import MARK
    from horae.simulate.span import read_draw_options

    chance = read_draw_options(arguments.seed, arguments.durations, arguments.failures, arguments.assume)
    _check_page(arguments.html, MARK)
    # Logs are silenced: the result shows the failures that are simulated on purpose.
    with silenced():
        return _simulate(arguments, screen, chance)


def _simulate(arguments: Namespace, screen: Screen, chance: DrawOptions) -> int:
    from horae.simulate.engine import MOST_RUNS, count_scheduled
    from horae.simulate.page import page
    from horae.simulate.simulate import play
    from horae.simulate.span import read_span, shown_timezone

    cast_at = _cast(arguments)
    cast = cast_at(files.now())
    if not cast.parts:
        raise NotFound("There are no jobs to simulate", hint="Name a file that has some, such as jobs.toml.")
    timezone = shown_timezone(arguments.tz, cast)
    span = read_span(
        arguments.start, arguments.end, timezone=timezone, now=files.now(), cast=cast, slots=arguments.slots
    )
    cast = cast_at(span.eve)
    runs = sum(count_scheduled(cast, span).values())
    is_long = _MANY < runs <= MOST_RUNS and not screen.errors.isatty()
    if is_long:
        screen.note(f"horae: about {runs:,} runs; this takes a while")

    whole = span.end - span.start
    unit, word = (_MINUTE, "minutes") if whole <= 2 * _DAY else (_HOUR, "hours")

    told: set[tuple[int, int]] = set()

    def tell(number: int, at: datetime) -> None:
        again = ", once more with windows" if number > 1 else ""
        tenth = max(0, (at - span.start) * 10 // whole)
        if is_long and 0 < tenth < 10 and (number, tenth) not in told:
            # Without a terminal there is no bar. A line for each tenth shows progress in a log.
            told.add((number, tenth))
            screen.note(f"horae: {tenth * 10} %, {at:%Y-%m-%d %H:%M} UTC{again}")
        screen.bar(max(0, (at - span.start) // unit), whole // unit, f"{word}: {at:%Y-%m-%d %H:%M} UTC{again}")

    try:
        result = play(cast, span, chance, timezone=timezone, suggest=arguments.suggestions, tell=tell)
    finally:
        screen.progress("")
    if arguments.html is not None:
        _write(arguments.html, page(result))
    screen.data(result.to_dict())
    show(screen, result)
    if arguments.html is not None:
        screen.note(f"The pictures are in {arguments.html}")
    return 0


def _cast(arguments: Namespace) -> Callable[[datetime], SimulatedJobs]:
    """Returns a function that gives the jobs to simulate at a moment: the catalog's, those of the targets, or those of
    the targets laid over the catalog's."""
    from horae.simulate.jobs import jobs_of_targets
    from horae.simulate.overlay import overlay

    def chosen(cast: SimulatedJobs) -> SimulatedJobs:
        if arguments.jobs is None:
            return cast
        return cast.only([name.strip() for name in arguments.jobs.split(",") if name.strip()])

    configuration = load_configuration(arguments.config)
    if arguments.over and not arguments.targets:
        raise InvalidInput("--over lays files over the catalog, and none is named", hint="Name one, such as jobs.toml.")
    own = jobs_of_targets(arguments.targets, configuration) if arguments.targets else None
    if arguments.over and own is not None:
        catalog = _catalog(arguments, configuration)
        return lambda at: chosen(overlay(own, catalog, at))
    if own is None:
        cast = _catalog(arguments, configuration)
    else:
        # A file needs no catalog, but a catalog knows how long the file's jobs took before.
        cast = own.with_past_of(_catalog(arguments, configuration)) if _has_catalog(arguments) else own
    found = chosen(cast)
    return lambda at: found


def _catalog(arguments: Namespace, configuration: Configuration) -> SimulatedJobs:
    from horae.simulate.jobs import jobs_of_catalog, jobs_of_server

    with open_catalog(arguments) as catalog:
        if catalog.is_local:
            return catalog.ask(lambda service: jobs_of_catalog(service, configuration))
        return jobs_of_server(catalog.call, configuration)


def _has_catalog(arguments: Namespace) -> bool:
    if any((arguments.store, arguments.server, os.environ.get("HORAE_STORE"), os.environ.get("HORAE_SERVER"))):
        return True
    with open_catalog(arguments) as catalog:
        return not catalog.is_missing()


# ---- the page --------------------------------------------------------------------------------------------------------


def _check_page(name: str | None, mark: str) -> None:
    """Raises InvalidFile unless the page can be written: the folder must exist, and only a page of this command is
    overwritten. Checked before the simulation, which may take long."""
    if name is None:
        return
    try:
        if Path(name).is_dir():
            raise InvalidFile(f"Cannot write {shown(name)}: it is a folder", hint="Name a file in it.")
        if not Path(name).exists():
            _check_folder(name, Path(name).parent)
            return
        with Path(name).open("rb") as there:
            is_ours = there.read(len(mark)) == mark.encode()
    except (OSError, ValueError) as error:
        raise _unwritable(name, error) from error
    if not is_ours:
        raise InvalidFile(f"{shown(name)} exists already, and is no page of a simulation", hint="Choose another name.")


def _check_folder(name: str, folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidFile(
            f"Cannot write {shown(name)}: there is no folder {shown(str(folder))}",
            hint=f"Make it first, by mkdir -p {folder}, or name a file in a folder that is there.",
        )
    if not os.access(folder, os.W_OK):
        raise InvalidFile(
            f"Cannot write {shown(name)}: you may not write to {shown(str(folder))}",
            hint="Name a file in a folder that you may write to.",
        )


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise _unwritable(name, error) from error


def _unwritable(name: str, error: Exception) -> InvalidFile:
    reason = getattr(error, "strerror", None) or error
    return InvalidFile(f"Cannot write {shown(name)}: {reason}", hint="Name a file in a folder that you may write to.")


# ---- text ------------------------------------------------------------------------------------------------------------


def show(screen: Screen, result: SimulationResult) -> None:
    """Prints the result as text: counts, heat map, peaks, faults, clock changes, waits, jobs, suggested windows."""
    screen.line(
        screen.style(f"{_local(result, result.start)} to {_local(result, result.end)} {result.timezone}", "bold")
    )
    ends = ", ".join(f"{count} {screen.state(state)}" for state, count in result.states.items()) or "nothing ran"
    screen.line(f"  {counted(len(result.jobs), 'job')}, {result.slots} slots, seed {result.seed}: {ends}")
    if result.assumed:
        named = ", ".join(harmless(name) for name in result.assumed[:_NAMES])
        more = f" and {len(result.assumed) - _NAMES} more" if len(result.assumed) > _NAMES else ""
        length = length_text(result.assumed_seconds)
        screen.line(f"  Without history, so each run was taken to last {length}, {ASSUMED_DURATION_TEXT}:")
        screen.line(f"    {named}{more}")
    if not result.knows_pools:
        screen.line(
            screen.style("  The catalog's pools are not shown to you: none of them held anything up.", "yellow")
        )
    _draw_heat(screen, result)
    _show_load(screen, result)
    _show_troubles(screen, result)
    _show_clock_changes(screen, result)
    _show_waits(screen, result)
    _show_jobs(screen, result)
    _show_suggestion(screen, result)


def _draw_heat(screen: Screen, result: SimulationResult) -> None:
    screen.line()
    if len(result.heat.days) > 2:
        most = max(max(row) for _, row in result.heat.days)
        screen.line("  starts    0     6     12    18")
        for day, row in result.heat.days:
            cells = "".join(shade(screen, level_of(count, most)) for count in row)
            screen.line(f"  {day:%a %m-%d} {cells}")
        screen.line()
    most = max(max(row) for row in result.heat.hours)
    screen.line("  starts   :00            :15            :30            :45")
    for hour, row in enumerate(result.heat.hours):
        if any(row):
            cells = "".join(shade(screen, level_of(count, most)) for count in row)
            screen.line(f"  {hour:02}:00    {cells}")
    together = " on all days together" if len(result.heat.days) > 1 else ""
    screen.line(f"  none {legend_of(screen)} most: {counted(most, 'start')}{together}; hours without any are left out")


def _show_load(screen: Screen, result: SimulationResult) -> None:
    peaks = result.load.peaks
    if not peaks:
        return
    screen.line()
    rows = []
    for peak in peaks:
        more = f" and {peak.more + len(peak.jobs) - _NAMES} more" if peak.more + len(peak.jobs) > _NAMES else ""
        rows.append(
            [_local(result, peak.at), peak.runs, length_text(peak.seconds), ", ".join(peak.jobs[:_NAMES]) + more]
        )
    show_rows(screen, ["most at once", "runs", "for", "jobs"], rows, styles={"runs": "cyan"})
    if result.load.peak >= result.slots:
        screen.line(screen.style(f"  All {result.slots} slots were taken then: more would have run.", "yellow"))


def _show_troubles(screen: Screen, result: SimulationResult) -> None:
    if not result.troubles:
        return
    screen.line()
    rows = [
        [each.job, each.state, each.why, each.count, ", ".join(_local(result, at) for at in each.first)]
        for each in result.troubles[:_MOST_ROWS]
    ]
    show_rows(screen, ["job", "state", "why", "runs", "the first of them"], rows)
    _left_out(screen, len(result.troubles))


def _show_clock_changes(screen: Screen, result: SimulationResult) -> None:
    if not result.clock_changes:
        return
    screen.line()
    rows = [[each.job, str(each.effect)] for each in result.clock_changes[:_MOST_ROWS]]
    show_rows(screen, ["job", "where clocks change"], rows)
    _left_out(screen, len(result.clock_changes))


def _show_waits(screen: Screen, result: SimulationResult) -> None:
    told = (
        (result.dependencies, "for other jobs"),
        (result.itself, "for earlier runs of the same job"),
        (result.room, "for a slot or a pool"),
    )
    waited = [(waits, what) for waits, what in told if waits.runs]
    if waited:
        screen.line()
    for waits, what in waited:
        most = f"; 95 % of all started within {length_text(waits.most)}" if waits is result.room else ""
        screen.line(f"  {counted(waits.runs, 'run')} waited {what}, at the longest {length_text(waits.longest)}{most}")


def _show_jobs(screen: Screen, result: SimulationResult) -> None:
    screen.line()
    ordered = sorted(result.jobs, key=lambda each: (-each.started * each.seconds, each.job))
    # Slots without a start are rare, so the column is shown only where there are some.
    shown_columns = [
        place
        for place in range(len(_COLUMNS))
        if place != _UNPLACED or any("UNSCHEDULABLE" in each.states for each in ordered)
    ]
    rows = [_row(each) for each in ordered[:_MOST_ROWS]]
    show_rows(
        screen,
        [_COLUMNS[place] for place in shown_columns],
        [[row[place] for place in shown_columns] for row in rows],
    )
    _left_out(screen, len(ordered))


def _row(job: JobResult) -> list[object]:
    states = job.states
    waited = max(job.dependencies.longest, job.itself.longest, job.room.longest)
    return [
        job.job,
        job.started,
        states.get("COMPLETED", 0),
        sum(states.get(state, 0) for state in _FAILED),
        states.get("SKIPPED", 0),
        states.get("MISSED", 0),
        states.get("UNSCHEDULABLE", 0),
        length_text(job.seconds) if job.started else "",
        length_text(waited) if waited else "",
    ]


def _left_out(screen: Screen, there: int) -> None:
    if there > _MOST_ROWS:
        screen.line(screen.style(f"  and {there - _MOST_ROWS} more: --json and --html have them all", "dim"))


def _show_suggestion(screen: Screen, result: SimulationResult) -> None:
    found = result.suggestion
    if not result.looked:
        screen.line()
        screen.line(screen.style("  Windows were not looked for: that takes a shorter span, or fewer --jobs.", "dim"))
    if found is None:
        return
    peak, wait = found.peak, found.longest_wait
    screen.line()
    screen.line(screen.style("Windows would flatten the peaks", "bold"))
    screen.line(f"  Run again with them: {peak.before:g} -> {peak.after:g} at once")
    screen.line(f"  {found.busiest.before:g} -> {found.busiest.after:g} starts in the busiest minute")
    if wait.before:
        screen.line(f"  {length_text(wait.before)} -> {length_text(wait.after)} the longest wait for a slot or a pool")
    screen.line()
    for line in found.toml().rstrip().split("\n"):
        screen.line(f"  {line}".rstrip())


def _local(result: SimulationResult, at: datetime) -> str:
    return moment_text(result.local(at))
