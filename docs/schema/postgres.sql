-- The sum of the migrations, made by `make golden`; write a migration instead.

-- The catalog, on PostgreSQL: schema `sys`. Times are milliseconds since 1970.
-- min_reader: 1

CREATE SCHEMA IF NOT EXISTS sys;
COMMENT ON SCHEMA sys IS 'Horae catalog';

CREATE TABLE sys.users (
    user_uuid     UUID PRIMARY KEY,
    user_name     TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    is_admin      BOOLEAN NOT NULL DEFAULT false,
    state         TEXT NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED')),
    created_at    BIGINT NOT NULL
);

-- Whoever can open the file is the administrator; the uuid is uuid5(NAMESPACE_URL, 'urn:horae:user:local').
INSERT INTO sys.users (user_uuid, user_name, is_admin, created_at)
VALUES ('d69e9d85-8741-5f42-ab50-f4afa0f8cbf6', 'local', true, 0);

CREATE TABLE sys.roles (
    role_uuid   UUID PRIMARY KEY,
    role_name   TEXT NOT NULL UNIQUE,
    description TEXT,
    created_at  BIGINT NOT NULL
);

CREATE TABLE sys.role_members (
    role_uuid  UUID NOT NULL REFERENCES sys.roles (role_uuid) ON DELETE CASCADE,
    user_uuid  UUID NOT NULL REFERENCES sys.users (user_uuid) ON DELETE CASCADE,
    granted_at BIGINT NOT NULL,
    granted_by TEXT NOT NULL,
    PRIMARY KEY (role_uuid, user_uuid)
);

-- A privilege of a user or a role, on one object (a job, a secret, a table) or, where object_name is '', on all.
CREATE TABLE sys.grants (
    grantee_uuid UUID NOT NULL,
    privilege    TEXT NOT NULL,
    object_kind  TEXT NOT NULL DEFAULT '',
    object_name  TEXT NOT NULL DEFAULT '',
    granted_at   BIGINT NOT NULL,
    granted_by   TEXT NOT NULL,
    PRIMARY KEY (grantee_uuid, privilege, object_kind, object_name)
);

CREATE TABLE sys.jobs (
    job_no                BIGINT NOT NULL,
    job_uuid              UUID PRIMARY KEY,
    job_name              VARCHAR(255) COLLATE "C" NOT NULL UNIQUE,
    description           TEXT,
    job_class             VARCHAR(20),
    job_type              VARCHAR(20) NOT NULL,
    job_sql               TEXT,
    procedure_uuid        UUID,
    external_command      TEXT,
    schedule_kind         VARCHAR(20) NOT NULL,
    cron_expression       VARCHAR(1000),
    interval_seconds      BIGINT,
    starts_at             BIGINT,
    ends_at               BIGINT,
    schedule_tz           VARCHAR(64),
    next_run_time         BIGINT,
    on_completion         VARCHAR(20) DEFAULT 'PRESERVE',
    partition_strategy    VARCHAR(20),
    partition_shard_uuid  UUID,
    partition_expression  TEXT,
    max_retries           INTEGER DEFAULT 3,
    retry_backoff_seconds INTEGER DEFAULT 60,
    timeout_seconds       INTEGER DEFAULT 3600,
    created_by_user_uuid  UUID NOT NULL REFERENCES sys.users (user_uuid),
    run_as_role_uuid      UUID,
    created_at            BIGINT NOT NULL,
    state                 VARCHAR(20) NOT NULL DEFAULT 'ENABLED'
        CHECK (state IN ('ENABLED', 'PAUSED', 'DISABLED')),
    -- What the seed's columns do not say.
    namespace             TEXT NOT NULL,
    version               BIGINT NOT NULL,
    tags                  TEXT,
    schedule_text         TEXT NOT NULL,      -- the schedule as people write it
    registered            TEXT,               -- digest of the last definition made from code
    planned_until         BIGINT NOT NULL,   -- nominal, never moves back: slots up to here are born
    wake_at               BIGINT,            -- the planner's alarm
    first_seen            BOOLEAN NOT NULL DEFAULT true,
    paused_until          BIGINT,
    pause_note            TEXT,
    moved_slot            BIGINT,
    moved_to              BIGINT,
    covered_until         BIGINT,
    last_enqueued_at      BIGINT,
    updated_at            BIGINT NOT NULL
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.05);
-- Due jobs are taken in key order: their rows, and those of their runs, then lie side by side in every index.
CREATE INDEX jobs_wake ON sys.jobs (wake_at, job_uuid) WHERE wake_at IS NOT NULL;
CREATE INDEX jobs_once ON sys.jobs (job_uuid) WHERE schedule_kind = 'AT';

CREATE TABLE sys.job_tasks (
    job_uuid   UUID NOT NULL,
    task_uuid  UUID NOT NULL,
    task_name  TEXT NOT NULL,
    position   BIGINT NOT NULL,
    task_type  TEXT NOT NULL,
    handler    TEXT NOT NULL,
    settings   TEXT,
    retired_at BIGINT,                       -- no longer part of the job; its history stays
    PRIMARY KEY (job_uuid, task_uuid)
);

-- Every version of every job, with the scheduler's defaults it was defined under: the snapshot runs refer to.
CREATE TABLE sys.job_versions (
    job_uuid   UUID NOT NULL,
    version    BIGINT NOT NULL,
    definition TEXT NOT NULL,
    defaults   TEXT,
    source     TEXT NOT NULL,
    author     TEXT NOT NULL,
    reason     TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (job_uuid, version)
);

-- Where a dropped job's cursor stood: a slot never runs a second time, also for a job that comes back.
CREATE TABLE sys.job_tombstones (
    job_uuid      UUID PRIMARY KEY,
    job_name      TEXT NOT NULL,
    planned_until BIGINT NOT NULL,
    last_version  BIGINT NOT NULL,
    dropped_at    BIGINT NOT NULL,
    dropped_by    TEXT NOT NULL
);

CREATE TABLE sys.job_dependencies (
    job_uuid            UUID NOT NULL REFERENCES sys.jobs (job_uuid) ON DELETE CASCADE,
    depends_on_job_uuid UUID NOT NULL REFERENCES sys.jobs (job_uuid) ON DELETE CASCADE,
    PRIMARY KEY (job_uuid, depends_on_job_uuid)
);
CREATE INDEX job_dependencies_on ON sys.job_dependencies (depends_on_job_uuid);

CREATE TABLE sys.job_secrets (
    job_uuid     UUID NOT NULL REFERENCES sys.jobs (job_uuid) ON DELETE CASCADE,
    secret_key   VARCHAR(128) NOT NULL,
    secret_value BYTEA,
    key_id       TEXT,
    updated_at   BIGINT,
    PRIMARY KEY (job_uuid, secret_key)
);

