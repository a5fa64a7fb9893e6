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

-- Ends of runs that hooks are to be called with. A hook is a function of a program, known by the name that every node of
-- that program gives it; it may ask for the runs of one job or of all. The transaction that ends a run writes a notice
-- for each hook that asks for it, whatever ends the run, and one live node that has the hook delivers it.
-- min_reader: 1

CREATE TABLE sys.hooks (
    hook_id  TEXT PRIMARY KEY,
    job_uuid TEXT,              -- NULL: every job
    job_name TEXT,
    states   TEXT,              -- with a comma around each: ',FAILED,MISSED,'; NULL: all, but for slots that a pause skipped
    seen_at  INTEGER NOT NULL   -- when a node last said that it has it
) WITHOUT ROWID;

-- What a notice says of its run is there for a run that is deleted before the hook was called.
CREATE TABLE sys.outbox (
    notice_no      INTEGER PRIMARY KEY AUTOINCREMENT,
    hook_id        TEXT NOT NULL,
    job_run_uuid   TEXT NOT NULL,
    job_uuid       TEXT NOT NULL,
    version        INTEGER NOT NULL,
    state          TEXT NOT NULL,
    reason         TEXT,
    origin         TEXT NOT NULL,
    scheduled_time INTEGER NOT NULL,
    chosen_time    INTEGER NOT NULL,
    started_at     INTEGER,
    completed_at   INTEGER NOT NULL,
    is_recovery    INTEGER NOT NULL,
    covers_from    INTEGER,
    covers_to      INTEGER,
    covers_count   INTEGER NOT NULL,
    replay_of      TEXT,
    cancelled_by   TEXT,
    claimed_by     TEXT         -- the incarnation that delivers it
);
CREATE INDEX sys.outbox_hook ON outbox (hook_id, notice_no);
CREATE INDEX sys.outbox_age ON outbox (completed_at);

