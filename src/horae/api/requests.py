"""The requests: the parameters of every operation, validated before any handler runs.

Fields that are named in an operation's path come from the path. The others are query parameters of GET and DELETE, and
the JSON body of POST, PUT and PATCH.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, with an offset")]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Word = Annotated[str, Meta(max_length=255)]
Text = Annotated[str, Meta(max_length=4_000)]
Count = Annotated[int, Meta(ge=1, le=1_000)]
Offset = Annotated[int, Meta(ge=0, le=10_000_000)]
Policy = Annotated[str, Meta(min_length=1, max_length=100)]
Number = Annotated[int, Meta(ge=1, le=2**53 - 1)]
"""A number that every store and every JSON reader can represent."""
LONGEST_SQL = 102_400
MOST_STATEMENTS = 500
"""Statements in one request over the network at most, so that other requests are not delayed."""


class ApiRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all requests."""


class EmptyRequest(ApiRequest, frozen=True, kw_only=True):
    """A request without parameters."""


class NameRequest(ApiRequest, frozen=True, kw_only=True):
    name: Name


class ListJobs(ApiRequest, frozen=True, kw_only=True):
    search: Word | None = None
    """Text in the name, the description or a tag, in any case."""
    state: Word | None = None
    """enabled, paused or disabled."""
    tag: Word | None = None
    owner: Word | None = None
    namespace: Word | None = None
    sort: Word = "name"
    """name, next_run_time, state, owner, updated_at or last_run."""
    descending: bool = False
    offset: Offset = 0
    """How many jobs come before this page."""
    limit: Count = 50
    outcomes: Annotated[int, Meta(ge=0, le=100)] = 0
    """How many of each job's latest runs to return."""


class PutJob(ApiRequest, frozen=True, kw_only=True):
    """Creates or changes a job."""

    name: Name
    definition: dict[str, Any]
    """The job as its table in jobs.toml."""
    version: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    """The version that was read; 0: the job must not exist; null: whatever version exists."""
    reason: Text | None = None
    """Why; stored with the version."""
    update_policy: Policy | None = None
    """How the change takes effect: `immediate`, `graceful`, `graceful=TIME` or `windowed=7d`; null: as the job's own
    setting."""


class DropJobRequest(ApiRequest, frozen=True, kw_only=True):
    name: Name
    keep_history: bool = False
    """Whether its runs are kept."""


class PauseJob(ApiRequest, frozen=True, kw_only=True):
    name: Name
    until: Moment | None = None
    """When the job resumes by itself; null: when an operator resumes it."""
    note: Text | None = None
    """Why it is paused, for other operators."""


class TriggerJob(ApiRequest, frozen=True, kw_only=True):
    name: Name
    payload: Any = None
    """The run's payload; null: the job's own."""
    key: Name | None = None
    """Idempotency key: requests with the same key return the same run."""


class RescheduleJob(ApiRequest, frozen=True, kw_only=True):
    name: Name
    at: Moment
    """When the run of the next scheduled time starts. Its scheduled time stays the same."""


class BackfillJob(ApiRequest, frozen=True, kw_only=True):
    name: Name
    start: Moment
    """The first scheduled time to include."""
    end: Moment
    """The last scheduled time to include."""


class ExplainJobRequest(ApiRequest, frozen=True, kw_only=True):
    name: Name
    at: Moment | None = None
    """The scheduled time to explain; null: the next one."""


class JobCalendar(ApiRequest, frozen=True, kw_only=True):
    name: Name
    year: Annotated[int, Meta(ge=2, le=9998)] | None = None
    """Null: the present year."""


class JobVersions(ApiRequest, frozen=True, kw_only=True):
    name: Name
    before: Number | None = None
    """Only versions before this one: `next_before` of the previous page."""
    limit: Count = 50


class JobVersion(ApiRequest, frozen=True, kw_only=True):
    name: Name
    version: Number


class DiffVersions(ApiRequest, frozen=True, kw_only=True):
    name: Name
    old: Number | None = None
    """Null: the version before `new`."""
    new: Number | None = None
    """Null: the present version."""


