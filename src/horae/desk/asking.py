"""Questions: the parameters of every operation, checked before anybody looks at them.

Fields that an operation's path names stand in the path; the others are query parameters of GET and DELETE, and the JSON
body of POST, PUT and PATCH.
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
"""One that every store and every reader of JSON can hold."""
LONGEST_SQL = 102_400
MOST_STATEMENTS = 500
"""What may be asked for at once over the network: meanwhile others want to be answered too."""


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every question is."""


class Nothing(Asked, frozen=True, kw_only=True):
    """No parameters."""


class Named(Asked, frozen=True, kw_only=True):
    name: Name


class ListJobs(Asked, frozen=True, kw_only=True):
    search: Word | None = None
    """Text that is in the name, the description or a tag, in any case."""
    state: Word | None = None
    """enabled, paused or disabled."""
    tag: Word | None = None
    owner: Word | None = None
    namespace: Word | None = None
    sort: Word = "name"
    """name, next_run_time, state, owner, updated_at or last_run."""
    descending: bool = False
    offset: Offset = 0
    """So many jobs come before this page."""
    limit: Count = 50
    outcomes: Annotated[int, Meta(ge=0, le=100)] = 0
    """How many of the latest runs to show of each job."""


class PutJob(Asked, frozen=True, kw_only=True):
    """`definition` as one job's table in jobs.toml. `version` is the one that was read: 0, there must be no such job;
    None: whatever there is."""

    name: Name
    definition: dict[str, Any]
    version: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    reason: Text | None = None
    """Why, kept with the version."""
    update_policy: Policy | None = None
    """How the change takes effect: `immediate`, `graceful`, `graceful=TIME`, `windowed=7d`; none: as the job says."""


class DropJob(Asked, frozen=True, kw_only=True):
    name: Name
    keep_history: bool = False
    """Whether its runs stay."""


class PauseJob(Asked, frozen=True, kw_only=True):
    name: Name
    until: Moment | None = None
    """When it goes on by itself; none: when somebody says so."""
    note: Text | None = None
    """Why, for whoever wonders."""


class TriggerJob(Asked, frozen=True, kw_only=True):
    name: Name
    payload: Any = None
    """What the run is given instead of the job's own payload."""
    key: Name | None = None
    """The same key is always answered with the same run."""


class RescheduleJob(Asked, frozen=True, kw_only=True):
    name: Name
    at: Moment
    """When the next slot starts; it keeps its identity."""


class BackfillJob(Asked, frozen=True, kw_only=True):
    name: Name
    start: Moment
    """The first slot that counts."""
    end: Moment
    """The last one."""


class ExplainJob(Asked, frozen=True, kw_only=True):
    name: Name
    at: Moment | None = None
    """The nominal time of the slot; none: the next one."""


class JobCalendar(Asked, frozen=True, kw_only=True):
    name: Name
    year: Annotated[int, Meta(ge=2, le=9998)] | None = None
    """None: this one."""


class JobVersions(Asked, frozen=True, kw_only=True):
    name: Name
    before: Number | None = None
    """Versions before this one: `next_before` of the page before."""
    limit: Count = 50


class JobVersion(Asked, frozen=True, kw_only=True):
    name: Name
    version: Number


class DiffVersions(Asked, frozen=True, kw_only=True):
    name: Name
    old: Number | None = None
    """None: the one before `new`."""
    new: Number | None = None
    """None: the present one."""


class RollBack(Asked, frozen=True, kw_only=True):
    name: Name
    version: Number
    """What is to hold again."""
    reason: Text | None = None
    """Why, kept with the new version."""
    expected: Number | None = None
    """The version that was read; none: whatever there is."""
    update_policy: Policy | None = None
    """How the change takes effect, as for PUT; none: as the version says."""


class ExportJobs(Asked, frozen=True, kw_only=True):
    """`names` are several with line feeds between; none: every job that whoever asks may see."""

    format: Word = "toml"
    """toml, sql, json or krontab."""
    names: Annotated[str, Meta(max_length=7_000)] | None = None
    namespace: Word | None = None
    """Only this one's."""
    all_namespaces: bool = False
    """Those of all namespaces: as sql or json."""
    tag: Word | None = None


class PlanChanges(Asked, frozen=True, kw_only=True):
    """`definitions` have the structure of jobs.toml, or are its text; a list has one for each namespace."""

    definitions: dict[str, Any] | Annotated[list[dict[str, Any]], Meta(max_length=1_000)] | str
    update_policy: Policy | None = None
    """How changes take effect, as for PUT; none: as each job says."""
    prune: bool = False
    """Whether jobs of these namespaces that are not in the definitions go."""
    horizon: Word = "7d"
    """How far occurrences are compared."""
    durations: Word = "from-history"
    """How long runs are taken to last: as they did, or so long."""
    defaults: dict[str, Any] | None = None
    """The scheduler's settings, under what the definitions say."""


class ApplyChanges(PlanChanges, frozen=True, kw_only=True):
    """What a plan takes, and which plan is meant."""

    plan: Word | None = None
    """The number of the plan: nothing else is done."""
    reason: Text | None = None
    """Why, kept with the versions."""


