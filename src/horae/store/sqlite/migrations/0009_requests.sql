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
