"""The list of questions: each with its name, its place on the wire, what it takes and what it answers.

Routes, the OpenAPI document, the client of the command line and the reference are all made of this list. Each `name` is
a method of `Desk`, which takes the question and gives the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from horae.desk import asking, persons, plans, said, shapes, sights
from horae.desk.asking import Asked
from horae.desk.shapes import Shape

PREFIX = "/api/v1"
LARGE_BODY = 16 << 20
"""Of what takes a whole catalog's definitions."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`does` is the method of the desk, where it is not `name`. `status` is that of success."""

    name: str
    method: str
    path: str
    asks: type[Asked]
    answers: type[Shape]
    summary: str
    group: str
    status: int = 200
    does: str = ""
    most_body: int = 0
    """Bytes that its body may have, where that is more than a server allows of others."""
    only_asks: bool = False
    """It changes nothing, although it has a body: it may be asked again at any time."""
    is_given_up: bool = False
    """It takes long and changes nothing: it ends where the connection of whoever asked does."""

    @property
    def verb(self) -> str:
        return self.does or self.name

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH")

    @property
    def in_path(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def is_change(self) -> bool:
        """Whether it may change anything: these are what another site must not make a browser do."""
        return self.method != "GET"

    @property
    def is_once(self) -> bool:
        """Whether it is done once, however often it is sent with the same key."""
        return self.method == "POST" and not self.only_asks


OPERATIONS = (
    # jobs
    Operation("list_jobs", "GET", "/jobs", asking.ListJobs, shapes.JobPage, "List jobs, page by page", "jobs"),
    Operation("get_job", "GET", "/jobs/{name}", asking.Named, shapes.WholeJob, "All of one job", "jobs"),
    Operation("put_job", "PUT", "/jobs/{name}", asking.PutJob, shapes.Defined, "Create or change a job", "jobs"),
    Operation("drop_job", "DELETE", "/jobs/{name}", asking.DropJob, shapes.Done, "Drop a job", "jobs"),
    Operation("job_runs", "GET", "/jobs/{name}/runs", asking.JobRuns, shapes.RunPage, "Runs of one job", "jobs"),
    Operation("pause", "POST", "/jobs/{name}/pause", asking.PauseJob, shapes.Done, "Let slots pass", "jobs"),
    Operation("resume", "POST", "/jobs/{name}/resume", asking.Named, shapes.Done, "Go on with a paused job", "jobs"),
    Operation("enable", "POST", "/jobs/{name}/enable", asking.Named, shapes.Done, "Turn a job on", "jobs"),
    Operation("disable", "POST", "/jobs/{name}/disable", asking.Named, shapes.Done, "Turn a job off", "jobs"),
    Operation(
        "trigger", "POST", "/jobs/{name}/trigger", asking.TriggerJob, shapes.Admitted, "Run a job now", "jobs", 202
    ),
    Operation(
        "reschedule",
        "POST",
        "/jobs/{name}/reschedule",
        asking.RescheduleJob,
        shapes.Rescheduled,
        "Move the next run, and no other",
        "jobs",
    ),
    Operation(
        "backfill",
        "POST",
        "/jobs/{name}/backfill",
        asking.BackfillJob,
        shapes.Backfilled,
        "Make runs for past slots that have none",
        "jobs",
        202,
    ),
    Operation(
        "explain_job",
        "GET",
        "/jobs/{name}/explain",
        asking.ExplainJob,
        shapes.Explained,
        "Why a slot starts when it does",
        "jobs",
    ),
    Operation(
        "job_calendar",
        "GET",
        "/jobs/{name}/calendar",
        asking.JobCalendar,
        shapes.Calendar,
        "A year of past and coming runs, by day",
        "jobs",
    ),
    Operation(
        "job_versions",
        "GET",
        "/jobs/{name}/versions",
        asking.JobVersions,
        shapes.VersionPage,
        "What the job said before",
        "jobs",
    ),
    Operation(
        "job_version",
        "GET",
        "/jobs/{name}/versions/{version}",
        asking.JobVersion,
        said.WholeVersion,
        "One version, and what going back to it would change",
        "jobs",
    ),
    Operation(
        "diff_versions",
        "GET",
        "/jobs/{name}/diff",
        asking.DiffVersions,
        said.VersionDiff,
        "What differs between two versions",
        "jobs",
    ),
    Operation(
        "rollback",
        "POST",
        "/jobs/{name}/rollback",
        asking.RollBack,
        said.RolledBack,
        "Let an earlier version hold again, as a new one",
        "jobs",
    ),
    Operation("export", "GET", "/export", asking.ExportJobs, said.Exported, "Jobs and pools as a job file", "jobs"),
    Operation(
        "plan",
        "POST",
        "/plan",
        asking.PlanChanges,
        plans.Plan,
        "What applying definitions would change, and what that does to the future",
        "jobs",
        most_body=LARGE_BODY,
        only_asks=True,
        is_given_up=True,
    ),
    Operation(
        "apply",
        "POST",
        "/apply",
        asking.ApplyChanges,
        plans.Applied,
        "Make the catalog say what definitions say, all of it or nothing",
        "jobs",
        most_body=LARGE_BODY,
    ),
    # runs
    Operation("list_runs", "GET", "/runs", asking.ListRuns, shapes.RunPage, "List runs, the newest first", "runs"),
    Operation("get_run", "GET", "/runs/{run_id}", asking.ThatRun, shapes.WholeRun, "All of one run", "runs"),
    Operation(
        "report", "GET", "/runs/{run_id}/report", asking.ThatRun, shapes.Report, "What happened in a run", "runs"
    ),
    Operation(
        "run_output",
        "GET",
        "/runs/{run_id}/output",
        asking.OfOutput,
        shapes.RunOutput,
        "What a run's attempts printed",
        "runs",
    ),
    Operation(
        "cancel",
        "POST",
        "/runs/{run_id}/cancel",
        asking.CancelRun,
        shapes.Cancelled,
        "End a run, or ask it to stop",
        "runs",
    ),
    Operation(
        "replay", "POST", "/runs/{run_id}/replay", asking.ReplayRun, shapes.Admitted, "Do a run again", "runs", 202
    ),
    Operation(
        "attempt_output",
        "GET",
        "/attempts/{attempt_id}/output",
        asking.OfAttempt,
        shapes.Output,
        "What one attempt printed, from a place on",
        "runs",
    ),
    # schedules
    Operation(
        "list_schedules",
        "GET",
        "/schedules",
        asking.ListSchedules,
        sights.SchedulePage,
        "Schedules in the words of cb_schedules",
        "schedules",
    ),
    Operation(
        "preview",
        "GET",
        "/preview",
        asking.AskPreview,
        sights.Preview,
        "What a schedule will do, before anything runs",
        "schedules",
        is_given_up=True,
    ),
    Operation(
        "post_preview",
        "POST",
        "/preview",
        asking.AskPreview,
        sights.Preview,
        "The same, with the question as a body",
        "schedules",
        does="preview",
        only_asks=True,
        is_given_up=True,
    ),
    # the whole
    Operation("overview", "GET", "/overview", asking.Nothing, sights.Overview, "What goes on just now", "system"),
    Operation("nodes", "GET", "/nodes", asking.Nothing, sights.Nodes, "The nodes that run jobs", "system"),
    Operation(
        "doctor", "GET", "/doctor", asking.Nothing, sights.Examination, "What is wrong, or about to be", "system"
    ),
    Operation("sql", "POST", "/sql", asking.RunSql, sights.SqlAnswer, "Carry out SQL statements", "system"),
    Operation("settings", "GET", "/settings", asking.Nothing, sights.Settings, "What ALTER SYSTEM knows", "system"),
    Operation(
        "set_setting",
        "PUT",
        "/settings/{name}",
        asking.SetSetting,
        sights.Setting,
        "Set one for all nodes, or take it back",
        "system",
    ),
    Operation("list_audit", "GET", "/audit", asking.ListAudit, sights.AuditPage, "Who did what", "audit"),
    Operation(
        "verify_audit",
        "POST",
        "/audit/verify",
        asking.VerifyAudit,
        sights.Verification,
        "Whether the trail was tampered with",
        "audit",
        only_asks=True,
    ),
    # people
    Operation("me", "GET", "/me", asking.Nothing, persons.Me, "Who asks", "people"),
    Operation("users", "GET", "/users", asking.Nothing, persons.Users, "List users", "people"),
    Operation("create_user", "POST", "/users", asking.CreateUser, persons.Told, "Create a user", "people", 201),
    Operation("alter_user", "PATCH", "/users/{name}", asking.AlterUser, persons.Told, "Change a user", "people"),
    Operation("drop_user", "DELETE", "/users/{name}", asking.Named, persons.Told, "Drop a user", "people"),
    Operation("roles", "GET", "/roles", asking.Nothing, persons.Roles, "List roles", "people"),
    Operation("create_role", "POST", "/roles", asking.CreateRole, persons.Told, "Create a role", "people", 201),
    Operation("drop_role", "DELETE", "/roles/{name}", asking.Named, persons.Told, "Drop a role", "people"),
    Operation("tokens", "GET", "/tokens", asking.ListTokens, persons.Tokens, "List tokens", "people"),
    Operation("create_token", "POST", "/tokens", asking.CreateToken, persons.NewToken, "Make a token", "people", 201),
    Operation(
        "revoke_token", "DELETE", "/tokens/{token_id}", asking.ThatToken, persons.Token, "Revoke a token", "people"
    ),
    Operation("secrets", "GET", "/secrets", asking.Nothing, persons.Secrets, "List secrets by name", "people"),
    Operation("put_secret", "PUT", "/secrets/{name}", asking.PutSecret, persons.Told, "Set a secret", "people"),
    Operation("drop_secret", "DELETE", "/secrets/{name}", asking.DropSecret, persons.Told, "Drop a secret", "people"),
    Operation(
        "rotate_secrets",
        "POST",
        "/secrets/rotate",
        asking.Nothing,
        persons.Rotated,
        "Encrypt every secret under the current master key",
        "people",
    ),
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}
