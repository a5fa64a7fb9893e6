"""The text of a plan: jobs to create, change and remove, the forecast, and the load before and after.

Plans are plain values, as from `Plan.to_dict` or from a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from horae.core.change.diff import DefinitionChange
from horae.core.schedule.slot_distance import ASSUMED_DURATION_TEXT
from horae.core.time.duration import format_duration
from horae.services.plan.differences import SIGNS, describe_changes
from horae.services.plan.terminal_words import counted, harmless

MOST_SHOWN = 100
"""Jobs that are printed with their changes. The plan itself has all jobs."""
CREATED, CHANGED, REMOVED = "created", "changed", "removed"
AT_ONCE = "at once, were there no limits"
"""Label of the peak concurrency. Pools, limits and dependencies hold runs back, and the peak ignores them."""
_FEW = 3
_MOST_MISSED = 10
_SIGNS = {CREATED: ("+", "green"), CHANGED: ("~", "yellow"), REMOVED: ("-", "red")}
_BARS = " ▁▂▃▄▅▆▇█"
_PLAIN_BARS = " .:-=+*#@"

Plain = Mapping[str, Any]


class TextOutput(Protocol):
    """The output. `width` None: lines may have any length. `plain`: only ASCII."""

    @property
    def width(self) -> int | None: ...

    @property
    def plain(self) -> bool: ...

    def style(self, text: str, *names: str) -> str: ...


class _PlainOutput:
    """Output without colours and without a limit of width."""

    width = None
    plain = False

    def style(self, text: str, *names: str) -> str:
        return text


PLAIN_OUTPUT = _PlainOutput()


def plan_lines(plan: Plain, paper: TextOutput = PLAIN_OUTPUT, places: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields the lines of a plan. `places` has the file and line of each job's definition, by name."""
    asked = f", {plan['policy']}" if plan["policy"] else ""
    cut = " (as far as there was time to look)" if plan["is_cut"] else ""
    yield f"{paper.style('plan ' + plan['plan'], 'bold')}, {plan['now']} to {plan['until']}{cut}{asked}"
    for each in plan["jobs"][:MOST_SHOWN]:
        yield from _job(paper, each, plan)
    if len(plan["jobs"]) > MOST_SHOWN:
        yield paper.style(f"  … and {len(plan['jobs']) - MOST_SHOWN} more jobs; --json has them all", "dim")
    for pool in plan["pools"]:
        sign, colour = _SIGNS[CREATED if pool["before"] is None else CHANGED]
        limit = "" if pool["before"] is None else f"{pool['before']} -> "
        runs = counted(pool["after"], "run")
        yield f"  {paper.style(sign, colour)} pool {harmless(pool['name'])}: {limit}{runs} at once"
    if plan["unchanged"]:
        yield f"  {paper.style('=', 'dim')} {counted(plan['unchanged'], 'job')} unchanged"
    if plan["running"]:
        more = " or more" if plan["running_more"] else ""
        yield paper.style(f"  {counted(plan['running'], 'run')}{more} started already, and will not be touched", "dim")
    if plan["has_changes"]:
        yield from _load(paper, plan["load"])
    yield from _missed(paper, plan["owed"])
    yield from _rest(paper, plan, places or {})
    yield ""
    yield _summary(plan)


def applied_line(applied: Plain) -> str:
    """Returns a line about what was applied."""
    if not applied["jobs"] and not applied["pools"]:
        return "nothing to do"
    pools = f", set {counted(len(applied['pools']), 'pool')}" if applied["pools"] else ""
    done = f"created {applied[CREATED]}, changed {applied[CHANGED]}, removed {applied[REMOVED]}{pools}"
    return f"applied: {done}; {applied['unchanged']} unchanged"


def _summary(plan: Plain) -> str:
    if not plan["has_changes"]:
        return "nothing to do" if plan["is_possible"] else "errors stand in the way"
    pools = f", {counted(len(plan['pools']), 'pool')} to set" if plan["pools"] else ""
    text = f"{plan[CREATED]} to create, {plan[CHANGED]} to change, {plan[REMOVED]} to remove{pools}"
    return text if plan["is_possible"] else f"{text}; errors stand in the way"


