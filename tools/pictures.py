"""State machines as pictures: where a row is born, where it may go, where it ends. SVG, for light and dark pages."""

from __future__ import annotations

from html import escape

from horae.core.run.lifecycle import StateMachine

WIDTH, BOX, ROW, GAP = 900, 34, 62, 30
_COLOURS = ("#2f6fb3", "#a2641a", "#2e7d52", "#8a4ba3")
_STYLE = """
  text { font: 600 13px ui-sans-serif, system-ui, sans-serif; fill: #1d2733 }
  .small { font-weight: 400; font-size: 12px; fill: #5b6875 }
  rect { fill: #ffffff; stroke: #5b6875; stroke-width: 1.4 }
  .ends { fill: #eef1f4 }
  .way { fill: none; stroke-width: 1.7 }
  .birth { stroke: #8b97a3; stroke-dasharray: 4 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf0 } .small { fill: #9aa7b4 } rect { fill: #1b232c; stroke: #9aa7b4 } .ends { fill: #26303b }
  }
"""


def state_picture(machine: StateMachine) -> str:
    """Those that go on in the middle, the ends on the right; an arrow has the colour of the state that it leaves."""
    going = [state for state in machine.states if machine.moves[state]]
    ends = [state for state in machine.states if not machine.moves[state]]
    height = max(len(going) * 2, len(ends)) * ROW + GAP
    places = {state: (300, _spread(index, len(going), height)) for index, state in enumerate(going)}
    places |= {state: (650, _spread(index, len(ends), height)) for index, state in enumerate(ends)}
    colours = {state: _COLOURS[index % len(_COLOURS)] for index, state in enumerate(going)}
    named = f'role="img" aria-label="States of a {escape(machine.name)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {named}>',
        f"<style>{_STYLE}</style>",
        "<defs>",
        *(_arrowhead(f"from-{state}", colour) for state, colour in colours.items()),
        _arrowhead("from-birth", "#8b97a3"),
        "</defs>",
        f'<circle cx="60" cy="{height // 2}" r="9" fill="#8b97a3"/>',
        f'<text class="small" x="60" y="{height // 2 + 28}" text-anchor="middle">born</text>',
    ]
    parts += [_born(places[state], height, is_end=state in ends) for state in machine.states if state in machine.births]
    parts += [
        _move(places[before], places[after], before, colours[before], is_end=after in ends)
        for before in going
        for after in machine.states
        if after in machine.moves[before]
    ]
    for state, (x, y) in places.items():
        width = _width(state)
        look = ' class="ends"' if state in ends else ""
        parts.append(f'<rect{look} x="{x}" y="{y - BOX // 2}" width="{width}" height="{BOX}" rx="8"/>')
        parts.append(f'<text x="{x + width // 2}" y="{y + 5}" text-anchor="middle">{escape(state)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _spread(index: int, count: int, height: int) -> int:
    return round((index + 0.5) * height / count)


def _width(state: str) -> int:
    return max(110, 9 * len(state) + 24)


def _arrowhead(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
    )


def _born(place: tuple[int, int], height: int, *, is_end: bool) -> str:
    x, y = place
    middle = height // 2
    if is_end:
        # Below or above everything that goes on, so that it is not taken for a way through.
        around = -18 if y < middle else height + 18
        curve = f"M69 {middle} C 150 {around}, 430 {around}, {x - 4} {y}"
    else:
        curve = f"M69 {middle} C 160 {middle}, 200 {y}, {x - 4} {y}"
    return f'<path class="way birth" d="{curve}" marker-end="url(#from-birth)"/>'


def _move(start: tuple[int, int], end: tuple[int, int], before: str, colour: str, *, is_end: bool) -> str:
    (x, y), (to_x, to_y) = start, end
    if is_end:
        begin = x + _width(before)
        curve = f"M{begin} {y} C {begin + 120} {y}, {to_x - 130} {to_y}, {to_x - 4} {to_y}"
    else:
        # Down on one side, up on the other.
        side = x + 30 if to_y > y else x + 80
        edge = BOX // 2 + 3
        down = edge if to_y > y else -edge
        wide = 30 + abs(to_y - y) // 5
        bend = side + (-wide if to_y > y else wide)
        curve = f"M{side} {y + down} C {bend} {y + down * 2}, {bend} {to_y - down * 2}, {side} {to_y - down}"
    return f'<path class="way" d="{curve}" stroke="{colour}" marker-end="url(#from-{before})"/>'
