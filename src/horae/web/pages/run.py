"""One run's page: its tasks and attempts with their times, output, results and errors, and its actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from horae.api.requests import AttemptOutputRequest, RunRequest
from horae.api.responses.job_responses import Output, Report, Task, WholeRun
from horae.errors import NotFound
from horae.web.page_renderer import render
from horae.web.pages.runs import origin_text, repeats_error, waits_text
from horae.web.pictures.gantt import chart
from horae.web.pictures.letters import pretty, readable
from horae.web.pictures.moments import moment, seconds_between
from horae.web.site import Visit
from horae.web.words import tone

OUTPUT_SHOWN = 16_000
"""Characters of output in the page itself. A script fetches the rest on request."""
_ERROR_SHOWN = 12_000
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt as a row of the table below the chart."""

    attempt_id: str
    task: str
    number: int
    state: str
    started_at: str | None
    ended_at: str | None
    seconds: float | None
    error: str
    trace: str
    is_last: bool

    @property
    def title(self) -> str:
        return f"{self.task}, attempt {self.number}"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task with a result, a reason or a canceller, which its attempts do not show."""

    task: str
    state: str
    result: str | None
    reason: str
    cancelled_by: str | None


def attempt_views(report: Report, now: str) -> tuple[AttemptView, ...]:
    """Returns every attempt in the order of the tasks. The duration of a running one is up to `now`."""
    return tuple(
        AttemptView(
            each.attempt_id,
            task.name,
            each.number,
            each.state,
            each.started_at,
            each.ended_at,
            seconds_between(each.started_at, each.ended_at or (now if each.state == "RUNNING" else None)),
            readable(each.error, _ERROR_SHOWN) if each.error else "",
            readable(each.traceback, _ERROR_SHOWN) if each.traceback else "",
            is_last=each is task.attempts[-1],
        )
        for task in report.tasks
        for each in task.attempts
    )


def chosen_attempt(all_tries: Sequence[AttemptView], wanted: str | None) -> AttemptView | None:
    """Returns the attempt whose output is shown: the wanted one, else the latest running one, else the latest failed
    one, else the one that ended last."""
    for each in all_tries:
        if each.attempt_id == wanted:
            return each
    for states in (("RUNNING",), ("FAILED", "TIMEOUT", "LOST")):
        found = [each for each in all_tries if each.state in states]
        if found:
            return max(found, key=lambda each: moment(each.started_at) or _EVER)
    return max(all_tries, key=lambda each: moment(each.ended_at) or _EVER, default=None)


def outcomes(tasks: Sequence[Task]) -> tuple[TaskResult, ...]:
    return tuple(
        TaskResult(
            task.name,
            task.state,
            None if task.result is None else pretty(task.result),
            "" if _has_error(task) else readable(task.reason or "", 2_000),
            task.cancelled_by,
        )
        for task in tasks
        if task.result is not None or (task.reason and not _has_error(task)) or task.cancelled_by
    )


def _has_error(task: Task) -> bool:
    """Whether the last attempt has an error, which the task's reason then only repeats."""
    return bool(task.attempts and task.attempts[-1].error)


def tail(output: Output | None) -> tuple[str, bool]:
    """Returns the end of the output, and whether something before it was left out."""
    if output is None:
        return "", False
    text = readable(output.text, len(output.text) * 8 + 1)
    if len(text) <= OUTPUT_SHOWN:
        return text, False
    cut = text[-OUTPUT_SHOWN:]
    return cut[cut.find("\n") + 1 :], True


async def page(visit: Visit, request: Request) -> Response:
    whole: WholeRun = await visit.desk.get_run(RunRequest(run_id=request.path_params["run_id"]))
    now = await visit.desk.service.now()
    all_tries = attempt_views(whole.report, now.isoformat())
    shown = chosen_attempt(all_tries, request.query_params.get("attempt"))
    output = await _output(visit, shown)
    text, is_cut = tail(output)
    run = whole.run
    error = readable(run.error or "", _ERROR_SHOWN) if tone(run.state) in ("bad", "warn") else ""
    return render(
        "run.html",
        visit,
        request,
        run=run,
        report=whole.report,
        is_active=whole.is_active,
        may=whole.may,
        node=whole.node,
        origin=origin_text(run.origin, is_recovery=run.is_recovery),
        lag=whole.report.lag_seconds,
        duration=run.duration_seconds,
        # The page shows the error in full, so a reason that repeats it is left out.
        reason="" if error and repeats_error(run) else readable(run.reason or "", 4_000),
        summary=readable(whole.report.summary, 4_000),
        replay_reason=readable(run.replay_reason or "", 4_000),
        error=error,
        waits=waits_text(run) if run.waiting_for else "",
        chart=chart(whole.report, run.state, now),
        tries=all_tries,
        shown=shown,
        output=text,
        output_next=output.next if output is not None else 0,
        output_cut=is_cut,
        outcomes=outcomes(whole.report.tasks),
        report_text=readable(whole.report.text),
        payload=None if whole.payload is None else pretty(whole.payload),
        covers=covers(whole),
    )


def covers(whole: WholeRun) -> tuple[str | None, str | None] | None:
    """Returns the first and last slot that the run covers; None if only its own."""
    since, until = moment(whole.run.covers_from), moment(whole.run.covers_to)
    if since is None or until is None or since == until:
        return None
    return whole.run.covers_from, whole.run.covers_to


async def _output(visit: Visit, shown: AttemptView | None) -> Output | None:
    if shown is None:
        return None
    try:
        return await visit.desk.attempt_output(AttemptOutputRequest(attempt_id=shown.attempt_id))
    except NotFound:
        # Retention may delete output before its run.
        return None


PAGES = (("/runs/{run_id}", "run", page),)