CREATE TRIGGER sys.job_runs_ended AFTER UPDATE OF completed_at ON job_runs
WHEN old.completed_at IS NULL AND new.completed_at IS NOT NULL
BEGIN
    INSERT INTO outbox (
        hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
        completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
    SELECT h.hook_id, new.job_run_uuid, new.job_uuid, new.version, new.state, new.reason, new.origin,
        new.scheduled_time, new.chosen_time, new.started_at, new.completed_at, new.is_recovery, new.covers_from,
        new.covers_to, new.covers_count, new.replay_of, new.cancelled_by
    FROM hooks h
    WHERE (h.job_uuid IS NULL OR h.job_uuid = new.job_uuid)
        AND CASE WHEN h.states IS NULL THEN NOT (new.state = 'SKIPPED' AND new.reason IS 'paused')
            ELSE instr(h.states, ',' || new.state || ',') > 0 END
    ORDER BY h.hook_id;
END;
CREATE TRIGGER sys.job_runs_born_ended AFTER INSERT ON job_runs
WHEN new.completed_at IS NOT NULL
BEGIN
    INSERT INTO outbox (
        hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
        completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
    SELECT h.hook_id, new.job_run_uuid, new.job_uuid, new.version, new.state, new.reason, new.origin,
        new.scheduled_time, new.chosen_time, new.started_at, new.completed_at, new.is_recovery, new.covers_from,
        new.covers_to, new.covers_count, new.replay_of, new.cancelled_by
    FROM hooks h
    WHERE (h.job_uuid IS NULL OR h.job_uuid = new.job_uuid)
        AND CASE WHEN h.states IS NULL THEN NOT (new.state = 'SKIPPED' AND new.reason IS 'paused')
            ELSE instr(h.states, ',' || new.state || ',') > 0 END
    ORDER BY h.hook_id;
END;

-- Threads that work although their attempt has ended: for its job, such a run counts as under way until the thread ends or
-- its node dies. A release before this one does not mind them.
-- min_reader: 1

CREATE TABLE sys.run_threads (
    run_no     INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    attempt_no INTEGER NOT NULL,
    job_uuid   TEXT NOT NULL,
    node_uuid  TEXT NOT NULL,
    since      INTEGER NOT NULL,
    PRIMARY KEY (run_no, position, attempt_no)
) WITHOUT ROWID;

-- Schedules by SQL: cb_schedules also takes INSERT and DELETE and shows what was asked for; sys.jobs refuses what would
-- leave a job half changed. A release before this one goes on working, but knows no requests to create or drop: it closes
-- the one with the error "The job does not exist any more", the other with one about its cron expression, and they are
-- lost. Upgrade every node before anybody uses INSERT or DELETE.
-- min_reader: 1

-- Views and triggers run in whatever SQLite a client has. Milliseconds since 1970 come from julianday: unixepoch('subsec')
-- is NULL before SQLite 3.42.
DROP TRIGGER sys.cb_schedules_update;
DROP VIEW sys.cb_schedules;

-- The name stands for a job that is still to be created. A request counts from requested_at.
-- Not renamed: for that SQLite looks at every view of the file, and a user's own view may want cb_schedules.
CREATE TABLE sys.schedule_requests_before AS SELECT * FROM sys.schedule_requests;
DROP TABLE sys.schedule_requests;
CREATE TABLE sys.schedule_requests (
    request_no   INTEGER PRIMARY KEY AUTOINCREMENT,
    job_uuid     TEXT,
    field        TEXT NOT NULL CHECK (
        field = 'enabled' OR field = 'next_run_at' OR field = 'cron_spec' OR field = 'create' OR field = 'drop'),
    value        TEXT,
    requested_at INTEGER NOT NULL,
    requested_by TEXT NOT NULL,
    applied_at   INTEGER,
    error        TEXT,
    job_name     TEXT
);
INSERT INTO sys.schedule_requests
SELECT r.request_no, r.job_uuid, r.field, r.value, r.requested_at, r.requested_by, r.applied_at, r.error, j.job_name
FROM sys.schedule_requests_before r LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid;
DROP TABLE sys.schedule_requests_before;
CREATE INDEX sys.schedule_requests_open ON schedule_requests (request_no) WHERE applied_at IS NULL;
CREATE INDEX sys.schedule_requests_name ON schedule_requests (job_name, request_no) WHERE applied_at IS NULL;

-- Counts the times that Horae itself wrote a job's state and cursors together: what the guard below goes by.
ALTER TABLE sys.jobs ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

CREATE VIEW sys.cb_schedules AS
WITH pending AS (
    SELECT
        job_name,
        max(CASE WHEN field = 'drop' THEN request_no END) AS dropped,
        max(CASE WHEN field = 'create' THEN request_no END) AS created,
        coalesce(max(CASE WHEN field = 'drop' OR field = 'create' THEN request_no END), 0) AS since
    FROM schedule_requests
    WHERE applied_at IS NULL AND job_name IS NOT NULL
    GROUP BY job_name
), asked AS (
    SELECT
        p.job_name, p.dropped, p.created,
        (
            SELECT r.value FROM schedule_requests r
            WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'enabled' AND r.request_no > p.since
            ORDER BY r.request_no DESC LIMIT 1
        ) AS enabled,
        (
            SELECT r.request_no FROM schedule_requests r
            WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'cron_spec' AND r.request_no > p.since
            ORDER BY r.request_no DESC LIMIT 1
        ) AS cron_no,
        (
            SELECT r.request_no FROM schedule_requests r
            WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'next_run_at' AND r.request_no > p.since
            ORDER BY r.request_no DESC LIMIT 1
        ) AS moved_no
    FROM pending p
)
SELECT
    j.job_no AS id,
    j.job_name AS name,
    CASE WHEN j.job_type = 'TASKS' THEN 'flow' ELSE 'task' END AS kind,
    coalesce((SELECT r.value FROM schedule_requests r WHERE r.request_no = a.cron_no), j.schedule_text) AS cron_spec,
    CASE
        WHEN a.moved_no > coalesce(a.cron_no, 0)
            THEN (SELECT r.value FROM schedule_requests r WHERE r.request_no = a.moved_no)
        WHEN a.cron_no IS NULL THEN strftime('%Y-%m-%dT%H:%M:%fZ', j.next_run_time / 1000.0, 'unixepoch')
    END AS next_run_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(max(
        coalesce((
            SELECT r.started_at FROM job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.started_at IS NOT NULL
            ORDER BY r.idempotency_key DESC LIMIT 1
        ), 0),
        coalesce((
            SELECT max(r.started_at) FROM job_runs r WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE'
        ), 0)
    ), 0) / 1000.0, 'unixepoch') AS last_run_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.last_enqueued_at / 1000.0, 'unixepoch') AS last_enqueued_at,
    coalesce(lower(a.enabled) IN ('1', 'true', 't'), j.state = 'ENABLED') AS enabled,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.updated_at / 1000.0, 'unixepoch') AS updated_at
