"""The diagrams of the architecture as SVG, drawn from the lists below: the pipe, the system, the data flow, one run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_STYLE = """
  text { font: 600 13px ui-sans-serif, system-ui, sans-serif; fill: #1d2733 }
  .small { font-weight: 400; font-size: 12px; fill: #5b6875 }
  rect { fill: #ffffff; stroke: #5b6875; stroke-width: 1.4 }
  .room { fill: #eef1f4 }
  .way { fill: none; stroke: #2f6fb3; stroke-width: 1.6 }
  .life { stroke: #8b97a3; stroke-dasharray: 4 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf0 } .small { fill: #9aa7b4 } rect { fill: #1b232c; stroke: #9aa7b4 } .room { fill: #26303b }
  }
"""
_ARROW = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#2f6fb3"/></marker></defs>'
)


class Box(NamedTuple):
    """A rectangle with a title and a line below it; `x` and `y` are its upper left corner."""

    x: int
    y: int
    title: str
    line: str = ""
    width: int = 160
    height: int = 52
    kind: str = ""


class Arrow(NamedTuple):
    """From a point to a point, with a word beside its middle."""

    x: int
    y: int
    to_x: int
    to_y: int
    word: str = ""


class Message(NamedTuple):
    """One arrow of a sequence: from a column to a column, by their places from the left."""

    source: int
    target: int
    word: str


def pipe() -> str:
    stations = [
        ("schedule", "core/schedule"),
        ("due run", "core/run/due"),
        ("task run", "core/run/progress"),
        ("attempt", "core/run/attempt"),
        ("report", "core/report"),
    ]
    boxes = [Box(10 + index * 190, 30, title, line, 150) for index, (title, line) in enumerate(stations)]
    words = ["create", "claim", "start", "settle"]
    arrows = [Arrow(162 + index * 190, 56, 196 + index * 190, 56, word) for index, word in enumerate(words)]
    return _picture("From a schedule to a report", 930, 110, boxes, arrows)


def system() -> str:
    boxes = [
        Box(20, 20, "Python", "app, declarative", 150),
        Box(190, 20, "Command line", "cli", 150),
        Box(360, 20, "HTTP, dashboard", "web", 150),
        Box(530, 20, "SQL", "services/sql", 150),
        Box(130, 120, "Operations", "api", 200, kind="room"),
        Box(380, 120, "One service", "services", 200, kind="room"),
        Box(740, 120, "Node", "engine", 170, kind="room"),
        Box(740, 220, "Work", "executors, external", 170),
        Box(130, 220, "Store", "store: SQLite or PostgreSQL", 450, kind="room"),
        Box(130, 320, "Rules", "core: pure functions, asked by every room above", 780, kind="room"),
    ]
    arrows = [
        Arrow(95, 72, 190, 118),
        Arrow(265, 72, 240, 118),
        Arrow(435, 72, 290, 118),
        Arrow(605, 72, 500, 118),
        Arrow(332, 146, 378, 146),
        Arrow(480, 172, 480, 218, "verbs"),
        Arrow(740, 160, 582, 232, "create, claim, settle"),
        Arrow(825, 172, 825, 218, "attempts"),
        Arrow(355, 272, 355, 318),
        Arrow(880, 272, 880, 318),
    ]
    return _picture("The rooms of the system", 930, 390, boxes, arrows)


def data_flow() -> str:
    boxes = [
        Box(20, 30, "sys.jobs", "versions, cursor", 170),
        Box(260, 30, "sys.job_runs", "one row per run", 170),
        Box(500, 30, "sys.task_runs", "one row per task", 170),
        Box(740, 30, "sys.task_attempts", "one row per try", 170),
        Box(20, 150, "cb_schedules", "view, writes requests", 170),
        Box(260, 150, "sys.outbox", "ends for hooks", 170),
        Box(500, 150, "sys.audit", "rows, sealed in a chain", 170),
        Box(740, 150, "sys.nodes", "heartbeat, lock", 170),
    ]
    arrows = [
        Arrow(192, 56, 258, 56, "create"),
        Arrow(432, 56, 498, 56, "claim"),
        Arrow(672, 56, 738, 56, "start"),
        Arrow(105, 148, 105, 84, "apply"),
        Arrow(345, 84, 345, 148, "settle"),
        Arrow(400, 84, 540, 148, "record"),
        Arrow(790, 148, 436, 84, "take over"),
    ]
    return _picture("The tables and what moves rows through them", 930, 230, boxes, arrows)


def one_run() -> str:
    columns = ["Claimer", "Store", "Core", "AttemptRunner", "AttemptSettler"]
    messages = [
        Message(0, 1, "create due runs, claim"),
        Message(1, 2, "due(job, now)"),
        Message(2, 1, "runs, cursor"),
        Message(1, 0, "claims with fences"),
        Message(0, 3, "start"),
        Message(3, 4, "outcome"),
        Message(4, 1, "settle a batch"),
        Message(1, 2, "progress of each run"),
        Message(2, 1, "retry, next task or end"),
        Message(1, 4, "settled, starts, hand-over"),
    ]
    return _sequence("One run, from due to settled", columns, messages)


DIAGRAMS = {"pipe": pipe, "system": system, "data-flow": data_flow, "one-run": one_run}


def _picture(label: str, width: int, height: int, boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    return _svg(label, width, height, [*(part for box in boxes for part in _box(box)), *map(_arrow, arrows)])


def _sequence(label: str, columns: Sequence[str], messages: Sequence[Message]) -> str:
    height = 90 + 44 * len(messages)
    parts: list[str] = []
    for index, name in enumerate(columns):
        x = 20 + index * 185
        parts += [*_box(Box(x, 14, name, width=150, height=34, kind="room"))]
        parts.append(f'<line class="life" x1="{x + 75}" y1="50" x2="{x + 75}" y2="{height - 14}"/>')
    for row, message in enumerate(messages):
        y = 84 + row * 44
        start, end = 95 + message.source * 185, 95 + message.target * 185
        parts.append(_arrow(Arrow(start, y, end - (4 if end > start else -4), y, message.word)))
    return _svg(label, 930, height, parts)


def _svg(label: str, width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", _ARROW, *parts, "</svg>"]) + "\n"


def _box(box: Box) -> list[str]:
    look = f' class="{box.kind}"' if box.kind else ""
    middle = box.x + box.width // 2
    title_y = box.y + (box.height // 2 + 5 if not box.line else 22)
    found = [
        f'<rect{look} x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8"/>',
        f'<text x="{middle}" y="{title_y}" text-anchor="middle">{escape(box.title)}</text>',
    ]
    if box.line:
        found.append(
            f'<text class="small" x="{middle}" y="{box.y + 40}" text-anchor="middle">{escape(box.line)}</text>'
        )
    return found


def _arrow(arrow: Arrow) -> str:
    line = f'<path class="way" d="M{arrow.x} {arrow.y} L{arrow.to_x} {arrow.to_y}" marker-end="url(#tip)"/>'
    if not arrow.word:
        return line
    x, y = (arrow.x + arrow.to_x) // 2, (arrow.y + arrow.to_y) // 2
    is_upright = abs(arrow.to_y - arrow.y) > abs(arrow.to_x - arrow.x)
    place = f'x="{x + 6}" y="{y + 4}"' if is_upright else f'x="{x}" y="{y - 7}" text-anchor="middle"'
    return f'{line}<text class="small" {place}>{escape(arrow.word)}</text>'