class RollBack(ApiRequest, frozen=True, kw_only=True):
    name: Name
    version: Number
    """The version to go back to."""
    reason: Text | None = None
    """Why; stored with the new version."""
    expected: Number | None = None
    """The version that was read; null: whatever version exists."""
    update_policy: Policy | None = None
    """How the change takes effect, as for PUT; null: as that version's own setting."""


class ExportJobs(ApiRequest, frozen=True, kw_only=True):
    """Exports jobs and pools as a file."""

    format: Word = "toml"
    """toml, sql, json or krontab."""
    names: Annotated[str, Meta(max_length=7_000)] | None = None
    """Job names separated by line feeds; null: every job that the caller may see."""
    namespace: Word | None = None
    """Only jobs of this namespace."""
    all_namespaces: bool = False
    """Jobs of all namespaces, as sql or json."""
    tag: Word | None = None


class PlanChanges(ApiRequest, frozen=True, kw_only=True):
    """Compares definitions with the catalog."""

    definitions: dict[str, Any] | Annotated[list[dict[str, Any]], Meta(max_length=1_000)] | str
    """The structure of jobs.toml, or its text; a list has one structure for each namespace."""
    update_policy: Policy | None = None
    """How changes take effect, as for PUT; null: as each job's own setting."""
    prune: bool = False
    """Whether jobs of these namespaces that are not in the definitions are removed."""
    horizon: Word = "7d"
    """How far into the future scheduled times are compared."""
    durations: Word = "from-history"
    """How long runs are assumed to take: `from-history`, or a duration."""
    defaults: dict[str, Any] | None = None
    """The scheduler's default settings; the definitions take precedence."""


class ApplyChanges(PlanChanges, frozen=True, kw_only=True):
    """The parameters of a plan, and which plan to apply."""

    plan: Word | None = None
    """The id of the plan; if the changes differ from it, nothing is applied."""
    reason: Text | None = None
    """Why; stored with the versions."""


class ListRuns(ApiRequest, frozen=True, kw_only=True):
    """Lists runs, the newest first."""

    job: Name | None = None
    state: Word | None = None
    """States separated by commas, such as `failed,failed_stale`; `active` means all states that have not ended."""
    origin: Word | None = None
    """schedule, trigger, replay or backfill."""
    since: Moment | None = None
    """Only runs whose scheduled time is not before this time."""
    until: Moment | None = None
    """Only runs whose scheduled time is not after this time."""
    before: Word | None = None
    """`next_before` of the previous page."""
    limit: Count = 100
    id: Word | None = None
    """Only runs whose ids begin like this: `occ_1a2b`, or `1a2b`."""


class JobRuns(ApiRequest, frozen=True, kw_only=True):
    name: Name
    state: Word | None = None
    """As in `list_runs`."""
    origin: Word | None = None
    """As in `list_runs`."""
    since: Moment | None = None
    """Only runs whose scheduled time is not before this time."""
    until: Moment | None = None
    """Only runs whose scheduled time is not after this time."""
    before: Word | None = None
    """`next_before` of the previous page."""
    limit: Count = 100


class RunRequest(ApiRequest, frozen=True, kw_only=True):
    run_id: Word


class CancelRunRequest(ApiRequest, frozen=True, kw_only=True):
    run_id: Word
    reason: Text = "cancelled"
    """Stored with the run."""


class ReplayRun(ApiRequest, frozen=True, kw_only=True):
    run_id: Word
    reason: Text
    """Why it is replayed; stored with the new run."""
    task: Name | None = None
    """Only this task."""
    onwards: bool = False
    """This task and all tasks after it."""


class RunOutputRequest(ApiRequest, frozen=True, kw_only=True):
    run_id: Word
    task: Name | None = None
    """Only the output of this task."""


class AttemptOutputRequest(ApiRequest, frozen=True, kw_only=True):
    attempt_id: Word
    after: Offset = 0
    """The position to read from: `next` of the previous response."""


class ListSchedules(ApiRequest, frozen=True, kw_only=True):
    search: Word | None = None
    offset: Offset = 0
    limit: Count = 100


