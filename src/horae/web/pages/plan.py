"""The plan page: shows what a pasted job file would change, and applies exactly that plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api import requests
from horae.api.responses import plan_responses
from horae.api.responses.version_responses import Exported
from horae.errors import HoraeError, InvalidInput, InvalidJobFile, PlanMoved
from horae.formats.toml.job_file import check_job_file
from horae.services.plan.differences import describe_changes
from horae.services.plan.plan_text import describe_no_occurrences
from horae.services.plan.records import CHANGED, CREATED, REMOVED
from horae.web import forms
from horae.web.connections.disconnect import while_connected
from horae.web.http.problems import status_of
from horae.web.page_renderer import render
from horae.web.pages.versions import DiffPart
from horae.web.pictures.letters import readable
from horae.web.pictures.moments import moment
from horae.web.pictures.plan import FileFault, LoadPicture, file_fault, load_picture
from horae.web.site import Visit

POLICIES = (
    ("", "As each job says"),
    ("immediate", "At once"),
    ("graceful", "After the next start"),
    ("windowed", "At once, but for runs waiting beyond thirty days"),
)
HORIZON = "7d"
MOST_JOBS = 100
"""How many jobs are shown with their changes."""
MOST_OPEN = 8
MOST_FAULTS = 20
MOST_CATCH_UPS = 20
FEW = 3
_LONGEST_VALUE = 4_000
_LONGEST_REASON = 4_000
_SIGNS = {
    CREATED: ("+", "ok", "New"),
    CHANGED: ("~", "warn", "Changed"),
    REMOVED: ("\u2212", "bad", "Removed"),
}
EXAMPLE = """\
[jobs.report]
cron = "0 6 * * mon-fri"
timezone = "Europe/Brussels"
python = "shop.reports:daily"
"""


@dataclass(frozen=True, slots=True)
class PlanForm:
    """The fields of the form."""

    text: str = ""
    policy: str = ""
    prune: bool = False
    horizon: str = HORIZON
    reason: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> PlanForm:
        # Browsers send the lines of a text area with CRLF.
        text = given.get("definitions", "").replace("\r\n", "\n").replace("\r", "\n")
        return cls(
            text,
            given.get("update_policy", "").strip(),
            "prune" in given,
            given.get("horizon", "").strip() or HORIZON,
            given.get("reason", "").strip()[:_LONGEST_REASON],
        )

    def options(self) -> dict[str, Any]:
        if not self.text.strip():
            raise InvalidInput("There is nothing to plan: the text is empty", hint="Paste a job file.")
        found: dict[str, Any] = {"definitions": self.text, "prune": self.prune, "horizon": self.horizon}
        return found | ({"update_policy": self.policy} if self.policy else {})


@dataclass(frozen=True, slots=True)
class OccurrenceGroup:
    """The first occurrences of one kind of change; `more` further ones are not shown."""

    sign: str
    tone: str
    word: str
    count: int
    first: tuple[plan_responses.Occurrence, ...]
    more: int


@dataclass(frozen=True, slots=True)
class JobChangeView:
    """One job that would change. `about` has the remarks beside its name."""

    job: plan_responses.JobChange
    sign: str
    tone: str
    word: str
    about: tuple[str, ...]
    parts: tuple[DiffPart, ...]
    groups: tuple[OccurrenceGroup, ...]
    kept: int | None
    none: str | None
    """The text for a job without any start within the horizon, before and after the change."""
    is_open: bool


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan as the template shows it. `more` is the number of jobs that are not in `changes`."""

    plan: plan_responses.Plan
    changes: tuple[JobChangeView, ...]
    more: int
    load: LoadPicture | None
    summary: str

    @property
    def may_apply(self) -> bool:
        """Whether the plan can be applied. A missing right is an error in the plan, so it counts too."""
        return self.plan.has_changes and self.plan.is_possible


def shown_plan(plan: plan_responses.Plan) -> PlanView:
    changes = tuple(
        shown_change(each, plan, is_open=number < MOST_OPEN) for number, each in enumerate(plan.jobs[:MOST_JOBS])
    )
    now = moment(plan.now)
    assert now is not None
    load = load_picture(plan.load, now) if plan.has_changes else None
    return PlanView(plan, changes, len(plan.jobs) - len(changes), load, _summary(plan))


def _summary(plan: plan_responses.Plan) -> str:
    if not plan.has_changes:
        return "Nothing to do: the catalog says this already"
    counts = ((plan.created, "to create"), (plan.changed, "to change"), (plan.removed, "to remove"))
    told = [f"{count:,} {what}" for count, what in counts if count]
    if plan.pools:
        told.append(f"{len(plan.pools)} {'pool' if len(plan.pools) == 1 else 'pools'} to set")
    return ", ".join(told)


def shown_change(job: plan_responses.JobChange, plan: plan_responses.Plan, *, is_open: bool = True) -> JobChangeView:
    sign, tone, word = _SIGNS[job.change]
    seen = job.occurrences
    groups = () if seen is None else tuple(each for each in _groups(seen) if each.count)
    parts = tuple(
        DiffPart(
            readable(each.path, 1_000),
            None if each.said_before is None else readable(each.said_before, _LONGEST_VALUE),
            None if each.said_after is None else readable(each.said_after, _LONGEST_VALUE),
        )
        for each in describe_changes(job.changes)
    )
    kept = None if seen is None else seen.kept
    none = None
    if seen is not None and not groups and not kept and job.schedule is not None:
        none = describe_no_occurrences(msgspec.to_builtins(job), {"now": plan.now})
    return JobChangeView(job, sign, tone, word, _about(job, plan.policy), parts, groups, kept, none, is_open)


