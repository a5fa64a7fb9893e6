"""`horae run`: runs listed and shown, what they printed, cancelled, done again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from horae.cli.opening import Catalog, opened
from horae.cli.rows import harmless, show_rows
from horae.control.service import Service
from horae.control.shapes import run_shape
from horae.errors import NotFound, shown

if TYPE_CHECKING:
    from horae.cli.screen import Screen

_LIST = {
    "run": "run_id",
    "job": "job",
    "state": "state",
    "scheduled": "scheduled_time",
    "started": "started_at",
    "seconds": "duration_seconds",
    "origin": "origin",
    "why": "why",
}
_ATTEMPT = "attempt_"


def run(arguments: Namespace, screen: Screen) -> int:
    with opened(arguments) as catalog:
        _ACTIONS[arguments.action](arguments, screen, catalog)
    return 0


def show_runs(screen: Screen, records: Sequence[Any]) -> None:
    """Runs as a table, or as one document."""
    runs = [run_shape(record) for record in records]
    screen.data({"runs": runs})
    if runs:
        rows = [[(each | {"why": each["reason"] or each["error"]})[key] for key in _LIST.values()] for each in runs]
        show_rows(screen, list(_LIST), rows)
    screen.line(screen.style(f"({len(runs)} run{'' if len(runs) == 1 else 's'})", "dim"))


def _list(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    state = None if arguments.state is None else arguments.state.upper()
    show_runs(screen, catalog.ask(lambda service: service.queries.runs(arguments.job, state, arguments.limit)))


def _show(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    report = catalog.ask(lambda service: service.queries.report(arguments.id))
    screen.data(report.to_dict())
    screen.line(harmless(str(report)))


def _output(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    async def work(service: Service) -> list[dict[str, Any]]:
        if arguments.id.startswith(_ATTEMPT):
            return [{"attempt_id": arguments.id, "text": await service.queries.output(arguments.id)}]
        report = await service.queries.report(arguments.id)
        tasks = [task for task in report.tasks if arguments.task in (None, task.name)]
        if not tasks and arguments.task is not None:
            raise NotFound(
                f"The run has no task {shown(arguments.task)}",
                hint=f"Known so far: {', '.join(task.name for task in report.tasks) or 'none'}.",
            )
        return [
            {
                "attempt_id": attempt.attempt_id,
                "task": task.name,
                "attempt": attempt.number,
                "text": await service.queries.output(attempt.attempt_id),
            }
            for task in tasks
            for attempt in task.attempts
        ]

    found = catalog.ask(work)
    screen.data({"id": arguments.id, "output": found})
    if screen.as_json:
        return
    for each in found:
        if len(found) > 1:
            screen.line(screen.style(f"== {each['task']}, attempt {each['attempt']} ==", "dim"))
        text = each["text"] if screen.width is None else harmless(each["text"])
        if text:
            screen.line(text.removesuffix("\n"))
    if not any(each["text"] for each in found):
        screen.note("nothing was printed" if found else "nothing was tried yet")


def _cancel(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    state = catalog.ask(lambda service: service.commands.cancel(arguments.id))
    told = f"{arguments.id} is asked to stop" if state == "RUNNING" else f"{arguments.id} is {state}"
    screen.data({"run_id": arguments.id, "state": str(state), "message": told})
    screen.line(told)


def _replay(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    found = catalog.ask(lambda service: service.commands.replay(arguments.id, arguments.reason, arguments.task))
    told = f"run {found.run_id} does again what {arguments.id} did"
    values = {"run_id": found.run_id, "replay_of": arguments.id, "state": str(found.state)}
    screen.data(values | {"message": told})
    screen.line(told)


_ACTIONS = {"list": _list, "show": _show, "output": _output, "cancel": _cancel, "replay": _replay}
