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