-- One row a run; the row is the lock. run_no gives it a place among its neighbours in time, which keeps writes local;
-- its tasks and attempts are keyed by it. No foreign keys: history outlives definitions.
CREATE TABLE sys.job_runs (
    run_no              BIGINT NOT NULL,
    job_run_uuid        UUID PRIMARY KEY,
    job_uuid            UUID NOT NULL,
    assigned_node_uuid  UUID,
    shard_uuid          UUID,
    scheduled_time      BIGINT NOT NULL,
    started_at          BIGINT,
    completed_at        BIGINT,
    state               VARCHAR(30) NOT NULL CHECK (
        state IN ('RUNNING', 'COMPLETED', 'PENDING', 'FAILED', 'SKIPPED', 'QUEUED', 'MISSED', 'CANCELLED', 'COMPLETED_WITH_ERRORS', 'FAILED_STALE', 'UNSCHEDULABLE')),
    retry_count         INTEGER DEFAULT 0,
    result_message      TEXT,
    rows_affected       BIGINT,
    result_data         BYTEA,
    error_code          INTEGER,
    -- What the seed's columns do not say.
    idempotency_key     TEXT COLLATE "C",
    version             BIGINT NOT NULL,
    origin              TEXT NOT NULL DEFAULT 'SCHEDULE',
    chosen_time         BIGINT NOT NULL,
    not_before          BIGINT,              -- only while PENDING, and then only if time is what it waits for
    waiting_for         TEXT,
    deadline_at         BIGINT,              -- only until it starts
    fence               BIGINT NOT NULL DEFAULT 0,
    resumed_at          BIGINT,              -- start of the present stretch of RUNNING
    spent_ms            BIGINT NOT NULL DEFAULT 0,
    expires_at          BIGINT,              -- when the reaper looks at it
    cancel_requested_at BIGINT,
    cancel_reason       TEXT,
    cancelled_by        TEXT,
    reason              TEXT,
    is_recovery         BOOLEAN NOT NULL DEFAULT false,
    covers_from         BIGINT,
    covers_to           BIGINT,
    covers_count        BIGINT NOT NULL DEFAULT 1,
    replay_of           TEXT,
    only_tasks          TEXT,
    pool_name           TEXT,
    limited             BOOLEAN NOT NULL DEFAULT false, -- counted against a pool or its job's limit when it starts
    requires            TEXT,                 -- the callables a node must have, a JSON list
    payload             TEXT,
    requested_by        TEXT,
    created_at          BIGINT NOT NULL,
    UNIQUE (job_uuid, idempotency_key),
    CHECK ((completed_at IS NULL) = (state IN ('RUNNING', 'PENDING', 'QUEUED'))),
    CHECK (not_before IS NULL OR state = 'PENDING')
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX job_runs_number ON sys.job_runs (run_no);
-- The keys of scheduled runs sort by time within a job (10 digits until 2286), so only the others need an index by time.
CREATE INDEX job_runs_manual ON sys.job_runs (job_uuid, scheduled_time) WHERE origin <> 'SCHEDULE';
CREATE INDEX job_runs_active ON sys.job_runs (job_uuid) WHERE completed_at IS NULL;
CREATE INDEX job_runs_claim ON sys.job_runs (not_before, run_no) WHERE not_before IS NOT NULL;
-- Two rare kinds among the runs that wait: looking for them must not walk all the others.
CREATE INDEX job_runs_window ON sys.job_runs (not_before) WHERE waiting_for = 'window';
CREATE INDEX job_runs_limited ON sys.job_runs (not_before) WHERE limited AND not_before IS NOT NULL;
CREATE INDEX job_runs_deadline ON sys.job_runs (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX job_runs_completed ON sys.job_runs USING brin (completed_at);

-- Numbers are known before the row is written. (SQLite keeps a counters table instead.)
CREATE SEQUENCE sys.run_numbers;
CREATE SEQUENCE sys.job_numbers;

-- Rows of these two are updated once, when they end: room for that on the same page spares their indexes the update.
CREATE TABLE sys.task_runs (
    run_no        BIGINT NOT NULL,
    position      BIGINT NOT NULL,
    task_name     TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (
        state IN ('RUNNING', 'SUCCESS', 'PENDING', 'FAILED', 'TIMEOUT', 'CANCELLED', 'SKIPPED')),
    attempts      BIGINT NOT NULL DEFAULT 0,
    failures      BIGINT NOT NULL DEFAULT 0,
    lost          BIGINT NOT NULL DEFAULT 0,
    retry_at      BIGINT,
    started_at    BIGINT,
    completed_at  BIGINT,
    result        TEXT,
    reason        TEXT,
    cancelled_by  TEXT,
    PRIMARY KEY (run_no, position)
) WITH (fillfactor = 55);

CREATE TABLE sys.task_attempts (
    run_no        BIGINT NOT NULL,
    position      BIGINT NOT NULL,
    attempt_no    BIGINT NOT NULL,
    state         TEXT NOT NULL CHECK (
        state IN ('RUNNING', 'SUCCESS', 'FAILED', 'TIMEOUT', 'LOST', 'CANCELLED', 'PENDING')),
    node_uuid     UUID,
    fence         BIGINT NOT NULL,
    started_at    BIGINT,
    ended_at      BIGINT,
    error_code    INTEGER,
    error_message TEXT,
    PRIMARY KEY (run_no, position, attempt_no)
) WITH (fillfactor = 55);

CREATE TABLE sys.attempt_output (
    run_no       BIGINT NOT NULL,
    position     BIGINT NOT NULL,
    attempt_no   BIGINT NOT NULL,
    chunk_no     BIGINT NOT NULL,
    attempt_uuid UUID NOT NULL,
    written_at   BIGINT NOT NULL,
    text         TEXT NOT NULL,
    PRIMARY KEY (run_no, position, attempt_no, chunk_no)
);
CREATE INDEX attempt_output_uuid ON sys.attempt_output (attempt_uuid) WHERE chunk_no = 0;

-- How the start of a run inside its window was decided.
CREATE TABLE sys.run_windows (
    run_no         BIGINT PRIMARY KEY,
    period_key     TEXT NOT NULL,
    window_start   BIGINT NOT NULL,
    window_end     BIGINT NOT NULL,
    chosen_time    BIGINT,
    seed_hash      TEXT NOT NULL,
    distribution   TEXT NOT NULL,
    attempts       BIGINT NOT NULL,
    reason         TEXT,
    core_version   TEXT NOT NULL,
    tzdata_version TEXT NOT NULL
);

CREATE TABLE sys.pools (
    pool_name   TEXT PRIMARY KEY,
    max_running BIGINT NOT NULL CHECK (max_running >= 1),
    updated_at  BIGINT NOT NULL
);

CREATE TABLE sys.nodes (
    node_uuid    UUID PRIMARY KEY,            -- one incarnation
    node_name    TEXT,
    state        TEXT NOT NULL CHECK (state IN ('ALIVE', 'DEAD', 'STOPPED')),
    counter      BIGINT NOT NULL DEFAULT 0,
    started_at   BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL,
    ended_at     BIGINT,
    details      TEXT
);

CREATE TABLE sys.settings (
    setting_name TEXT PRIMARY KEY,
    value        TEXT NOT NULL,
    updated_at   BIGINT NOT NULL,
    updated_by   TEXT NOT NULL
);

CREATE TABLE sys.procedures (
    procedure_uuid UUID PRIMARY KEY,
    procedure_name TEXT NOT NULL UNIQUE,
    handler        TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    created_by     TEXT NOT NULL
);

CREATE TABLE sys.tokens (
    token_uuid UUID PRIMARY KEY,
    user_uuid  UUID NOT NULL REFERENCES sys.users (user_uuid) ON DELETE CASCADE,
    token_hash TEXT NOT NULL UNIQUE,
    label      TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

CREATE TABLE sys.sessions (
    session_hash TEXT PRIMARY KEY,
    user_uuid    UUID NOT NULL REFERENCES sys.users (user_uuid) ON DELETE CASCADE,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
);

-- Written in the transaction it describes. For JOB_EXECUTED one row covers a whole settle batch: its runs by number,
-- and a digest over what their rows said.
CREATE TABLE sys.audit (
    audit_no     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           BIGINT NOT NULL,
    event        TEXT NOT NULL,
    job_uuid     UUID,
    job_run_uuid UUID,
    actor        TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    details      TEXT,
    digest       TEXT
);

CREATE TABLE sys.audit_seals (
    seal_no        BIGINT PRIMARY KEY,
    first_audit_no BIGINT NOT NULL,
    last_audit_no  BIGINT NOT NULL,
    digest         TEXT NOT NULL,
    previous       TEXT NOT NULL,
    sealed_at      BIGINT NOT NULL
);

-- What people wrote through cb_schedules, for the planner to check and apply.
CREATE TABLE sys.schedule_requests (
    request_no   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_uuid     UUID NOT NULL,
    field        TEXT NOT NULL CHECK (field IN ('enabled', 'next_run_at', 'cron_spec')),
    value        TEXT,
    requested_at BIGINT NOT NULL,
    requested_by TEXT NOT NULL,
    applied_at   BIGINT,
    error        TEXT
);
CREATE INDEX schedule_requests_open ON sys.schedule_requests (request_no) WHERE applied_at IS NULL;

CREATE TABLE sys.schema_migrations (
    number     BIGINT PRIMARY KEY,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    min_reader BIGINT NOT NULL,
    applied_at BIGINT NOT NULL
);

CREATE VIEW sys.cb_schedules AS
SELECT
    j.job_no AS id,
    j.job_name::text AS name,
    CASE WHEN j.job_type = 'TASKS' THEN 'flow' ELSE 'task' END AS kind,
    j.schedule_text AS cron_spec,
    to_timestamp(j.next_run_time / 1000.0) AS next_run_at,
    to_timestamp(greatest(
        (
            SELECT r.started_at FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.started_at IS NOT NULL
            ORDER BY r.idempotency_key DESC LIMIT 1
        ),
        (SELECT max(r.started_at) FROM sys.job_runs r WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE')
    ) / 1000.0) AS last_run_at,
    to_timestamp(j.last_enqueued_at / 1000.0) AS last_enqueued_at,
    j.state = 'ENABLED' AS enabled,
    to_timestamp(j.created_at / 1000.0) AS created_at,
    to_timestamp(j.updated_at / 1000.0) AS updated_at
FROM sys.jobs j;

CREATE FUNCTION sys.cb_schedules_update() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    job uuid;
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    IF (new.id, new.name, new.kind, new.last_run_at, new.last_enqueued_at, new.created_at, new.updated_at)
        IS DISTINCT FROM (old.id, old.name, old.kind, old.last_run_at, old.last_enqueued_at, old.created_at, old.updated_at)
    THEN
        RAISE EXCEPTION 'cb_schedules takes UPDATE of enabled, next_run_at and cron_spec only';
    END IF;
    SELECT job_uuid INTO STRICT job FROM sys.jobs WHERE job_name = old.name;
    IF new.enabled IS DISTINCT FROM old.enabled THEN
        INSERT INTO sys.schedule_requests (job_uuid, field, value, requested_at, requested_by)
        VALUES (job, 'enabled', CASE WHEN new.enabled THEN '1' ELSE '0' END, at, session_user);
    END IF;
    IF new.cron_spec IS DISTINCT FROM old.cron_spec THEN
        INSERT INTO sys.schedule_requests (job_uuid, field, value, requested_at, requested_by)
        VALUES (job, 'cron_spec', new.cron_spec, at, session_user);
    END IF;
    IF new.next_run_at IS DISTINCT FROM old.next_run_at THEN
        INSERT INTO sys.schedule_requests (job_uuid, field, value, requested_at, requested_by)
        VALUES (job, 'next_run_at', to_char(new.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), at, session_user);
    END IF;
    IF (new.enabled, new.cron_spec, new.next_run_at) IS DISTINCT FROM (old.enabled, old.cron_spec, old.next_run_at) THEN
        INSERT INTO sys.audit (at, event, job_uuid, actor, outcome, details)
        VALUES (at, 'SCHEDULE_REQUESTED', job, session_user, 'REQUESTED', json_build_object(
            'enabled', new.enabled, 'next_run_at', new.next_run_at, 'cron_spec', new.cron_spec)::text);
        PERFORM pg_notify('horae', '');
    END IF;
    RETURN new;
END
$function$;

CREATE TRIGGER cb_schedules_update INSTEAD OF UPDATE ON sys.cb_schedules
FOR EACH ROW EXECUTE FUNCTION sys.cb_schedules_update();

-- What a run of this version needs to start, where one statement can start it: [its only task's name, its time-out in ms].
-- Versions written before have none, and start the longer way.
-- min_reader: 1

ALTER TABLE sys.job_versions ADD COLUMN plain_start JSONB;

-- From here on each number taken stands for itself and the 63 after it. Whoever still takes one at a time leaves holes.
ALTER SEQUENCE sys.run_numbers INCREMENT BY 64;

-- What retention would otherwise forget of a job: when it was last tried, when it last succeeded. Written when the runs
-- that say so are deleted; until then the runs say it.
-- min_reader: 1

ALTER TABLE sys.jobs ADD COLUMN last_attempt_at BIGINT;
ALTER TABLE sys.jobs ADD COLUMN last_success_at BIGINT;

-- People, secrets and the sealed trail. A release before this one goes on reading and writing, as long as no job has what
-- only this one knows; but runs that its retention deletes, whoever verifies the trail misses.
-- min_reader: 1

-- Secrets that are not one job's own (those are in job_secrets), encrypted under the master key key_id.
CREATE TABLE sys.secrets (
    secret_name  VARCHAR(128) COLLATE "C" PRIMARY KEY,
    secret_value BYTEA NOT NULL,
    key_id       TEXT NOT NULL,
    updated_at   BIGINT NOT NULL
);

-- What the database itself calls them: roles of a server are shared by all its databases, so names may differ.
ALTER TABLE sys.users ADD COLUMN database_role TEXT;
ALTER TABLE sys.roles ADD COLUMN database_role TEXT;

-- A row's place in the sealed order, NULL until it is sealed. Numbers are no such order: a transaction that took its
-- number early may commit late. Seals go by places, and none has been written before.
ALTER TABLE sys.audit ADD COLUMN position BIGINT;
-- Written with the place: the digest over all the rest of the row, so that one that was edited is known by itself.
ALTER TABLE sys.audit ADD COLUMN seal TEXT;
CREATE UNIQUE INDEX audit_position ON sys.audit (position) WHERE position IS NOT NULL;
CREATE INDEX audit_unsealed ON sys.audit (audit_no) WHERE position IS NULL;
ALTER TABLE sys.audit_seals RENAME COLUMN first_audit_no TO first_position;
ALTER TABLE sys.audit_seals RENAME COLUMN last_audit_no TO last_position;
-- Over the digests of its rows: apart from the seal's own, it tells whether the seal was edited or what it covers.
ALTER TABLE sys.audit_seals ADD COLUMN rows_digest TEXT NOT NULL DEFAULT '';

-- Few fail: so that counting them does not read all that ended.
CREATE INDEX job_runs_failed ON sys.job_runs (run_no)
    WHERE state IN ('FAILED', 'FAILED_STALE') OR (state = 'CANCELLED' AND reason = 'timeout');

-- The scheduler's figures, from what the catalog holds: averages are of the last hour, by the server's clock, and NULL
-- where nothing happened; jobs_failed_total counts the runs that are kept.
CREATE VIEW sys.performance AS
SELECT 'scheduler_queue_depth'::text AS metric, count(*)::double precision AS value, 'runs'::text AS unit
FROM sys.job_runs
WHERE completed_at IS NULL AND not_before <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
UNION ALL
SELECT 'scheduler_jobs_in_queue_total', count(*), 'runs'
FROM sys.job_runs
WHERE completed_at IS NULL AND (state = 'QUEUED' OR (
    not_before <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
))
UNION ALL
SELECT 'jobs_running', count(*), 'runs' FROM sys.job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_running_total', count(*), 'runs'
FROM sys.job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_paused_total', count(*), 'jobs' FROM sys.jobs WHERE state = 'PAUSED'
UNION ALL
SELECT 'jobs_failed_total', count(*), 'runs'
FROM sys.job_runs WHERE state IN ('FAILED', 'FAILED_STALE') OR (state = 'CANCELLED' AND reason = 'timeout')
UNION ALL
SELECT 'job_run_latency_ms', avg(late)::double precision, 'ms'
FROM (
    -- Whatever started within the hour is under way, or ended within it.
    SELECT started_at - chosen_time AS late FROM sys.job_runs
    WHERE completed_at IS NULL AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM sys.job_runs
    WHERE completed_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
        AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
) started
UNION ALL
SELECT 'scheduler_start_lag_seconds', avg(late)::double precision / 1000, 's'
FROM (
    SELECT started_at - chosen_time AS late FROM sys.job_runs
    WHERE completed_at IS NULL AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM sys.job_runs
    WHERE completed_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
        AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
) started
UNION ALL
SELECT 'scheduler_job_execution_duration_seconds', avg(completed_at - started_at)::double precision / 1000, 's'
FROM sys.job_runs
WHERE completed_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000 AND started_at IS NOT NULL;

-- What was answered to requests that carry a key of their own, so that one that is sent twice is done once. A release
-- before this one has no use for it and goes on reading and writing.
-- min_reader: 1

-- status and body are NULL while a request is being answered. The key is a digest: it tells nobody who asked.
CREATE TABLE sys.kept_answers (
    answer_key  TEXT COLLATE "C" PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    begun_at    BIGINT NOT NULL,
    status      INTEGER,
    body        BYTEA
);
CREATE INDEX kept_answers_begun ON sys.kept_answers (begun_at);

-- Changes that take effect gracefully: which earlier versions still speak for slots, and up to which moment, as a JSON
-- list of pairs [version, milliseconds]. A release before this one takes every change as immediate.
-- min_reader: 1

ALTER TABLE sys.job_versions ADD COLUMN former text;

-- Ends of runs that hooks are to be called with. A hook is a function of a program, known by the name that every node of
-- that program gives it; it may ask for the runs of one job or of all. The transaction that ends a run writes a notice
-- for each hook that asks for it, whatever ends the run, and one live node that has the hook delivers it.
-- min_reader: 1

CREATE TABLE sys.hooks (
    hook_id  TEXT COLLATE "C" PRIMARY KEY,
    job_uuid UUID,              -- NULL: every job
    job_name TEXT,
    states   TEXT,              -- with a comma around each: ',FAILED,MISSED,'; NULL: all, but for slots that a pause skipped
    seen_at  BIGINT NOT NULL    -- when a node last said that it has it
);

-- What a notice says of its run is there for a run that is deleted before the hook was called.
CREATE TABLE sys.outbox (
    notice_no      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hook_id        TEXT COLLATE "C" NOT NULL,
    job_run_uuid   UUID NOT NULL,
    job_uuid       UUID NOT NULL,
    version        BIGINT NOT NULL,
    state          TEXT NOT NULL,
    reason         TEXT,
    origin         TEXT NOT NULL,
    scheduled_time BIGINT NOT NULL,
    chosen_time    BIGINT NOT NULL,
    started_at     BIGINT,
    completed_at   BIGINT NOT NULL,
    is_recovery    BOOLEAN NOT NULL,
    covers_from    BIGINT,
    covers_to      BIGINT,
    covers_count   BIGINT NOT NULL,
    replay_of      TEXT,
    cancelled_by   TEXT,
    claimed_by     UUID         -- the incarnation that delivers it
);
CREATE INDEX outbox_hook ON sys.outbox (hook_id, notice_no);
CREATE INDEX outbox_age ON sys.outbox (completed_at);

-- For each statement, not for each row: a catalog without hooks pays for one look at an empty table.
CREATE FUNCTION sys.announce_ends() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM sys.hooks) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO sys.outbox (
            hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
            completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
        SELECT h.hook_id, r.job_run_uuid, r.job_uuid, r.version, r.state, r.reason, r.origin, r.scheduled_time,
            r.chosen_time, r.started_at, r.completed_at, r.is_recovery, r.covers_from, r.covers_to, r.covers_count,
            r.replay_of, r.cancelled_by
        FROM runs_after r
        JOIN runs_before b ON b.job_run_uuid = r.job_run_uuid
        JOIN sys.hooks h ON h.job_uuid IS NULL OR h.job_uuid = r.job_uuid
        WHERE r.completed_at IS NOT NULL AND b.completed_at IS NULL
            AND CASE WHEN h.states IS NULL THEN NOT (r.state = 'SKIPPED' AND r.reason IS NOT DISTINCT FROM 'paused')
                ELSE strpos(h.states, ',' || r.state || ',') > 0 END
        ORDER BY r.run_no, h.hook_id;
    ELSE
        INSERT INTO sys.outbox (
            hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
            completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
        SELECT h.hook_id, r.job_run_uuid, r.job_uuid, r.version, r.state, r.reason, r.origin, r.scheduled_time,
            r.chosen_time, r.started_at, r.completed_at, r.is_recovery, r.covers_from, r.covers_to, r.covers_count,
            r.replay_of, r.cancelled_by
        FROM runs_after r
        JOIN sys.hooks h ON h.job_uuid IS NULL OR h.job_uuid = r.job_uuid
        WHERE r.completed_at IS NOT NULL
            AND CASE WHEN h.states IS NULL THEN NOT (r.state = 'SKIPPED' AND r.reason IS NOT DISTINCT FROM 'paused')
                ELSE strpos(h.states, ',' || r.state || ',') > 0 END
        ORDER BY r.run_no, h.hook_id;
    END IF;
    RETURN NULL;
END
$function$;
CREATE TRIGGER job_runs_ended AFTER UPDATE ON sys.job_runs
    REFERENCING OLD TABLE AS runs_before NEW TABLE AS runs_after
    FOR EACH STATEMENT EXECUTE FUNCTION sys.announce_ends();
CREATE TRIGGER job_runs_born_ended AFTER INSERT ON sys.job_runs
    REFERENCING NEW TABLE AS runs_after
    FOR EACH STATEMENT EXECUTE FUNCTION sys.announce_ends();

-- Threads that work although their attempt has ended: for its job, such a run counts as under way until the thread ends or
-- its node dies. A release before this one does not mind them.
-- min_reader: 1

CREATE TABLE sys.run_threads (
    run_no     BIGINT NOT NULL,
    position   BIGINT NOT NULL,
    attempt_no BIGINT NOT NULL,
    job_uuid   UUID NOT NULL,
    node_uuid  UUID NOT NULL,
    since      BIGINT NOT NULL,
    PRIMARY KEY (run_no, position, attempt_no)
);

-- Schedules by SQL: cb_schedules also takes INSERT and DELETE and shows what was asked for; sys.jobs refuses what would
-- leave a job half changed. A release before this one goes on working, but knows no requests to create or drop: it closes
-- the one with the error "The job does not exist any more", the other with one about its cron expression, and they are
-- lost. Upgrade every node before anybody uses INSERT or DELETE.
-- min_reader: 1

-- The name stands for a job that is still to be created. A request counts from requested_at.
ALTER TABLE sys.schedule_requests ADD COLUMN job_name TEXT COLLATE "C";
UPDATE sys.schedule_requests r SET job_name = j.job_name FROM sys.jobs j WHERE j.job_uuid = r.job_uuid;
ALTER TABLE sys.schedule_requests ALTER COLUMN job_uuid DROP NOT NULL;
ALTER TABLE sys.schedule_requests DROP CONSTRAINT schedule_requests_field_check;
ALTER TABLE sys.schedule_requests ADD CONSTRAINT schedule_requests_field_check
    CHECK (field IN ('enabled', 'next_run_at', 'cron_spec', 'create', 'drop'));
CREATE INDEX schedule_requests_name ON sys.schedule_requests (job_name, request_no) WHERE applied_at IS NULL;

-- Counts the times that Horae itself wrote a job's state and cursors together: what the guard below goes by.
ALTER TABLE sys.jobs ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;

CREATE OR REPLACE VIEW sys.cb_schedules AS
WITH pending AS (
    SELECT
        r.job_name,
        max(r.request_no) FILTER (WHERE r.field = 'drop') AS dropped,
        max(r.request_no) FILTER (WHERE r.field = 'create') AS created
    FROM sys.schedule_requests r
    WHERE r.applied_at IS NULL AND r.job_name IS NOT NULL
    GROUP BY r.job_name
), asked AS (
    SELECT
        p.job_name, p.dropped, p.created, enabled.value AS enabled, cron.request_no AS cron_no, cron.value AS cron_spec,
        moved.request_no AS moved_no, moved.value AS next_run_at
    FROM pending p
    LEFT JOIN LATERAL (
        SELECT r.value FROM sys.schedule_requests r
        WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'enabled'
            AND r.request_no > coalesce(greatest(p.dropped, p.created), 0)
        ORDER BY r.request_no DESC LIMIT 1
    ) enabled ON true
    LEFT JOIN LATERAL (
        SELECT r.request_no, r.value FROM sys.schedule_requests r
        WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'cron_spec'
            AND r.request_no > coalesce(greatest(p.dropped, p.created), 0)
        ORDER BY r.request_no DESC LIMIT 1
    ) cron ON true
    LEFT JOIN LATERAL (
        SELECT r.request_no, r.value FROM sys.schedule_requests r
        WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'next_run_at'
            AND r.request_no > coalesce(greatest(p.dropped, p.created, cron.request_no), 0)
        ORDER BY r.request_no DESC LIMIT 1
    ) moved ON true
)
SELECT
    j.job_no AS id,
    j.job_name::text AS name,
    CASE WHEN j.job_type = 'TASKS' THEN 'flow' ELSE 'task' END AS kind,
    coalesce(a.cron_spec, j.schedule_text) AS cron_spec,
    CASE
        WHEN a.moved_no IS NOT NULL THEN a.next_run_at::timestamptz
        WHEN a.cron_no IS NULL THEN to_timestamp(j.next_run_time / 1000.0)
    END AS next_run_at,
    to_timestamp(greatest(
        (
            SELECT r.started_at FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.started_at IS NOT NULL
            ORDER BY r.idempotency_key DESC LIMIT 1
        ),
        (SELECT max(r.started_at) FROM sys.job_runs r WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE')
    ) / 1000.0) AS last_run_at,
    to_timestamp(j.last_enqueued_at / 1000.0) AS last_enqueued_at,
    coalesce(a.enabled = '1', j.state = 'ENABLED') AS enabled,
    to_timestamp(j.created_at / 1000.0) AS created_at,
    to_timestamp(j.updated_at / 1000.0) AS updated_at
FROM sys.jobs j
LEFT JOIN asked a ON a.job_name = j.job_name
WHERE a.dropped IS NULL
UNION ALL
SELECT
    NULL::bigint,
    a.job_name::text,
    'task',
    coalesce(a.cron_spec, c.value::jsonb ->> 'cron_spec'),
    CASE
        WHEN a.moved_no IS NOT NULL THEN a.next_run_at::timestamptz
        WHEN a.cron_no IS NULL THEN (c.value::jsonb ->> 'next_run_at')::timestamptz
    END,
    NULL::timestamptz,
    NULL::timestamptz,
    coalesce(a.enabled = '1', (c.value::jsonb ->> 'enabled')::boolean),
    to_timestamp(c.requested_at / 1000.0),
    to_timestamp(c.requested_at / 1000.0)
FROM asked a
JOIN sys.schedule_requests c ON c.request_no = a.created
WHERE a.created > coalesce(a.dropped, 0)
    AND (a.dropped IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sys.jobs j WHERE j.job_name = a.job_name));

CREATE OR REPLACE FUNCTION sys.cb_schedules_update() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    job uuid;
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    -- A time that no calendar of ours has is kept as it was written, to be refused: to_char would drop its BC.
    following text := CASE
        WHEN new.next_run_at >= '0001-01-01T00:00:00Z' AND new.next_run_at < '10000-01-01T00:00:00Z'
            THEN to_char(new.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        ELSE (new.next_run_at AT TIME ZONE 'UTC')::text
    END;
BEGIN
    IF (new.id, new.name, new.kind, new.last_run_at, new.last_enqueued_at, new.created_at, new.updated_at)
        IS DISTINCT FROM (old.id, old.name, old.kind, old.last_run_at, old.last_enqueued_at, old.created_at, old.updated_at)
    THEN
        RAISE EXCEPTION 'cb_schedules takes UPDATE of enabled, next_run_at and cron_spec only';
    END IF;
    SELECT job_uuid INTO job FROM sys.jobs WHERE job_name = old.name;
    IF new.enabled IS DISTINCT FROM old.enabled THEN
        INSERT INTO sys.schedule_requests (job_uuid, job_name, field, value, requested_at, requested_by)
        VALUES (job, old.name, 'enabled', CASE WHEN new.enabled THEN '1' ELSE '0' END, at, session_user);
    END IF;
    IF new.cron_spec IS DISTINCT FROM old.cron_spec THEN
        INSERT INTO sys.schedule_requests (job_uuid, job_name, field, value, requested_at, requested_by)
        VALUES (job, old.name, 'cron_spec', new.cron_spec, at, session_user);
    END IF;
    IF new.next_run_at IS DISTINCT FROM old.next_run_at THEN
        INSERT INTO sys.schedule_requests (job_uuid, job_name, field, value, requested_at, requested_by)
        VALUES (job, old.name, 'next_run_at', following, at, session_user);
    END IF;
    IF (new.enabled, new.cron_spec, new.next_run_at) IS DISTINCT FROM (old.enabled, old.cron_spec, old.next_run_at) THEN
        INSERT INTO sys.audit (at, event, job_uuid, actor, outcome, details)
        VALUES (at, 'SCHEDULE_REQUESTED', job, session_user, 'REQUESTED', json_build_object(
            'name', old.name, 'enabled', new.enabled, 'next_run_at', new.next_run_at, 'cron_spec', new.cron_spec)::text);
        PERFORM pg_notify('horae', '');
    END IF;
    RETURN new;
END
$function$;

CREATE FUNCTION sys.cb_schedules_insert() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    job text;
    -- A time that no calendar of ours has is kept as it was written, to be refused: to_char would drop its BC.
    following text := CASE
        WHEN new.next_run_at >= '0001-01-01T00:00:00Z' AND new.next_run_at < '10000-01-01T00:00:00Z'
            THEN to_char(new.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        ELSE (new.next_run_at AT TIME ZONE 'UTC')::text
    END;
BEGIN
    IF (new.id, new.last_run_at, new.last_enqueued_at, new.created_at, new.updated_at) IS DISTINCT FROM
        (NULL::bigint, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz)
    THEN
        RAISE EXCEPTION 'cb_schedules takes INSERT of name, kind, cron_spec, next_run_at and enabled only';
    END IF;
    IF coalesce(new.name, '') = '' OR coalesce(new.cron_spec, '') = '' THEN
        RAISE EXCEPTION 'cb_schedules: a schedule needs a name and a cron_spec';
    END IF;
    IF coalesce(new.kind, 'task') <> 'task' THEN
        RAISE EXCEPTION 'cb_schedules takes INSERT of kind ''task'' only: define a job of several tasks in Python, TOML or SQL';
    END IF;
    -- Two sessions with one new name: the second sees what the first has written.
    PERFORM pg_advisory_xact_lock(hashtext('horae.cb_schedules'), hashtext(new.name));
    IF EXISTS (SELECT 1 FROM sys.cb_schedules WHERE name = new.name) THEN
        RETURN NULL;
    END IF;
    new.kind := 'task';
    new.enabled := coalesce(new.enabled, true);
    job := json_build_object('cron_spec', new.cron_spec, 'enabled', new.enabled, 'next_run_at', following)::text;
    INSERT INTO sys.schedule_requests (job_name, field, value, requested_at, requested_by)
    VALUES (new.name, 'create', job, at, session_user);
    INSERT INTO sys.audit (at, event, actor, outcome, details)
    VALUES (at, 'SCHEDULE_REQUESTED', session_user, 'REQUESTED', json_build_object('name', new.name, 'create', job::json)::text);
    PERFORM pg_notify('horae', '');
    RETURN new;
END
$function$;

CREATE TRIGGER cb_schedules_insert INSTEAD OF INSERT ON sys.cb_schedules
FOR EACH ROW EXECUTE FUNCTION sys.cb_schedules_insert();

CREATE FUNCTION sys.cb_schedules_delete() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    job uuid;
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    SELECT job_uuid INTO job FROM sys.jobs WHERE job_name = old.name;
    INSERT INTO sys.schedule_requests (job_uuid, job_name, field, requested_at, requested_by)
    VALUES (job, old.name, 'drop', at, session_user);
    INSERT INTO sys.audit (at, event, job_uuid, actor, outcome, details)
    VALUES (at, 'SCHEDULE_REQUESTED', job, session_user, 'REQUESTED', json_build_object('name', old.name, 'drop', true)::text);
    PERFORM pg_notify('horae', '');
    RETURN old;
END
$function$;

CREATE TRIGGER cb_schedules_delete INSTEAD OF DELETE ON sys.cb_schedules
FOR EACH ROW EXECUTE FUNCTION sys.cb_schedules_delete();

-- The guards of sys.jobs: plain rules on the row's old and new values. Creating runs moves the cursor, which the first
-- comparison of jobs_cursor sees, so nothing is called then.
CREATE FUNCTION sys.jobs_guard() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    IF tg_op = 'TRUNCATE' THEN
        RAISE EXCEPTION 'sys.jobs cannot be truncated, the cursors of its jobs would be lost'
            USING ERRCODE = 'check_violation', HINT = 'Use DROP JOB through horae sql, or DELETE FROM sys.cb_schedules.';
    ELSIF tg_op = 'DELETE' THEN
        IF NOT EXISTS (SELECT 1 FROM sys.job_tombstones WHERE job_uuid = old.job_uuid) THEN
            RAISE EXCEPTION 'sys.jobs: job "%" cannot be deleted here, its cursor would be lost', old.job_name
                USING ERRCODE = 'check_violation', HINT = 'Use DROP JOB through horae sql, or DELETE FROM sys.cb_schedules.';
        END IF;
    ELSIF tg_argv[0] = 'cursor' THEN
        IF new.state = old.state AND new.updated_at <> old.updated_at AND EXISTS (
            SELECT 1 FROM sys.job_versions
            WHERE job_uuid = new.job_uuid AND version = new.version AND created_at = new.updated_at)
        THEN
            RETURN NULL;
        END IF;
        RAISE EXCEPTION 'sys.jobs: state and next_run_time of job "%" cannot be set here, its cursor would not follow', old.job_name
            USING ERRCODE = 'check_violation', HINT = 'Use UPDATE sys.cb_schedules SET enabled or next_run_at, or ALTER JOB through horae sql.';
    ELSIF new.version = old.version OR NOT EXISTS (
        SELECT 1 FROM sys.job_versions WHERE job_uuid = new.job_uuid AND version = new.version)
    THEN
        RAISE EXCEPTION 'sys.jobs: the definition of job "%" cannot be changed here, it needs a version of its own', old.job_name
            USING ERRCODE = 'check_violation', HINT = 'Use ALTER JOB through horae sql, or UPDATE sys.cb_schedules SET cron_spec.';
    END IF;
    RETURN NULL;
END
$function$;

CREATE TRIGGER jobs_removal AFTER DELETE ON sys.jobs
FOR EACH ROW EXECUTE FUNCTION sys.jobs_guard();

CREATE TRIGGER jobs_definition AFTER UPDATE OF
    description, job_class, job_type, job_sql, procedure_uuid, external_command, schedule_kind, cron_expression,
    interval_seconds, starts_at, ends_at, schedule_tz, on_completion, partition_strategy, partition_shard_uuid,
    partition_expression, max_retries, retry_backoff_seconds, timeout_seconds, run_as_role_uuid, namespace, tags,
    schedule_text, job_name, job_uuid, version
ON sys.jobs
FOR EACH ROW WHEN (
    old.version <> new.version OR (
        old.description, old.job_class, old.job_type, old.job_sql, old.procedure_uuid, old.external_command,
        old.schedule_kind, old.cron_expression, old.interval_seconds, old.starts_at, old.ends_at, old.schedule_tz,
        old.on_completion, old.partition_strategy, old.partition_shard_uuid, old.partition_expression,
        old.max_retries, old.retry_backoff_seconds, old.timeout_seconds, old.run_as_role_uuid, old.namespace,
        old.tags, old.schedule_text, old.job_name, old.job_uuid
    ) IS DISTINCT FROM (
        new.description, new.job_class, new.job_type, new.job_sql, new.procedure_uuid, new.external_command,
        new.schedule_kind, new.cron_expression, new.interval_seconds, new.starts_at, new.ends_at, new.schedule_tz,
        new.on_completion, new.partition_strategy, new.partition_shard_uuid, new.partition_expression,
        new.max_retries, new.retry_backoff_seconds, new.timeout_seconds, new.run_as_role_uuid, new.namespace,
        new.tags, new.schedule_text, new.job_name, new.job_uuid
    )
) EXECUTE FUNCTION sys.jobs_guard('definition');

-- A release before this one has no revision. What it may write all the same: a pause or a resumption, which leave the alarm
-- as it is; the state of a job without a time to come; a next run that was moved, that waits for the end of a pause, or
-- that a version made in the same moment brings (jobs_guard looks for that).
CREATE TRIGGER jobs_cursor AFTER UPDATE OF state, next_run_time ON sys.jobs
FOR EACH ROW WHEN (
    old.planned_until = new.planned_until AND old.revision = new.revision
    AND old.wake_at IS NOT DISTINCT FROM new.wake_at AND (
        (
            old.state <> new.state AND old.next_run_time IS NOT DISTINCT FROM new.next_run_time
            AND new.schedule_kind <> 'NONE' AND (
                new.next_run_time IS NOT NULL OR new.wake_at IS NOT NULL
                OR (old.updated_at = new.updated_at AND (new.schedule_kind <> 'AT' OR new.state <> 'DISABLED'))
                OR (old.state = 'DISABLED' AND new.schedule_kind IN ('CRON', 'EVERY') AND new.ends_at IS NULL)
                OR (old.state = 'DISABLED' AND new.schedule_kind = 'AT' AND new.starts_at > new.updated_at)
            )
        ) OR (
            old.state <> new.state AND old.next_run_time IS DISTINCT FROM new.next_run_time AND NOT (
                old.updated_at <> new.updated_at AND new.wake_at IS NOT NULL AND (
                    (
                        old.state = 'ENABLED' AND new.state = 'PAUSED'
                        AND (new.next_run_time IS NULL OR new.paused_until IS NOT NULL)
                    )
                    OR (
                        old.state = 'PAUSED' AND new.state = 'ENABLED'
                        AND coalesce(new.next_run_time >= new.wake_at, false)
                    )
                )
            )
        ) OR (
            old.state = new.state AND old.next_run_time IS DISTINCT FROM new.next_run_time
            AND (
                old.moved_to IS NOT DISTINCT FROM new.moved_to OR (new.moved_to IS NULL) <> (new.moved_slot IS NULL)
            )
            AND (old.paused_until IS NOT DISTINCT FROM new.paused_until OR new.state <> 'PAUSED')
        )
    )
) EXECUTE FUNCTION sys.jobs_guard('cursor');

CREATE TRIGGER jobs_emptying BEFORE TRUNCATE ON sys.jobs
FOR EACH STATEMENT EXECUTE FUNCTION sys.jobs_guard();

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
    job_uuid UUID PRIMARY KEY,
    run_no   BIGINT NOT NULL
);

-- What attacks and fault injection found missing. Earlier releases go on reading and writing: they neither read nor write
-- what is new here, but for what triggers write.
-- min_reader: 1

-- Rights: the key that seals of the audit trail are keyed with, wrapped by the master key, and their codes under it.
CREATE TABLE sys.audit_keys (
    key_no     BIGINT PRIMARY KEY CHECK (key_no = 1),
    wrapped    BYTEA NOT NULL,
    key_id     TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
ALTER TABLE sys.audit_seals ADD COLUMN mac TEXT;

-- Shares: what of the catalog each owner of jobs may take, and whose turn it is.
-- The row of the uuid 0 has what nodes are configured with. A limit is NULL where the system's counts, -1 where none does.
CREATE TABLE sys.shares (
    user_uuid     UUID PRIMARY KEY,
    max_jobs      BIGINT,
    max_running   BIGINT,
    max_starts    BIGINT,
    max_storage   BIGINT,
    is_shared     BOOLEAN NOT NULL DEFAULT false, -- runs of this owner are claimed by turns
    is_limited    BOOLEAN NOT NULL DEFAULT false, -- and counted when they start
    served_at     BIGINT NOT NULL DEFAULT 0,      -- when a run of this owner was claimed last
    window_at     BIGINT NOT NULL DEFAULT 0,      -- when the minute began in which starts are counted
    window_starts BIGINT NOT NULL DEFAULT 0,
    stored_bytes  BIGINT,
    measured_at   BIGINT
);
CREATE INDEX shares_shared ON sys.shares (user_uuid) WHERE is_shared;

-- The owner whose share a run that waits is claimed from; NULL where runs are claimed by their age alone.
ALTER TABLE sys.job_runs ADD COLUMN share UUID;
CREATE INDEX job_runs_share ON sys.job_runs (share, not_before, run_no) WHERE share IS NOT NULL AND not_before IS NOT NULL;
-- Jobs of `local` are not in it: a catalog that has no others pays nothing for it.
CREATE INDEX jobs_owner ON sys.jobs (created_by_user_uuid)
    WHERE created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6';

-- Answers that are kept for those who ask again: whose they are, so that one user's take only so much room.
ALTER TABLE sys.kept_answers ADD COLUMN user_uuid UUID;
CREATE INDEX kept_answers_user ON sys.kept_answers (user_uuid, begun_at) WHERE user_uuid IS NOT NULL;

-- A row for each change of rights that the audit trail has no digest of yet, whoever made it. No row of it is changed, so
-- that nobody waits for anybody.
CREATE TABLE sys.rights_marks (
    mark_no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY
);
INSERT INTO sys.rights_marks DEFAULT VALUES;
CREATE FUNCTION sys.mark_rights() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    INSERT INTO sys.rights_marks DEFAULT VALUES;
    RETURN NULL;
END;
$function$;
CREATE TRIGGER users_mark AFTER INSERT OR UPDATE OR DELETE ON sys.users
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();
CREATE TRIGGER roles_mark AFTER INSERT OR UPDATE OR DELETE ON sys.roles
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();
CREATE TRIGGER role_members_mark AFTER INSERT OR UPDATE OR DELETE ON sys.role_members
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();
CREATE TRIGGER grants_mark AFTER INSERT OR UPDATE OR DELETE ON sys.grants
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();

-- Old passwords that users may still try, for those who tried some.
CREATE TABLE sys.password_tries (
    user_uuid UUID PRIMARY KEY REFERENCES sys.users (user_uuid) ON DELETE CASCADE,
    tries     DOUBLE PRECISION NOT NULL,
    tried_at  BIGINT NOT NULL
);

-- Doors: a catalog that ever had a password or a token stays closed to those who show none, also when the last of them is
-- gone: the row is there. Triggers write it, so that earlier releases close the catalog too.
CREATE TABLE sys.closed (
    is_closed BOOLEAN PRIMARY KEY CHECK (is_closed)
);
INSERT INTO sys.closed (is_closed)
SELECT true WHERE EXISTS (SELECT 1 FROM sys.tokens) OR EXISTS (SELECT 1 FROM sys.users WHERE password_hash IS NOT NULL)
    OR EXISTS (SELECT 1 FROM sys.audit WHERE event IN ('TOKEN_CREATED', 'LOGIN'));
-- Whoever opens the store is `local`: a password of that name would be an administrator's without a person behind it.
UPDATE sys.users SET password_hash = NULL WHERE user_name = 'local';
-- A row that is there is updated, not left alone, so that it is locked: whoever opens the catalog at that moment waits for
-- the credential, and then sees it.
CREATE FUNCTION sys.close_catalog() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    INSERT INTO sys.closed (is_closed) VALUES (true) ON CONFLICT (is_closed) DO UPDATE SET is_closed = true;
    RETURN NULL;
END;
$function$;
CREATE TRIGGER tokens_close AFTER INSERT ON sys.tokens
FOR EACH STATEMENT EXECUTE FUNCTION sys.close_catalog();
CREATE TRIGGER passwords_close AFTER INSERT OR UPDATE OF password_hash ON sys.users
FOR EACH ROW WHEN (NEW.password_hash IS NOT NULL) EXECUTE FUNCTION sys.close_catalog();

-- Locks: who writes a row here goes first, until its transaction ends. Anybody may take an advisory lock and keep it; a
-- row is out of reach for job text, which may at most read it.
CREATE TABLE sys.locks (
    lock_name TEXT PRIMARY KEY
);
-- For those who write through cb_schedules with rights on that alone. The row is gone at once, and nobody else comes past
-- before that is committed.
CREATE FUNCTION sys.lock_schedule(name text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO sys.locks AS l (lock_name) VALUES ('schedule ' || name)
    ON CONFLICT (lock_name) DO UPDATE SET lock_name = excluded.lock_name;
    DELETE FROM sys.locks WHERE lock_name = 'schedule ' || name;
$function$;
CREATE OR REPLACE FUNCTION sys.cb_schedules_insert() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    job text;
    -- A time that no calendar of ours has is kept as it was written, to be refused: to_char would drop its BC.
    following text := CASE
        WHEN new.next_run_at >= '0001-01-01T00:00:00Z' AND new.next_run_at < '10000-01-01T00:00:00Z'
            THEN to_char(new.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        ELSE (new.next_run_at AT TIME ZONE 'UTC')::text
    END;
BEGIN
    IF (new.id, new.last_run_at, new.last_enqueued_at, new.created_at, new.updated_at) IS DISTINCT FROM
        (NULL::bigint, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz)
    THEN
        RAISE EXCEPTION 'cb_schedules takes INSERT of name, kind, cron_spec, next_run_at and enabled only';
    END IF;
    IF coalesce(new.name, '') = '' OR coalesce(new.cron_spec, '') = '' THEN
        RAISE EXCEPTION 'cb_schedules: a schedule needs a name and a cron_spec';
    END IF;
    IF coalesce(new.kind, 'task') <> 'task' THEN
        RAISE EXCEPTION 'cb_schedules takes INSERT of kind ''task'' only: define a job of several tasks in Python, TOML or SQL';
    END IF;
    -- Two sessions with one new name: the second sees what the first has written.
    PERFORM sys.lock_schedule(new.name);
    IF EXISTS (SELECT 1 FROM sys.cb_schedules WHERE name = new.name) THEN
        RETURN NULL;
    END IF;
    new.kind := 'task';
    new.enabled := coalesce(new.enabled, true);
    job := json_build_object('cron_spec', new.cron_spec, 'enabled', new.enabled, 'next_run_at', following)::text;
    INSERT INTO sys.schedule_requests (job_name, field, value, requested_at, requested_by)
    VALUES (new.name, 'create', job, at, session_user);
    INSERT INTO sys.audit (at, event, actor, outcome, details)
    VALUES (at, 'SCHEDULE_REQUESTED', session_user, 'REQUESTED', json_build_object('name', new.name, 'create', job::json)::text);
    PERFORM pg_notify('horae', '');
    RETURN new;
END
$function$;

-- How far the audit trail was sealed: its newest seal, which whoever makes it writes here too, with a code under the audit
-- key. Earlier releases seal without it.
-- min_reader: 1
CREATE TABLE sys.audit_heads (
    head_no       BIGINT PRIMARY KEY CHECK (head_no = 1),
    seal_no       BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    digest        TEXT NOT NULL,
    mac           TEXT
);