class ListRuns(Asked, frozen=True, kw_only=True):
    """`state` may be several, with commas between: `failed,failed_stale`; `active` stands for all that have not
    ended."""

    job: Name | None = None
    state: Word | None = None
    origin: Word | None = None
    """schedule, trigger, replay or backfill."""
    since: Moment | None = None
    """Runs of slots from then on."""
    until: Moment | None = None
    """Runs of slots up to then."""
    before: Word | None = None
    """`next_before` of the page before."""
    limit: Count = 100
    id: Word | None = None
    """Runs whose ids begin so: `occ_1a2b`, or `1a2b`."""


class JobRuns(Asked, frozen=True, kw_only=True):
    name: Name
    state: Word | None = None
    """As for all runs."""
    origin: Word | None = None
    """As for all runs."""
    since: Moment | None = None
    """Runs of slots from then on."""
    until: Moment | None = None
    """Runs of slots up to then."""
    before: Word | None = None
    """`next_before` of the page before."""
    limit: Count = 100


class ThatRun(Asked, frozen=True, kw_only=True):
    run_id: Word


class CancelRun(Asked, frozen=True, kw_only=True):
    run_id: Word
    reason: Text = "cancelled"
    """Kept with the run."""


class ReplayRun(Asked, frozen=True, kw_only=True):
    run_id: Word
    reason: Text
    """Why it is done again; kept with the new run."""
    task: Name | None = None
    """Only this task."""
    onwards: bool = False
    """This task and all after it."""


class OfOutput(Asked, frozen=True, kw_only=True):
    run_id: Word
    task: Name | None = None
    """Only this task's."""


class OfAttempt(Asked, frozen=True, kw_only=True):
    attempt_id: Word
    after: Offset = 0
    """From here on: `next` of the answer before."""


class ListSchedules(Asked, frozen=True, kw_only=True):
    search: Word | None = None
    offset: Offset = 0
    limit: Count = 100


class AskPreview(Asked, frozen=True, kw_only=True):
    """`text` is a cron expression, `every 90s`, an ISO 8601 interval, or one krontab line. `year` adds the calendar of
    that year, `at` the trace of the slot at that time (krontab: with its window)."""

    text: Annotated[str, Meta(min_length=1, max_length=4_000)]
    timezone: Word = "UTC"
    """The clocks it goes by, where the text does not say."""
    dialect: Word | None = None
    """extended, posix or vixie."""
    gap: Word | None = None
    """skip or shift: a wall time that the clocks skip."""
    fold: Word | None = None
    """auto, both or once: one that they show twice."""
    start: Moment | None = None
    """What comes after this time; none: after now."""
    count: Annotated[int, Meta(ge=1, le=1_000)] = 10
    """How many occurrences."""
    year: Annotated[int, Meta(ge=2, le=9998)] | None = None
    at: Moment | None = None


class RunSql(Asked, frozen=True, kw_only=True):
    """Statements with ; between, 500 at most: all of them or none, unless `each` is a transaction of its own."""

    text: Annotated[str, Meta(min_length=1, max_length=LONGEST_SQL)]
    each: bool = False


class ListAudit(Asked, frozen=True, kw_only=True):
    before: Number | None = None
    """Rows before this number: `next_before` of the page before."""
    limit: Count = 50
    event: Word | None = None
    """By its name: `JOB_CREATED`."""
    actor: Word | None = None
    """Whoever did it."""
    job: Name | None = None


class VerifyAudit(Asked, frozen=True, kw_only=True):
    head: Word | None = None
    """The head that an earlier verification told: some seal must still have it."""
    heads: Annotated[list[Word], Meta(max_length=10_000)] | None = None
    """More of them, the newest last."""


class SetSetting(Asked, frozen=True, kw_only=True):
    """`value` None takes it back."""

    name: Name
    """`scheduler.` and the name of a setting."""
    value: Any = None


class CreateUser(Asked, frozen=True, kw_only=True):
    name: Name
    password: Annotated[str, Meta(min_length=1, max_length=1_024)] | None = None
    is_admin: bool = False


class AlterUser(Asked, frozen=True, kw_only=True):
    name: Name
    password: Annotated[str, Meta(min_length=1, max_length=1_024)] | None = None
    """Ends the user's sessions. Not set by way of a token."""
    old_password: Annotated[str, Meta(min_length=1, max_length=1_024)] | None = None
    """One's own password takes the old one."""
    revoke_tokens: bool = False
    """With a password: the user's tokens end too."""
    is_admin: bool | None = None
    is_enabled: bool | None = None
    limits: dict[str, int | str | None] | None = None
    """max_jobs, max_running, max_starts, max_storage: a number, "none" for no limit, null for the system's."""


class CreateRole(Asked, frozen=True, kw_only=True):
    name: Name
    description: Text = ""


class PutSecret(Asked, frozen=True, kw_only=True):
    name: Name
    value: Annotated[str, Meta(min_length=1, max_length=65_536)]
    job: Name | None = None
    """The secret of this job alone."""


class DropSecret(Asked, frozen=True, kw_only=True):
    name: Name
    job: Name | None = None
    """The secret of this job alone."""


class ListTokens(Asked, frozen=True, kw_only=True):
    user: Name | None = None
    """Only of this user."""


class CreateToken(Asked, frozen=True, kw_only=True):
    """`lasts` is a duration (`90d`); None: until it is revoked."""

    user: Name | None = None
    """Whose it is; none: your own."""
    label: Word = ""
    """A name for people, to know it again."""
    lasts: Word | None = "90d"


class ThatToken(Asked, frozen=True, kw_only=True):
    token_id: Word