FROM jobs j
LEFT JOIN asked a ON a.job_name = j.job_name
WHERE a.dropped IS NULL
UNION ALL
SELECT
    NULL,
    a.job_name,
    'task',
    coalesce((SELECT r.value FROM schedule_requests r WHERE r.request_no = a.cron_no), json_extract(c.value, '$.cron_spec')),
    CASE
        WHEN a.moved_no > coalesce(a.cron_no, 0)
            THEN (SELECT r.value FROM schedule_requests r WHERE r.request_no = a.moved_no)
        WHEN a.cron_no IS NULL THEN json_extract(c.value, '$.next_run_at')
    END,
    NULL,
    NULL,
    coalesce(lower(a.enabled) IN ('1', 'true', 't'), json_extract(c.value, '$.enabled')),
    strftime('%Y-%m-%dT%H:%M:%fZ', c.requested_at / 1000.0, 'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', c.requested_at / 1000.0, 'unixepoch')
FROM asked a
JOIN schedule_requests c ON c.request_no = a.created
WHERE a.created > coalesce(a.dropped, 0)
    AND (a.dropped IS NOT NULL OR NOT EXISTS (SELECT 1 FROM jobs j WHERE j.job_name = a.job_name));

CREATE TRIGGER sys.cb_schedules_update INSTEAD OF UPDATE ON cb_schedules
BEGIN
    SELECT raise(ABORT, 'cb_schedules takes UPDATE of enabled, next_run_at and cron_spec only')
    WHERE new.id IS NOT old.id OR new.name IS NOT old.name OR new.kind IS NOT old.kind
        OR new.last_run_at IS NOT old.last_run_at OR new.last_enqueued_at IS NOT old.last_enqueued_at
        OR new.created_at IS NOT old.created_at OR new.updated_at IS NOT old.updated_at;
    INSERT INTO audit (at, event, job_uuid, actor, outcome, details)
    SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'SCHEDULE_REQUESTED',
        (SELECT job_uuid FROM jobs WHERE job_name = old.name), 'local', 'REQUESTED',
        json_object('name', old.name, 'enabled', new.enabled, 'next_run_at', new.next_run_at, 'cron_spec', new.cron_spec)
    WHERE new.enabled IS NOT old.enabled OR new.next_run_at IS NOT old.next_run_at OR new.cron_spec IS NOT old.cron_spec;
    INSERT INTO schedule_requests (job_uuid, job_name, field, value, requested_at, requested_by)
    SELECT (SELECT job_uuid FROM jobs WHERE job_name = old.name), old.name, asked.field, asked.value,
        CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'local'
    FROM (
        SELECT 1 AS place, 'enabled' AS field, CAST(new.enabled AS TEXT) AS value WHERE new.enabled IS NOT old.enabled
        UNION ALL
        SELECT 2, 'cron_spec', new.cron_spec WHERE new.cron_spec IS NOT old.cron_spec
        UNION ALL
        SELECT 3, 'next_run_at', CAST(new.next_run_at AS TEXT) WHERE new.next_run_at IS NOT old.next_run_at
    ) AS asked
    ORDER BY asked.place;
