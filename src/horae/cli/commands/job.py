"""`horae job`: lists, shows, pauses, resumes, triggers, reschedules, backfills, rolls back and drops jobs."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from horae.cli.catalog_access import CatalogAccess, json_values, open_catalog
from horae.cli.commands.run import list_runs, show_runs, wait_for
from horae.cli.commands.versions import roll_back, show_diff, show_version
from horae.cli.prompts import confirm
from horae.cli.screen.rows import counted, harmless, show_rows
from horae.cli.screen.screen import STRIP, legend_of, strip_of
from horae.cli.screen.watch import draw_repeatedly
from horae.cli.suggestion import suggest_jobs
from horae.cli.times import read_typed_time
from horae.errors import AccessDenied, Conflict, InvalidInput, shown
from horae.services.queries import wait_seconds

if TYPE_CHECKING:
    from horae.api.responses.job_responses import Job, JobPage, WholeJob
    from horae.cli.screen.screen import Screen

_COLUMNS = ("job", "state", "next run", "latest", "at", "schedule", "owner", "version")
_FEW = 5
"""How many runs are shown with a job."""
_STRIP = 10
"""How many outcomes are shown with each job of a list."""
_PAGE = 500
_KINDS = {"python": "PYTHON", "sql": "SQL", "procedure": "PROCEDURE", "command": "EXTERNAL"}
_FORMS = {"sql": "in SQL", "toml": "in jobs.toml", "krontab": "as a krontab line"}


def run(arguments: Namespace, screen: Screen) -> int:
    with open_catalog(arguments) as catalog, suggest_jobs(catalog):
        drawing = _DRAWN.get(arguments.action)
        if drawing is not None:
            return draw_repeatedly(arguments, screen, catalog, lambda drawn: drawing(arguments, drawn, catalog))
        return _ACTIONS[arguments.action](arguments, screen, catalog) or 0


# ---- lists -----------------------------------------------------------------------------------------------------------


def _list(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    jobs, last = _pages(arguments, screen, catalog)
    document: dict[str, Any] = {"jobs": json_values(jobs)}
    if arguments.limit is not None or arguments.offset:
        document |= {"total": last.total, "next_offset": last.next_offset}
    screen.data(document)
    if screen.as_json:
        return
    if jobs:
        rows = [_cells(screen, job) for job in jobs]
        show_rows(screen, _COLUMNS, rows, styles={"latest": STRIP, "job": "bold"})
        legend = legend_of(screen, {state for job in jobs for state in _states(job)})
        if legend:
            screen.line(f"  {screen.style('latest:', 'dim')} {legend}")
    for job in jobs:
        if job.fault is not None:
            screen.line(f"{harmless(job.name)}: its definition cannot be read: {harmless(job.fault)}")
    of = f" of {last.total}" if last.total > len(jobs) else ""
    screen.line(screen.style(f"({counted(len(jobs), 'job')}{of})", "dim"))


def _cells(screen: Screen, job: Job) -> list[Any]:
    return [
        job.name,
        job.state,
        screen.clock.distance(job.next_run_time),
        strip_of(screen, _states(job)),
        job.next_run_time,
        job.schedule,
        job.owner,
        job.version,
    ]


def _pages(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> tuple[list[Job], JobPage]:
    """Returns the jobs of all pages, at most `arguments.limit`, and the last page that was read."""
    found: list[Job] = []
    offset = arguments.offset
    while True:
        wanted = _PAGE if arguments.limit is None else min(_PAGE, arguments.limit - len(found))
        page: JobPage = catalog.call(
            "list_jobs",
            search=arguments.search,
            state=arguments.state,
            tag=arguments.tag,
            owner=arguments.owner,
            sort=arguments.sort,
            descending=arguments.descending,
            offset=offset,
            limit=wanted,
            outcomes=0 if screen.as_json else _STRIP,
        )
        found += page.jobs
        if page.next_offset is None or (arguments.limit is not None and len(found) >= arguments.limit):
            return found, page
        offset = page.next_offset


def _states(job: Job) -> list[str]:
    """Returns the states of the job's latest runs, the oldest first."""
    return [each.state for each in reversed(job.outcomes or [])]


