"""`horae explain`: shows how the start of one scheduled time of a job in a krontab is decided."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from horae.cli import files
from horae.errors import InvalidInput, shown
from horae.services.preview.preview import (
    clauses_text,
    explain_slot,
    explanation_dict,
    find_job,
    narrow_note,
    read_time,
)

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen


_MOST_ROWS = 12
_INSTEAD = "horae apply {} defines its jobs; then horae job explain NAME."


def run(arguments: Namespace, screen: Screen) -> int:
    job = find_job(files.read_krontab(arguments.file, _INSTEAD), arguments.job, file=arguments.file)
    moment = files.now()
    if arguments.at is None:
        at = job.schedule.next(moment)
        if at is None:
            raise InvalidInput(f"Job {shown(job.name)} has no occurrence after now", hint="Name one with --at.")
    else:
        at = read_time(arguments.at, job.schedule.tz, moment, "--at")
    explanation, is_occurrence = explain_slot(job, at)
    trace = explanation_dict(explanation, is_occurrence=is_occurrence) | {
        "description": job.schedule.describe(),
        "suspended": job.suspend,
    }
    note = narrow_note(job, moment)
    if note is not None:
        trace["note"] = note
    screen.data(trace)
    show(screen, trace)
    return 0


def show(screen: Screen, trace: dict[str, Any]) -> None:
    """Prints the decision's trace as text, in the order of its steps."""
    screen.line(f"{screen.style(trace['identity'], 'bold')}  {trace['description']}")
    if not trace["is_occurrence"]:
        warning = f"{trace['nominal_time']} is not one of its occurrences; decided as if it were"
        screen.line(f"  {screen.style(warning, 'yellow')}")
    if trace.get("suspended"):
        screen.line(f"  {screen.style('suspended: nothing runs until it is resumed', 'yellow')}")
    if trace.get("note"):
        screen.line(f"  {screen.style(trace['note'], 'yellow')}")
    params = ", ".join(f"{key}={value}" for key, value in trace["distribution"]["params"].items())
    for label, value in (
        ("nominal", f"{trace['nominal_time']}  ({trace['nominal_local']})"),
        (
            "window",
            f"{trace['window_mode']} {trace['window_length']}, {trace['window_start']} to {trace['window_end']}",
        ),
        ("seed", f"{trace['seed_strategy']}, period key {trace['period_key']}"),
        ("seed input", repr(trace["seed_input"])),
        ("seed hash", trace["seed_hash"]),
        ("distribution", trace["distribution"]["name"] + (f" ({params})" if params else "")),
        *_constraints(trace["constraints"]),
        ("decided by", f"core {trace['core_version']}, zone data {trace['tzdata_version']}"),
    ):
        screen.line(f"  {screen.style(f'{label:<13}', 'dim')} {value}")
    screen.line()
    rows = [
        [
            str(each["attempt"]),
            f"{each['draw']:.6f}" if trace["window_seconds"] else "-",
            each["local"],
            _verdict(each),
        ]
        for each in trace["candidates"]
    ]
    if len(rows) > _MOST_ROWS:
        left_out = len(rows) - _MOST_ROWS
        rows[_MOST_ROWS - 1 : -1] = [["…", "", f"{left_out} more, all rejected (--json lists them)", ""]]
    screen.table(["attempt", "draw", "candidate", ""], rows, ["dim", "", "cyan", ""])
    screen.line()
    if trace["unschedulable"]:
        screen.line(screen.style(f"  UNSCHEDULABLE: {trace['reason']}", "red", "bold"))
    else:
        screen.line(f"  starts at {screen.style(trace['chosen_time'], 'green', 'bold')}")


def _verdict(candidate: dict[str, Any]) -> str:
    if not candidate["accepted"]:
        return f"rejected: {candidate['objection']}"
    return "accepted" if not candidate["is_picked"] else "exact: picked among the allowed seconds"


def _constraints(constraints: dict[str, Any]) -> list[tuple[str, str]]:
    return [(side, clauses_text(clauses)) for side in ("only", "avoid") for clauses in constraints.get(side, ())]