# ---- jobs ------------------------------------------------------------------------------------------------------------


def job_remarks(job: Plain, asked: str | None) -> list[str]:
    """Returns the remarks beside a job's name. `asked` is the update policy of the whole plan."""
    found = [] if job["change"] == CREATED else [f"version {job['version']}"]
    if job["change"] == CREATED and job["schedule"] is not None:
        found.append(job["schedule"])
    if job["state"] != "ENABLED":
        found.append(job["state"])
    policy, equals, moment = job["policy"].partition("=")
    if job["change"] == CHANGED and policy == "windowed":
        found.append(job["policy"])
    if job["switch_at"] is not None:
        speaks = f"from {moment} on" if policy == "graceful" and equals else f"after {job['switch_at']}"
        found += ["graceful"] if policy == "graceful" else []
        what = "schedule" if any(each["path"] == "schedule" for each in job["changes"]) else "version"
        found.append(f"the new {what} speaks {speaks}")
    if job["change"] == REMOVED:
        found += ["removed at once, whatever the policy"] if asked not in (None, "immediate") else []
        found.append("its history stays")
    return found


def _job(paper: TextOutput, job: Plain, plan: Plain) -> Iterator[str]:
    sign, colour = _SIGNS[job["change"]]
    beside = ", ".join(job_remarks(job, plan["policy"]))
    said = f"  {paper.style(harmless(beside), 'dim')}" if beside else ""
    yield f"  {paper.style(f'{sign} ' + harmless(job['name']), colour)}{said}"
    for told in describe_changes(
        DefinitionChange(each["path"], each["before"], each["after"]) for each in job["changes"]
    ):
        if not told.is_long:
            yield f"      {harmless(told.text)}"
            continue
        yield f"      {harmless(told.path)}:"
        for line in told.lines():
            yield f"        {paper.style(harmless(line), SIGNS.get(line[:1], 'dim'))}"
    yield from _occurrences(paper, job, plan)


def _occurrences(paper: TextOutput, job: Plain, plan: Plain) -> Iterator[str]:
    seen = job["occurrences"]
    if seen is None:
        if job["schedule"] is not None:
            yield paper.style("      occurrences: they cannot be told here", "dim")
        return
    if not (seen["added"] or seen["removed"] or seen["moved"]):
        told = f"{seen['kept']} kept, none changed" if seen["kept"] else describe_no_occurrences(job, plan)
        if job["schedule"] is not None:
            yield paper.style(f"      occurrences: {told}", "dim")
        return
    counts = [f"+{seen['added']}", f"-{seen['removed']}", f"~{seen['moved']} moved", f"={seen['kept']} kept"]
    later = f"; the next is {seen['next_after']}" if seen["next_after"] else ""
    earlier = f"; the next was {seen['next_before']}" if seen["next_before"] else ""
    lost = f"; {counted(seen['unschedulable'], 'slot')} cannot start" if seen["unschedulable"] else ""
    yield f"      occurrences: {'  '.join(counts)}{lost}{later}{earlier}"
    for sign, colour, total, found in (
        ("+", "green", seen["added"], seen["first_added"]),
        ("-", "red", seen["removed"], seen["first_removed"]),
        ("~", "yellow", seen["moved"], seen["first_moved"]),
    ):
        if found:
            more = f" … {total - _FEW} more" if total > _FEW else ""
            named = ", ".join(_occurrence(each) for each in found[:_FEW])
            yield f"        {paper.style(sign, colour)} {named}{paper.style(more, 'dim')}"


def describe_no_occurrences(job: Plain, plan: Plain) -> str:
    """Returns the words for a job without occurrences within the horizon on either side: what comes after that."""
    if job["state"] != "ENABLED" and job["change"] != REMOVED:
        return f"none while it is {job['state']}"
    seen = job["occurrences"]
    before, after = seen["next_before"], seen["next_after"]
    if seen["unschedulable"]:
        return f"none; {counted(seen['unschedulable'], 'slot')} cannot start"
    within = f"none within {_between(plan['now'], seen['until'])}"
    if job["change"] == REMOVED:
        return "none to come" if before is None else f"{within}; the next would have been {before}"
    if job["change"] == CREATED or before == after:
        return "none to come" if after is None else f"{within}; the next is {after}"
    return f"{within}; the next is {before or 'none'} -> {after or 'none'}"