def _runs(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    show_runs(screen, list_runs(catalog, arguments, screen.clock, arguments.name))


def _versions(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    found: list[Any] = []
    before = None
    while len(found) < arguments.limit:
        wanted = min(_PAGE, arguments.limit - len(found))
        page = catalog.call("job_versions", name=arguments.name, before=before, limit=wanted)
        found += page.versions
        before = page.next_before
        if before is None:
            break
    screen.data({"job": arguments.name, "versions": json_values(found)})
    if found:
        rows = [
            (each.version, each.created_at, each.author, each.source, each.reason, "; ".join(each.changes))
            for each in found
        ]
        show_rows(screen, ("version", "written", "by", "from", "why", "changes"), rows)
    screen.line(screen.style(f"({counted(len(found), 'version')})", "dim"))


# ---- one job ---------------------------------------------------------------------------------------------------------


def _show(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    if arguments.version is not None:
        show_version(arguments, screen, catalog)
        return
    job: WholeJob = catalog.call("get_job", name=arguments.name)
    if arguments.form is not None:
        _show_form(arguments.form, screen, job)
        return
    screen.data(json_values(job))
    if screen.as_json:
        return
    screen.line(
        screen.style(harmless(job.name), "bold") + (f"  {harmless(job.description)}" if job.description else "")
    )
    clock = screen.clock
    schedule = "none: it runs only when somebody asks"
    if job.fault is not None:
        schedule = f"its definition cannot be read: {job.fault}"
    elif job.schedule is not None:
        schedule = f"{job.schedule}: {job.schedule_description} ({job.timezone})"
    for label, value in (
        ("state", _state(screen, job)),
        ("schedule", harmless(schedule)),
        ("next run", clock.both(job.next_run_time) or "-"),
        *(
            ("succession", f"slots up to {clock.text(each.until)} are still those of version {each.version}")
            for each in job.former
        ),
        ("moved", f"the run of {clock.text(job.moved.slot)} to {clock.both(job.moved.to)}" if job.moved else None),
        ("depends on", harmless(", ".join(job.depends_on))),
        ("needed by", harmless(", ".join(job.dependents))),
        ("tags", harmless(", ".join(job.tags))),
        ("owner", harmless(job.owner)),
        ("runs as", harmless(job.run_as or "")),
        ("version", f"{job.version}, of {clock.both(job.updated_at)}"),
        ("created", f"{clock.both(job.created_at)} by {harmless(job.created_by)}"),
    ):
        if value:
            screen.line(f"  {screen.style(f'{label:<11}', 'dim')} {value}")
    screen.line()
    tasks = job.definition.get("tasks")
    if tasks:
        show_rows(screen, ["task", "kind", "work"], [(task["name"], *_work(task)) for task in tasks])
    else:
        show_rows(screen, ["kind", "work"], [_work(job.definition)])
    text = f"{job.sql};" if job.sql is not None else job.toml
    if text:
        screen.line()
        screen.line(harmless(text.rstrip("\n")))
    screen.line()
    show_runs(screen, catalog.call("job_runs", name=arguments.name, limit=_FEW).runs)


def _work(table: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the kind and the work of a task, or of a job with one task, from its table of jobs.toml."""
    return next(((kind, str(table[key])) for key, kind in _KINDS.items() if key in table), ("", ""))


def _show_form(form: str, screen: Screen, job: WholeJob) -> None:
    """Prints just the definition's text, so that a file with it defines the same job."""
    text: str | None = getattr(job, form)
    if text is None:
        raise Conflict(
            f"Job {shown(job.name)} cannot be said {_FORMS[form]}",
            hint="horae job show shows what it is in other ways.",
        )
    screen.data({"name": job.name, form: text})
    ending = ";" if form == "sql" else ""
    screen.line((text if screen.width is None else harmless(text)).removesuffix("\n") + ending)


def _state(screen: Screen, job: WholeJob) -> str:
    until = f" until {screen.clock.both(job.paused_until)}" if job.paused_until else ""
    note = f" ({harmless(job.pause_note)})" if job.pause_note else ""
    return f"{screen.state(job.state)}{until}{note}"


def _explain(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    at = None if arguments.at is None else read_typed_time(catalog, screen.clock, arguments.at, "--at", arguments.name)
    found = catalog.call("explain_job", name=arguments.name, at=at)
    screen.data(json_values(found))
    widest = max((len(step) for step, _ in found.steps), default=0)
    for step, verdict in found.steps:
        told = screen.clock.within(harmless(verdict))
        screen.line(
            f"  {screen.style(step.ljust(widest), 'dim')}  {screen.style(told, 'bold') if step == 'verdict' else told}"
        )


def _calendar(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    from horae.cli.screen.heatmap import draw_job

    found = catalog.call("job_calendar", name=arguments.name, year=arguments.year)
    screen.data(json_values(found))
    if not screen.as_json:
        screen.line(screen.style(harmless(found.job), "bold"))
        screen.line()
        draw_job(screen, found)


# ---- changes ---------------------------------------------------------------------------------------------------------


def _pause(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    until = (
        None
        if arguments.until is None
        else read_typed_time(catalog, screen.clock, arguments.until, "--until", arguments.name)
    )
    done = catalog.call("pause", name=arguments.name, until=until, note=arguments.note)
    told = None if until is None else until.isoformat(timespec="seconds").replace("+00:00", "Z")
    _done(arguments, screen, done, until=told)


def _switch(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    """Resumes, enables or disables the job."""
    _done(arguments, screen, catalog.call(arguments.action, name=arguments.name))


def _trigger(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> int:
    payload = None
    if arguments.payload is not None:
        try:
            payload = json.loads(arguments.payload)
        except ValueError as error:
            raise InvalidInput(
                f"--payload is not JSON: {error}", hint="""Write --payload '{"day": "2027-03-01"}', in quotes."""
            ) from None
    if arguments.timeout is not None and not arguments.wait:
        raise InvalidInput("--timeout says how long to wait", hint="Say --wait too.")
    limit = wait_seconds(arguments.timeout)
    answer = catalog.call("trigger", name=arguments.name, payload=payload, key=arguments.key)
    if not arguments.wait:
        _done(arguments, screen, answer)
        return 0
    screen.note(harmless(answer.message))
    return wait_for(screen, catalog, answer.run_id, limit)


def _reschedule(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    at = read_typed_time(catalog, screen.clock, arguments.at, "AT", arguments.name)
    _done(arguments, screen, catalog.call("reschedule", name=arguments.name, at=at))


def _backfill(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    start = read_typed_time(catalog, screen.clock, arguments.start, "START", arguments.name)
    end = read_typed_time(catalog, screen.clock, arguments.end, "END", arguments.name)
    _done(arguments, screen, catalog.call("backfill", name=arguments.name, start=start, end=end))


def _drop(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    if not arguments.yes:
        # A missing job is reported before the question. A caller who may drop a job may still not be allowed to see it.
        with suppress(AccessDenied):
            catalog.call("get_job", name=arguments.name)
    what = "Its history stays." if arguments.keep_history else "Its history goes with it."
    confirm(f"Drop job {shown(arguments.name)}? {what}", yes=arguments.yes, as_json=screen.as_json)
    _done(arguments, screen, catalog.call("drop_job", name=arguments.name, keep_history=arguments.keep_history))


def _done(arguments: Namespace, screen: Screen, answer: Any, **values: Any) -> None:
    first = {"job": arguments.name, "action": arguments.action, "message": answer.message}
    screen.data(first | json_values(answer) | values)
    screen.line(screen.clock.within(harmless(answer.message)))


_DRAWN: dict[str, Callable[[Namespace, Screen, CatalogAccess], None]] = {"list": _list, "show": _show, "runs": _runs}
_ACTIONS: dict[str, Callable[[Namespace, Screen, CatalogAccess], int | None]] = {
    "explain": _explain,
    "calendar": _calendar,
    "versions": _versions,
    "diff": show_diff,
    "pause": _pause,
    "resume": _switch,
    "enable": _switch,
    "disable": _switch,
    "trigger": _trigger,
    "reschedule": _reschedule,
    "backfill": _backfill,
    "rollback": roll_back,
    "drop": _drop,
}
