"""The list of operations: each with its name, its method and path, its request and its response.

The routes, the OpenAPI document, the client of the command line and the reference are made from this list. Each `name`
is a method of `Desk`, which takes the request and returns the response.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from horae.api import requests
from horae.api.requests import ApiRequest
from horae.api.responses import catalog_responses, job_responses, people_responses, plan_responses, version_responses
from horae.api.responses.job_responses import ApiResponse

PREFIX = "/api/v1"
LARGE_BODY = 16 << 20
"""Bytes of a body that may contain the definitions of a whole catalog."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API. `does` is the method of `Desk` if it differs from `name`. `status` is the HTTP status
    of success."""

    name: str
    method: str
    path: str
    asks: type[ApiRequest]
    answers: type[ApiResponse]
    summary: str
    group: str
    status: int = 200
    does: str = ""
    most_body: int = 0
    """Bytes that its body may have, if more than the server's general limit."""
    only_asks: bool = False
    """Whether it changes nothing although it has a body, so it may be repeated at any time."""
    is_given_up: bool = False
    """Whether it is cancelled when the client disconnects: it takes long and changes nothing."""

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
        """Whether it may change anything. Another site must not be able to make a browser send such a request."""
        return self.method != "GET"

    @property
    def is_once(self) -> bool:
        """Whether requests with the same idempotency key are carried out once."""
        return self.method == "POST" and not self.only_asks


