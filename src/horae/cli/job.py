"""`horae job`: jobs listed and shown, paused and resumed, run now, moved, caught up on, dropped."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from horae.cli.opening import Catalog, opened
from horae.cli.rows import harmless, show_rows
from horae.cli.run import show_runs
from horae.control.preview import read_time
from horae.control.service import Service
from horae.control.shapes import job_shape, whole_job_shape
from horae.ddl.printer import job_text
from horae.errors import HoraeError, InvalidInput

if TYPE_CHECKING:
    from horae.cli.screen import Screen

_LIST = {
    "job": "name",
    "state": "state",
    "next run": "next_run_time",
    "schedule": "schedule",
    "owner": "owner",
    "version": "version",
}
_FEW = 5
"""Runs that are shown with their job."""


def run(arguments: Namespace, screen: Screen) -> int:
    with opened(arguments) as catalog:
        _ACTIONS[arguments.action](arguments, screen, catalog)
    return 0


def _list(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    state = None if arguments.state is None else arguments.state.upper()
    found = catalog.ask(lambda service: service.queries.jobs(arguments.tag, state))
    jobs = [job_shape(job) for job in found]
    screen.data({"jobs": jobs})
    if jobs:
        show_rows(screen, list(_LIST), [[job[key] for key in _LIST.values()] for job in jobs])
    screen.line(screen.style(f"({len(jobs)} job{'' if len(jobs) == 1 else 's'})", "dim"))


def _show(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    async def work(service: Service) -> tuple[Any, Any]:
        return await service.queries.get_job(arguments.name), await service.queries.runs(arguments.name, limit=_FEW)

    record, runs = catalog.ask(work)
    job = whole_job_shape(record)
    try:
        statement: str | None = job_text(record.definition.spec, state=record.state)
    except HoraeError:
        # Not every job can be said in SQL: schedules of the user's own, say.
        statement = None
    screen.data(job | {"sql": statement})
    if screen.as_json:
        return
    screen.line(screen.style(job["name"], "bold") + (f"  {harmless(job['description'])}" if job["description"] else ""))
    schedule = "none: it runs only when somebody asks"
    if job["schedule"] is not None:
        schedule = f"{job['schedule']}: {job['schedule_description']} ({job['timezone']})"
    for label, value in (
        ("state", _state(job)),
        ("schedule", schedule),
        ("next run", job["next_run_time"] or "-"),
        ("moved", f"the run of {job['moved']['slot']} to {job['moved']['to']}" if job["moved"] else None),
        ("depends on", ", ".join(job["depends_on"])),
        ("tags", ", ".join(job["tags"])),
        ("owner", job["owner"]),
        ("runs as", job["run_as"]),
        ("version", f"{job['version']}, of {job['updated_at']}"),
        ("created", f"{job['created_at']} by {job['created_by']}"),
    ):
        if value:
            screen.line(f"  {screen.style(f'{label:<11}', 'dim')} {harmless(str(value))}")
    screen.line()
    tasks = [[task["name"], task["kind"], task["handler"]] for task in job["definition"]["tasks"]]
    show_rows(screen, ["task", "kind", "work"], tasks)
    if statement is not None:
        screen.line()
        screen.line(harmless(statement) + ";")
    screen.line()
    show_runs(screen, runs)


def _state(job: dict[str, Any]) -> str:
    until = f" until {job['paused_until']}" if job["paused_until"] else ""
    note = f" ({job['pause_note']})" if job["pause_note"] else ""
    return f"{job['state']}{until}{note}"


def _runs(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    state = None if arguments.state is None else arguments.state.upper()

    async def work(service: Service) -> Any:
        if arguments.name is not None:
            # A name that no job has is probably mistyped; but what is left of a dropped job's history can be read.
            found = await service.queries.runs(arguments.name, state, arguments.limit)
            if not found:
                await service.queries.get_job(arguments.name)
            return found
        return await service.queries.runs(None, state, arguments.limit)

    show_runs(screen, catalog.ask(work))


def _pause(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    async def work(service: Service) -> datetime | None:
        until = None if arguments.until is None else await _time(service, arguments.name, arguments.until, "--until")
        await service.commands.pause(arguments.name, until, arguments.note)
        return until

    until = catalog.ask(work)
    ending = "" if until is None else f" until {_told(until)}"
    _done(screen, arguments, f"paused {arguments.name}{ending}", until=None if until is None else _told(until))


def _resume(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    catalog.ask(lambda service: service.commands.resume(arguments.name))
    _done(screen, arguments, f"resumed {arguments.name}")


def _enable(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    catalog.ask(lambda service: service.commands.enable(arguments.name))
    _done(screen, arguments, f"enabled {arguments.name}")


def _disable(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    catalog.ask(lambda service: service.commands.disable(arguments.name))
    _done(screen, arguments, f"disabled {arguments.name}")


def _trigger(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    payload = None
    if arguments.payload is not None:
        try:
            payload = json.loads(arguments.payload)
        except ValueError as error:
            raise InvalidInput(
                f"--payload is not JSON: {error}", hint="""Write --payload '{"day": "2027-03-01"}', in quotes."""
            ) from None
    found = catalog.ask(lambda service: service.commands.trigger(arguments.name, payload, arguments.key))
    again = "" if found.fresh else f", which was asked for before and is {found.state}"
    values = {"run_id": found.run_id, "state": str(found.state), "fresh": found.fresh}
    _done(screen, arguments, f"run {found.run_id} of {arguments.name}{again}", **values)


def _reschedule(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    async def work(service: Service) -> tuple[datetime, datetime]:
        at = await _time(service, arguments.name, arguments.at, "AT")
        return await service.commands.reschedule(arguments.name, at), at

    slot, at = catalog.ask(work)
    told = f"the run of {_told(slot)} starts at {_told(at)}"
    _done(screen, arguments, f"{arguments.name}: {told}", slot=_told(slot), at=_told(at))


def _backfill(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    async def work(service: Service) -> list[str]:
        start = await _time(service, arguments.name, arguments.start, "START")
        end = await _time(service, arguments.name, arguments.end, "END")
        return [each.run_id for each in await service.commands.backfill(arguments.name, start, end)]

    runs = catalog.ask(work)
    told = f"{len(runs)} run{'' if len(runs) == 1 else 's'} of {arguments.name} to catch up"
    _done(
        screen, arguments, told if runs else f"nothing to catch up: every slot of {arguments.name} has a run", runs=runs
    )


def _drop(arguments: Namespace, screen: Screen, catalog: Catalog) -> None:
    catalog.ask(lambda service: service.commands.drop(arguments.name, arguments.keep_history))
    _done(screen, arguments, f"dropped {arguments.name}" + (", keeping its history" if arguments.keep_history else ""))


def _done(screen: Screen, arguments: Namespace, message: str, **values: Any) -> None:
    screen.data({"job": arguments.name, "action": arguments.action, "message": message} | values)
    screen.line(harmless(message))


async def _time(service: Service, job: str, text: str, name: str) -> datetime:
    """A time as it was typed, on the job's own clocks where it says nothing else."""
    found = await service.queries.get_job(job)
    schedule = found.definition.spec.schedule
    return read_time(text, "UTC" if schedule is None else schedule.timezone, await service.now(), name)


def _told(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


_ACTIONS = {
    "list": _list,
    "show": _show,
    "runs": _runs,
    "pause": _pause,
    "resume": _resume,
    "enable": _enable,
    "disable": _disable,
    "trigger": _trigger,
    "reschedule": _reschedule,
    "backfill": _backfill,
    "drop": _drop,
}