def _between(begin: str, end: str) -> str:
    length = datetime.fromisoformat(end) - datetime.fromisoformat(begin)
    return format_duration(length)


def _occurrence(each: Plain) -> str:
    slot: str = each["slot"]
    if each["was"] is not None:
        return f"{slot} ({_clock(each['was'])} -> {_clock(each['start'])})"
    return slot if slot == each["start"] else f"{slot} (starts {_clock(each['start'])})"


def _clock(time: str) -> str:
    return time[11:19]


# ---- the whole -------------------------------------------------------------------------------------------------------


def _load(paper: TextOutput, loads: Plain) -> Iterator[str]:
    sides = loads["before"], loads["after"]
    rows = [
        ("", "before", "after"),
        (AT_ONCE, *(_at(each["peak"], each["peak_at"]) for each in sides)),
        ("busiest minute, starts", *(_at(each["busiest"], each["busiest_at"]) for each in sides)),
        ("starts", *(str(each["starts"]) for each in sides)),
        ("due while still running", *(str(each["overlaps"]) for each in sides)),
    ]
    yield ""
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for place, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield f"  {paper.style(line, 'dim') if not place else line}"
    most = max((*sides[0]["peaks"], *sides[1]["peaks"]), default=0)
    if most:
        # Both sides have one scale.
        yield f"  before  {_strip(paper, sides[0]['peaks'], most)}"
        yield f"  after   {_strip(paper, sides[1]['peaks'], most)}"
    told = f"{counted(loads['jobs'], 'job')}, to {loads['until']}"
    if loads["is_cut"]:
        told += ", as far as there was time to look"
    if loads["assumed"]:
        told += f"; of {loads['assumed']} it is not known how long they take: {loads['assumed_seconds']:g} s each, "
        told += ASSUMED_DURATION_TEXT
    yield paper.style(f"  {told}", "dim")


def _at(count: int, at: str | None) -> str:
    return str(count) if at is None else f"{count} at {at}"


def _strip(paper: TextOutput, peaks: Sequence[int], most: int) -> str:
    bars = _PLAIN_BARS if paper.plain else _BARS
    room = len(peaks) if paper.width is None else max(10, paper.width - 12)
    width = max(1, -(-len(peaks) // room))
    cells = [max(peaks[at : at + width]) for at in range(0, len(peaks), width)]
    return "".join(bars[-(-each * (len(bars) - 1) // most)] for each in cells)


def _missed(paper: TextOutput, owing: Sequence[Plain]) -> Iterator[str]:
    if not owing:
        return
    yield ""
    yield "  owed now, with or without this change:"
    for each in owing[:_MOST_MISSED]:
        least = "at least " if each["more"] else ""
        runs = "nothing is caught up on" if not each["runs"] else f"{counted(each['runs'], 'run')} to catch up"
        missed = counted(each["missed"], "slot")
        yield f"    {harmless(each['job'])}: {least}{missed} missed, {runs} ({each['strategy']})"
    if len(owing) > _MOST_MISSED:
        yield paper.style(f"    … and {counted(len(owing) - _MOST_MISSED, 'more job')}", "dim")


def _rest(paper: TextOutput, plan: Plain, places: Mapping[str, str]) -> Iterator[str]:
    for note in plan["notes"]:
        yield paper.style(f"  note: {harmless(note)}", "dim")
    for each in plan["findings"]:
        colour = "red" if each["level"] == "error" else "yellow"
        place = places.get(each["subject"])
        where = "" if place is None else f"{harmless(place)}: "
        yield ""
        yield f"  {paper.style(each['level'], colour)} {where}{harmless(each['message'])}"
        if each["hint"]:
            yield f"    {harmless(each['hint'])}"