OPERATIONS = (
    # jobs
    Operation("list_jobs", "GET", "/jobs", requests.ListJobs, job_responses.JobPage, "List jobs, page by page", "jobs"),
    Operation("get_job", "GET", "/jobs/{name}", requests.NameRequest, job_responses.WholeJob, "All of one job", "jobs"),
    Operation(
        "put_job", "PUT", "/jobs/{name}", requests.PutJob, job_responses.Defined, "Create or change a job", "jobs"
    ),
    Operation("drop_job", "DELETE", "/jobs/{name}", requests.DropJobRequest, job_responses.Done, "Drop a job", "jobs"),
    Operation(
        "job_runs", "GET", "/jobs/{name}/runs", requests.JobRuns, job_responses.RunPage, "Runs of one job", "jobs"
    ),
    Operation("pause", "POST", "/jobs/{name}/pause", requests.PauseJob, job_responses.Done, "Let slots pass", "jobs"),
    Operation(
        "resume",
        "POST",
        "/jobs/{name}/resume",
        requests.NameRequest,
        job_responses.Done,
        "Go on with a paused job",
        "jobs",
    ),
    Operation(
        "enable", "POST", "/jobs/{name}/enable", requests.NameRequest, job_responses.Done, "Turn a job on", "jobs"
    ),
    Operation(
        "disable", "POST", "/jobs/{name}/disable", requests.NameRequest, job_responses.Done, "Turn a job off", "jobs"
    ),
    Operation(
        "trigger",
        "POST",
        "/jobs/{name}/trigger",
        requests.TriggerJob,
        job_responses.Admitted,
        "Run a job now",
        "jobs",
        202,
    ),
    Operation(
        "reschedule",
        "POST",
        "/jobs/{name}/reschedule",
        requests.RescheduleJob,
        job_responses.Rescheduled,
        "Move the next run, and no other",
        "jobs",
    ),
    Operation(
        "backfill",
        "POST",
        "/jobs/{name}/backfill",
        requests.BackfillJob,
        job_responses.Backfilled,
        "Make runs for past slots that have none",
        "jobs",
        202,
    ),
    Operation(
        "explain_job",
        "GET",
        "/jobs/{name}/explain",
        requests.ExplainJobRequest,
        job_responses.Explained,
        "Why a slot starts when it does",
        "jobs",
    ),
    Operation(
        "job_calendar",
        "GET",
        "/jobs/{name}/calendar",
        requests.JobCalendar,
        job_responses.Calendar,
        "A year of past and coming runs, by day",
        "jobs",
    ),
    Operation(
        "job_versions",
        "GET",
        "/jobs/{name}/versions",
        requests.JobVersions,
        job_responses.VersionPage,
        "What the job said before",
        "jobs",
    ),
    Operation(
        "job_version",
        "GET",
        "/jobs/{name}/versions/{version}",
        requests.JobVersion,
        version_responses.WholeVersion,
        "One version, and what going back to it would change",
        "jobs",
    ),
    Operation(
        "diff_versions",
        "GET",
        "/jobs/{name}/diff",
        requests.DiffVersions,
        version_responses.VersionDiff,
        "What differs between two versions",
        "jobs",
    ),
    Operation(
        "rollback",
        "POST",
        "/jobs/{name}/rollback",
        requests.RollBack,
        version_responses.RolledBack,
        "Let an earlier version hold again, as a new one",
        "jobs",
    ),
    Operation(
        "export",
        "GET",
        "/export",
        requests.ExportJobs,
        version_responses.Exported,
        "Jobs and pools as a job file",
        "jobs",
    ),
    Operation(
        "plan",
        "POST",
        "/plan",
        requests.PlanChanges,
        plan_responses.Plan,
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
        requests.ApplyChanges,
        plan_responses.Applied,
        "Make the catalog say what definitions say, all of it or nothing",
        "jobs",
        most_body=LARGE_BODY,
    ),
    # runs
    Operation(
        "list_runs", "GET", "/runs", requests.ListRuns, job_responses.RunPage, "List runs, the newest first", "runs"
    ),
    Operation(
        "get_run", "GET", "/runs/{run_id}", requests.RunRequest, job_responses.WholeRun, "All of one run", "runs"
    ),
    Operation(
        "report",
        "GET",
        "/runs/{run_id}/report",
        requests.RunRequest,
        job_responses.Report,
        "What happened in a run",
        "runs",
    ),
    Operation(
        "run_output",
        "GET",
        "/runs/{run_id}/output",
        requests.RunOutputRequest,
        job_responses.RunOutput,
        "What a run's attempts printed",
        "runs",
    ),
    Operation(
        "cancel",
        "POST",
        "/runs/{run_id}/cancel",
        requests.CancelRunRequest,
        job_responses.Cancelled,
        "End a run, or ask it to stop",
        "runs",
    ),
    Operation(
        "replay",
        "POST",
        "/runs/{run_id}/replay",
        requests.ReplayRun,
        job_responses.Admitted,
        "Do a run again",
        "runs",
        202,
    ),
    Operation(
        "attempt_output",
        "GET",
        "/attempts/{attempt_id}/output",
        requests.AttemptOutputRequest,
        job_responses.Output,
        "What one attempt printed, from a place on",
        "runs",
    ),
    # schedules
    Operation(
        "list_schedules",
        "GET",
        "/schedules",
        requests.ListSchedules,
        catalog_responses.SchedulePage,
        "Schedules in the words of cb_schedules",
        "schedules",
    ),
    Operation(
        "preview",
        "GET",
        "/preview",
        requests.PreviewSchedule,
        catalog_responses.Preview,
        "What a schedule will do, before anything runs",
        "schedules",
        is_given_up=True,
    ),
    Operation(
        "post_preview",
        "POST",
        "/preview",
        requests.PreviewSchedule,
        catalog_responses.Preview,
        "The same, with the question as a body",
        "schedules",
        does="preview",
        only_asks=True,
        is_given_up=True,
    ),
    # catalog
    Operation(
        "overview",
        "GET",
        "/overview",
        requests.EmptyRequest,
        catalog_responses.Overview,
        "What goes on just now",
        "system",
    ),
    Operation(
        "nodes", "GET", "/nodes", requests.EmptyRequest, catalog_responses.Nodes, "The nodes that run jobs", "system"
    ),
    Operation(
        "doctor",
        "GET",
        "/doctor",
        requests.EmptyRequest,
        catalog_responses.Examination,
        "What is wrong, or about to be",
        "system",
    ),
    Operation(
        "sql", "POST", "/sql", requests.RunSql, catalog_responses.SqlAnswer, "Carry out SQL statements", "system"
    ),
    Operation(
        "settings",
        "GET",
        "/settings",
        requests.EmptyRequest,
        catalog_responses.Settings,
        "What ALTER SYSTEM knows",
        "system",
    ),
    Operation(
        "set_setting",
        "PUT",
        "/settings/{name}",
        requests.SetSetting,
        catalog_responses.Setting,
        "Set one for all nodes, or take it back",
        "system",
    ),
    Operation("list_audit", "GET", "/audit", requests.ListAudit, catalog_responses.AuditPage, "Who did what", "audit"),
    Operation(
        "verify_audit",
        "POST",
        "/audit/verify",
        requests.VerifyAudit,
        catalog_responses.Verification,
        "Whether the trail was tampered with",
        "audit",
        only_asks=True,
    ),
    # people
    Operation("me", "GET", "/me", requests.EmptyRequest, people_responses.Me, "Who asks", "people"),
    Operation("users", "GET", "/users", requests.EmptyRequest, people_responses.Users, "List users", "people"),
    Operation(
        "create_user",
        "POST",
        "/users",
        requests.CreateUserRequest,
        people_responses.Told,
        "Create a user",
        "people",
        201,
    ),
    Operation(
        "alter_user",
        "PATCH",
        "/users/{name}",
        requests.AlterUserRequest,
        people_responses.Told,
        "Change a user",
        "people",
    ),
    Operation(
        "drop_user", "DELETE", "/users/{name}", requests.NameRequest, people_responses.Told, "Drop a user", "people"
    ),
    Operation("roles", "GET", "/roles", requests.EmptyRequest, people_responses.Roles, "List roles", "people"),
    Operation(
        "create_role",
        "POST",
        "/roles",
        requests.CreateRoleRequest,
        people_responses.Told,
        "Create a role",
        "people",
        201,
    ),
    Operation(
        "drop_role", "DELETE", "/roles/{name}", requests.NameRequest, people_responses.Told, "Drop a role", "people"
    ),
    Operation("tokens", "GET", "/tokens", requests.ListTokens, people_responses.Tokens, "List tokens", "people"),
    Operation(
        "create_token",
        "POST",
        "/tokens",
        requests.CreateToken,
        people_responses.NewToken,
        "Make a token",
        "people",
        201,
    ),
    Operation(
        "revoke_token",
        "DELETE",
        "/tokens/{token_id}",
        requests.TokenRequest,
        people_responses.Token,
        "Revoke a token",
        "people",
    ),
    Operation(
        "secrets", "GET", "/secrets", requests.EmptyRequest, people_responses.Secrets, "List secrets by name", "people"
    ),
    Operation(
        "put_secret", "PUT", "/secrets/{name}", requests.PutSecret, people_responses.Told, "Set a secret", "people"
    ),
    Operation(
        "drop_secret",
        "DELETE",
        "/secrets/{name}",
        requests.DropSecretRequest,
        people_responses.Told,
        "Drop a secret",
        "people",
    ),
    Operation(
        "rotate_secrets",
        "POST",
        "/secrets/rotate",
        requests.EmptyRequest,
        people_responses.Rotated,
        "Encrypt every secret under the current master key",
        "people",
    ),
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}