def _about(job: plan_responses.JobChange, asked: str | None) -> tuple[str, ...]:
    found = []
    if job.change != CHANGED and job.schedule is not None:
        found.append(readable(job.schedule, 300))
    if job.change != CREATED:
        found.append(f"version {job.version}")
    if job.state != "ENABLED":
        found.append(job.state.lower())
    if job.change == CHANGED and (job.policy.startswith("windowed") or job.switch_at is not None):
        found.append(job.policy)
    if job.change == REMOVED:
        found += ["removed at once, whatever the policy"] if asked not in (None, "immediate") else []
        found.append("its history stays")
    return tuple(found)


def _groups(seen: plan_responses.Occurrences) -> tuple[OccurrenceGroup, ...]:
    kinds = (
        (CREATED, "added", seen.added, seen.first_added),
        (REMOVED, "removed", seen.removed, seen.first_removed),
        (CHANGED, "moved", seen.moved, seen.first_moved),
    )
    return tuple(
        OccurrenceGroup(*_SIGNS[kind][:2], word, count, tuple(first[:FEW]), max(0, count - min(len(first), FEW)))
        for kind, word, count, first in kinds
    )


# ---- the page --------------------------------------------------------------------------------------------------------


async def page(visit: Visit, request: Request) -> Response:
    """Answers with the form. The parameter `start` fills it with the catalog's current definitions."""
    if not request.query_params.get("start"):
        return await _render(visit, request, PlanForm())
    namespace = request.query_params.get("namespace", "").strip()
    try:
        asked = forms.read_form_request(requests.ExportJobs, {"namespace": namespace}, format="toml")
        found = await visit.desk.export(asked)
    except HoraeError as error:
        names = str(error.details.get("namespaces") or "")
        choices = tuple(each for each in names.split(", ") if each)
        return await _render(visit, request, PlanForm(), fault=None if choices else error, namespaces=choices)
    if len(found.text.encode()) > visit.site.limits.body // 2:
        too_long = InvalidInput(
            "What the catalog says is more than a form takes",
            hint="Use horae export, horae plan and horae apply instead.",
        )
        return await _render(visit, request, PlanForm(), fault=too_long)
    return await _render(visit, request, PlanForm(found.text), exported=found)


async def answer(visit: Visit, request: Request) -> Response:
    """Handles the form: shows the plan of its text, or applies the plan that it names."""
    given = await forms.form_of(request)
    typed = PlanForm.of(given)
    fault: HoraeError | None = None
    if given.get("do") == "apply":
        try:
            return await _apply(visit, request, typed, given.get("plan", ""))
        except HoraeError as error:
            fault = error
    try:
        asked = forms.read_form_request(requests.PlanChanges, {}, **typed.options())
        shown = shown_plan(await while_connected(request, visit.desk.plan(asked)))
    except HoraeError as error:
        return await _render(visit, request, typed, fault=fault or error)
    return await _render(visit, request, typed, fault=fault, shown=shown)


async def _apply(visit: Visit, request: Request, typed: PlanForm, plan: str) -> Response:
    if not plan:
        raise InvalidInput("It is not said which plan to apply", hint="Show the plan, and apply that.")
    more = {"reason": typed.reason} if typed.reason else {}
    asked = forms.read_form_request(requests.ApplyChanges, {}, plan=plan, **more, **typed.options())
    done = await visit.desk.apply(asked)
    request.scope["state"][forms.CHANGED] = True
    jobs = tuple((each, *_SIGNS[each.change]) for each in done.jobs)
    return render("applied.html", visit, request, done=done, jobs=jobs[:MOST_JOBS], more=max(0, len(jobs) - MOST_JOBS))


async def _render(
    visit: Visit,
    request: Request,
    typed: PlanForm,
    *,
    fault: HoraeError | None = None,
    shown: PlanView | None = None,
    exported: Exported | None = None,
    namespaces: tuple[str, ...] = (),
) -> Response:
    faults = await _faults(visit, fault, typed.text) if isinstance(fault, InvalidJobFile) else ()
    return render(
        "plan.html",
        visit,
        request,
        status=200 if fault is None else status_of(fault),
        typed=typed,
        fault=fault,
        faults=faults,
        is_moved=isinstance(fault, PlanMoved),
        shown=shown,
        exported=exported,
        namespaces=namespaces,
        policies=POLICIES,
        example=EXAMPLE,
        most_owed=MOST_CATCH_UPS,
    )


async def _faults(visit: Visit, fault: InvalidJobFile, text: str) -> tuple[FileFault, ...]:
    try:
        async with visit.desk.turn() as calculate:
            return await calculate(faults_of, fault, text)
    except HoraeError:
        # The search for further faults took too long or was refused, so only the first is shown.
        return (file_fault(fault, text),)


def faults_of(fault: HoraeError, text: str) -> tuple[FileFault, ...]:
    """Returns all faults of the text, at most `MOST_FAULTS`, not only the one that was raised first."""
    if not isinstance(fault, InvalidJobFile):
        return ()
    _, found = check_job_file(text, file=fault.file)
    return tuple(file_fault(each, text) for each in (found or (fault,))[:MOST_FAULTS])


PAGES = (("/plan", "plan", page),)
FORMS = (("/plan", "plan", answer),)