END;

CREATE TRIGGER sys.cb_schedules_insert INSTEAD OF INSERT ON cb_schedules
BEGIN
    SELECT raise(ABORT, 'cb_schedules takes INSERT of name, kind, cron_spec, next_run_at and enabled only')
    WHERE new.id IS NOT NULL OR new.last_run_at IS NOT NULL OR new.last_enqueued_at IS NOT NULL
        OR new.created_at IS NOT NULL OR new.updated_at IS NOT NULL;
    SELECT raise(ABORT, 'cb_schedules: a schedule needs a name and a cron_spec')
    WHERE coalesce(new.name, '') = '' OR coalesce(new.cron_spec, '') = '';
    SELECT raise(ABORT, 'cb_schedules takes INSERT of kind ''task'' only: define a job of several tasks in Python, TOML or SQL')
    WHERE coalesce(new.kind, 'task') <> 'task';
    INSERT INTO audit (at, event, actor, outcome, details)
    SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'SCHEDULE_REQUESTED', 'local', 'REQUESTED',
        json_object('name', new.name, 'create', json_object(
            'cron_spec', new.cron_spec, 'enabled', coalesce(new.enabled, 1), 'next_run_at', new.next_run_at))
    WHERE NOT EXISTS (SELECT 1 FROM cb_schedules WHERE name = new.name);
    INSERT INTO schedule_requests (job_name, field, value, requested_at, requested_by)
    SELECT new.name, 'create', json_object(
            'cron_spec', new.cron_spec, 'enabled', coalesce(new.enabled, 1), 'next_run_at', new.next_run_at),
        CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'local'
    WHERE NOT EXISTS (SELECT 1 FROM cb_schedules WHERE name = new.name);
END;

CREATE TRIGGER sys.cb_schedules_delete INSTEAD OF DELETE ON cb_schedules
BEGIN
    INSERT INTO audit (at, event, job_uuid, actor, outcome, details)
    SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'SCHEDULE_REQUESTED',
        (SELECT job_uuid FROM jobs WHERE job_name = old.name), 'local', 'REQUESTED',
        json_object('name', old.name, 'drop', json('true'));
    INSERT INTO schedule_requests (job_uuid, job_name, field, requested_at, requested_by)
    SELECT (SELECT job_uuid FROM jobs WHERE job_name = old.name), old.name, 'drop',
        CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'local';
END;

-- The guards of sys.jobs: plain rules on the row's old and new values.
CREATE TRIGGER sys.jobs_removal BEFORE DELETE ON jobs
WHEN NOT EXISTS (SELECT 1 FROM job_tombstones WHERE job_uuid = old.job_uuid)
BEGIN
    SELECT raise(ABORT, 'sys.jobs: a job cannot be deleted here, its cursor would be lost. Use DROP JOB through horae sql, or DELETE FROM sys.cb_schedules.');
END;

CREATE TRIGGER sys.jobs_definition BEFORE UPDATE OF
    description, job_class, job_type, job_sql, procedure_uuid, external_command, schedule_kind, cron_expression,
    interval_seconds, starts_at, ends_at, schedule_tz, on_completion, partition_strategy, partition_shard_uuid,
    partition_expression, max_retries, retry_backoff_seconds, timeout_seconds, run_as_role_uuid, namespace, tags,
    schedule_text, job_name, job_uuid, version
