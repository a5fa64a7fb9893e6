"""A plan for people: what comes, changes and goes, the future of it, and the load before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.cli.rows import counted, harmless
from horae.control.planned import CHANGED, CREATED, told_value

if TYPE_CHECKING:
    from horae.cli.screen import Screen
    from horae.desk.plans import Applied, JobChange, Load, Loads, Occurrence, Plan

MOST_SHOWN = 100
"""Jobs that are shown with all that changes of them; --json has all."""
_FEW = 3
_MOST_OWED = 10
_LONGEST = 60
_SIGNS = {CREATED: ("+", "green"), CHANGED: ("~", "yellow"), "removed": ("-", "red")}
_BARS = " ▁▂▃▄▅▆▇█"
_PLAIN_BARS = " .:-=+*#@"


def show_plan(screen: Screen, plan: Plan) -> None:
    if screen.as_json:
        return
    asked = f", {plan.policy}" if plan.policy else ""
    cut = " (as far as there was time to look)" if plan.is_cut else ""
    screen.line(f"{screen.style(f'plan {plan.plan}', 'bold')}, {plan.now} to {plan.until}{cut}{asked}")
    for each in plan.jobs[:MOST_SHOWN]:
        _show_job(screen, each)
    if len(plan.jobs) > MOST_SHOWN:
        screen.line(screen.style(f"  … and {len(plan.jobs) - MOST_SHOWN} more jobs; --json has them all", "dim"))
    for pool in plan.pools:
        sign, colour = _SIGNS[CREATED if pool.before is None else CHANGED]
        limit = str(pool.after) if pool.before is None else f"{pool.before} -> {pool.after}"
        screen.line(f"  {screen.style(sign, colour)} pool {harmless(pool.name)}: {limit} runs at once")
    screen.line(f"  {screen.style('=', 'dim')} {counted(plan.unchanged, 'job')} unchanged")
    if plan.running:
        more = " or more" if plan.running_more else ""
        screen.line(
            screen.style(f"  {counted(plan.running, 'run')}{more} started already, and will not be touched", "dim")
        )
    if plan.has_changes:
        _show_load(screen, plan.load)
    _show_owed(screen, plan)
    _show_rest(screen, plan)
    screen.line()
    screen.line(_summary(plan))


def _summary(plan: Plan) -> str:
    if not plan.has_changes:
        return "nothing to do"
    pools = f", {counted(len(plan.pools), 'pool')} to set" if plan.pools else ""
    text = f"{plan.created} to create, {plan.changed} to change, {plan.removed} to remove{pools}"
    return text if plan.is_possible else f"{text}; errors stand in the way"


# ---- jobs ------------------------------------------------------------------------------------------------------------


def _show_job(screen: Screen, job: JobChange) -> None:
    sign, colour = _SIGNS[job.change]
    about = [] if job.change == CREATED else [f"version {job.version}"]
    if job.change == CREATED and job.schedule is not None:
        about.append(job.schedule)
    if job.state != "ENABLED":
        about.append(job.state)
    if job.change == CHANGED and job.policy != "immediate":
        about.append(job.policy)
    if job.switch_at is not None:
        about.append(f"the new schedule speaks after {job.switch_at}")
    if job.change == "removed":
        about.append("its history stays")
    said = f"  {screen.style(harmless(', '.join(about)), 'dim')}" if about else ""
    screen.line(f"  {screen.style(f'{sign} {harmless(job.name)}', colour)}{said}")
    for change in job.changes:
        before, after = (_short(told_value(change.path, value)) for value in (change.before, change.after))
        screen.line(f"      {harmless(change.path)}: {before} -> {after}")
    _show_occurrences(screen, job)


def _short(text: str) -> str:
    flat = " ".join(harmless(text).split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


def _show_occurrences(screen: Screen, job: JobChange) -> None:
    seen = job.occurrences
    if seen is None or not (seen.added or seen.removed or seen.moved):
        if seen is not None and job.change == CHANGED:
            screen.line(screen.style(f"      occurrences: {seen.kept} kept, none changed", "dim"))
        return
    counts = [f"+{seen.added}", f"-{seen.removed}", f"~{seen.moved} moved", f"={seen.kept} kept"]
    screen.line(f"      occurrences: {'  '.join(counts)}")
    for sign, colour, found in (
        ("+", "green", seen.first_added),
        ("-", "red", seen.first_removed),
        ("~", "yellow", seen.first_moved),
    ):
        if found:
            total = {"+": seen.added, "-": seen.removed, "~": seen.moved}[sign]
            more = f" … {total - _FEW} more" if total > _FEW else ""
            told = ", ".join(_occurrence(each) for each in found[:_FEW])
            screen.line(f"        {screen.style(sign, colour)} {told}{screen.style(more, 'dim')}")


def _occurrence(each: Occurrence) -> str:
    if each.was is not None:
        return f"{each.slot} ({_clock(each.was)} -> {_clock(each.start)})"
    return each.slot if each.slot == each.start else f"{each.slot} (starts {_clock(each.start)})"


def _clock(time: str) -> str:
    return time[11:19]


# ---- the whole -------------------------------------------------------------------------------------------------------


def _show_load(screen: Screen, loads: Loads) -> None:
    screen.line()
    rows = [
        ("runs at once, at most", *(_at(each.peak, each.peak_at) for each in (loads.before, loads.after))),
        ("busiest minute, starts", *(_at(each.busiest, each.busiest_at) for each in (loads.before, loads.after))),
        ("starts", str(loads.before.starts), str(loads.after.starts)),
        ("due while still running", str(loads.before.overlaps), str(loads.after.overlaps)),
    ]
    screen.table(("", "before", "after"), rows, cut=True)
    _show_strips(screen, loads)
    told = f"{counted(loads.jobs, 'job')}, to {loads.until}"
    if loads.is_cut:
        told += ", as far as there was time to look"
    if loads.assumed:
        told += f"; of {loads.assumed} it is not known how long they take: {loads.assumed_seconds:g} s each"
    screen.line(screen.style(f"  {told}", "dim"))


def _at(count: int, at: str | None) -> str:
    return str(count) if at is None else f"{count} at {at}"


def _show_strips(screen: Screen, loads: Loads) -> None:
    """Both sides on one scale: the fuller, the more at once."""
    most = max((*loads.before.peaks, *loads.after.peaks), default=0)
    if not most:
        return
    screen.line(f"  before  {_strip(screen, loads.before, most)}")
    screen.line(f"  after   {_strip(screen, loads.after, most)}")


def _strip(screen: Screen, load: Load, most: int) -> str:
    bars = _PLAIN_BARS if screen.plain else _BARS
    room = len(load.peaks) if screen.width is None else max(10, screen.width - 12)
    width = max(1, -(-len(load.peaks) // room))
    cells = [max(load.peaks[at : at + width]) for at in range(0, len(load.peaks), width)]
    return "".join(bars[-(-each * (len(bars) - 1) // most)] for each in cells)


def _show_owed(screen: Screen, plan: Plan) -> None:
    if not plan.owed:
        return
    screen.line()
    screen.line("  owed now, with or without this change:")
    for each in plan.owed[:_MOST_OWED]:
        least = "at least " if each.more else ""
        runs = "nothing is caught up on" if not each.runs else f"{counted(each.runs, 'run')} to catch up"
        screen.line(f"    {harmless(each.job)}: {least}{counted(each.missed, 'slot')} missed, {runs} ({each.strategy})")
    if len(plan.owed) > _MOST_OWED:
        screen.line(screen.style(f"    … and {len(plan.owed) - _MOST_OWED} more jobs", "dim"))


def _show_rest(screen: Screen, plan: Plan) -> None:
    for note in plan.notes:
        screen.line(screen.style(f"  note: {harmless(note)}", "dim"))
    for each in plan.findings:
        colour = "red" if each.level == "error" else "yellow"
        screen.line()
        screen.line(f"  {screen.style(each.level, colour)} {harmless(each.message)}")
        if each.hint:
            screen.line(f"    {harmless(each.hint)}")


def show_applied(screen: Screen, applied: Applied) -> None:
    if not applied.jobs and not applied.pools:
        return
    pools = f", set {counted(len(applied.pools), 'pool')}" if applied.pools else ""
    done = f"created {applied.created}, changed {applied.changed}, removed {applied.removed}{pools}"
    screen.line(f"applied: {done}; {applied.unchanged} unchanged")
