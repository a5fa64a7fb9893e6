"""Plans on a screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from horae.cli.opening import plain
from horae.control.plantext import applied_line, plan_lines

if TYPE_CHECKING:
    from horae.cli.screen import Screen
    from horae.desk.plans import Applied, Plan


def show_plan(screen: Screen, plan: Plan, places: Mapping[str, str]) -> None:
    """`places` says where jobs are defined."""
    if not screen.as_json:
        for line in plan_lines(plain(plan), screen, places):
            screen.line(line)


def show_applied(screen: Screen, applied: Applied) -> None:
    if applied.jobs or applied.pools:
        screen.line(applied_line(plain(applied)))