ON jobs
WHEN old.version = new.version AND (
        old.description, old.job_class, old.job_type, old.job_sql, old.procedure_uuid, old.external_command,
        old.schedule_kind, old.cron_expression, old.interval_seconds, old.starts_at, old.ends_at, old.schedule_tz,
        old.on_completion, old.partition_strategy, old.partition_shard_uuid, old.partition_expression,
        old.max_retries, old.retry_backoff_seconds, old.timeout_seconds, old.run_as_role_uuid, old.namespace,
        old.tags, old.schedule_text, old.job_name, old.job_uuid
    ) IS NOT (
        new.description, new.job_class, new.job_type, new.job_sql, new.procedure_uuid, new.external_command,
        new.schedule_kind, new.cron_expression, new.interval_seconds, new.starts_at, new.ends_at, new.schedule_tz,
        new.on_completion, new.partition_strategy, new.partition_shard_uuid, new.partition_expression,
        new.max_retries, new.retry_backoff_seconds, new.timeout_seconds, new.run_as_role_uuid, new.namespace,
        new.tags, new.schedule_text, new.job_name, new.job_uuid
    )
    OR old.version <> new.version
        AND NOT EXISTS (SELECT 1 FROM job_versions WHERE job_uuid = new.job_uuid AND version = new.version)
BEGIN
    SELECT raise(ABORT, 'sys.jobs: a definition cannot be changed here, it needs a version of its own. Use ALTER JOB through horae sql, or UPDATE sys.cb_schedules SET cron_spec.');
END;

-- Creating runs moves the cursor, which the first comparison sees. A release before this one has no revision. What it may
-- write all the same: a pause or a resumption, which leave the alarm as it is; the state of a job without a time to come; a
-- next run that was moved, that waits for the end of a pause, or that a version made in the same moment brings.
CREATE TRIGGER sys.jobs_cursor BEFORE UPDATE OF state, next_run_time ON jobs
WHEN old.planned_until = new.planned_until AND old.revision = new.revision AND old.wake_at IS new.wake_at AND (
    (
        old.state <> new.state AND old.next_run_time IS new.next_run_time AND new.schedule_kind <> 'NONE' AND (
            new.next_run_time IS NOT NULL OR new.wake_at IS NOT NULL
            OR (old.updated_at = new.updated_at AND (new.schedule_kind <> 'AT' OR new.state <> 'DISABLED'))
            OR (old.state = 'DISABLED' AND new.schedule_kind IN ('CRON', 'EVERY') AND new.ends_at IS NULL)
            OR (old.state = 'DISABLED' AND new.schedule_kind = 'AT' AND new.starts_at > new.updated_at)
        )
    )
    OR (
        old.state <> new.state AND old.next_run_time IS NOT new.next_run_time AND NOT (
            old.updated_at <> new.updated_at AND new.wake_at IS NOT NULL AND (
                (
                    old.state = 'ENABLED' AND new.state = 'PAUSED'
                    AND (new.next_run_time IS NULL OR new.paused_until IS NOT NULL)
                )
                OR (old.state = 'PAUSED' AND new.state = 'ENABLED' AND coalesce(new.next_run_time >= new.wake_at, 0))
            )
        )
    )
    OR (
        old.state = new.state AND old.next_run_time IS NOT new.next_run_time
        AND (old.moved_to IS new.moved_to OR (new.moved_to IS NULL) <> (new.moved_slot IS NULL))
        AND (old.paused_until IS new.paused_until OR new.state <> 'PAUSED')
        AND (
            old.updated_at = new.updated_at OR NOT EXISTS (
                SELECT 1 FROM job_versions
                WHERE job_uuid = new.job_uuid AND version = new.version AND created_at = new.updated_at
            )
        )
    )
)
BEGIN
    SELECT raise(ABORT, 'sys.jobs: state and next_run_time cannot be set here, the cursor would not follow. Use UPDATE sys.cb_schedules SET enabled or next_run_at, or ALTER JOB through horae sql.');
END;

