"""Plan and apply: a job file is pasted, what it would change is shown, and exactly that is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.control.planned import CHANGED, CREATED, REMOVED
from horae.control.plantext import none_told
from horae.control.telling import told_changes
from horae.core.jobtable import check_job_file
from horae.desk import asking, plans
from horae.desk.said import Exported
from horae.errors import HoraeError, InvalidInput, InvalidJobFile, PlanMoved
from horae.web import forms
from horae.web.departure import while_connected
from horae.web.pages.versions import Part
from horae.web.pictures.letters import readable
from horae.web.pictures.moments import moment
from horae.web.pictures.plan import FileFault, LoadPicture, file_fault, load_picture
from horae.web.problems import status_of
from horae.web.rendering import render
from horae.web.site import Visit

POLICIES = (
    ("", "As each job says"),
    ("immediate", "At once"),
    ("graceful", "After the next start"),
    ("windowed", "At once, but for runs waiting beyond thirty days"),
)
HORIZON = "7d"
MOST_JOBS = 100
"""Jobs that are shown with all that changes of them."""
MOST_OPEN = 8
MOST_FAULTS = 20
MOST_OWED = 20
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
class Typed:
    """What the form says."""

    text: str = ""
    policy: str = ""
    prune: bool = False
    horizon: str = HORIZON
    reason: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Typed:
        # Browsers end the lines of a text area as mail does.
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
class Group:
    """The first occurrences of one kind; `more` are not shown."""

    sign: str
    tone: str
    word: str
    count: int
    first: tuple[plans.Occurrence, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Change:
    """One job that would change. `about` is what is to be said of it beside its name."""

    job: plans.JobChange
    sign: str
    tone: str
    word: str
    about: tuple[str, ...]
    parts: tuple[Part, ...]
    groups: tuple[Group, ...]
    kept: int | None
    none: str | None
    """What is said where it has no start in the time that was looked at, on neither side."""
    is_open: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """A plan laid out. `more`: so many jobs besides those in `changes`."""

    plan: plans.Plan
    changes: tuple[Change, ...]
    more: int
    load: LoadPicture | None
    summary: str

    @property
    def may_apply(self) -> bool:
        """What somebody has no right to do is an error of their plan."""
        return self.plan.has_changes and self.plan.is_possible


def shown_plan(plan: plans.Plan) -> Shown:
    changes = tuple(
        shown_change(each, plan, is_open=number < MOST_OPEN) for number, each in enumerate(plan.jobs[:MOST_JOBS])
    )
    now = moment(plan.now)
    assert now is not None
    load = load_picture(plan.load, now) if plan.has_changes else None
    return Shown(plan, changes, len(plan.jobs) - len(changes), load, _summary(plan))


def _summary(plan: plans.Plan) -> str:
    if not plan.has_changes:
        return "Nothing to do: the catalog says this already"
    counts = ((plan.created, "to create"), (plan.changed, "to change"), (plan.removed, "to remove"))
    told = [f"{count:,} {what}" for count, what in counts if count]
    if plan.pools:
        told.append(f"{len(plan.pools)} {'pool' if len(plan.pools) == 1 else 'pools'} to set")
    return ", ".join(told)


def shown_change(job: plans.JobChange, plan: plans.Plan, *, is_open: bool = True) -> Change:
    sign, tone, word = _SIGNS[job.change]
    seen = job.occurrences
    groups = () if seen is None else tuple(each for each in _groups(seen) if each.count)
    parts = tuple(
        Part(
            readable(each.path, 1_000),
            None if each.said_before is None else readable(each.said_before, _LONGEST_VALUE),
            None if each.said_after is None else readable(each.said_after, _LONGEST_VALUE),
        )
        for each in told_changes(job.changes)
    )
    kept = None if seen is None else seen.kept
    none = None
    if seen is not None and not groups and not kept and job.schedule is not None:
        none = none_told(msgspec.to_builtins(job), {"now": plan.now})
    return Change(job, sign, tone, word, _about(job, plan.policy), parts, groups, kept, none, is_open)


def _about(job: plans.JobChange, asked: str | None) -> tuple[str, ...]:
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


def _groups(seen: plans.Occurrences) -> tuple[Group, ...]:
    kinds = (
        (CREATED, "added", seen.added, seen.first_added),
        (REMOVED, "removed", seen.removed, seen.first_removed),
        (CHANGED, "moved", seen.moved, seen.first_moved),
    )
    return tuple(
        Group(*_SIGNS[kind][:2], word, count, tuple(first[:FEW]), max(0, count - min(len(first), FEW)))
        for kind, word, count, first in kinds
    )


# ---- the page --------------------------------------------------------------------------------------------------------


async def page(visit: Visit, request: Request) -> Response:
    """The form; `start` fills it with what the catalog says now."""
    if not request.query_params.get("start"):
        return await _rendered(visit, request, Typed())
    namespace = request.query_params.get("namespace", "").strip()
    try:
        asked = forms.question(asking.ExportJobs, {"namespace": namespace}, format="toml")
        found = await visit.desk.export(asked)
    except HoraeError as error:
        names = str(error.details.get("namespaces") or "")
        choices = tuple(each for each in names.split(", ") if each)
        return await _rendered(visit, request, Typed(), fault=None if choices else error, namespaces=choices)
    if len(found.text.encode()) > visit.site.limits.body // 2:
        too_long = InvalidInput(
            "What the catalog says is more than a form takes",
            hint="Use horae export, horae plan and horae apply instead.",
        )
        return await _rendered(visit, request, Typed(), fault=too_long)
    return await _rendered(visit, request, Typed(found.text), exported=found)


async def answer(visit: Visit, request: Request) -> Response:
    """The form sent: the plan of its text, or, where a plan is named, that plan done."""
    given = await forms.form_of(request)
    typed = Typed.of(given)
    fault: HoraeError | None = None
    if given.get("do") == "apply":
        try:
            return await _applied(visit, request, typed, given.get("plan", ""))
        except HoraeError as error:
            fault = error
    try:
        asked = forms.question(asking.PlanChanges, {}, **typed.options())
        shown = shown_plan(await while_connected(request, visit.desk.plan(asked)))
    except HoraeError as error:
        return await _rendered(visit, request, typed, fault=fault or error)
    return await _rendered(visit, request, typed, fault=fault, shown=shown)


async def _applied(visit: Visit, request: Request, typed: Typed, plan: str) -> Response:
    if not plan:
        raise InvalidInput("It is not said which plan to apply", hint="Show the plan, and apply that.")
    more = {"reason": typed.reason} if typed.reason else {}
    asked = forms.question(asking.ApplyChanges, {}, plan=plan, **more, **typed.options())
    done = await visit.desk.apply(asked)
    request.scope["state"][forms.CHANGED] = True
    jobs = tuple((each, *_SIGNS[each.change]) for each in done.jobs)
    return render("applied.html", visit, request, done=done, jobs=jobs[:MOST_JOBS], more=max(0, len(jobs) - MOST_JOBS))


async def _rendered(
    visit: Visit,
    request: Request,
    typed: Typed,
    *,
    fault: HoraeError | None = None,
    shown: Shown | None = None,
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
        most_owed=MOST_OWED,
    )


async def _faults(visit: Visit, fault: InvalidJobFile, text: str) -> tuple[FileFault, ...]:
    try:
        async with visit.desk.turn() as calculate:
            return await calculate(faults_of, fault, text)
    except HoraeError:
        # The others are too much to look for: the first is known.
        return (file_fault(fault, text),)


def faults_of(fault: HoraeError, text: str) -> tuple[FileFault, ...]:
    """Everything that is wrong with the text, not only what was met first."""
    if not isinstance(fault, InvalidJobFile):
        return ()
    _, found = check_job_file(text, file=fault.file)
    return tuple(file_fault(each, text) for each in (found or (fault,))[:MOST_FAULTS])


PAGES = (("/plan", "plan", page),)
FORMS = (("/plan", "plan", answer),)