class PreviewSchedule(ApiRequest, frozen=True, kw_only=True):
    """Previews a schedule."""

    text: Annotated[str, Meta(min_length=1, max_length=4_000)]
    """A cron expression, `every 90s`, an ISO 8601 interval, or krontab lines."""
    timezone: Word = "UTC"
    """The time zone, unless the text names one."""
    dialect: Word | None = None
    """extended, posix or vixie."""
    gap: Word | None = None
    """skip or shift: what happens to a wall time that the clocks skip."""
    fold: Word | None = None
    """auto, both or once: what happens to a wall time that occurs twice."""
    start: Moment | None = None
    """Only occurrences after this time; null: after now."""
    count: Annotated[int, Meta(ge=1, le=1_000)] = 10
    """How many occurrences to return."""
    year: Annotated[int, Meta(ge=2, le=9998)] | None = None
    """Adds the calendar of this year."""
    at: Moment | None = None
    """Adds the trace of the scheduled time at this moment; for a krontab line, with its window."""


class RunSql(ApiRequest, frozen=True, kw_only=True):
    """Up to 500 statements separated by `;`, carried out in one transaction."""

    text: Annotated[str, Meta(min_length=1, max_length=LONGEST_SQL)]
    each: bool = False
    """Carries out each statement in its own transaction."""


class ListAudit(ApiRequest, frozen=True, kw_only=True):
    before: Number | None = None
    """Only rows before this number: `next_before` of the previous page."""
    limit: Count = 50
    event: Word | None = None
    """The name of the event: `JOB_CREATED`."""
    actor: Word | None = None
    """The user who did it."""
    job: Name | None = None


class VerifyAudit(ApiRequest, frozen=True, kw_only=True):
    head: Word | None = None
    """The head that an earlier verification returned; one of the seals must still have it."""
    heads: Annotated[list[Word], Meta(max_length=10_000)] | None = None
    """More such heads, the newest last."""


class SetSetting(ApiRequest, frozen=True, kw_only=True):
    """Sets a setting for all nodes."""

    name: Name
    """`scheduler.` and the name of a setting."""
    value: Any = None
    """Null resets the setting."""


class CreateUserRequest(ApiRequest, frozen=True, kw_only=True):
    name: Name
    password: Annotated[str, Meta(min_length=1, max_length=1_024)] | None = None
    is_admin: bool = False


class AlterUserRequest(ApiRequest, frozen=True, kw_only=True):
    name: Name
    password: Annotated[str, Meta(min_length=1, max_length=1_024)] | None = None
    """A new password. It ends the user's sessions. A token cannot set it."""
    old_password: Annotated[str, Meta(min_length=1, max_length=1_024)] | None = None
    """Required to change one's own password."""
    revoke_tokens: bool = False
    """With a new password: also revokes the user's tokens."""
    is_admin: bool | None = None
    is_enabled: bool | None = None
    limits: dict[str, int | str | None] | None = None
    """max_jobs, max_running, max_starts, max_storage: a number, "none" for no limit, null for the system's limit."""


class CreateRoleRequest(ApiRequest, frozen=True, kw_only=True):
    name: Name
    description: Text = ""


class PutSecret(ApiRequest, frozen=True, kw_only=True):
    name: Name
    value: Annotated[str, Meta(min_length=1, max_length=65_536)]
    job: Name | None = None
    """Makes it a secret of this job alone."""


class DropSecretRequest(ApiRequest, frozen=True, kw_only=True):
    name: Name
    job: Name | None = None
    """The job whose own secret it is."""


class ListTokens(ApiRequest, frozen=True, kw_only=True):
    user: Name | None = None
    """Only tokens of this user."""


class CreateToken(ApiRequest, frozen=True, kw_only=True):
    """Creates a token."""

    user: Name | None = None
    """The owner of the token; null: the caller."""
    label: Word = ""
    """A name that helps to recognise the token."""
    lasts: Word | None = "90d"
    """How long it is valid, such as `90d`; null: until it is revoked."""


class TokenRequest(ApiRequest, frozen=True, kw_only=True):
    token_id: Word