-- As it was, with a clock that every SQLite has.
DROP VIEW sys.performance;
CREATE VIEW sys.performance AS
SELECT 'scheduler_queue_depth' AS metric, CAST(count(*) AS REAL) AS value, 'runs' AS unit
FROM job_runs
WHERE completed_at IS NULL AND not_before <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))
UNION ALL
SELECT 'scheduler_jobs_in_queue_total', CAST(count(*) AS REAL), 'runs'
FROM job_runs
WHERE completed_at IS NULL AND (state = 'QUEUED' OR (
    not_before <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))
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
    WHERE completed_at IS NULL AND started_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM job_runs
    WHERE completed_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - 3600000
        AND started_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - 3600000
)
UNION ALL
SELECT 'scheduler_start_lag_seconds', avg(late) / 1000, 's'
FROM (
    SELECT started_at - chosen_time AS late FROM job_runs
    WHERE completed_at IS NULL AND started_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM job_runs
    WHERE completed_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - 3600000
        AND started_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - 3600000
)
UNION ALL
SELECT 'scheduler_job_execution_duration_seconds', avg(completed_at - started_at) / 1000, 's'
FROM job_runs
WHERE completed_at >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - 3600000 AND started_at IS NOT NULL;

-- What a report tells of a failure and of a replay: the traceback of each attempt that failed (for a program, the last
-- lines it printed), and why a replay was asked for, which stood in the place of the outcome's reason before.
-- min_reader: 1

ALTER TABLE sys.task_attempts ADD COLUMN traceback TEXT;
ALTER TABLE sys.job_runs ADD COLUMN replay_reason TEXT;

-- Of replays in these states nothing but the request can have written a reason. The second condition is the index's own.
UPDATE sys.job_runs SET replay_reason = reason, reason = NULL
WHERE origin = 'REPLAY' AND origin <> 'SCHEDULE' AND state IN ('PENDING', 'QUEUED', 'RUNNING', 'COMPLETED');

-- Rows that stand for many slots say where they begin as all others do: covers_from is no slot of theirs, covers_to is their last. Slots
-- are whole seconds. A release before this one writes the first slot itself, and reads both.
-- min_reader: 1

UPDATE sys.job_runs SET covers_from = covers_from - 1000
WHERE covers_from IS NOT NULL AND covers_count > 1 AND (state = 'MISSED' OR state = 'SKIPPED');

-- Where the slots of a pause are recorded: the newest row of each pause that goes on. From the second slot of a pause that
-- row is a span, which grows until the pause is over. A release before this one writes a row for each slot, as it did.
-- min_reader: 1

CREATE TABLE sys.pause_rows (
    job_uuid TEXT PRIMARY KEY,
    run_no   INTEGER NOT NULL
) WITHOUT ROWID;

-- What attacks and fault injection found missing. Earlier releases go on reading and writing: they neither read nor write
-- what is new here, but for what triggers write.
-- min_reader: 1

