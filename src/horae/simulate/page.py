"""The page of a simulation: charts, tables and suggestions in one file that loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from horae.core.time.duration import format_duration
from horae.simulate.charts import days_map, load_curve, minutes_map
from horae.simulate.lengths import ASSUMED_DURATION_TEXT, length_text, moment_text
from horae.simulate.markup import Markup, joined, tag
from horae.simulate.result import JobResult, SimulationResult, Suggestion
from horae.version import __version__

MARK = "<!doctype html>\n<!-- horae simulate -->\n"
"""The first lines of a page. A file that begins with them may be overwritten."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_TONES = {
    "COMPLETED": "ok",
    "RUNNING": "run",
    "PENDING": "wait",
    "QUEUED": "wait",
    "SKIPPED": "skip",
    "MISSED": "bad",
    "UNSCHEDULABLE": "bad",
    "FAILED": "bad",
    "FAILED_STALE": "bad",
}
_STYLE = """
:root { color-scheme: light dark;
  --paper: #f2f4f8; --surface: #fff; --sunken: #e9ecf3; --cell: #e9ecf3; --line: #d9dee8;
  --ink: #151b2e; --soft: #525c74;
  --accent: #2b3fae; --brass: #7d5a07; --brass-mark: #b8860b; --brass-wash: #f8efd6;
  --ok: #0b6b4d; --run: #2b46c9; --wait: #4f5a70; --skip: #535e74; --bad: #a9260f; --warn: #7d5200; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #0b0f1a; --surface: #121828; --sunken: #0e1320; --cell: #1d2639; --line: #242e45;
  --ink: #e6eaf4; --soft: #9ba7c0;
  --accent: #a3b2ff; --brass: #e3bb62; --brass-mark: #dcae4b; --brass-wash: #2e2714;
  --ok: #6fd6ae; --run: #a3b4ff; --wait: #aab4c9; --skip: #a9b3c8; --bad: #ff9c85; --warn: #f0c25e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 14px/1.5 ui-sans-serif, system-ui, -apple-system,
  "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; display: grid; gap: 16px;
  grid-template-columns: minmax(0, 1fr); }
h1 { font-size: 24px; line-height: 1.2; font-weight: 640; letter-spacing: -.018em; margin: 0 0 4px; }
h2 { font-size: 15px; font-weight: 640; margin: 0 0 10px; }
p { margin: 0 0 6px; } .soft { color: var(--soft); }
section { background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; }
section.good { border-color: var(--brass-mark); background: linear-gradient(var(--brass-wash), var(--surface) 90px); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; margin: 0; }
dt { color: var(--soft); font-size: 12.5px; } dd { margin: 0; font-size: 22px; font-weight: 640; line-height: 1.25; }
dd small { display: block; font-size: 12.5px; font-weight: 400; color: var(--soft); }
.picture { overflow-x: auto; } svg { display: block; width: 100%; min-width: 640px; height: auto; }
.tick { fill: var(--soft); font-size: 11px; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.heat { fill: var(--accent); } .heat-0 { fill: var(--cell); } .heat-1 { fill-opacity: .22; }
.heat-2 { fill-opacity: .42; } .heat-3 { fill-opacity: .6; } .heat-4 { fill-opacity: .8; }
.grid { stroke: var(--line); stroke-width: 1; } .area { fill: var(--accent); fill-opacity: .16; }
.line { fill: none; stroke: var(--accent); stroke-width: 1.6; stroke-linejoin: round; }
.limit { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 6 4; } .limit-text { fill: var(--bad); }
.peak { fill: var(--brass-mark); stroke: var(--surface); stroke-width: 2; }
.peak-number { fill: #1a1405; font-size: 10px; font-weight: 700; text-anchor: middle; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 12.5px; white-space: nowrap; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td, tr:last-child th { border-bottom: 0; } .num { text-align: right; white-space: nowrap; }
tbody th { overflow-wrap: anywhere; color: var(--ink); font-size: 14px; font-weight: 400; white-space: normal; }
.named tbody th { min-width: 10em; } td.wide { min-width: 14em; overflow-wrap: anywhere; }
.ok { color: var(--ok); } .run { color: var(--run); } .wait { color: var(--wait); } .skip { color: var(--skip); }
.bad { color: var(--bad); } .state { font-size: 12.5px; font-weight: 600; white-space: nowrap; }
pre { margin: 10px 0 0; padding: 12px 14px; background: var(--sunken); border-radius: 6px; overflow-x: auto; font:
  13px/1.5 ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.moves { display: flex; flex-wrap: wrap; gap: 4px 28px; margin-bottom: 4px; } .moves strong { font-size: 17px; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""


def page(result: SimulationResult) -> str:
    """The whole document. The same result gives the same text."""
    title = f"Simulation, {_time(result, result.start)} to {_time(result, result.end)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(_STYLE)),
    )
    body = tag("body", tag("main", _opening(result), *_sections(result)))
    return f"{MARK}{tag('html', head, body, lang='en')}\n"


def _opening(result: SimulationResult) -> Markup:
    jobs = f"{len(result.jobs)} job{'' if len(result.jobs) == 1 else 's'}"
    said = f"{jobs}, {result.slots} slots, seed {result.seed}. Nothing was run but stand-ins, on simulated time."
    lines = [tag("p", said, class_="soft")]
    if result.assumed:
        some = f"{len(result.assumed)} of {jobs}"
        length = length_text(result.assumed_seconds)
        lines.append(
            tag(
                "p",
                f"Without history are {some}: their runs were taken to last {length}, {ASSUMED_DURATION_TEXT}.",
                class_="soft",
            )
        )
    if not result.knows_pools:
        lines.append(tag("p", "The catalog's pools could not be seen: none of them held anything up.", class_="soft"))
    heading = f"{_time(result, result.start)} to {_time(result, result.end)}"
    return tag("header", tag("h1", heading), tag("p", f"On the clocks of {result.timezone}", class_="soft"), *lines)


def _sections(result: SimulationResult) -> list[Markup]:
    days = days_map(result)
    found = [
        tag("section", tag("h2", "At a glance"), _figures(result)),
        tag("section", tag("h2", "Runs under way at once"), load_curve(result), _peaks(result)),
    ]
    if result.suggestion is not None:
        found.append(_suggestion(result.suggestion))
    if days is not None:
        found.append(tag("section", tag("h2", "Starts, by day and hour"), days))
    found.append(tag("section", tag("h2", "Starts, by hour and minute"), minutes_map(result)))
    if result.troubles:
        found.append(tag("section", tag("h2", "What did not go well"), _troubles(result)))
    if result.clock_changes:
        found.append(tag("section", tag("h2", "Where clocks change"), _clock_changes(result)))
    found.append(tag("section", tag("h2", "Jobs"), _jobs(result)))
    found.append(tag("p", f"Made by horae simulate {__version__}.", class_="soft"))
    return found


def _figures(result: SimulationResult) -> Markup:
    load = result.load
    busiest = None if load.busiest_at is None else f"in the busiest minute, {_time(result, load.busiest_at)}"
    figures: list[tuple[str, str, str | None, str]] = [("runs started", str(result.started), None, "")]
    for state, count in result.states.items():
        figures.append((state.replace("_", " ").lower(), str(count), None, state))
    figures.append(("at once, at most", str(load.peak), f"of {result.slots} slots", ""))
    figures.append(("starts", str(load.busiest), busiest, ""))
    for waits, what in (
        (result.dependencies, "for other jobs"),
        (result.itself, "for earlier runs of the same job"),
        (result.room, "for a slot or a pool"),
    ):
        if waits.runs:
            figures.append((f"waited {what}", str(waits.runs), f"{length_text(waits.longest)} at the longest", ""))
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", label),
                tag("dd", value, None if note is None else tag("small", note), class_=_TONES.get(state)),
            )
            for label, value, note, state in figures
        ),
    )


def _peaks(result: SimulationResult) -> Markup | None:
    if not result.load.peaks:
        return None
    rows = []
    for number, peak in enumerate(result.load.peaks, start=1):
        named = ", ".join(peak.jobs) + (f" and {peak.more} more" if peak.more else "")
        cells = [_time(result, peak.at), str(peak.runs), length_text(peak.seconds), named]
        rows.append([str(number), *cells])
    return _table(("", "moment", "runs", "for", "jobs"), rows, numbers={2, 3}, wide=4)


def _troubles(result: SimulationResult) -> Markup:
    rows = [
        [
            each.job,
            tag("span", each.state, class_=f"state {_TONES.get(each.state, 'wait')}"),
            each.why,
            str(each.count),
            ", ".join(_time(result, at) for at in each.first),
        ]
        for each in result.troubles
    ]
    return _table(("job", "state", "why", "runs", "the first of them"), rows, numbers={3}, wide=4)


def _clock_changes(result: SimulationResult) -> Markup:
    rows = [[each.job, _time(result, each.effect.at), str(each.effect)] for each in result.clock_changes]
    return _table(("job", "at", "what that does to its slots"), rows, numbers=set(), wide=2)


def _jobs(result: SimulationResult) -> Markup:
    ordered = sorted(result.jobs, key=lambda each: (-each.started * each.seconds, each.job))
    waits = ("waited for other jobs", "for its own earlier run", "for a slot or pool")
    titles = ("job", "runs", "ended", "longest", *waits)
    return _table(titles, [_job(each) for each in ordered], numbers={1, 3, 4, 5, 6}, wide=2)


def _job(job: JobResult) -> list[str | Markup]:
    ends = [
        tag("span", f"{count} {state.replace('_', ' ').lower()}", class_=_TONES.get(state, "wait"))
        for state, count in job.states.items()
    ]
    ended = joined(*(part for each in ends for part in (each, Markup(" ")))) if ends else Markup("")
    longest = length_text(job.seconds) + (" (assumed)" if job.assumed else "")
    waits = [length_text(each.longest) if each.runs else "" for each in (job.dependencies, job.itself, job.room)]
    return [job.job, str(job.started), ended, longest if job.started else "", *waits]


def _suggestion(found: Suggestion) -> Markup:
    lengths = sorted({window.length for window in found.windows.values()})
    span = " to ".join(format_duration(each) for each in dict.fromkeys((lengths[0], lengths[-1])))
    count = len(found.windows)
    moves = [(found.peak, "at once"), (found.busiest, "starts in the busiest minute")]
    told = [(f"{each.before:g} → {each.after:g}", what) for each, what in moves]
    wait = found.longest_wait
    if wait.before:
        told.append((f"{length_text(wait.before)} → {length_text(wait.after)}", "longest wait for a slot or a pool"))
    return tag(
        "section",
        tag("h2", "Windows would flatten the peaks"),
        tag("p", f"{count} job{'' if count == 1 else 's'} with windows of {span}. The span was run again with them:"),
        tag("div", *(tag("span", tag("strong", each), f" {what}") for each, what in told), class_="moves"),
        tag("pre", found.toml().rstrip(), tabindex="0"),
        class_="good",
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str | Markup]], *, numbers: set[int], wide: int) -> Markup:
    """A table. The first cell of each row is its heading; the column `wide` gets the remaining width."""

    def kind(place: int) -> str | None:
        return "num" if place in numbers else "wide" if place == wide else None

    head = tag("tr", *(tag("th", title, scope="col", class_=kind(place)) for place, title in enumerate(titles)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=kind(place)) for place, cell in enumerate(row[1:], start=1)),
        )
        for row in rows
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_="named" if titles[0] else None)
    return tag("div", table, class_="scroll", tabindex="0")


def _time(result: SimulationResult, at: datetime) -> str:
    return moment_text(result.local(at), "%a %d %b %Y")
