"""Plans and their results as text on a screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from horae.cli.catalog_access import json_values
from horae.services.plan.plan_text import applied_line, plan_lines

if TYPE_CHECKING:
    from horae.api.responses.plan_responses import Applied, Plan
    from horae.cli.screen.screen import Screen


def show_plan(screen: Screen, plan: Plan, places: Mapping[str, str]) -> None:
    """Prints a plan. `places` maps job names to where the jobs are defined."""
    if not screen.as_json:
        for line in plan_lines(json_values(plan), screen, places):
            screen.line(line)


def show_applied(screen: Screen, applied: Applied) -> None:
    if applied.jobs or applied.pools:
        screen.line(applied_line(json_values(applied)))