-- Rights: the key that seals of the audit trail are keyed with, wrapped by the master key, and their codes under it.
CREATE TABLE sys.audit_keys (
    key_no     INTEGER PRIMARY KEY CHECK (key_no = 1),
    wrapped    BLOB NOT NULL,
    key_id     TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
ALTER TABLE sys.audit_seals ADD COLUMN mac TEXT;

-- Shares: what of the catalog each owner of jobs may take, and whose turn it is.
-- The row of the uuid 0 has what nodes are configured with. A limit is NULL where the system's counts, -1 where none does.
CREATE TABLE sys.shares (
    user_uuid     TEXT PRIMARY KEY,
    max_jobs      INTEGER,
    max_running   INTEGER,
    max_starts    INTEGER,
    max_storage   INTEGER,
    is_shared     INTEGER NOT NULL DEFAULT 0, -- runs of this owner are claimed by turns
    is_limited    INTEGER NOT NULL DEFAULT 0, -- and counted when they start
    served_at     INTEGER NOT NULL DEFAULT 0, -- when a run of this owner was claimed last
    window_at     INTEGER NOT NULL DEFAULT 0, -- when the minute began in which starts are counted
    window_starts INTEGER NOT NULL DEFAULT 0,
    stored_bytes  INTEGER,
    measured_at   INTEGER
) WITHOUT ROWID;
CREATE INDEX sys.shares_shared ON shares (user_uuid) WHERE is_shared = 1;

-- The owner whose share a run that waits is claimed from; NULL where runs are claimed by their age alone.
ALTER TABLE sys.job_runs ADD COLUMN share TEXT;
CREATE INDEX sys.job_runs_share ON job_runs (share, not_before) WHERE share IS NOT NULL AND not_before IS NOT NULL;
-- Jobs of `local` are not in it: a catalog that has no others pays nothing for it.
CREATE INDEX sys.jobs_owner ON jobs (created_by_user_uuid)
    WHERE created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6';

-- Answers that are kept for those who ask again: whose they are, so that one user's take only so much room.
ALTER TABLE sys.kept_answers ADD COLUMN user_uuid TEXT;
CREATE INDEX sys.kept_answers_user ON kept_answers (user_uuid, begun_at) WHERE user_uuid IS NOT NULL;

-- A row for each change of rights that the audit trail has no digest of yet, whoever made it.
CREATE TABLE sys.rights_marks (
    mark_no INTEGER PRIMARY KEY
);
INSERT INTO sys.rights_marks DEFAULT VALUES;
CREATE TRIGGER sys.users_mark_insert AFTER INSERT ON users
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.users_mark_update AFTER UPDATE ON users
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.users_mark_delete AFTER DELETE ON users
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.roles_mark_insert AFTER INSERT ON roles
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.roles_mark_update AFTER UPDATE ON roles
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.roles_mark_delete AFTER DELETE ON roles
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.role_members_mark_insert AFTER INSERT ON role_members
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.role_members_mark_update AFTER UPDATE ON role_members
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.role_members_mark_delete AFTER DELETE ON role_members
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.grants_mark_insert AFTER INSERT ON grants
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.grants_mark_update AFTER UPDATE ON grants
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.grants_mark_delete AFTER DELETE ON grants
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;

-- Old passwords that users may still try, for those who tried some.
CREATE TABLE sys.password_tries (
    user_uuid TEXT PRIMARY KEY REFERENCES users (user_uuid) ON DELETE CASCADE,
    tries     REAL NOT NULL,
    tried_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Doors: a catalog that ever had a password or a token stays closed to those who show none, also when the last of them is
-- gone: the row is there. Triggers write it, so that earlier releases close the catalog too.
CREATE TABLE sys.closed (
    is_closed INTEGER PRIMARY KEY CHECK (is_closed = 1)
) WITHOUT ROWID;
INSERT INTO sys.closed (is_closed)
SELECT 1 WHERE EXISTS (SELECT 1 FROM sys.tokens) OR EXISTS (SELECT 1 FROM sys.users WHERE password_hash IS NOT NULL)
    OR EXISTS (SELECT 1 FROM sys.audit WHERE event IN ('TOKEN_CREATED', 'LOGIN'));
-- Whoever opens the store is `local`: a password of that name would be an administrator's without a person behind it.
UPDATE sys.users SET password_hash = NULL WHERE user_name = 'local';
CREATE TRIGGER sys.tokens_close AFTER INSERT ON tokens
BEGIN
    INSERT OR IGNORE INTO closed (is_closed) VALUES (1);
END;
CREATE TRIGGER sys.passwords_close AFTER UPDATE OF password_hash ON users
WHEN new.password_hash IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO closed (is_closed) VALUES (1);
END;
CREATE TRIGGER sys.users_close AFTER INSERT ON users
WHEN new.password_hash IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO closed (is_closed) VALUES (1);
END;

-- Locks: PostgreSQL's. Here one transaction writes at a time, and nothing is ever in it.
CREATE TABLE sys.locks (
    lock_name TEXT PRIMARY KEY
) STRICT;

-- How far the audit trail was sealed: its newest seal, which whoever makes it writes here too, with a code under the audit
-- key. Earlier releases seal without it.
-- min_reader: 1
CREATE TABLE sys.audit_heads (
    head_no       INTEGER PRIMARY KEY CHECK (head_no = 1),
    seal_no       INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    digest        TEXT NOT NULL,
    mac           TEXT
);
