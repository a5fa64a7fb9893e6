-- The sum of the migrations, made by `make golden`; write a migration instead.

-- The catalog, on SQLite: this file is attached as `sys`. Times are milliseconds since 1970, uuids are text.
-- min_reader: 1

CREATE TABLE sys.users (
    user_uuid     TEXT PRIMARY KEY,
    user_name     TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    is_admin      INTEGER NOT NULL DEFAULT 0,
    state         TEXT NOT NULL DEFAULT 'ENABLED' CHECK (state = 'ENABLED' OR state = 'DISABLED'),
    created_at    INTEGER NOT NULL
) WITHOUT ROWID;

-- Whoever can open the file is the administrator; the uuid is uuid5(NAMESPACE_URL, 'urn:horae:user:local').
INSERT INTO sys.users (user_uuid, user_name, is_admin, created_at)
VALUES ('d69e9d85-8741-5f42-ab50-f4afa0f8cbf6', 'local', 1, 0);

CREATE TABLE sys.roles (
    role_uuid   TEXT PRIMARY KEY,
    role_name   TEXT NOT NULL UNIQUE,
    description TEXT,
    created_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sys.role_members (
    role_uuid  TEXT NOT NULL REFERENCES roles (role_uuid) ON DELETE CASCADE,
    user_uuid  TEXT NOT NULL REFERENCES users (user_uuid) ON DELETE CASCADE,
    granted_at INTEGER NOT NULL,
    granted_by TEXT NOT NULL,
    PRIMARY KEY (role_uuid, user_uuid)
) WITHOUT ROWID;

-- A privilege of a user or a role, on one object (a job, a secret, a table) or, where object_name is '', on all.
CREATE TABLE sys.grants (
    grantee_uuid TEXT NOT NULL,
    privilege    TEXT NOT NULL,
    object_kind  TEXT NOT NULL DEFAULT '',
    object_name  TEXT NOT NULL DEFAULT '',
    granted_at   INTEGER NOT NULL,
    granted_by   TEXT NOT NULL,
    PRIMARY KEY (grantee_uuid, privilege, object_kind, object_name)
) WITHOUT ROWID;

CREATE TABLE sys.jobs (
    job_no                INTEGER NOT NULL,
    job_uuid              TEXT PRIMARY KEY,
    job_name              TEXT NOT NULL UNIQUE,
    description           TEXT,
    job_class             TEXT,
    job_type              TEXT NOT NULL,
    job_sql               TEXT,
    procedure_uuid        TEXT,
    external_command      TEXT,
    schedule_kind         TEXT NOT NULL,
    cron_expression       TEXT,
    interval_seconds      INTEGER,
    starts_at             INTEGER,
    ends_at               INTEGER,
    schedule_tz           TEXT,
    next_run_time         INTEGER,
    on_completion         TEXT DEFAULT 'PRESERVE',
    partition_strategy    TEXT,
    partition_shard_uuid  TEXT,
    partition_expression  TEXT,
    max_retries           INTEGER DEFAULT 3,
    retry_backoff_seconds INTEGER DEFAULT 60,
    timeout_seconds       INTEGER DEFAULT 3600,
    created_by_user_uuid  TEXT NOT NULL REFERENCES users (user_uuid),
    run_as_role_uuid      TEXT,
    created_at            INTEGER NOT NULL,
    state                 TEXT NOT NULL DEFAULT 'ENABLED'
        CHECK (state = 'ENABLED' OR state = 'PAUSED' OR state = 'DISABLED'),
    -- What the seed's columns do not say.
    namespace             TEXT NOT NULL,
    version               INTEGER NOT NULL,
    tags                  TEXT,
    schedule_text         TEXT NOT NULL,      -- the schedule as people write it
    registered            TEXT,               -- digest of the last definition made from code
    planned_until         INTEGER NOT NULL,   -- nominal, never moves back: slots up to here are born
    wake_at               INTEGER,            -- the planner's alarm
    first_seen            INTEGER NOT NULL DEFAULT 1,
    paused_until          INTEGER,
    pause_note            TEXT,
    moved_slot            INTEGER,
    moved_to              INTEGER,
    covered_until         INTEGER,
    last_enqueued_at      INTEGER,
    updated_at            INTEGER NOT NULL
) WITHOUT ROWID;
-- Due jobs are taken in key order: their rows, and those of their runs, then lie side by side in every index.
CREATE INDEX sys.jobs_wake ON jobs (wake_at, job_uuid) WHERE wake_at IS NOT NULL;
CREATE INDEX sys.jobs_once ON jobs (job_uuid) WHERE schedule_kind = 'AT';

CREATE TABLE sys.job_tasks (
    job_uuid   TEXT NOT NULL,
    task_uuid  TEXT NOT NULL,
    task_name  TEXT NOT NULL,
    position   INTEGER NOT NULL,
    task_type  TEXT NOT NULL,
    handler    TEXT NOT NULL,
    settings   TEXT,
    retired_at INTEGER,                       -- no longer part of the job; its history stays
    PRIMARY KEY (job_uuid, task_uuid)
) WITHOUT ROWID;

-- Every version of every job, with the scheduler's defaults it was defined under: the snapshot runs refer to.
CREATE TABLE sys.job_versions (
    job_uuid   TEXT NOT NULL,
    version    INTEGER NOT NULL,
    definition TEXT NOT NULL,
    defaults   TEXT,
    source     TEXT NOT NULL,
    author     TEXT NOT NULL,
    reason     TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (job_uuid, version)
) WITHOUT ROWID;

-- Where a dropped job's cursor stood: a slot never runs a second time, also for a job that comes back.
CREATE TABLE sys.job_tombstones (
    job_uuid      TEXT PRIMARY KEY,
    job_name      TEXT NOT NULL,
    planned_until INTEGER NOT NULL,
    last_version  INTEGER NOT NULL,
    dropped_at    INTEGER NOT NULL,
    dropped_by    TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sys.job_dependencies (
    job_uuid            TEXT NOT NULL REFERENCES jobs (job_uuid) ON DELETE CASCADE,
    depends_on_job_uuid TEXT NOT NULL REFERENCES jobs (job_uuid) ON DELETE CASCADE,
    PRIMARY KEY (job_uuid, depends_on_job_uuid)
) WITHOUT ROWID;
CREATE INDEX sys.job_dependencies_on ON job_dependencies (depends_on_job_uuid);

CREATE TABLE sys.job_secrets (
    job_uuid     TEXT NOT NULL REFERENCES jobs (job_uuid) ON DELETE CASCADE,
    secret_key   TEXT NOT NULL,
    secret_value BLOB,
    key_id       TEXT,
    updated_at   INTEGER,
    PRIMARY KEY (job_uuid, secret_key)
) WITHOUT ROWID;

-- One row a run; the row is the lock. run_no gives it a place among its neighbours in time, which keeps writes local;
-- its tasks and attempts are keyed by it. No foreign keys: history outlives definitions.
CREATE TABLE sys.job_runs (
    run_no              INTEGER PRIMARY KEY,
    job_run_uuid        TEXT NOT NULL UNIQUE,
    job_uuid            TEXT NOT NULL,
    assigned_node_uuid  TEXT,
    shard_uuid          TEXT,
    scheduled_time      INTEGER NOT NULL,
    started_at          INTEGER,
    completed_at        INTEGER,
    state               TEXT NOT NULL CHECK (
        state = 'RUNNING' OR state = 'COMPLETED' OR state = 'PENDING' OR state = 'FAILED' OR state = 'SKIPPED'
        OR state = 'QUEUED' OR state = 'MISSED' OR state = 'CANCELLED' OR state = 'COMPLETED_WITH_ERRORS'
        OR state = 'FAILED_STALE' OR state = 'UNSCHEDULABLE'),
    retry_count         INTEGER DEFAULT 0,
    result_message      TEXT,
    rows_affected       INTEGER,
    result_data         BLOB,
    error_code          INTEGER,
    -- What the seed's columns do not say.
    idempotency_key     TEXT,
    version             INTEGER NOT NULL,
    origin              TEXT NOT NULL DEFAULT 'SCHEDULE',
    chosen_time         INTEGER NOT NULL,
    not_before          INTEGER,              -- only while PENDING, and then only if time is what it waits for
    waiting_for         TEXT,
    deadline_at         INTEGER,              -- only until it starts
    fence               INTEGER NOT NULL DEFAULT 0,
    resumed_at          INTEGER,              -- start of the present stretch of RUNNING
    spent_ms            INTEGER NOT NULL DEFAULT 0,
    expires_at          INTEGER,              -- when the reaper looks at it
    cancel_requested_at INTEGER,
    cancel_reason       TEXT,
    cancelled_by        TEXT,
    reason              TEXT,
    is_recovery         INTEGER NOT NULL DEFAULT 0,
    covers_from         INTEGER,
    covers_to           INTEGER,
    covers_count        INTEGER NOT NULL DEFAULT 1,
    replay_of           TEXT,
    only_tasks          TEXT,
    pool_name           TEXT,
    limited             INTEGER NOT NULL DEFAULT 0, -- counted against a pool or its job's limit when it starts
    requires            TEXT,                 -- the callables a node must have, a JSON list
    payload             TEXT,
    requested_by        TEXT,
    created_at          INTEGER NOT NULL,
    UNIQUE (job_uuid, idempotency_key),
    CHECK ((completed_at IS NULL) = (state = 'RUNNING' OR state = 'PENDING' OR state = 'QUEUED')),
    CHECK (not_before IS NULL OR state = 'PENDING')
);
-- The keys of scheduled runs sort by time within a job (10 digits until 2286), so only the others need an index by time.
CREATE INDEX sys.job_runs_manual ON job_runs (job_uuid, scheduled_time) WHERE origin <> 'SCHEDULE';
CREATE INDEX sys.job_runs_active ON job_runs (job_uuid) WHERE completed_at IS NULL;
CREATE INDEX sys.job_runs_claim ON job_runs (not_before) WHERE not_before IS NOT NULL;
-- Two rare kinds among the runs that wait: looking for them must not walk all the others.
CREATE INDEX sys.job_runs_window ON job_runs (not_before) WHERE waiting_for = 'window';
CREATE INDEX sys.job_runs_limited ON job_runs (not_before) WHERE limited = 1 AND not_before IS NOT NULL;
CREATE INDEX sys.job_runs_deadline ON job_runs (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX sys.job_runs_completed ON job_runs (completed_at) WHERE completed_at IS NOT NULL;

-- Numbers given out in blocks: known before the row is written, and never given twice.
CREATE TABLE sys.counters (
    counter_name TEXT PRIMARY KEY,
    value        INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO sys.counters (counter_name, value) VALUES ('run', 0), ('job', 0);

CREATE TABLE sys.task_runs (
    run_no        INTEGER NOT NULL,
    position      INTEGER NOT NULL,
    task_name     TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (
        state = 'RUNNING' OR state = 'SUCCESS' OR state = 'PENDING' OR state = 'FAILED' OR state = 'TIMEOUT'
        OR state = 'CANCELLED' OR state = 'SKIPPED'),
    attempts      INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    lost          INTEGER NOT NULL DEFAULT 0,
    retry_at      INTEGER,
    started_at    INTEGER,
    completed_at  INTEGER,
    result        TEXT,
    reason        TEXT,
    cancelled_by  TEXT,
    PRIMARY KEY (run_no, position)
) WITHOUT ROWID;

CREATE TABLE sys.task_attempts (
    run_no        INTEGER NOT NULL,
    position      INTEGER NOT NULL,
    attempt_no    INTEGER NOT NULL,
    state         TEXT NOT NULL CHECK (
        state = 'RUNNING' OR state = 'SUCCESS' OR state = 'FAILED' OR state = 'TIMEOUT' OR state = 'LOST'
        OR state = 'CANCELLED' OR state = 'PENDING'),
    node_uuid     TEXT,
    fence         INTEGER NOT NULL,
    started_at    INTEGER,
    ended_at      INTEGER,
    error_code    INTEGER,
    error_message TEXT,
    PRIMARY KEY (run_no, position, attempt_no)
) WITHOUT ROWID;

CREATE TABLE sys.attempt_output (
    run_no       INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    attempt_no   INTEGER NOT NULL,
    chunk_no     INTEGER NOT NULL,
    attempt_uuid TEXT NOT NULL,
    written_at   INTEGER NOT NULL,
    text         TEXT NOT NULL,
    PRIMARY KEY (run_no, position, attempt_no, chunk_no)
) WITHOUT ROWID;
CREATE INDEX sys.attempt_output_uuid ON attempt_output (attempt_uuid) WHERE chunk_no = 0;

-- How the start of a run inside its window was decided.
CREATE TABLE sys.run_windows (
    run_no         INTEGER PRIMARY KEY,
    period_key     TEXT NOT NULL,
    window_start   INTEGER NOT NULL,
    window_end     INTEGER NOT NULL,
    chosen_time    INTEGER,
    seed_hash      TEXT NOT NULL,
    distribution   TEXT NOT NULL,
    attempts       INTEGER NOT NULL,
    reason         TEXT,
    core_version   TEXT NOT NULL,
    tzdata_version TEXT NOT NULL
);

CREATE TABLE sys.pools (
    pool_name   TEXT PRIMARY KEY,
    max_running INTEGER NOT NULL CHECK (max_running >= 1),
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sys.nodes (
    node_uuid    TEXT PRIMARY KEY,            -- one incarnation
    node_name    TEXT,
    state        TEXT NOT NULL CHECK (state = 'ALIVE' OR state = 'DEAD' OR state = 'STOPPED'),
    counter      INTEGER NOT NULL DEFAULT 0,
    started_at   INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    ended_at     INTEGER,
    details      TEXT
) WITHOUT ROWID;

CREATE TABLE sys.settings (
    setting_name TEXT PRIMARY KEY,
    value        TEXT NOT NULL,
    updated_at   INTEGER NOT NULL,
    updated_by   TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sys.procedures (
    procedure_uuid TEXT PRIMARY KEY,
    procedure_name TEXT NOT NULL UNIQUE,
    handler        TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    created_by     TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sys.tokens (
    token_uuid TEXT PRIMARY KEY,
    user_uuid  TEXT NOT NULL REFERENCES users (user_uuid) ON DELETE CASCADE,
    token_hash TEXT NOT NULL UNIQUE,
    label      TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;

CREATE TABLE sys.sessions (
    session_hash TEXT PRIMARY KEY,
    user_uuid    TEXT NOT NULL REFERENCES users (user_uuid) ON DELETE CASCADE,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- Written in the transaction it describes. For JOB_EXECUTED one row covers a whole settle batch: its runs by number,
-- and a digest over what their rows said.
CREATE TABLE sys.audit (
    audit_no     INTEGER PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    event        TEXT NOT NULL,
    job_uuid     TEXT,
    job_run_uuid TEXT,
    actor        TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    details      TEXT,
    digest       TEXT
);

CREATE TABLE sys.audit_seals (
    seal_no        INTEGER PRIMARY KEY,
    first_audit_no INTEGER NOT NULL,
    last_audit_no  INTEGER NOT NULL,
    digest         TEXT NOT NULL,
    previous       TEXT NOT NULL,
    sealed_at      INTEGER NOT NULL
);

-- What people wrote through cb_schedules, for the planner to check and apply.
CREATE TABLE sys.schedule_requests (
    request_no   INTEGER PRIMARY KEY AUTOINCREMENT,
    job_uuid     TEXT NOT NULL,
    field        TEXT NOT NULL CHECK (field = 'enabled' OR field = 'next_run_at' OR field = 'cron_spec'),
    value        TEXT,
    requested_at INTEGER NOT NULL,
    requested_by TEXT NOT NULL,
    applied_at   INTEGER,
    error        TEXT
);
CREATE INDEX sys.schedule_requests_open ON schedule_requests (request_no) WHERE applied_at IS NULL;

CREATE TABLE sys.schema_migrations (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    min_reader INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
);

CREATE VIEW sys.cb_schedules AS
SELECT
    job_no AS id,
    job_name AS name,
    CASE WHEN job_type = 'TASKS' THEN 'flow' ELSE 'task' END AS kind,
    schedule_text AS cron_spec,
    strftime('%Y-%m-%dT%H:%M:%fZ', next_run_time / 1000.0, 'unixepoch') AS next_run_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(max(
        coalesce((
            SELECT r.started_at FROM job_runs r
            WHERE r.job_uuid = jobs.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.started_at IS NOT NULL
            ORDER BY r.idempotency_key DESC LIMIT 1
        ), 0),
        coalesce((
            SELECT max(r.started_at) FROM job_runs r WHERE r.job_uuid = jobs.job_uuid AND r.origin <> 'SCHEDULE'
        ), 0)
    ), 0) / 1000.0, 'unixepoch') AS last_run_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', last_enqueued_at / 1000.0, 'unixepoch') AS last_enqueued_at,
    state = 'ENABLED' AS enabled,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1000.0, 'unixepoch') AS updated_at
FROM jobs;

CREATE TRIGGER sys.cb_schedules_update INSTEAD OF UPDATE ON cb_schedules
BEGIN
    SELECT raise(ABORT, 'cb_schedules takes UPDATE of enabled, next_run_at and cron_spec only')
    WHERE new.id IS NOT old.id OR new.name IS NOT old.name OR new.kind IS NOT old.kind
        OR new.last_run_at IS NOT old.last_run_at OR new.last_enqueued_at IS NOT old.last_enqueued_at
        OR new.created_at IS NOT old.created_at OR new.updated_at IS NOT old.updated_at;
    INSERT INTO schedule_requests (job_uuid, field, value, requested_at, requested_by)
    SELECT job_uuid, 'enabled', CAST(new.enabled AS TEXT), CAST(unixepoch('subsec') * 1000 AS INTEGER), 'local'
    FROM jobs WHERE job_no = old.id AND new.enabled IS NOT old.enabled;
    INSERT INTO schedule_requests (job_uuid, field, value, requested_at, requested_by)
    SELECT job_uuid, 'cron_spec', new.cron_spec, CAST(unixepoch('subsec') * 1000 AS INTEGER), 'local'
    FROM jobs WHERE job_no = old.id AND new.cron_spec IS NOT old.cron_spec;
    INSERT INTO schedule_requests (job_uuid, field, value, requested_at, requested_by)
    SELECT job_uuid, 'next_run_at', CAST(new.next_run_at AS TEXT), CAST(unixepoch('subsec') * 1000 AS INTEGER), 'local'
    FROM jobs WHERE job_no = old.id AND new.next_run_at IS NOT old.next_run_at;
    INSERT INTO audit (at, event, job_uuid, actor, outcome, details)
    SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER), 'SCHEDULE_REQUESTED', job_uuid, 'local', 'REQUESTED',
        json_object('enabled', new.enabled, 'next_run_at', new.next_run_at, 'cron_spec', new.cron_spec)
    FROM jobs
    WHERE job_no = old.id AND (new.enabled IS NOT old.enabled OR new.next_run_at IS NOT old.next_run_at
        OR new.cron_spec IS NOT old.cron_spec);
END;

-- What a run of this version needs to start, where one statement can start it: [its only task's name, its time-out in ms].
-- Versions written before have none, and start the longer way.
-- min_reader: 1

ALTER TABLE sys.job_versions ADD COLUMN plain_start TEXT;

-- What retention would otherwise forget of a job: when it was last tried, when it last succeeded. Written when the runs
-- that say so are deleted; until then the runs say it.
-- min_reader: 1

ALTER TABLE sys.jobs ADD COLUMN last_attempt_at INTEGER;
ALTER TABLE sys.jobs ADD COLUMN last_success_at INTEGER;

-- People, secrets and the sealed trail. A release before this one goes on reading and writing, as long as no job has what
-- only this one knows; but runs that its retention deletes, whoever verifies the trail misses.
-- min_reader: 1

-- Secrets that are not one job's own (those are in job_secrets), encrypted under the master key key_id.
CREATE TABLE sys.secrets (
    secret_name  TEXT PRIMARY KEY,
    secret_value BLOB NOT NULL,
    key_id       TEXT NOT NULL,
    updated_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- What the database itself calls them, where it knows users; SQLite does not.
ALTER TABLE sys.users ADD COLUMN database_role TEXT;
ALTER TABLE sys.roles ADD COLUMN database_role TEXT;

-- A row's place in the sealed order, NULL until it is sealed. Numbers are no such order: on PostgreSQL a transaction that
-- took its number early may commit late. Seals go by places, and none has been written before.
ALTER TABLE sys.audit ADD COLUMN position INTEGER;
-- Written with the place: the digest over all the rest of the row, so that one that was edited is known by itself.
ALTER TABLE sys.audit ADD COLUMN seal TEXT;
CREATE UNIQUE INDEX sys.audit_position ON audit (position) WHERE position IS NOT NULL;
CREATE INDEX sys.audit_unsealed ON audit (audit_no) WHERE position IS NULL;
ALTER TABLE sys.audit_seals RENAME COLUMN first_audit_no TO first_position;
ALTER TABLE sys.audit_seals RENAME COLUMN last_audit_no TO last_position;
-- Over the digests of its rows: apart from the seal's own, it tells whether the seal was edited or what it covers.
ALTER TABLE sys.audit_seals ADD COLUMN rows_digest TEXT NOT NULL DEFAULT '';

-- Few fail: so that counting them does not read all that ended.
CREATE INDEX sys.job_runs_failed ON job_runs (run_no)
    WHERE state = 'FAILED' OR state = 'FAILED_STALE' OR (state = 'CANCELLED' AND reason = 'timeout');

-- The scheduler's figures, from what the catalog holds: averages are of the last hour, by the clock of whoever looks, and
-- NULL where nothing happened; jobs_failed_total counts the runs that are kept.
CREATE VIEW sys.performance AS
SELECT 'scheduler_queue_depth' AS metric, CAST(count(*) AS REAL) AS value, 'runs' AS unit
FROM job_runs
WHERE completed_at IS NULL AND not_before <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER))
UNION ALL
SELECT 'scheduler_jobs_in_queue_total', CAST(count(*) AS REAL), 'runs'
FROM job_runs
WHERE completed_at IS NULL AND (state = 'QUEUED' OR (
    not_before <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER))
))
UNION ALL
SELECT 'jobs_running', CAST(count(*) AS REAL), 'runs' FROM job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_running_total', CAST(count(*) AS REAL), 'runs'
FROM job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_paused_total', CAST(count(*) AS REAL), 'jobs' FROM jobs WHERE state = 'PAUSED'
UNION ALL
SELECT 'jobs_failed_total', CAST(count(*) AS REAL), 'runs'
FROM job_runs WHERE state = 'FAILED' OR state = 'FAILED_STALE' OR (state = 'CANCELLED' AND reason = 'timeout')
UNION ALL
SELECT 'job_run_latency_ms', avg(late), 'ms'
FROM (
    -- Whatever started within the hour is under way, or ended within it.
    SELECT started_at - chosen_time AS late FROM job_runs
    WHERE completed_at IS NULL AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM job_runs
    WHERE completed_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
        AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
)
UNION ALL
SELECT 'scheduler_start_lag_seconds', avg(late) / 1000, 's'
FROM (
    SELECT started_at - chosen_time AS late FROM job_runs
    WHERE completed_at IS NULL AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM job_runs
    WHERE completed_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
        AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
)
UNION ALL
SELECT 'scheduler_job_execution_duration_seconds', avg(completed_at - started_at) / 1000, 's'
FROM job_runs
WHERE completed_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000 AND started_at IS NOT NULL;

-- What was answered to requests that carry a key of their own, so that one that is sent twice is done once. A release
-- before this one has no use for it and goes on reading and writing.
-- min_reader: 1

-- status and body are NULL while a request is being answered. The key is a digest: it tells nobody who asked.
CREATE TABLE sys.kept_answers (
    answer_key  TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    begun_at    INTEGER NOT NULL,
    status      INTEGER,
    body        BLOB
);
CREATE INDEX sys.kept_answers_begun ON kept_answers (begun_at);

-- Changes that take effect gracefully: which earlier versions still speak for slots, and up to which moment, as a JSON
-- list of pairs [version, milliseconds]. A release before this one takes every change as immediate.
-- min_reader: 1

ALTER TABLE sys.job_versions ADD COLUMN former TEXT;
